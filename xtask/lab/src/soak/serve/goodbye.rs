//! A protocol as `MySQL`'s: the server greets, answers each packet, and closes when the client quits.

use std::io::Result;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::sleep;

use super::super::packet;
use crate::app::http::{LINGER, drained};

/// What the server says first: a packet of a version and a name.
const GREETING: &[u8] = b"\x0a8.0.0-soak\0";
/// An answer to a query: a packet that says OK.
const OK: &[u8] = &[0, 0, 0, 2, 0, 0, 0];

/// Serves a connection to the client's quit; idle ones are closed in order in a drain.
pub async fn goodbye(mut stream: TcpStream, mut draining: watch::Receiver<bool>) -> Result<()> {
    stream.write_all(&packet::framed(0, GREETING)).await?;
    loop {
        let linger = async {
            drained(&mut draining).await;
            sleep(LINGER).await;
        };
        let mut head = [0; packet::HEAD];
        tokio::select! {
            read = stream.read_exact(&mut head) => read.map(drop)?,
            () = linger => return stream.shutdown().await,
        }
        let mut body = vec![0; packet::length(head)];
        stream.read_exact(&mut body).await?;
        if body == packet::QUIT {
            return stream.shutdown().await;
        }
        stream.write_all(&packet::framed(1, OK)).await?;
    }
}
