//! WebSocket: messages and their echoes, a ping now and then, and either side's close.

use std::io::{Error, Result as IoResult};

use anyhow::Result;
use futures::{SinkExt, StreamExt};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::{Bytes, Message};
use tokio_tungstenite::{WebSocketStream, client_async};

use super::super::client::Client;
use super::super::serve::as_websocket_io as as_io;

pub async fn run(client: &Client) -> Result<()> {
    while !client.is_over() {
        let Some((stream, mut track)) = client.dial().await? else { continue };
        let handshake = async { client_async("ws://soak/", stream).await.map_err(as_io) };
        let Some((mut socket, _)) = client.exchange(&mut track, handshake).await? else {
            continue;
        };
        let mut is_open = true;
        for _ in 0..fastrand::u32(3..40) {
            let again = client.exchange(&mut track, say(&mut socket)).await?;
            is_open = again == Some(true);
            if !is_open || client.is_over() {
                break;
            }
            client.pause(20..300).await;
            if fastrand::u8(..4) == 0 {
                // The pong is read with the next echo.
                drop(socket.send(Message::Ping(Bytes::from_static(b"soak"))).await);
            }
        }
        if is_open {
            client.exchange(&mut track, close(&mut socket)).await?;
        }
    }
    Ok(())
}

/// Sends a message and reads its echo; false when the server has closed instead.
async fn say(socket: &mut WebSocketStream<TcpStream>) -> IoResult<bool> {
    let text = "a message of the soak";
    if let Err(error) = socket.send(Message::text(text)).await {
        return over(as_io(error));
    }
    loop {
        match socket.next().await {
            None => return Ok(false),
            Some(Ok(Message::Close(_))) => {
                // The client's own close goes out with this.
                while let Some(Ok(_)) = socket.next().await {}
                return Ok(false);
            }
            Some(Ok(Message::Text(echo))) if echo.as_str() == text => return Ok(true),
            Some(Ok(_)) => {}
            Some(Err(error)) => return over(as_io(error)),
        }
    }
}

/// The end of a connection that was closed by the handshake of closing.
fn over(error: Error) -> IoResult<bool> {
    if error.kind() == std::io::ErrorKind::NotConnected { Ok(false) } else { Err(error) }
}

/// Closes, and reads the server's close.
async fn close(socket: &mut WebSocketStream<TcpStream>) -> IoResult<()> {
    if let Err(error) = socket.close(None).await {
        return over(as_io(error)).map(drop);
    }
    while let Some(Ok(_)) = socket.next().await {}
    Ok(())
}
