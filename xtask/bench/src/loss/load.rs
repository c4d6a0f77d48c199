//! Clients that open connections as fast as they may, and count what they see.

use std::{
    collections::BTreeMap,
    net::{SocketAddr, TcpStream},
    os::fd::AsFd as _,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, anyhow, bail};
use nix::{
    libc,
    sys::socket::{setsockopt, sockopt},
};
use serde::Serialize;

use super::world::{SERVICE, World};
use crate::namespace::Namespace;

/// A client's patience: below the first retransmit, which comes after a second.
const PATIENCE: Duration = Duration::from_millis(900);

/// What the clients saw.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Truth {
    /// Connections tried.
    pub attempts: u64,
    /// Of these, established.
    pub answered: u64,
    /// Of these, refused.
    pub refused: u64,
    /// Of these, given up.
    pub timed_out: u64,
    /// How long the load lasted, in seconds.
    pub seconds: f64,
    /// Connections tried in each second.
    pub by_second: BTreeMap<u64, u64>,
}

/// The threads.
pub struct Load {
    threads: Vec<JoinHandle<Result<Truth>>>,
    began: Instant,
}

impl Load {
    /// Starts `threads` for each client.
    pub fn start(world: &World, threads: u32, rate: u32, time: Duration) -> Self {
        let began = Instant::now();
        let all = threads * u32::try_from(world.clients.len()).unwrap_or(1);
        // Time between two connections of a thread.
        let pace = if rate == 0 { Duration::ZERO } else { Duration::from_secs(1) * all / rate };
        let start = |client: &Namespace| {
            let client = client.clone();
            thread::spawn(move || {
                client.enter()?;
                connections(began, pace, time)
            })
        };
        let threads = world
            .clients
            .iter()
            .flat_map(|client| (0..threads).map(move |_| start(client)))
            .collect();
        Self { threads, began }
    }

    /// Waits for their end; what they saw together.
    ///
    /// # Errors
    /// If a connection failed in a way that has no name here.
    pub fn finish(self) -> Result<Truth> {
        let mut sum = Truth::default();
        for thread in self.threads {
            let truth = thread.join().map_err(|_| anyhow!("a client's thread panicked"))??;
            sum.attempts += truth.attempts;
            sum.answered += truth.answered;
            sum.refused += truth.refused;
            sum.timed_out += truth.timed_out;
            for (second, count) in truth.by_second {
                *sum.by_second.entry(second).or_default() += count;
            }
        }
        sum.seconds = self.began.elapsed().as_secs_f64();
        Ok(sum)
    }
}

fn connections(began: Instant, pace: Duration, time: Duration) -> Result<Truth> {
    let mut truth = Truth::default();
    let service = SocketAddr::from(SERVICE);
    let mut next = began;
    while began.elapsed() < time {
        truth.attempts += 1;
        *truth.by_second.entry(began.elapsed().as_secs()).or_default() += 1;
        match TcpStream::connect_timeout(&service, PATIENCE) {
            Ok(connection) => {
                truth.answered += 1;
                abort(&connection)?;
            }
            Err(error) => match (error.kind(), error.raw_os_error()) {
                (std::io::ErrorKind::TimedOut, _) => truth.timed_out += 1,
                (_, Some(libc::ECONNREFUSED)) => truth.refused += 1,
                _ => bail!("connect to {service}: {error}: use fewer connections a second"),
            },
        }
        next += pace;
        thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    Ok(truth)
}

/// Makes the close a RST, so that no port waits in `TIME_WAIT`.
fn abort(connection: &TcpStream) -> Result<()> {
    let at_once = libc::linger { l_onoff: 1, l_linger: 0 };
    setsockopt(&connection.as_fd(), sockopt::Linger, &at_once).context("set SO_LINGER")
}
