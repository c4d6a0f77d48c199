//! gRPC: a stream of messages in both directions that ends by trailers, or is cancelled.

use std::io::{Error, Result as IoResult};

use anyhow::Result;
use bytes::{BufMut, Bytes, BytesMut};
use h2::client::SendRequest;
use h2::{RecvStream, SendStream};
use http::Request;

use super::super::client::Client;
use super::super::serve::{GRPC, as_io};
use super::http2;

pub async fn run(client: &Client) -> Result<()> {
    while !client.is_over() {
        let Some((stream, mut track)) = client.dial().await? else { continue };
        let Some(connection) = http2::open(client, stream, &mut track).await? else { continue };
        for _ in 0..fastrand::u32(1..4) {
            let Ok(requests) = connection.requests.clone().ready().await else { break };
            // The stream lasts longer than an exchange may: each message is one.
            let Some(begun) = client.exchange(&mut track, call(requests)).await? else { break };
            let Some((mut out, mut echoes)) = begun else { break };
            let (mut left, cancels) = (fastrand::u32(2..20), fastrand::u8(..4) == 0);
            let mut is_open = true;
            while is_open && left > 0 && !client.is_over() {
                let again = client.exchange(&mut track, say(&mut out, &mut echoes)).await?;
                is_open = again == Some(true);
                left -= 1;
                client.pause(20..250).await;
            }
            if cancels || !is_open {
                out.send_reset(h2::Reason::CANCEL);
                break;
            }
            // A server that drains may have ended the call already.
            drop(out.send_data(Bytes::new(), true));
            if client.exchange(&mut track, status(&mut echoes)).await?.is_none() {
                break;
            }
        }
        let http2::Connection { requests, pings, driver } = connection;
        drop((requests, pings));
        driver.await?;
    }
    Ok(())
}

/// Begins a call; nothing when the server takes no more of them on this connection.
async fn call(
    mut requests: SendRequest<Bytes>,
) -> IoResult<Option<(SendStream<Bytes>, RecvStream)>> {
    let request = Request::post("http://soak/soak.Echo/Say")
        .header(http::header::CONTENT_TYPE, GRPC)
        .header("te", "trailers")
        .body(())
        .map_err(Error::other)?;
    let begun = match requests.send_request(request, false) {
        Ok((response, out)) => response.await.map(|response| (out, response.into_body())),
        Err(error) => Err(error),
    };
    match begun {
        Ok(begun) => Ok(Some(begun)),
        Err(error) if http2::is_goaway(&error) => Ok(None),
        Err(error) => Err(as_io(&error)),
    }
}

/// Sends a message and reads its echo; false when the server has ended the call by its trailers.
async fn say(out: &mut SendStream<Bytes>, echoes: &mut RecvStream) -> IoResult<bool> {
    let mut message = BytesMut::new();
    let text = b"a message of the soak";
    // Not compressed, and the length.
    message.put_u8(0);
    message.put_u32(u32::try_from(text.len()).unwrap_or_default());
    message.put_slice(text);
    let mut missing = message.len();
    if out.send_data(message.freeze(), false).is_err() {
        return Ok(false);
    }
    while missing > 0 {
        let Some(chunk) = echoes.data().await else { return Ok(false) };
        let chunk = chunk.map_err(|error| as_io(&error))?;
        missing = missing.saturating_sub(chunk.len());
        echoes.flow_control().release_capacity(chunk.len()).map_err(|error| as_io(&error))?;
    }
    Ok(true)
}

/// Reads the trailers.
async fn status(echoes: &mut RecvStream) -> IoResult<()> {
    while let Some(chunk) = echoes.data().await {
        chunk.map_err(|error| as_io(&error))?;
    }
    let trailers = echoes.trailers().await.map_err(|error| as_io(&error))?;
    let status = trailers.as_ref().and_then(|trailers| trailers.get("grpc-status"));
    if status.is_some_and(|status| status == "0") {
        return Ok(());
    }
    Err(Error::other(format!("a call ended with {trailers:?}")))
}
