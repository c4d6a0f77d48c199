//! HTTP/2 and gRPC on it: answers, and echoes each message of a stream until the client's half is closed.

use std::io::{Error, ErrorKind, Result};
use std::time::Duration;

use bytes::Bytes;
use h2::server::{Connection, SendResponse};
use h2::{RecvStream, SendStream};
use http::{HeaderMap, HeaderValue, Request, Response};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::app::http::drained;

/// How long a request takes.
const REQUEST_TIME: Duration = Duration::from_millis(20);
/// Requests after which the server says GOAWAY.
const REQUESTS: std::ops::Range<u32> = 10..40;
/// After GOAWAY the client ends its streams, and closes.
const CLIENT_ENDS_WITHIN: Duration = Duration::from_secs(10);
/// The media type of gRPC.
pub const GRPC: &str = "application/grpc";

/// What went wrong, as an error of the stream below. A connection that ends while a stream is open is a
/// broken pipe to the library.
pub fn as_io(error: &h2::Error) -> Error {
    let kind = error.get_io().map(Error::kind);
    match (error.get_io().and_then(Error::raw_os_error), kind) {
        (Some(number), _) => Error::from_raw_os_error(number),
        (None, Some(ErrorKind::ConnectionReset)) => Error::from_raw_os_error(nix::libc::ECONNRESET),
        (None, Some(ErrorKind::BrokenPipe)) => Error::from(ErrorKind::UnexpectedEof),
        _ => Error::other(error.to_string()),
    }
}

/// Serves a connection until either side has said GOAWAY.
pub async fn http2(stream: TcpStream, mut draining: watch::Receiver<bool>) -> Result<()> {
    let mut connection: Connection<_, Bytes> =
        h2::server::handshake(stream).await.map_err(|error| as_io(&error))?;
    let mut left = fastrand::u32(REQUESTS);
    loop {
        tokio::select! {
            request = connection.accept() => {
                let Some(request) = request else { return Ok(()) };
                let (request, respond) = request.map_err(|error| as_io(&error))?;
                tokio::spawn(answer(request, respond, draining.clone()));
                left -= 1;
                if left == 0 {
                    break;
                }
            }
            () = drained(&mut draining) => break,
        }
    }
    connection.graceful_shutdown();
    let rest = async {
        // What crossed the GOAWAY is answered still.
        while let Some(request) = connection.accept().await {
            let (request, respond) = request.map_err(|error| as_io(&error))?;
            tokio::spawn(answer(request, respond, draining.clone()));
        }
        Ok(())
    };
    timeout(CLIENT_ENDS_WITHIN, rest).await?
}

/// Answers a request. A client that has cancelled it is no error.
async fn answer(
    request: Request<RecvStream>,
    respond: SendResponse<Bytes>,
    draining: watch::Receiver<bool>,
) {
    let is_grpc =
        request.headers().get(http::header::CONTENT_TYPE).is_some_and(|kind| kind == GRPC);
    let answered =
        if is_grpc { echo(request, respond, draining).await } else { say(respond).await };
    drop(answered);
}

async fn say(mut respond: SendResponse<Bytes>) -> std::result::Result<(), h2::Error> {
    sleep(REQUEST_TIME).await;
    let mut body = respond.send_response(Response::new(()), false)?;
    body.send_data(Bytes::from_static(b"{\"ok\":true}"), true)
}

/// Sends each message back, and ends with the trailers of a call that went well.
async fn echo(
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
    mut draining: watch::Receiver<bool>,
) -> std::result::Result<(), h2::Error> {
    let mut response = Response::new(());
    let kind = HeaderValue::from_static(GRPC);
    response.headers_mut().insert(http::header::CONTENT_TYPE, kind);
    let mut out: SendStream<Bytes> = respond.send_response(response, false)?;
    let mut messages = request.into_body();
    loop {
        let message = tokio::select! {
            message = messages.data() => message,
            () = drained(&mut draining) => None,
        };
        let Some(message) = message.transpose()? else { break };
        messages.flow_control().release_capacity(message.len())?;
        out.send_data(message, false)?;
    }
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    out.send_trailers(trailers)
}
