//! Rounds of batches, each of one class of packets, each timed.

use std::{
    collections::BTreeMap,
    fs,
    io::{ErrorKind, Write as _},
    net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream},
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use rollrace::{
    engine::Watch,
    probe::{Options, Probe, Run, Runs, layout, time_runs},
};
use tokio::runtime::Builder;

use super::{
    frames::{self, Segment, flag},
    world::{self, BACKEND, BACKEND6, CLIENT6, SERVICE, UNWATCHED, World},
};

/// A batch counts only if foreign packets are at most this share of it.
const FOREIGN: f64 = 0.05;
/// Rounds at most, in multiples of those wanted.
const PATIENCE: u32 = 3;
/// A batch has passed within this time, or frames were lost.
const PASSES_WITHIN: Duration = Duration::from_secs(2);
/// Unanswered attempts and events of a whole run fit: nobody reads meanwhile.
const SIZES: Options = Options {
    attempts: 65_536,
    flows: 65_536,
    ring_bytes: 1 << 25,
    tells_outside: false,
    other_entries: None,
};

/// Nanoseconds of a run above the empty program's, by (class, hook), one value a batch.
#[derive(Debug, Default)]
pub struct Samples {
    /// Above the empty program.
    pub above: BTreeMap<(Class, &'static str), Vec<f64>>,
    /// The empty program's own.
    pub empty: BTreeMap<(Class, &'static str), Vec<f64>>,
    /// One and two bare kernel reads above the empty program, at `net_dev_queue`: what the machine
    /// takes for any look at a packet.
    pub reads: BTreeMap<Class, Vec<[f64; 2]>>,
    /// Batches thrown away for foreign packets among them.
    pub thrown_away: u32,
    /// Whether packets were read by plain loads; else by the helper.
    pub plain_loads: bool,
}

/// A class of packets, in the order in which a round sends them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// ARP.
    NotIp,
    /// UDP over IPv4.
    Udp,
    /// UDP over IPv6.
    Udp6,
    /// An acknowledgement without data.
    Ack,
    /// The same over IPv6.
    Ack6,
    /// An acknowledgement on its way back.
    AckReply,
    /// Full segments with PSH.
    Bulk,
    /// The same of a connection that is followed: the client's messages.
    Message,
    /// What the backend answers.
    Reply,
    /// FIN.
    Fin,
    /// SYN to a destination that nobody watches.
    SynUnwatched,
    /// SYN to the Service, DNATed to its backend.
    SynWatched,
    /// SYN+ACK of the backend.
    SynAck,
    /// RST of the backend inside a connection.
    Reset,
    /// As [`Class::SynWatched`], from other clients, for [`Class::Refused`] to answer.
    SynMore,
    /// RST that answers a SYN; its event goes up.
    Refused,
    /// Changes of state of sockets, over loopback.
    Sockets,
}

impl Class {
    /// All of them.
    pub const ALL: [Self; 17] = [
        Self::NotIp,
        Self::Udp,
        Self::Udp6,
        Self::Ack,
        Self::Ack6,
        Self::AckReply,
        Self::Bulk,
        Self::Message,
        Self::Reply,
        Self::Fin,
        Self::SynUnwatched,
        Self::SynWatched,
        Self::SynAck,
        Self::Reset,
        Self::SynMore,
        Self::Refused,
        Self::Sockets,
    ];

    /// Its name in tables and files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NotIp => "not IP (ARP)",
            Self::Udp => "UDP",
            Self::Udp6 => "UDP over IPv6",
            Self::Ack => "TCP ACK",
            Self::Ack6 => "TCP ACK over IPv6",
            Self::AckReply => "TCP ACK of the backend",
            Self::Bulk => "TCP bulk, PSH",
            Self::Message => "client's message",
            Self::Reply => "backend's reply",
            Self::Fin => "TCP FIN",
            Self::SynUnwatched => "SYN, unwatched",
            Self::SynWatched => "SYN through DNAT",
            Self::SynAck => "SYN+ACK",
            Self::Reset => "RST in a connection",
            Self::SynMore => "SYN through DNAT, again",
            Self::Refused => "RST that refuses",
            Self::Sockets => "socket changes state",
        }
    }

    /// The most nanoseconds above the empty program at `net_dev_queue`: 40 for what the first read
    /// decides, 65 for anything else of no interest; and what a followed connection says may cost.
    pub const fn bar(self) -> Option<f64> {
        match self {
            Self::NotIp => Some(40.0),
            Self::Udp | Self::Udp6 | Self::Ack | Self::Ack6 | Self::AckReply | Self::Bulk => {
                Some(65.0)
            }
            Self::Message => Some(200.0),
            Self::Reply => Some(80.0),
            _ => None,
        }
    }

    /// The hook that the class is about.
    const fn hook(self) -> &'static str {
        if matches!(self, Self::Sockets) { "inet_sock_set_state" } else { "net_dev_queue" }
    }
}

/// Measures.
///
/// # Errors
/// If the world cannot be built, the probes not loaded, or packets do not pass.
pub fn rounds(rounds: u8, packets: u16, object: Option<&Path>, helper: bool) -> Result<Samples> {
    let object = object
        .map(|path| fs::read(path).with_context(|| format!("read {}", path.display())))
        .transpose()?;
    let world = World::build()?;
    let _timing = time_runs()?;
    let runtime = Builder::new_current_thread().enable_all().build().context("start a runtime")?;
    let mut layout = layout::Layout::read(&layout::folder())?;
    if helper {
        layout.casts = None;
    }
    let mut probe = world.node.run(|| {
        let _guard = runtime.enter();
        Ok(match &object {
            Some(object) => Probe::with_object(layout, SIZES, object)?,
            None => Probe::with_layout(layout, SIZES)?,
        })
    })?;
    probe.attach_empty()?;
    let [service, backend] = World::watched();
    probe.maps.watch(&[Watch::Service(service), Watch::Endpoint(backend)]);
    let mut samples = Samples { plain_loads: probe.plain_loads, ..Samples::default() };
    let wanted = usize::from(rounds);
    for round in 0..u32::from(rounds) * PATIENCE {
        let lacking =
            |class: &Class| samples.above.get(&(*class, class.hook())).map_or(0, Vec::len) < wanted;
        if !Class::ALL.iter().any(lacking) {
            break;
        }
        let round = u16::try_from(round).context("a round's number")?;
        // Nothing of it is needed any more, and the table has a limit.
        world.node.tool("conntrack", &["-F"], "")?;
        for class in Class::ALL {
            let before = probe.runs()?;
            let sent = send(&world, class, round, packets)?;
            let after = await_passed(&probe, class, &before, sent)?;
            samples.take(class, sent, &before, &after);
        }
    }
    let losses = probe.maps.losses();
    if losses.ring_full + losses.attempts_full + losses.counters_full + losses.read_failed > 0 {
        bail!("the probes lost events while they were measured: {losses:?}");
    }
    // Before the runtime that its descriptor is registered with.
    drop(probe);
    Ok(samples)
}

/// Sends a batch; how many runs of the hook it makes.
fn send(world: &World, class: Class, round: u16, packets: u16) -> Result<u64> {
    let number = u64::from(packets);
    let batch = 2 * round + u16::from(matches!(class, Class::SynMore | Class::Refused));
    let each = |make: &dyn Fn(u16) -> Vec<u8>| (0..packets).map(make).collect::<Vec<_>>();
    let client = |n: u16| SocketAddrV4::new(world::client(batch), 10_000 + n);
    let isn = |n: u16| u32::from(n) << 12 | u32::from(batch);
    let established = Segment {
        from: SocketAddrV4::new(world::client(batch), 9_000),
        to: UNWATCHED,
        seq: 1_000,
        ack: 2_000,
        flags: flag::ACK,
        payload: 0,
    };
    let back = Segment { from: established.to, to: established.from, ..established };
    let syn = |n| Segment {
        from: client(n),
        to: SERVICE,
        seq: isn(n),
        ack: 0,
        flags: flag::SYN,
        payload: 0,
    };
    let answer = |n: u16, seq, flags| Segment {
        from: BACKEND,
        to: client(n),
        seq,
        ack: isn(n).wrapping_add(1),
        flags,
        payload: 0,
    };
    // One connection, found in its middle; each message is answered.
    let message = |n: u16| Segment {
        to: SERVICE,
        seq: 1_000 + u32::from(n) * 200,
        ack: 2_000 + u32::from(n) * 200,
        flags: flag::ACK | flag::PSH,
        payload: 200,
        ..established
    };
    let frames = match class {
        Class::NotIp => each(&|_| frames::arp()),
        Class::Udp => each(&|_| frames::udp(established.from, UNWATCHED)),
        Class::Udp6 => each(&|_| frames::udp6(CLIENT6, BACKEND6)),
        Class::Ack => each(&|_| frames::tcp(&established)),
        Class::Ack6 => each(&|_| frames::tcp6(CLIENT6, BACKEND6, &established)),
        Class::AckReply => each(&|_| frames::tcp(&back)),
        Class::Bulk => {
            let full = Segment { flags: flag::ACK | flag::PSH, payload: 1_400, ..established };
            each(&|_| frames::tcp(&full))
        }
        Class::Message => each(&|n| frames::tcp(&message(n))),
        Class::Reply => each(&|n| {
            let Segment { from, seq, ack, payload, .. } = message(n);
            frames::tcp(&Segment {
                from: BACKEND,
                to: from,
                seq: ack,
                ack: seq.wrapping_add(u32::from(payload)),
                ..message(n)
            })
        }),
        Class::Fin => {
            each(&|_| frames::tcp(&Segment { flags: flag::ACK | flag::FIN, ..established }))
        }
        Class::SynUnwatched => each(&|n| frames::tcp(&Segment { to: UNWATCHED, ..syn(n) })),
        Class::SynWatched | Class::SynMore => each(&|n| frames::tcp(&syn(n))),
        Class::SynAck => each(&|n| frames::tcp(&answer(n, 5_000, flag::SYN | flag::ACK))),
        Class::Reset => each(&|n| frames::tcp(&answer(n, 5_001, flag::RST | flag::ACK))),
        Class::Refused => each(&|n| frames::tcp(&answer(n, 0, flag::RST | flag::ACK))),
        Class::Sockets => return connections(packets / 10),
    };
    match class {
        Class::NotIp => world.node_out.send(&frames)?,
        Class::AckReply | Class::Reply | Class::SynAck | Class::Reset | Class::Refused => {
            world.backend.send(&frames)?;
        }
        _ => world.client.send(&frames)?,
    }
    Ok(number)
}

/// Opens and closes connections over loopback; at least so many changes of state.
fn connections(number: u16) -> Result<u64> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("listen on loopback")?;
    let address: SocketAddr = listener.local_addr().context("ask for the listener's address")?;
    for _ in 0..number {
        let client = TcpStream::connect(address).context("connect over loopback")?;
        let (mut server, _) = listener.accept().context("accept over loopback")?;
        drop(client);
        match server.write_all(b".") {
            Err(error)
                if !matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) =>
            {
                return Err(error).context("write over loopback");
            }
            _ => {}
        }
    }
    // The client's: SYN_SENT, ESTABLISHED, and its end.
    Ok(u64::from(number) * 3)
}

/// Waits until the batch has passed the hook.
fn await_passed(probe: &Probe, class: Class, before: &[Runs], sent: u64) -> Result<[Runs; 3]> {
    let deadline = Instant::now() + PASSES_WITHIN;
    loop {
        let now = probe.runs()?;
        let passed = |runs: &[Runs]| {
            runs.iter().find(|runs| runs.hook == class.hook()).map_or(0, |runs| runs.empty.count)
        };
        if passed(&now) - passed(before) >= sent {
            return Ok(now);
        }
        if Instant::now() > deadline {
            bail!(
                "{} of {sent} packets of the class \"{}\" passed: repeat it on a machine with less load",
                passed(&now) - passed(before),
                class.name()
            );
        }
        std::thread::yield_now();
    }
}

impl Samples {
    fn take(&mut self, class: Class, sent: u64, before: &[Runs], after: &[Runs]) {
        for (before, after) in before.iter().zip(after) {
            let hook = after.hook;
            let (own, own_count) = mean(before.own, after.own);
            let (empty, count) = mean(before.empty, after.empty);
            let foreign = as_f64(count) / as_f64(sent) - 1.0;
            if class == Class::Sockets {
                if hook != class.hook() {
                    continue;
                }
            } else if hook == "inet_sock_set_state" || count < sent / 2 {
                continue;
            } else if foreign > FOREIGN {
                self.thrown_away += u32::from(hook == class.hook());
                continue;
            }
            if own_count > 0 && count > 0 {
                if let (Some(before), Some(after)) = (before.reads, after.reads) {
                    let reads = [0, 1].map(|n| mean(before[n], after[n]).0 - empty);
                    self.reads.entry(class).or_default().push(reads);
                }
                self.above.entry((class, hook)).or_default().push(own - empty);
                self.empty.entry((class, hook)).or_default().push(empty);
            }
        }
    }
}

/// Nanoseconds a run between two readings, and the number of runs.
fn mean(before: Run, after: Run) -> (f64, u64) {
    let count = after.count - before.count;
    (after.time.saturating_sub(before.time).as_secs_f64() * 1e9 / as_f64(count.max(1)), count)
}

fn as_f64(count: u64) -> f64 {
    // A batch's count: far below 2^32.
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}
