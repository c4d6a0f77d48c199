//! WebSocket: an echo that the server closes after some messages, or when it drains.

use std::io::{Error, Result};

use futures::{SinkExt, StreamExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_tungstenite::accept_async;
use tokio_tungstenite::tungstenite::Error as WebSocketError;

use crate::app::http::drained;

/// Messages after which the server closes.
const MESSAGES: std::ops::Range<u32> = 5..30;

/// What went wrong, as an error of the stream below; a handshake of closing is nothing wrong.
pub fn as_io(error: WebSocketError) -> Error {
    match error {
        WebSocketError::Io(error) => error,
        WebSocketError::ConnectionClosed | WebSocketError::AlreadyClosed => {
            Error::from(std::io::ErrorKind::NotConnected)
        }
        WebSocketError::Protocol(_) => Error::from(std::io::ErrorKind::UnexpectedEof),
        other => Error::other(other),
    }
}

/// Echoes.
pub async fn websocket(stream: TcpStream, mut draining: watch::Receiver<bool>) -> Result<()> {
    let mut socket = accept_async(stream).await.map_err(as_io)?;
    let mut left = fastrand::u32(MESSAGES);
    while left > 0 {
        let message = tokio::select! {
            message = socket.next() => message,
            () = drained(&mut draining) => break,
        };
        let Some(message) = message else { return Ok(()) };
        let message = message.map_err(as_io)?;
        if message.is_text() {
            socket.send(message).await.map_err(as_io)?;
            left -= 1;
        }
    }
    if socket.close(None).await.is_ok() {
        // To the client's own close.
        while let Some(Ok(_)) = socket.next().await {}
    }
    Ok(())
}
