//! What crosses the kernel boundary. Integers only, explicit padding, sizes checked here.

/// Changes whenever a struct of this module changes; the loader compares it with the object's.
pub const VERSION: u32 = 2;

/// An IPv6 address, or an IPv4 one as `::ffff:a.b.c.d`: four words as they stand in memory, that is
/// in network byte order.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Address(pub [u32; 4]);

impl Address {
    /// The v4-mapped form of an IPv4 address in network byte order.
    #[inline(always)]
    pub const fn v4(word: u32) -> Self {
        Self([0, 0, 0xffff_u32.to_be(), word])
    }

    /// From the 16 bytes of an IPv6 address.
    pub fn from_octets(octets: [u8; 16]) -> Self {
        let (words, _) = octets.as_chunks::<4>();
        Self(core::array::from_fn(|word| u32::from_ne_bytes(words[word])))
    }

    /// The 16 bytes of the IPv6 address.
    pub fn octets(self) -> [u8; 16] {
        let words = self.0.map(u32::to_ne_bytes);
        core::array::from_fn(|byte| words[byte / 4][byte % 4])
    }
}

/// The original tuple of a TCP connection: client → what it dialled. Ports in host byte order.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Tuple {
    /// Client address.
    pub src: Address,
    /// Address dialled.
    pub dst: Address,
    /// Client port.
    pub sport: u16,
    /// Port dialled.
    pub dport: u16,
}

impl Tuple {
    /// The same connection seen from the other end.
    #[inline(always)]
    #[must_use]
    pub const fn reversed(self) -> Self {
        Self { src: self.dst, dst: self.src, sport: self.dport, dport: self.sport }
    }

    /// Its destination.
    #[inline(always)]
    pub const fn destination(self) -> Socket {
        Socket { address: self.dst, port: self.dport, pad: 0 }
    }

    /// Its source.
    #[inline(always)]
    pub const fn source(self) -> Socket {
        Socket { address: self.src, port: self.sport, pad: 0 }
    }
}

/// An address and port.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Socket {
    /// Address.
    pub address: Address,
    /// Port, host byte order.
    pub port: u16,
    /// Zero.
    pub pad: u16,
}

/// Flags of [`Attempt::flags`].
pub mod flag {
    /// Conntrack shows a DNAT.
    pub const DNAT: u16 = 1;
    /// The conntrack entry is confirmed: it pins later SYNs of the tuple.
    pub const CONFIRMED: u16 = 1 << 1;
    /// The SYN used an entry that was not new, or one left by an unanswered SYN.
    pub const STALE: u16 = 1 << 2;
    /// Something about this attempt went up, so its answer must too.
    pub const REPORTED: u16 = 1 << 3;
    /// Its outcome is known to user space; kept because its entry pins.
    pub const DECIDED: u16 = 1 << 4;
    /// A SYN of it passed a device of this node.
    pub const SENT: u16 = 1 << 5;
}

/// Value of `ATTEMPTS`: the unanswered attempt of a tuple.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attempt {
    /// First SYN, `bpf_ktime_get_ns`.
    pub first_ns: u64,
    /// Last SYN.
    pub last_ns: u64,
    /// Where the last SYN went.
    pub backend: Socket,
    /// Initial sequence number.
    pub isn: u32,
    /// SYNs seen.
    pub syns: u32,
    /// See [`flag`].
    pub flags: u16,
    /// Payload of the SYN (TCP Fast Open): a RST acknowledges up to this much more.
    pub payload: u16,
}

/// Value of `ANSWERED`: the last answered attempt of a tuple.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answered {
    /// When.
    pub ns: u64,
    /// Its initial sequence number.
    pub isn: u32,
    /// See [`answered`].
    pub flags: u32,
}

/// Flags of [`Answered::flags`].
pub mod answered {
    /// The client has sent a message: the connection is in `FLOWS`, or was.
    pub const SPOKE: u32 = 1;
    /// The client has closed it without having said anything.
    pub const CLIENT_DONE: u32 = 1 << 1;
    /// The backend has closed it before the client had said anything.
    pub const BACKEND_FIN: u32 = 1 << 2;
}

/// Value of `FLOWS`: an answered connection whose client has said something. Who it is about is read
/// from the conntrack entry when it ends.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flow {
    /// When it was answered; where that was not seen, its first message that was.
    pub opened_ns: u64,
    /// The client's initial sequence number; where that was not seen, the last one before its first
    /// message that was.
    pub isn: u32,
    /// What tells it from an earlier owner of the same key.
    pub check: u32,
    /// Acknowledgement number of the client's last message.
    pub ack: u32,
    /// Sequence number behind the client's last message.
    pub next: u32,
    /// Messages with that acknowledgement number.
    pub unanswered: u16,
    /// See [`crate::flow::state`].
    pub flags: u16,
    /// Zero.
    pub pad: u32,
}

/// Value of `OWN_FLOWS`: a connection of the node's own namespace.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnFlow {
    /// Its key in `FLOWS`.
    pub key: u64,
    /// Its backend.
    pub backend: Socket,
    /// What tells it from another owner of that key.
    pub check: u32,
}

/// Value of `STRANGERS`: a connection that is none of the agent's business.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stranger {
    /// Address of its conntrack entry.
    pub key: u64,
    /// What tells it from an earlier owner of that address.
    pub check: u32,
    /// Value of `GENERATION` when this was found out: what is watched may have grown since.
    pub generation: u32,
}

/// Slots of `STRANGERS`, a power of two.
pub const STRANGER_SLOTS: u32 = 1 << STRANGER_BITS;
/// Their number's logarithm.
pub const STRANGER_BITS: u32 = 12;

/// Entries of `FLOWS` unless the loader says otherwise.
pub const FLOW_ENTRIES: u32 = 65_536;

/// How many seconds [`Fresh`] tells apart.
pub const FRESH_SLOTS: usize = 16;

/// Value of `FRESH`: fresh SYNs NATed to one backend.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fresh {
    /// The last one.
    pub last_ns: u64,
    /// When it first answered with SYN+ACK; 0 if it never did. Before [`Watched::since_ns`] it was
    /// an earlier pod's.
    pub first_answer_ns: u64,
    /// Second of the monotonic clock that the count at the same index belongs to.
    pub second: [u32; FRESH_SLOTS],
    /// Fresh SYNs in that second.
    pub count: [u32; FRESH_SLOTS],
}

/// Value of `COUNTERS` on one CPU: attempts to one original destination.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// SYNs of a new ISN.
    pub attempts: u64,
    /// Answered by SYN+ACK, or the client's socket became established.
    pub answered: u64,
    /// Answered by RST.
    pub refused: u64,
}

/// What an [`Event`] says. Values are part of the ABI.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// RST answered the SYN.
    Refused = 1,
    /// SYN+ACK answered an attempt about which something had gone up, or one on an old entry, a
    /// retransmit's included.
    Answered = 2,
    /// A SYN was dropped; `code` is the reason's number.
    Dropped = 3,
    /// ICMP unreachable about the SYN; `code` is its code, `family` its version.
    Icmp = 4,
    /// The client's socket left `SYN_SENT` for CLOSE; `code` is `sk_err`.
    Abandoned = 5,
    /// Another ISN took over the tuple.
    Superseded = 6,
    /// The backend ended an answered connection; `code` is a [`crate::flow::End`]. The attempt's times
    /// are those of the begin of the connection.
    Ended = 7,
}

impl Kind {
    /// All kinds, in the order of their numbers.
    pub const ALL: [Self; 7] = [
        Self::Refused,
        Self::Answered,
        Self::Dropped,
        Self::Icmp,
        Self::Abandoned,
        Self::Superseded,
        Self::Ended,
    ];

    /// The kind of that number, if there is one.
    pub fn from_number(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u32 == number)
    }
}

/// A record of the ring buffer.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// When, `bpf_ktime_get_ns`.
    pub ns: u64,
    /// `Abandoned`: when the socket entered `SYN_SENT`; 0 if not seen.
    pub started_ns: u64,
    /// The attempt as it stood; `syns` is 0 if none was known.
    pub attempt: Attempt,
    /// Original tuple.
    pub tuple: Tuple,
    /// A [`Kind`].
    pub kind: u32,
    /// See [`Kind`].
    pub code: u32,
    /// 4 or 6.
    pub family: u32,
}

impl Event {
    /// As it lies in memory, for whoever plays the kernel's part.
    pub fn to_bytes(&self) -> [u8; size_of::<Self>()] {
        let Attempt { first_ns, last_ns, backend, isn, syns, flags, payload } = self.attempt;
        let mut bytes = [0; size_of::<Self>()];
        let mut rest = &mut bytes[..];
        let mut put = |field: &[u8]| {
            let (head, tail) = core::mem::take(&mut rest).split_at_mut(field.len());
            head.copy_from_slice(field);
            rest = tail;
        };
        for long in [self.ns, self.started_ns, first_ns, last_ns] {
            put(&long.to_ne_bytes());
        }
        put(&backend.address.octets());
        put(&backend.port.to_ne_bytes());
        put(&backend.pad.to_ne_bytes());
        put(&isn.to_ne_bytes());
        put(&syns.to_ne_bytes());
        put(&flags.to_ne_bytes());
        put(&payload.to_ne_bytes());
        put(&self.tuple.src.octets());
        put(&self.tuple.dst.octets());
        put(&self.tuple.sport.to_ne_bytes());
        put(&self.tuple.dport.to_ne_bytes());
        for word in [self.kind, self.code, self.family] {
            put(&word.to_ne_bytes());
        }
        bytes
    }
}

/// Entries of `FRESH` unless the loader says otherwise.
pub const FRESH_ENTRIES: u32 = 8_192;

/// Value of `ENDPOINTS`. That there is one makes a SYN to it tracked.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Watched {
    /// What was answered before this was an earlier pod's.
    pub since_ns: u64,
    /// See [`watched`].
    pub what: u32,
    /// Zero.
    pub pad: u32,
}

/// What an `ENDPOINTS` entry is.
pub mod watched {
    /// A backend: serving, leaving, or gone and not yet forgotten.
    pub const ENDPOINT: u32 = 1;
    /// A Service's own address and port.
    pub const SERVICE: u32 = 2;
}

/// Indices of `STATS`.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stat {
    /// Packets whose headers were read.
    Read = 0,
    /// Packets and sockets that concerned a tracked attempt.
    Matched = 1,
    /// Events submitted.
    Submitted = 2,
    /// Events lost: the ring buffer was full.
    RingFull = 3,
    /// Attempts not tracked: `ATTEMPTS` was full.
    AttemptsFull = 4,
    /// Attempts not counted: `COUNTERS` was full.
    CountersFull = 5,
    /// A guarded kernel read failed.
    ReadFailed = 6,
    /// Runs of `inet_sock_set_state` that the kernel skipped and `inet_sock_set_state_skipped` made
    /// up for.
    MadeUp = 7,
    /// Backends entered into `FRESH`: with its occupancy it tells how many were evicted.
    FreshInserted = 8,
    /// Connections entered into `FLOWS`.
    FlowsInserted = 9,
    /// Connections taken from `FLOWS` at their end.
    FlowsRemoved = 10,
}

impl Stat {
    /// Their number.
    pub const COUNT: u32 = 11;
}

const _: () = {
    assert!(size_of::<Tuple>() == 36 && align_of::<Tuple>() == 4);
    assert!(size_of::<Socket>() == 20 && align_of::<Socket>() == 4);
    assert!(size_of::<Attempt>() == 48 && align_of::<Attempt>() == 8);
    assert!(size_of::<Answered>() == 16);
    assert!(size_of::<Flow>() == 32 && align_of::<Flow>() == 8);
    assert!(size_of::<Stranger>() == 16);
    assert!(size_of::<OwnFlow>() == 32 && align_of::<OwnFlow>() == 8);
    assert!(size_of::<Fresh>() == 144);
    assert!(size_of::<Counters>() == 24);
    assert!(size_of::<Watched>() == 16);
    assert!(size_of::<Event>() == 112 && align_of::<Event>() == 8);
};
