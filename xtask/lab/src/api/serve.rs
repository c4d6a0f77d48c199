//! The listener: one task for each connection, all ended with the server, as a killed process would
//! end them.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::{Server, route};

/// The pause after a failed accept (out of descriptors): the listener would fail again at once.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Serves until it is stopped.
pub async fn serve(listener: TcpListener, server: Arc<Server>, stop: CancellationToken) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(connection(stream, Arc::clone(&server)));
                }
                Err(error) => {
                    tracing::warn!(%error, "the API server cannot accept a connection; trying again");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
        }
    }
    drop(listener);
    connections.shutdown().await;
}

async fn connection(stream: TcpStream, server: Arc<Server>) {
    // Without it an event could wait for the acknowledgement of the one before.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "cannot set TCP_NODELAY on an API connection");
    }
    let service = service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
        route::answer(Arc::clone(&server), request.map(Body::new))
    });
    if let Err(error) = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await
    {
        // A client that goes away in the middle of a watch is no fault of the server.
        tracing::debug!(%error, "an API connection ended");
    }
}
