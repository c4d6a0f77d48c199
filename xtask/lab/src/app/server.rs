//! The server: HTTP/1.1 with keep-alive, which listens late, takes its time, and ends in one of
//! three ways at SIGTERM.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::sys::signal::{SigHandler, Signal, signal};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::SignalKind;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::cli::{OnSigterm, ServerArgs};

/// A drained server still takes the next request of an idle connection this long, so that it can
/// say `Connection: close` to it.
const LINGER: Duration = Duration::from_secs(2);
/// Longest request head.
const HEAD_LIMIT: usize = 16 << 10;

/// Runs the server until its end.
pub fn run(args: &ServerArgs) -> Result<ExitCode> {
    if args.on_sigterm == OnSigterm::Ignore {
        // SAFETY: ignoring a signal installs no code.
        unsafe { signal(Signal::SIGTERM, SigHandler::SigIgn) }.context("ignore SIGTERM")?;
    }
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("start the server's runtime")?
        .block_on(serve(args))?;
    Ok(ExitCode::SUCCESS)
}

/// What the server's output says when it listens; the time follows.
pub const LISTENING: &str = "listening since ";

async fn serve(args: &ServerArgs) -> Result<()> {
    let (begin_drain, draining) = watch::channel(false);
    let on_sigterm = args.on_sigterm;
    if on_sigterm != OnSigterm::Ignore {
        let mut sigterm =
            tokio::signal::unix::signal(SignalKind::terminate()).context("listen for SIGTERM")?;
        tokio::spawn(async move {
            sigterm.recv().await;
            if on_sigterm == OnSigterm::Exit {
                std::process::exit(0);
            }
            begin_drain.send_replace(true);
        });
    }
    sleep(Duration::from_millis(args.listen_after)).await;
    let listener =
        listen(args.port).await.with_context(|| format!("listen on port {}", args.port))?;
    // For the lab: on a loaded machine the start takes longer than it should.
    println!("{LISTENING}{}", jiff::Timestamp::now());
    let answer = Arc::new(Answer::new(args));
    let mut connections = JoinSet::new();
    let mut drained = draining.clone();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let (stream, _) = accepted.context("accept a connection")?;
                connections.spawn(converse(stream, Arc::clone(&answer), draining.clone()));
            }
            Some(_) = connections.join_next() => {}
            _ = drained.wait_for(|draining| *draining) => break,
        }
    }
    // What the kernel has completed is accepted still: closing the listener would reset it.
    while let Ok(Ok((stream, _))) = timeout(Duration::ZERO, listener.accept()).await {
        connections.spawn(converse(stream, Arc::clone(&answer), draining.clone()));
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
    sleep(Duration::from_millis(args.exit_after)).await;
    Ok(())
}

/// Listens in both families, as most runtimes do; in IPv4 alone where the kernel has no IPv6.
async fn listen(port: u16) -> std::io::Result<TcpListener> {
    match TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)).await {
        Err(error) if error.raw_os_error() == Some(Errno::EAFNOSUPPORT as i32) => {
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).await
        }
        outcome => outcome,
    }
}

/// What each request is answered with.
struct Answer {
    body: String,
    request_time: Duration,
}

impl Answer {
    fn new(args: &ServerArgs) -> Self {
        let body = serde_json::json!({"pod": args.pod, "application": args.application});
        Self { body: body.to_string(), request_time: Duration::from_millis(args.request_time) }
    }
}

/// Serves a connection to its end. A client that goes away is no error of the server's.
async fn converse(stream: TcpStream, answer: Arc<Answer>, draining: watch::Receiver<bool>) {
    if let Err(error) = requests(stream, &answer, draining).await
        && !matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe)
    {
        eprintln!("serve a connection: {error}");
    }
}

async fn requests(
    mut stream: TcpStream,
    answer: &Answer,
    mut draining: watch::Receiver<bool>,
) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut head = Vec::with_capacity(512);
    loop {
        let read = {
            let linger = async {
                // Never ends when the drain never begins: the sender lives with the process.
                if draining.wait_for(|draining| *draining).await.is_err() {
                    std::future::pending::<()>().await;
                }
                sleep(LINGER).await;
            };
            tokio::select! {
                read = read_head(&mut stream, &mut head) => read?,
                () = linger => return stream.shutdown().await,
            }
        };
        if !read {
            return Ok(());
        }
        let probe = head.starts_with(b"GET /healthz ");
        if !probe {
            sleep(answer.request_time).await;
        }
        let close = *draining.borrow() || first_line(&head).ends_with(b"HTTP/1.0");
        let connection = if close { "close" } else { "keep-alive" };
        let text = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: {connection}\r\n\r\n{}",
            answer.body.len(),
            answer.body
        );
        stream.write_all(text.as_bytes()).await?;
        if close {
            return stream.shutdown().await;
        }
    }
}

fn first_line(head: &[u8]) -> &[u8] {
    head.split(|byte| *byte == b'\r').next().unwrap_or_default()
}

/// Reads a request's head; false when the client closed instead.
async fn read_head(stream: &mut TcpStream, head: &mut Vec<u8>) -> std::io::Result<bool> {
    head.clear();
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() > HEAD_LIMIT || stream.read_buf(head).await? == 0 {
            return Ok(false);
        }
    }
    Ok(true)
}
