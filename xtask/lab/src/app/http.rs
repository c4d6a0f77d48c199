//! HTTP/1.1 with keep-alive, as the servers speak it: over TCP, or whatever lies above.

use std::io::ErrorKind;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::watch;
use tokio::time::sleep;

/// A drained server still takes the next request of an idle connection this long, so that it can
/// say `Connection: close` to it.
pub const LINGER: Duration = Duration::from_secs(2);
/// Longest request head.
const HEAD_LIMIT: usize = 16 << 10;

/// What each request is answered with.
pub struct Answer {
    /// The body: JSON.
    pub body: String,
    /// How long a request takes.
    pub request_time: Duration,
    /// An idle connection is closed after this, if ever.
    pub idle: Option<Duration>,
}

/// Serves a connection to its end. A client that goes away is no error of the server's.
pub async fn converse(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    answer: &Answer,
    draining: watch::Receiver<bool>,
) {
    report(requests(stream, answer, draining).await);
}

/// Says what went wrong with a connection, unless its client merely went away.
pub fn report(end: std::io::Result<()>) {
    use ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, NotConnected, UnexpectedEof};
    let gone = [BrokenPipe, ConnectionAborted, ConnectionReset, NotConnected, UnexpectedEof];
    match end {
        Err(error) if !gone.contains(&error.kind()) => eprintln!("serve a connection: {error}"),
        _ => {}
    }
}

/// Ends when the drain has begun; never, when it never begins.
pub async fn drained(draining: &mut watch::Receiver<bool>) {
    // The sender lives with the process.
    if draining.wait_for(|draining| *draining).await.is_err() {
        std::future::pending::<()>().await;
    }
}

async fn requests(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    answer: &Answer,
    mut draining: watch::Receiver<bool>,
) -> std::io::Result<()> {
    let mut head = Vec::with_capacity(512);
    loop {
        let read = {
            let linger = async {
                drained(&mut draining).await;
                sleep(LINGER).await;
            };
            let idle = async {
                match answer.idle {
                    Some(idle) => sleep(idle).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                read = read_head(&mut stream, &mut head) => read?,
                () = linger => return stream.shutdown().await,
                () = idle => return stream.shutdown().await,
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
async fn read_head(
    stream: &mut (impl AsyncRead + Unpin),
    head: &mut Vec<u8>,
) -> std::io::Result<bool> {
    head.clear();
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() > HEAD_LIMIT || stream.read_buf(head).await? == 0 {
            return Ok(false);
        }
    }
    Ok(true)
}
