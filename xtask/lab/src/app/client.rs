//! The client: threads that make one request after the other and note each failure.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::errno::Errno;
use serde::Deserialize;

use super::connection::{ConnectFailure, Connection, Trouble, now};
use super::failure::{ClientClass, Failure, Line, Phase, Summary};
use crate::cli::{ClientArgs, Mode};

/// Pause after a failure, so that a Service without endpoints does not use all ports up.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_millis(10);

/// Makes the load to its end.
pub fn run(args: &ClientArgs) -> Result<ExitCode> {
    let log = File::create(&args.log)
        .with_context(|| format!("create the client's log {}", args.log.display()))?;
    let load = Load {
        args,
        timeout: Duration::from_secs_f64(args.timeout),
        until: Instant::now() + Duration::from_secs(args.seconds),
        shared: Mutex::new(Shared { log, summary: Summary::default() }),
    };
    load.note(&Line::Started { at: now() })?;
    let load = &load;
    thread::scope(|scope| -> Result<()> {
        let threads: Vec<_> = args
            .target
            .iter()
            .cycle()
            .take(args.threads)
            .zip(0..)
            .map(|(target, number)| {
                let ports = args.source_ports.map(|count| Ports::of(number, count));
                let turn = usize::from(number);
                scope.spawn(move || load.requests(*target, ports, turn))
            })
            .collect();
        while threads.iter().any(|thread| !thread.is_finished()) {
            thread::park_timeout(Duration::from_secs(1));
            load.note_progress()?;
        }
        for thread in threads {
            match thread.join() {
                Ok(end) => end?,
                Err(_) => anyhow::bail!("a client thread panicked"),
            }
        }
        Ok(())
    })?;
    let summary = load.lock().summary.clone();
    load.note(&Line::Summary(summary))?;
    Ok(ExitCode::SUCCESS)
}

/// The source ports of one thread, in turn.
struct Ports {
    first: u16,
    count: u16,
    next: u16,
}

/// Below the ports that the kernel chooses from (`net.ipv4.ip_local_port_range`).
const FIRST_PORT: u16 = 20_000;

impl Ports {
    /// Those of a thread by its number.
    fn of(number: u16, count: u16) -> Self {
        Self { first: FIRST_PORT + number * count, count, next: 0 }
    }

    fn take(&mut self) -> u16 {
        let port = self.first + self.next;
        self.next = (self.next + 1) % self.count;
        port
    }
}

/// Opens a connection: with ports of its own from the next that is free.
fn open(
    target: SocketAddr,
    ports: &mut Option<Ports>,
    deadline: Instant,
) -> Result<Connection, ConnectFailure> {
    let Some(ports) = ports else { return Connection::open(target, None, deadline) };
    loop {
        let opened = Connection::open(target, Some(ports.take()), deadline);
        let errno = opened.as_ref().err().and_then(|failed| failed.trouble.errno);
        let is_taken = [Errno::EADDRINUSE, Errno::EADDRNOTAVAIL]
            .iter()
            .any(|taken| errno == Some(*taken as i32));
        if !is_taken || Instant::now() >= deadline {
            return opened;
        }
        thread::sleep(PAUSE_AFTER_FAILURE);
    }
}

struct Load<'a> {
    args: &'a ClientArgs,
    timeout: Duration,
    until: Instant,
    shared: Mutex<Shared>,
}

struct Shared {
    log: File,
    summary: Summary,
}

/// What the server answers with.
#[derive(Deserialize)]
struct Body {
    pod: String,
    application: String,
}

impl Load<'_> {
    fn requests(&self, target: SocketAddr, mut ports: Option<Ports>, turn: usize) -> Result<()> {
        let mut connection: Option<Connection> = None;
        for turn in turn.. {
            if Instant::now() >= self.until {
                break;
            }
            let Some(target) = self.resolved(target, turn)? else {
                // Nobody is there to dial, so nothing fails.
                thread::sleep(PAUSE_AFTER_FAILURE);
                continue;
            };
            let outcome = self.request(target, &mut ports, &mut connection);
            if self.args.mode == Mode::Fresh || outcome.is_err() {
                connection = None;
            }
            match outcome {
                Ok(pod) => self.count_answer(pod),
                Err(failure) => {
                    self.count_failure(*failure)?;
                    thread::sleep(PAUSE_AFTER_FAILURE);
                }
            }
        }
        Ok(())
    }

    /// Where the next connection goes: to the target, or to one of its family's endpoints.
    fn resolved(&self, target: SocketAddr, turn: usize) -> Result<Option<SocketAddr>> {
        let Some(file) = &self.args.endpoints else { return Ok(Some(target)) };
        let text = fs::read_to_string(file)
            .with_context(|| format!("read the endpoints in {}", file.display()))?;
        let all = text.lines().map(str::parse).collect::<Result<Vec<SocketAddr>, _>>();
        let mut all = all.with_context(|| format!("read the endpoints in {}", file.display()))?;
        all.retain(|endpoint| endpoint.is_ipv4() == target.is_ipv4());
        Ok(if all.is_empty() { None } else { Some(all[turn % all.len()]) })
    }

    /// One request, on the connection there is or on a new one; the pod that answered.
    fn request(
        &self,
        target: SocketAddr,
        ports: &mut Option<Ports>,
        kept: &mut Option<Connection>,
    ) -> Result<String, Box<Failure>> {
        let deadline = Instant::now() + self.timeout;
        let start = now();
        let (connection, reused) = match kept {
            Some(connection) => (connection, true),
            None => match open(target, ports, deadline) {
                Ok(connection) => (kept.insert(connection), false),
                Err(failed) => {
                    return Err(Box::new(Failure {
                        start: failed.started,
                        connect_start: failed.started,
                        end: now(),
                        phase: failed.trouble.phase,
                        class: failed.trouble.class,
                        error: failed.trouble.error,
                        errno: failed.trouble.errno,
                        local: failed.local,
                        reused: false,
                        pod: None,
                    }));
                }
            },
        };
        let connect_start = connection.started;
        let local = connection.local;
        let failure = |trouble: Trouble, pod: Option<String>| {
            Box::new(Failure {
                start: if reused { start } else { connect_start },
                connect_start,
                end: now(),
                phase: trouble.phase,
                class: trouble.class,
                error: trouble.error,
                errno: trouble.errno,
                local,
                reused,
                pod,
            })
        };
        // A connect that took long leaves no less time for the answer: else nobody would know whose it was.
        let deadline = Instant::now() + self.timeout;
        let answer = connection.request(target, deadline).map_err(|t| failure(t, None))?;
        let close = answer.close;
        let wrong =
            |error: String, class| Trouble { phase: Phase::Request, class, error, errno: None };
        let body: Body = serde_json::from_slice(&answer.body).map_err(|error| {
            failure(wrong(format!("an unreadable answer: {error}"), ClientClass::Other), None)
        })?;
        if body.application != self.args.application {
            let error = format!("answered by the application {}", body.application);
            return Err(failure(wrong(error, ClientClass::Misdelivered), Some(body.pod)));
        }
        if close {
            *kept = None;
        }
        Ok(body.pod)
    }

    fn count_answer(&self, pod: String) {
        let mut shared = self.lock();
        shared.summary.requests += 1;
        *shared.summary.answered.entry(pod).or_default() += 1;
    }

    fn count_failure(&self, failure: Failure) -> Result<()> {
        {
            let summary = &mut self.lock().summary;
            summary.requests += 1;
            summary.failed += 1;
            let by_class: &mut BTreeMap<String, u64> = &mut summary.by_class;
            *by_class.entry(failure.class.name().to_owned()).or_default() += 1;
        }
        self.note(&Line::Failure(failure))
    }

    fn note_progress(&self) -> Result<()> {
        let summary = self.lock().summary.clone();
        self.note(&Line::Progress { requests: summary.requests, failed: summary.failed })
    }

    fn note(&self, line: &Line) -> Result<()> {
        let text = serde_json::to_string(line).context("encode a line of the client's log")?;
        writeln!(self.lock().log, "{text}").context("write the client's log")
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
