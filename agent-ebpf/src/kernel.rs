//! Guarded reads of kernel memory, at offsets that the loader resolved from BTF.

use aya_ebpf::{
    Global,
    helpers::{bpf_get_current_task, generated::bpf_probe_read_kernel},
};
use rollrace_ebpf::{
    abi::{Address, Socket, Stat, Tuple},
    layout::{CT_WINDOW, SKB_WINDOW},
    packet::{self, Glance, GlanceV4, GlanceV6, HEADERS, HEADERS_V4, place},
};

use crate::{
    cast::{IPHDR_ID, IPV6HDR_ID, SK_BUFF_ID, TCPHDR_ID, WORDS_ID, cast},
    maps::count,
};

macro_rules! globals {
    ($($global:ident: $container:literal $member:literal $size:literal $conntrack:literal),+ $(,)?) => {
        $(
            #[doc = concat!("Offset of `", $container, ".", $member, "`.")]
            #[unsafe(no_mangle)]
            pub static $global: Global<u32> = Global::new(0);
        )+
    };
}

rollrace_ebpf::kernel_fields!(globals);

/// Where the first read of an skb begins.
#[unsafe(no_mangle)]
static SKB_BASE: Global<u32> = Global::new(0);
/// Where the read of a conntrack entry begins.
#[unsafe(no_mangle)]
static CT_BASE: Global<u32> = Global::new(0);
/// Distance of the two directions in `nf_conn.tuplehash`.
#[unsafe(no_mangle)]
static CT_STRIDE: Global<u32> = Global::new(0);
/// 0 while conntrack is not there.
#[unsafe(no_mangle)]
static HAS_CONNTRACK: Global<u32> = Global::new(0);
/// `struct net *` of the agent's own namespace.
#[unsafe(no_mangle)]
static OWN_NET: Global<u64> = Global::new(0);

/// Whether a `struct net *` is the agent's own.
#[inline(always)]
pub fn is_own(net: u64) -> bool {
    net == OWN_NET.load()
}

/// Reads `size_of::<T>()` bytes; a failure is counted.
#[inline(always)]
pub fn read<T: Copy>(base: u64, offset: u32) -> Option<T> {
    let mut value = core::mem::MaybeUninit::<T>::uninit();
    let from = base.wrapping_add(u64::from(offset));
    // SAFETY: the helper checks the source address itself, and fills the destination or fails.
    let result = unsafe {
        bpf_probe_read_kernel(value.as_mut_ptr().cast(), size_of::<T>() as u32, from as *const _)
    };
    if result == 0 {
        // SAFETY: filled by the helper; T is plain integers.
        Some(unsafe { value.assume_init() })
    } else {
        count(Stat::ReadFailed);
        None
    }
}

/// A scalar of up to 8 bytes, by a plain load where that can be done.
#[inline(always)]
pub fn word<T: Copy>(address: u64) -> Option<T> {
    match cast(address, &WORDS_ID) {
        Some(word) => Some(word.load(0)),
        None => read(address, 0),
    }
}

/// Reads into a place that is there already.
#[inline(always)]
pub fn read_into<T: Copy>(base: u64, into: &mut T) -> Option<()> {
    // SAFETY: as in `read`.
    let result = unsafe {
        bpf_probe_read_kernel(
            core::ptr::from_mut(into).cast(),
            size_of::<T>() as u32,
            base as *const _,
        )
    };
    if result == 0 {
        Some(())
    } else {
        count(Stat::ReadFailed);
        None
    }
}

/// A value at a constant, naturally aligned place of a window.
#[inline(always)]
fn at<T: Copy>(window: *const u64, offset: u32) -> T {
    // SAFETY: the loader refuses offsets outside the window, and the verifier checks them again:
    // they are constants to it.
    unsafe { window.cast::<u8>().add(offset as usize).cast::<T>().read() }
}

/// A packet waits for its neighbour for seconds (`mcast_solicit` × `retrans_time`, 3 s by default);
/// a departure time longer ago than this is none.
const LONGEST_WAIT_NS: u64 = 60_000_000_000;

/// What the first read of an skb yields.
pub struct Skb {
    address: u64,
    head: u64,
    network: u16,
    /// `skb->protocol`, network byte order.
    pub protocol: u16,
}

impl Skb {
    /// Where a byte of the packet's head is, this far from the network header.
    #[inline(always)]
    pub fn place(&self, offset: u32) -> u64 {
        self.head + u64::from(self.network) + u64::from(offset)
    }

    /// Where the head ends: what stands there tells of the rest (`skb_shinfo`).
    #[inline(always)]
    pub fn shared(&self) -> Option<u64> {
        Some(self.head + u64::from(self.member::<u32>(&SKB_END)?))
    }

    /// The first read.
    #[inline(always)]
    pub fn read(address: u64) -> Option<Self> {
        if let Some(skb) = cast(address, &SK_BUFF_ID) {
            let base = SKB_BASE.load();
            return Some(Self {
                address,
                head: skb.load(base + SKB_HEAD.load()),
                network: skb.load(base + SKB_NETWORK.load()),
                protocol: skb.load(base + SKB_PROTOCOL.load()),
            });
        }
        // Not through `read`, which would copy it once more.
        let mut window = core::mem::MaybeUninit::<[u64; SKB_WINDOW / 8]>::uninit();
        read_into(address + u64::from(SKB_BASE.load()), &mut window)?;
        let window = window.as_ptr().cast();
        Some(Self {
            address,
            head: at(window, SKB_HEAD.load()),
            network: at(window, SKB_NETWORK.load()),
            protocol: at(window, SKB_PROTOCOL.load()),
        })
    }

    /// Whether the packet may be of interest, see [`packet::glance`].
    #[inline(always)]
    pub fn glance(&self, v6: bool) -> Option<Glance> {
        if v6 { self.glance_v6() } else { self.glance_v4() }
    }

    #[inline(always)]
    fn glance_v4(&self) -> Option<Glance> {
        let at = self.head + u64::from(self.network);
        if let Some(ip) = cast(at, &IPHDR_ID) {
            let (protocol, length) = (ip.load(place::PROTOCOL), ip.load(place::LENGTH));
            return Some(packet::glance(protocol, length, || {
                let tcp = cast(at + u64::from(place::TCP_V4), &TCPHDR_ID);
                tcp.map_or(0xff, |tcp| tcp.load(place::FLAGS))
            }));
        }
        let mut words = core::mem::MaybeUninit::<GlanceV4>::uninit();
        self.bytes(0, &mut words)?;
        // SAFETY: filled by the helper.
        let words = unsafe { words.assume_init_ref() };
        let (protocol, length) =
            (packet::byte(words, place::PROTOCOL), packet::byte(words, place::LENGTH));
        Some(packet::glance(protocol, length, || packet::byte(words, place::TCP_V4 + place::FLAGS)))
    }

    #[inline(always)]
    fn glance_v6(&self) -> Option<Glance> {
        // An IPv6 header has one length.
        const LENGTH: u8 = 5;
        let at = self.head + u64::from(self.network);
        if let Some(ip) = cast(at, &IPV6HDR_ID) {
            return Some(packet::glance(ip.load(place::NEXT_HEADER), LENGTH, || {
                let tcp = cast(at + u64::from(place::TCP_V6), &TCPHDR_ID);
                tcp.map_or(0xff, |tcp| tcp.load(place::FLAGS))
            }));
        }
        let mut words = core::mem::MaybeUninit::<GlanceV6>::uninit();
        self.bytes(0, &mut words)?;
        // SAFETY: filled by the helper.
        let words = unsafe { words.assume_init_ref() };
        Some(packet::glance(packet::byte(words, place::NEXT_HEADER), LENGTH, || {
            packet::byte(words, place::TCP_V6 + place::FLAGS)
        }))
    }

    /// Reads the IP header and the header behind it: without options, 40 bytes of IPv4 and 60 of
    /// IPv6. What is behind them in `into` is left as it is.
    #[inline(always)]
    pub fn headers(&self, v6: bool, into: &mut [u8; HEADERS]) -> Option<()> {
        if v6 {
            return self.bytes(0, into);
        }
        self.bytes(0, into.first_chunk_mut::<HEADERS_V4>()?)
    }

    /// Reads bytes this far from the network header.
    #[inline(always)]
    pub fn bytes<T: Copy>(&self, offset: u32, into: &mut T) -> Option<()> {
        read_into(self.head + u64::from(self.network) + u64::from(offset), into)
    }

    /// A member.
    #[inline(always)]
    pub fn member<T: Copy>(&self, offset: &Global<u32>) -> Option<T> {
        match cast(self.address, &SK_BUFF_ID) {
            Some(skb) => Some(skb.load(offset.load())),
            None => read(self.address, offset.load()),
        }
    }

    /// Its conntrack entry, read apart: it lies far from the rest, and few packets get this far.
    #[inline(always)]
    pub fn nfct(&self) -> Nfct {
        if HAS_CONNTRACK.load() == 0 {
            return Nfct(0);
        }
        Nfct(self.member(&SKB_NFCT).unwrap_or(0))
    }

    /// Whether it was made in this namespace: what is forwarded has come through a device.
    #[inline(always)]
    pub fn is_local(&self) -> bool {
        self.member::<u32>(&SKB_IIF) == Some(0)
    }

    /// When its socket sent it, `bpf_ktime_get_ns`, or 0. TCP writes its departure time (`tcp_clock`,
    /// monotonic) into every segment, and since 5.18 forwarding keeps it, through veth pairs too. A
    /// time of receipt stands in the same place, on the civil clock, which is far in the future.
    #[inline(always)]
    pub fn sent_ns(&self, now: u64) -> u64 {
        let sent: u64 = self.member(&SKB_TSTAMP).unwrap_or(0);
        if sent <= now && now - sent < LONGEST_WAIT_NS { sent } else { 0 }
    }

    /// `struct net *` of its device; else of its socket; else of its route. 0 if none is there.
    #[inline(always)]
    pub fn net(&self) -> u64 {
        let device: u64 = self.member(&SKB_DEV).unwrap_or(0);
        if device != 0 {
            return read(device, DEV_NET.load()).unwrap_or(0);
        }
        let socket: u64 = self.member(&SKB_SK).unwrap_or(0);
        if socket != 0 {
            return read(socket, SKC_NET.load()).unwrap_or(0);
        }
        // The lowest bit is SKB_DST_NOREF.
        let route = self.member::<u64>(&SKB_DST).unwrap_or(0) & !1;
        if route == 0 {
            return 0;
        }
        let device: u64 = read(route, DST_DEV.load()).unwrap_or(0);
        if device == 0 { 0 } else { read(device, DEV_NET.load()).unwrap_or(0) }
    }
}

/// `skb->_nfct`: a conntrack entry's address, and in the low three bits what the packet is to it.
#[derive(Clone, Copy)]
pub struct Nfct(u64);

impl Nfct {
    /// The entry's address; 0 if there is none.
    #[inline(always)]
    pub fn entry(self) -> u64 {
        self.0 & !7
    }

    /// Tells a connection from an earlier one whose entry was at the same address: its original
    /// tuple's client and ports.
    #[inline(always)]
    pub fn check(self) -> Option<u32> {
        let tuple = self.entry() + u64::from(CT_BASE.load() + CT_TUPLES.load() + CT_TUPLE.load());
        let client = tuple + u64::from(TUPLE_SRC.load());
        let first: u32 = word(client)?;
        let last: u32 = word(client + 12)?;
        let from: u16 = word(tuple + u64::from(TUPLE_SPORT.load()))?;
        let to: u16 = word(tuple + u64::from(TUPLE_DPORT.load()))?;
        Some(first ^ last.rotate_left(13) ^ (u32::from(from) | u32::from(to) << 16))
    }

    /// Whether both ends of the connection are open (`TCP_CONNTRACK_ESTABLISHED`).
    #[inline(always)]
    pub fn is_established(self) -> bool {
        const ESTABLISHED: u8 = 3;
        word::<u8>(self.entry() + u64::from(CT_STATE.load())) == Some(ESTABLISHED)
    }

    /// `enum ip_conntrack_info`: 3 and above are replies, 2 is NEW.
    #[inline(always)]
    pub fn ctinfo(self) -> u64 {
        self.0 & 7
    }
}

/// A conntrack entry, read into the scratch.
pub struct Entry<'a> {
    window: &'a [u64; CT_WINDOW / 8],
}

/// `IPS_CONFIRMED` of `enum ip_conntrack_status`.
const IPS_CONFIRMED: u64 = 1 << 3;
/// `AF_INET`.
const AF_INET: u16 = 2;

impl<'a> Entry<'a> {
    /// Reads the entry at `address`.
    #[inline(always)]
    pub fn read(address: u64, window: &'a mut [u64; CT_WINDOW / 8]) -> Option<Self> {
        read_into(address + u64::from(CT_BASE.load()), window)?;
        Some(Self { window })
    }

    /// `struct net *` it belongs to.
    #[inline(always)]
    pub fn net(&self) -> u64 {
        at(self.window.as_ptr(), CT_NET.load())
    }

    /// `IPS_CONFIRMED`: it is in the table.
    #[inline(always)]
    pub fn confirmed(&self) -> bool {
        at::<u64>(self.window.as_ptr(), CT_STATUS.load()) & IPS_CONFIRMED != 0
    }

    /// Original tuple: client → what it dialled.
    #[inline(always)]
    pub fn original(&self, into: &mut Tuple) {
        tuple(self.window.as_ptr(), CT_TUPLES.load() + CT_TUPLE.load(), into);
    }

    /// The reply tuple's source: the backend.
    #[inline(always)]
    pub fn backend(&self, into: &mut Socket) {
        let window = self.window.as_ptr();
        let offset = CT_TUPLES.load() + CT_TUPLE.load() + CT_STRIDE.load();
        let v4 = at::<u16>(window, offset + TUPLE_L3NUM.load()) == AF_INET;
        address(window, offset + TUPLE_SRC.load(), v4, &mut into.address);
        into.port = u16::from_be(at(window, offset + TUPLE_SPORT.load()));
        into.pad = 0;
    }
}

/// A `struct nf_conntrack_tuple` within a window.
#[inline(always)]
fn tuple(window: *const u64, offset: u32, into: &mut Tuple) {
    let v4 = at::<u16>(window, offset + TUPLE_L3NUM.load()) == AF_INET;
    address(window, offset + TUPLE_SRC.load(), v4, &mut into.src);
    address(window, offset + TUPLE_DST.load(), v4, &mut into.dst);
    into.sport = u16::from_be(at(window, offset + TUPLE_SPORT.load()));
    into.dport = u16::from_be(at(window, offset + TUPLE_DPORT.load()));
}

#[inline(always)]
fn address(window: *const u64, offset: u32, v4: bool, into: &mut Address) {
    *into = if v4 {
        Address::v4(at(window, offset))
    } else {
        Address([
            at(window, offset),
            at(window, offset + 4),
            at(window, offset + 8),
            at(window, offset + 12),
        ])
    };
}

/// A client's TCP socket; its tuple goes to the scratch.
pub struct Sock {
    /// `struct net *`.
    pub net: u64,
    /// `snd_una`.
    pub snd_una: u32,
    /// `rcv_nxt`.
    pub rcv_nxt: u32,
    /// `sk_err`.
    pub error: u32,
    /// 4 or 6.
    pub family: u32,
}

/// `IPPROTO_TCP`; MPTCP (262) fires the same tracepoint.
const IPPROTO_TCP: u16 = 6;

/// Whether a socket is TCP.
#[inline(always)]
pub fn is_tcp(sk: u64) -> bool {
    read::<u16>(sk, SK_PROTOCOL.load()) == Some(IPPROTO_TCP)
}

/// `struct net *` of a socket.
#[inline(always)]
pub fn net_of(sk: u64) -> u64 {
    read(sk, SKC_NET.load()).unwrap_or(0)
}

impl Sock {
    /// Reads a TCP socket. The port is `inet_sport`: `skc_num` is 0 by the time of CLOSE.
    #[inline(always)]
    pub fn read(sk: u64, tuple: &mut Tuple) -> Option<Self> {
        let family: u16 = read(sk, SKC_FAMILY.load())?;
        if family == AF_INET {
            tuple.src = Address::v4(read(sk, SKC_RCV_SADDR.load())?);
            tuple.dst = Address::v4(read(sk, SKC_DADDR.load())?);
        } else {
            tuple.src = Address(read(sk, SKC_V6_RCV_SADDR.load())?);
            tuple.dst = Address(read(sk, SKC_V6_DADDR.load())?);
        }
        tuple.sport = u16::from_be(read(sk, INET_SPORT.load())?);
        tuple.dport = u16::from_be(read(sk, SKC_DPORT.load())?);
        Some(Self {
            net: read(sk, SKC_NET.load())?,
            snd_una: read(sk, TCP_SND_UNA.load())?,
            rcv_nxt: read(sk, TCP_RCV_NXT.load())?,
            error: read(sk, SK_ERR.load())?,
            family: if family == AF_INET { 4 } else { 6 },
        })
    }
}

/// `struct net *` of the task that runs this program.
#[inline(always)]
pub fn current_net() -> u64 {
    // SAFETY: a helper without arguments.
    let task = unsafe { bpf_get_current_task() };
    let proxy: u64 = read(task, TASK_NSPROXY.load()).unwrap_or(0);
    if proxy == 0 { 0 } else { read(proxy, NSPROXY_NET.load()).unwrap_or(0) }
}

const _: () = assert!(SKB_WINDOW % 8 == 0 && CT_WINDOW % 8 == 0);
