//! What one scan of a large conntrack table costs: made by hand in a namespace of its own, since the
//! table is one for the whole machine, and only the walk through it grows with what others hold.

use std::{
    net::{IpAddr, Ipv4Addr},
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use netlink_packet_core::{NLM_F_CREATE, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage};
use netlink_packet_netfilter::{
    NetfilterHeader, NetfilterMessage, NetfilterProtoFamily,
    conntrack::{
        ConntrackAttribute, ConntrackMessage, IPTuple, ProtoInfo, ProtoInfoTCP, ProtoTuple,
        Protocol, Status, Tuple,
    },
};
use netlink_sys::{Socket, SocketAddr as NetlinkAddress, protocols::NETLINK_NETFILTER};
use nix::time::{ClockId, clock_gettime};
use rollrace::{
    agent,
    conntrack::{Conntrack, TableCounts},
};

use crate::namespace::Namespace;

/// A scan may take so long, in milliseconds of one core.
const BAR_MILLIS: f64 = 150.0;
/// The table's limit while it is filled: with room for what others need.
const ROOM: u32 = 20_000;
/// `TCP_CONNTRACK_SYN_SENT` and `TCP_CONNTRACK_ESTABLISHED`.
const SYN_SENT: u8 = 1;
const ESTABLISHED: u8 = 3;

/// Arguments of `conntrack`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit code: 0 if the bar is met, 1 if not, 70 if it could not be measured. Needs root."
)]
pub struct Args {
    /// Entries in the table
    #[arg(long, value_name = "N", default_value_t = 250_000)]
    entries: u32,
    /// Of these, unanswered and sent elsewhere than they were dialled
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    unanswered: u32,
    /// Scans
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
}

/// Fills a table, scans it, says what that took.
pub fn run(args: &Args) -> Result<ExitCode> {
    ensure!(args.unanswered <= args.entries, "--unanswered is more than --entries");
    let namespace = Namespace::new()?;
    namespace.run(|| {
        // Its hooks, and with them the table, come with the first rule that needs it.
        let limit = args.entries + ROOM;
        let path = "/proc/sys/net/netfilter/nf_conntrack_max";
        // A namespace but the first may not raise it: then the limit there is must do.
        let raised = std::fs::write(path, limit.to_string());
        fill(args)?;
        let counts = TableCounts::read();
        let entries = counts.entries.context("read net.netfilter.nf_conntrack_count")?;
        ensure!(
            entries >= u64::from(args.entries),
            "the table took {entries} of {} entries (limit {:?}; {path}: {raised:?}): raise net.netfilter.nf_conntrack_max",
            args.entries,
            counts.limit
        );
        let mut costs = Vec::new();
        let mut table = Conntrack::open().context("open netlink")?;
        for _ in 0..args.rounds {
            let before = processor_time()?;
            let mut found = 0_u32;
            table.unanswered(agent::now(), |_| found += 1).context("scan the table")?;
            costs.push(processor_time()?.saturating_sub(before).as_secs_f64() * 1e3);
            ensure!(found == args.unanswered, "{found} entries found of {}", args.unanswered);
        }
        costs.sort_by(f64::total_cmp);
        let median = costs[costs.len() / 2];
        let most = costs.last().copied().unwrap_or_default();
        let met = median <= BAR_MILLIS;
        println!(
            "{entries} entries, {} of them unanswered: one scan takes {median:.0} ms of one core (at most {most:.0}, {} scans); bar {BAR_MILLIS:.0} ms: {}",
            args.unanswered,
            args.rounds,
            if met { "met" } else { "MISSED" }
        );
        Ok(if met { ExitCode::SUCCESS } else { ExitCode::from(1) })
    })
}

fn fill(args: &Args) -> Result<()> {
    let mut socket = Socket::new(NETLINK_NETFILTER).context("open netlink")?;
    socket.bind_auto().context("bind netlink")?;
    socket.connect(&NetlinkAddress::new(0, 0)).context("connect netlink")?;
    for number in 0..args.entries {
        let bytes = entry(number, number < args.unanswered);
        socket.send(&bytes, 0).with_context(|| format!("make entry {number} (as root)"))?;
    }
    Ok(())
}

/// A request that makes one entry: a client of its own number, a Service, a pod.
fn entry(number: u32, unanswered: bool) -> Vec<u8> {
    let client = (IpAddr::from(Ipv4Addr::from(0x0A80_0000 + number / 50_000)), port(number));
    let service = (IpAddr::from(Ipv4Addr::new(10, 96, 0, 80)), 80);
    let pod = (IpAddr::from(Ipv4Addr::new(10, 244, 2, 7)), 8080);
    let (status, state) = if unanswered {
        (Status::Confirmed, SYN_SENT)
    } else {
        (Status::Confirmed | Status::SeenReply | Status::Assured, ESTABLISHED)
    };
    let attributes = vec![
        ConntrackAttribute::CtaTupleOrig(tuple(client, service)),
        ConntrackAttribute::CtaTupleReply(tuple(pod, client)),
        ConntrackAttribute::CtaStatus(status),
        ConntrackAttribute::CtaTimeout(600),
        ConntrackAttribute::CtaProtoInfo(vec![ProtoInfo::TCP(vec![ProtoInfoTCP::State(state)])]),
    ];
    let header = NetfilterHeader::new(NetfilterProtoFamily::IPv4, 0, 0);
    let message = NetfilterMessage::new(header, ConntrackMessage::New(attributes));
    let mut netlink = NetlinkHeader::default();
    netlink.flags = NLM_F_REQUEST | NLM_F_CREATE;
    let mut packet = NetlinkMessage::new(netlink, message.into());
    packet.finalize();
    let mut bytes = vec![0; packet.buffer_len()];
    packet.serialize(&mut bytes);
    bytes
}

fn port(number: u32) -> u16 {
    10_000 + u16::try_from(number % 50_000).unwrap_or_default()
}

fn tuple(from: (IpAddr, u16), to: (IpAddr, u16)) -> Vec<Tuple> {
    vec![
        Tuple::Ip(vec![IPTuple::SourceAddress(from.0), IPTuple::DestinationAddress(to.0)]),
        Tuple::Proto(vec![
            ProtoTuple::Protocol(Protocol::Tcp),
            ProtoTuple::SourcePort(from.1),
            ProtoTuple::DestinationPort(to.1),
        ]),
    ]
}

fn processor_time() -> Result<Duration> {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).context("read the thread's time")?;
    Ok(Duration::from(time))
}
