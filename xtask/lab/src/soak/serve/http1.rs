//! HTTP/1.1, with and without TLS.

use std::io::{Error, Result};
use std::time::Duration;

use serde_json::json;
use tokio::net::TcpStream;
use tokio::sync::watch;

use super::super::kind::Kind;
use super::super::tls;
use crate::app::http::{Answer, converse};

/// How long a request takes.
const REQUEST_TIME: Duration = Duration::from_millis(20);
/// A server that closes in order closes an idle connection after this.
const IDLE: Duration = Duration::from_millis(800);

fn answer(stream: &TcpStream, pod: &str, idle: Option<Duration>) -> Result<Answer> {
    let address = stream.local_addr()?.ip().to_canonical();
    let body = json!({"pod": pod, "address": address}).to_string();
    Ok(Answer { body, request_time: REQUEST_TIME, idle })
}

/// Serves a connection as it is.
pub async fn http1(
    kind: Kind,
    stream: TcpStream,
    pod: &str,
    draining: watch::Receiver<bool>,
) -> Result<()> {
    let answer = answer(&stream, pod, (kind == Kind::Orderly).then_some(IDLE))?;
    converse(stream, &answer, draining).await;
    Ok(())
}

/// Serves a connection under TLS.
pub async fn tls(stream: TcpStream, pod: &str, draining: watch::Receiver<bool>) -> Result<()> {
    let answer = answer(&stream, pod, None)?;
    let stream = tls::acceptor().map_err(Error::other)?.accept(stream).await?;
    converse(stream, &answer, draining).await;
    Ok(())
}
