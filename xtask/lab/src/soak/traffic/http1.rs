//! A request of HTTP/1 over whatever stream.

use std::io::{ErrorKind, Result};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::app::connection::{Answer, parse};

/// Keeps the connection.
pub const KEPT: &str = "HTTP/1.1";
/// The server closes after the answer.
pub const ONCE: &str = "HTTP/1.0";

/// Sends a request, and does not wait for its answer.
pub async fn ask(stream: &mut (impl AsyncWrite + Unpin), version: &str) -> Result<()> {
    let text = format!("GET / {version}\r\nHost: soak\r\nUser-Agent: rollrace-lab-soak\r\n\r\n");
    stream.write_all(text.as_bytes()).await?;
    stream.flush().await
}

/// Sends a request and reads its answer.
pub async fn get(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    version: &str,
) -> Result<Answer> {
    ask(stream, version).await?;
    answer(stream).await
}

/// Reads an answer.
pub async fn answer(stream: &mut (impl AsyncRead + Unpin)) -> Result<Answer> {
    let mut text = Vec::with_capacity(512);
    loop {
        if let Some(answer) = parse(&text) {
            return Ok(answer);
        }
        if stream.read_buf(&mut text).await? == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
    }
}

/// Reads to the server's end of the connection.
pub async fn end(stream: &mut (impl AsyncRead + Unpin)) -> Result<()> {
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).await.map(drop)
}
