//! A client as `MySQL`'s: queries, then its quit, after which the server closes.

use std::io::Result as IoResult;

use anyhow::Result;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::super::client::Client;
use super::super::packet;
use super::http1;

pub async fn run(client: &Client) -> Result<()> {
    while !client.is_over() {
        let Some((mut stream, mut track)) = client.dial().await? else { continue };
        if client.exchange(&mut track, read(&mut stream)).await?.is_none() {
            continue;
        }
        let mut good = true;
        for _ in 0..fastrand::u32(1..10) {
            good = client.exchange(&mut track, query(&mut stream)).await?.is_some()
                && client.idle(&stream, 10..600).await;
            if !good || client.is_over() {
                break;
            }
        }
        if good {
            let quit = async {
                stream.write_all(&packet::framed(0, packet::QUIT)).await?;
                http1::end(&mut stream).await
            };
            client.exchange(&mut track, quit).await?;
        }
    }
    Ok(())
}

async fn query(stream: &mut TcpStream) -> IoResult<()> {
    stream.write_all(&packet::framed(0, b"\x03SELECT 1")).await?;
    read(stream).await
}

async fn read(stream: &mut TcpStream) -> IoResult<()> {
    let mut head = [0; packet::HEAD];
    stream.read_exact(&mut head).await?;
    let mut body = vec![0; packet::length(head)];
    stream.read_exact(&mut body).await.map(drop)
}
