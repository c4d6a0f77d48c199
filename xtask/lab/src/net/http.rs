//! One HTTP GET, for readiness probes and the agents' status: no pool, no redirects.

use std::net::SocketAddr;

use anyhow::{Context, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Longest answer that is read, in bytes.
const ANSWER_LIMIT: u64 = 64 << 20;

/// An answer's status code and body.
#[derive(Debug)]
pub struct HttpAnswer {
    /// The status code.
    pub status: u16,
    /// The body.
    pub body: String,
}

/// Gets a path with HTTP/1.0: the server closes after its answer, and does not chunk it.
pub async fn http_get(address: SocketAddr, path: &str) -> Result<HttpAnswer> {
    let mut stream =
        TcpStream::connect(address).await.with_context(|| format!("connect to {address}"))?;
    let request = format!("GET {path} HTTP/1.0\r\nHost: {address}\r\nUser-Agent: lab\r\n\r\n");
    stream.write_all(request.as_bytes()).await.with_context(|| format!("ask {address}{path}"))?;
    let mut answer = Vec::new();
    stream
        .take(ANSWER_LIMIT)
        .read_to_end(&mut answer)
        .await
        .with_context(|| format!("read the answer of {address}{path}"))?;
    let text = String::from_utf8_lossy(&answer);
    let (head, body) = text
        .split_once("\r\n\r\n")
        .with_context(|| format!("{address}{path} closed before a whole answer"))?;
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|code| code.parse().ok())
        .with_context(|| format!("{address}{path} answered without a status code"))?;
    Ok(HttpAnswer { status, body: body.to_owned() })
}
