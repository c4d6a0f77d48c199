//! `bench bulk`: what large transfers through a Service lose by the probes. Sockets of the kernel send them, in
//! segments as large as its offloads make them, through links that take them so.

use std::{
    io::{ErrorKind, Read as _, Write as _},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    process::ExitCode,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use comfy_table::{Table, presets::UTF8_HORIZONTAL_ONLY};
use rollrace::{
    engine::Watch,
    probe::{Options, Probe, layout::Layout, time_runs},
};
use tokio::runtime::Builder;

use crate::{
    loss::world::{SERVICE, backend, client, pod, program},
    namespace::Namespace,
};

/// A client's or server's single write.
const CHUNK: usize = 256 << 10;
/// The hook that sees every packet.
const HOOK: &str = "net_dev_queue";

/// Options of `bulk`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  cargo xtask bench bulk --rounds 3

Exit code: 0 if it was measured, 70 if it could not be. Needs root.")]
pub struct Args {
    /// Rounds; each has both directions without the probes and with them
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u8).range(1..=50))]
    rounds: u8,
    /// How long each transfer takes, in seconds
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=60))]
    seconds: u64,
}

/// Which way the bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Up,
    Down,
}

/// What one direction reached.
#[derive(Debug, Default)]
struct Measured {
    /// Bytes a second without the probes, a value a round.
    without: Vec<f64>,
    /// The same with them.
    with: Vec<f64>,
    /// Bytes of a packet, and nanoseconds of the program above an empty one.
    packet: (f64, f64),
}

/// Measures.
///
/// # Errors
/// If the world cannot be built, the probes not loaded, or nothing passes.
pub fn run(args: &Args) -> Result<ExitCode> {
    let node = Namespace::new()?;
    node.sysctl("net/ipv4/ip_forward", "1")?;
    let from = pod(&node, "c0", client(0))?;
    let to = pod(&node, "b0", *backend(0).ip())?;
    program(&node, 0..1)?;
    let listener = to.run(|| TcpListener::bind((Ipv4Addr::UNSPECIFIED, 8080)).context("listen"))?;
    thread::spawn(move || {
        // Ends with the process.
        for connection in listener.incoming().flatten() {
            thread::spawn(move || serve(connection));
        }
    });
    let runtime = Builder::new_current_thread().enable_all().build().context("start a runtime")?;
    let probe = || {
        node.run(|| {
            let _guard = runtime.enter();
            let layout = Layout::read(&rollrace::probe::layout::folder())?;
            let mut probe = Probe::with_layout(layout, Options::default())?;
            let watched = [Watch::Service(SERVICE.into()), Watch::Endpoint(backend(0).into())];
            probe.maps.watch(&watched);
            Ok(probe)
        })
    };
    let lasts = Duration::from_secs(args.seconds);
    let mut measured = [Measured::default(), Measured::default()];
    for round in 0..args.rounds {
        for (direction, measured) in [Direction::Up, Direction::Down].into_iter().zip(&mut measured)
        {
            // Each comes first as often as the other: a busy machine gets busier and calmer.
            for attached in [round % 2 == 0, round % 2 != 0] {
                let attached = if attached { Some(probe()?) } else { None };
                let (_, reached) = transfer(&from, direction, lasts)?;
                let all =
                    if attached.is_some() { &mut measured.with } else { &mut measured.without };
                all.push(reached);
            }
        }
    }
    // Timing each run slows all of them: apart from the throughput.
    let _timing = time_runs()?;
    for (direction, measured) in [Direction::Up, Direction::Down].into_iter().zip(&mut measured) {
        let mut attached = probe()?;
        attached.attach_empty()?;
        let before = attached.runs()?;
        let (bytes, _) = transfer(&from, direction, lasts)?;
        let after = attached.runs()?;
        let hook = before.iter().zip(&after).find(|(runs, _)| runs.hook == HOOK);
        let (before, after) = hook.context("the hook that sees every packet")?;
        let mean = |before: rollrace::probe::Run, after: rollrace::probe::Run| {
            let time = after.time.saturating_sub(before.time).as_secs_f64() * 1e9;
            time / as_f64(after.count - before.count)
        };
        let above = mean(before.own, after.own) - mean(before.empty, after.empty);
        measured.packet = (as_f64(bytes) / as_f64(after.own.count - before.own.count), above);
    }
    println!("{}", table(&measured));
    Ok(ExitCode::SUCCESS)
}

/// Transfers for so long: bytes that arrived, and how many a second.
fn transfer(from: &Namespace, direction: Direction, lasts: Duration) -> Result<(u64, f64)> {
    from.run(|| {
        let mut connection =
            TcpStream::connect(SocketAddr::from(SERVICE)).context("connect to the Service")?;
        let began = Instant::now();
        let mut chunk = vec![0; CHUNK];
        let mut bytes = 0;
        match direction {
            Direction::Up => {
                connection.write_all(b"u").context("begin to send")?;
                while began.elapsed() < lasts {
                    connection.write_all(&chunk).context("send")?;
                }
                connection.shutdown(std::net::Shutdown::Write).context("end sending")?;
                let mut arrived = [0; 8];
                connection.read_exact(&mut arrived).context("ask how much arrived")?;
                bytes = u64::from_le_bytes(arrived);
            }
            Direction::Down => {
                connection.write_all(b"d").context("begin to receive")?;
                while began.elapsed() < lasts {
                    bytes += u64::try_from(connection.read(&mut chunk).context("receive")?)?;
                }
            }
        }
        Ok((bytes, as_f64(bytes) / began.elapsed().as_secs_f64()))
    })
}

/// Takes everything in and says how much it was, or sends until the client goes.
fn serve(mut connection: TcpStream) {
    let mut chunk = vec![0; CHUNK];
    let mut which = [0];
    let end = connection.read_exact(&mut which).and_then(|()| {
        if which == *b"d" {
            loop {
                connection.write_all(&chunk)?;
            }
        }
        let mut bytes = 0_u64;
        loop {
            match connection.read(&mut chunk)? {
                0 => return connection.write_all(&bytes.to_le_bytes()),
                length => bytes += u64::try_from(length).unwrap_or_default(),
            }
        }
    });
    match end {
        Err(error)
            if !matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) =>
        {
            eprintln!("rollrace-bench: the server: {error}");
        }
        _ => {}
    }
}

fn table(measured: &[Measured; 2]) -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_HORIZONTAL_ONLY);
    table.set_header([
        "direction",
        "Gbit/s without",
        "with the probes",
        "change",
        "bytes a packet",
        "ns a packet above empty",
    ]);
    for (direction, measured) in ["up", "down"].into_iter().zip(measured) {
        let (without, with) = (median(&measured.without), median(&measured.with));
        let gigabits = |bytes: f64| format!("{:.2}", bytes * 8.0 / 1e9);
        let (bytes, above) = measured.packet;
        table.add_row([
            direction.to_owned(),
            gigabits(without),
            gigabits(with),
            format!("{:+.1} %", (with / without - 1.0) * 100.0),
            format!("{bytes:.0}"),
            format!("{above:.0}"),
        ]);
    }
    table
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a ratio of what one transfer makes: far below 2^52"
)]
fn as_f64(count: u64) -> f64 {
    count as f64
}
