//! The client process: every kind of traffic at once, until SIGTERM.

use std::io::{Error, ErrorKind};
use std::net::SocketAddr;
use std::ops::Range;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{interval, sleep, timeout};

use super::args::SoakClientArgs;
use super::kind::Kind;
use super::traffic;
use super::truth::{self, Tally, Track};
use crate::app::connection::{ConnectFailure, Connection, Trouble, now};
use crate::app::failure::Phase;
use crate::app::http::drained;
use crate::app::listen::until_sigterm;

/// Tasks of each kind.
const LANES: u16 = 2;
/// For connecting, and for an exchange; an answer takes some milliseconds.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Between two lines of progress.
const PROGRESS_EVERY: Duration = Duration::from_secs(1);
/// Before another attempt after a failure.
const AFTER_FAILURE: Range<u64> = 200..400;

/// Makes the traffic.
pub fn run(args: &SoakClientArgs) -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("start the client's runtime")?;
    runtime.block_on(async {
        let over = until_sigterm()?;
        let (mut lanes, mut tallies) = (JoinSet::new(), Vec::new());
        for (kind, target) in Kind::all().iter().zip(&args.target) {
            let log = truth::log(&args.logs, &args.name, *kind);
            let tally = Arc::new(Tally::create(&log)?);
            tallies.push(Arc::clone(&tally));
            for lane in 0..LANES {
                let client =
                    Client { target: *target, lane, over: over.clone(), tally: Arc::clone(&tally) };
                lanes.spawn(traffic::run(*kind, client));
            }
        }
        let mut ticks = interval(PROGRESS_EVERY);
        loop {
            tokio::select! {
                lane = lanes.join_next() => match lane {
                    Some(lane) => lane.context("a task of the client panicked")??,
                    None => break,
                },
                _ = ticks.tick() => tallies.iter().try_for_each(|tally| tally.progress())?,
            }
        }
        for tally in tallies {
            tally.end()?;
        }
        Ok(ExitCode::SUCCESS)
    })
}

/// One task's way to dial, to wait and to write the truth.
#[derive(Debug)]
pub struct Client {
    /// The Service.
    pub target: SocketAddr,
    /// Which of the tasks of its kind.
    pub lane: u16,
    over: watch::Receiver<bool>,
    tally: Arc<Tally>,
}

impl Client {
    /// Whether the load is over.
    pub fn is_over(&self) -> bool {
        *self.over.borrow()
    }

    /// Waits so many milliseconds, unless the load is over before.
    pub async fn pause(&self, milliseconds: Range<u64>) {
        let mut over = self.over.clone();
        tokio::select! {
            () = sleep(Duration::from_millis(fastrand::u64(milliseconds))) => {}
            () = drained(&mut over) => {}
        }
    }

    /// Waits so while a connection is idle; false as soon as the server has closed it.
    pub async fn idle(&self, stream: &TcpStream, milliseconds: Range<u64>) -> bool {
        let pause = self.pause(milliseconds);
        tokio::pin!(pause);
        let mut byte = [0];
        tokio::select! {
            () = &mut pause => true,
            read = stream.peek(&mut byte) => match read {
                // Something of the protocol's own, to be read with the next answer.
                Ok(1..) => {
                    pause.await;
                    true
                }
                _ => false,
            },
        }
    }

    /// Connects to the Service; a failure is noted.
    pub async fn dial(&self) -> Result<Option<(TcpStream, Track)>> {
        self.dial_with(None).await
    }

    /// The same from a certain port.
    pub async fn dial_with(&self, port: Option<u16>) -> Result<Option<(TcpStream, Track)>> {
        match self.dial_from(self.target, port).await? {
            Ok(dialled) => Ok(Some(dialled)),
            Err(failed) => {
                let ConnectFailure { local, started, trouble } = failed;
                self.tally.failed(Track { local, started, exchanges: 0 }, started, trouble)?;
                self.pause(AFTER_FAILURE).await;
                Ok(None)
            }
        }
    }

    /// Connects to anywhere, from a certain port if one is given; a failure is handed back.
    pub async fn dial_from(
        &self,
        target: SocketAddr,
        port: Option<u16>,
    ) -> Result<Result<(TcpStream, Track), ConnectFailure>> {
        let opened = tokio::task::spawn_blocking(move || {
            Connection::open(target, port, Instant::now() + TIMEOUT)
        });
        let connection = match opened.await.context("a connect panicked")? {
            Ok(connection) => connection,
            Err(failed) => return Ok(Err(failed)),
        };
        let (local, started) = (connection.local, connection.started);
        let stream = connection.into_stream();
        stream.set_nonblocking(true).context("make a connection non-blocking")?;
        let stream = TcpStream::from_std(stream).context("hand a connection over")?;
        stream.set_nodelay(true).context("send without delay")?;
        self.tally.connected();
        Ok(Ok((stream, Track { local, started, exchanges: 0 })))
    }

    /// One exchange on a connection: counted when it goes well, else noted as a failure.
    pub async fn exchange<T>(
        &self,
        track: &mut Track,
        exchange: impl Future<Output = std::io::Result<T>>,
    ) -> Result<Option<T>> {
        let start = now();
        let end = timeout(TIMEOUT, exchange)
            .await
            .unwrap_or_else(|_| Err(Error::from(ErrorKind::TimedOut)));
        match end {
            Ok(answer) => {
                track.exchanges += 1;
                self.tally.exchanged();
                Ok(Some(answer))
            }
            Err(error) => {
                let trouble = Trouble::of_error(Phase::Request, &error);
                self.tally.failed(*track, start, trouble)?;
                self.pause(AFTER_FAILURE).await;
                Ok(None)
            }
        }
    }

    /// A probe has told what it should, or was sent.
    pub fn probed(&self) {
        self.tally.exchanged();
    }
}
