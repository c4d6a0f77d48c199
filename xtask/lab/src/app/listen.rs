//! A server's listener, from its first connection to the end of its drain.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use anyhow::{Context, Result};
use nix::errno::Errno;
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::SignalKind;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::http::drained;

/// Tells when SIGTERM has come.
///
/// # Errors
/// If the signal cannot be listened for.
pub fn until_sigterm() -> Result<watch::Receiver<bool>> {
    let (begin, draining) = watch::channel(false);
    let mut sigterm =
        tokio::signal::unix::signal(SignalKind::terminate()).context("listen for SIGTERM")?;
    tokio::spawn(async move {
        sigterm.recv().await;
        begin.send_replace(true);
        // Whoever asks later is told as well.
        begin.closed().await;
    });
    Ok(draining)
}

/// Listens in both families, as most runtimes do; in IPv4 alone where the kernel has no IPv6.
///
/// # Errors
/// If the port is taken.
pub async fn listen(port: u16) -> Result<TcpListener> {
    let listener = match TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)).await {
        Err(error) if error.raw_os_error() == Some(Errno::EAFNOSUPPORT as i32) => {
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).await
        }
        outcome => outcome,
    };
    listener.with_context(|| format!("listen on port {port}"))
}

/// Serves every connection until the drain begins; what has begun by then, to its end.
///
/// # Errors
/// If no connection can be accepted any more.
pub async fn serve<F>(
    listener: TcpListener,
    mut draining: watch::Receiver<bool>,
    converse: impl Fn(TcpStream) -> F,
) -> Result<()>
where
    F: Future<Output = ()> + Send + 'static,
{
    let mut connections = JoinSet::new();
    let begin = |stream: TcpStream| -> Result<F> {
        stream.set_nodelay(true).context("send without delay")?;
        Ok(converse(stream))
    };
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let (stream, _) = accepted.context("accept a connection")?;
                connections.spawn(begin(stream)?);
            }
            Some(_) = connections.join_next() => {}
            () = drained(&mut draining) => break,
        }
    }
    // What the kernel has completed is accepted still: closing the listener would reset it.
    while let Ok(Ok((stream, _))) = timeout(Duration::ZERO, listener.accept()).await {
        connections.spawn(begin(stream)?);
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
    Ok(())
}
