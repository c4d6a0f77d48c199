//! HTTP/2: several streams at once, a PING while idle, GOAWAY from whoever has enough.

use std::io::Result as IoResult;

use anyhow::Result;
use bytes::Bytes;
use h2::client::SendRequest;
use h2::{Ping, PingPong, RecvStream};
use http::{Request, Response};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use super::super::client::Client;
use super::super::serve::as_io;
use super::super::truth::Track;

/// A connection of HTTP/2.
pub struct Connection {
    /// Sends requests.
    pub requests: SendRequest<Bytes>,
    /// Sends PINGs.
    pub pings: PingPong,
    /// Ends with the connection.
    pub driver: JoinHandle<()>,
}

/// Opens one; a failure is noted.
pub async fn open(
    client: &Client,
    stream: TcpStream,
    track: &mut Track,
) -> Result<Option<Connection>> {
    let handshake = async { h2::client::handshake(stream).await.map_err(|error| as_io(&error)) };
    let Some((requests, mut connection)) = client.exchange(track, handshake).await? else {
        return Ok(None);
    };
    let Some(pings) = connection.ping_pong() else { return Ok(None) };
    // What is wrong with the connection is told by each of its streams.
    let driver = tokio::spawn(async move { drop(connection.await) });
    Ok(Some(Connection { requests, pings, driver }))
}

pub async fn run(client: &Client) -> Result<()> {
    while !client.is_over() {
        let Some((stream, mut track)) = client.dial().await? else { continue };
        let Some(Connection { requests, mut pings, driver }) =
            open(client, stream, &mut track).await?
        else {
            continue;
        };
        for _ in 0..fastrand::u32(2..25) {
            // The server has said GOAWAY, or the connection is over.
            let Ok(mut requests) = requests.clone().ready().await else { break };
            let both = async {
                let mut others = requests.clone();
                futures::future::try_join(get(&mut requests), get(&mut others)).await
            };
            let goes_on = client.exchange(&mut track, both).await?;
            if !goes_on.is_some_and(|(one, two)| one && two) || client.is_over() {
                break;
            }
            client.pause(20..400).await;
            if fastrand::bool() {
                // Of a connection that ends meanwhile nobody waits for the answer.
                let pong = client
                    .exchange(&mut track, async { Ok(pings.ping(Ping::opaque()).await.is_ok()) });
                if pong.await? != Some(true) {
                    break;
                }
                client.pause(20..1_200).await;
            }
        }
        // With its last handle the client says GOAWAY, and closes.
        drop(requests);
        driver.await?;
    }
    Ok(())
}

/// One request; false when the server takes no more of them on this connection, by its GOAWAY.
async fn get(requests: &mut SendRequest<Bytes>) -> IoResult<bool> {
    let request = Request::get("http://soak/").body(()).map_err(std::io::Error::other)?;
    let response = match requests.send_request(request, true) {
        Ok((response, _)) => response.await,
        Err(error) => Err(error),
    };
    match response {
        Ok(response) => body(response).await.map(|()| true).map_err(|error| as_io(&error)),
        Err(error) if is_goaway(&error) => Ok(false),
        Err(error) => Err(as_io(&error)),
    }
}

/// Whether the request was not begun: it may be sent again elsewhere, and nothing was lost.
pub fn is_goaway(error: &h2::Error) -> bool {
    let nothing_wrong = [h2::Reason::NO_ERROR, h2::Reason::REFUSED_STREAM];
    (error.is_go_away() || error.is_reset())
        && error.reason().is_some_and(|reason| nothing_wrong.contains(&reason))
}

async fn body(response: Response<RecvStream>) -> Result<(), h2::Error> {
    let mut body = response.into_body();
    while let Some(chunk) = body.data().await {
        body.flow_control().release_capacity(chunk?.len())?;
    }
    Ok(())
}
