//! The connections to the API server, with a pulse.
//!
//! A watch that nobody answers any more (the node is cut off, a firewall has forgotten it) looks
//! like one on which nothing happens. client-go asks after it with HTTP/2 pings; kube's client
//! speaks HTTP/1.1, a connection a watch, and leaves its sockets without a keepalive. So this is
//! kube's own stack of layers on sockets that ask the peer's kernel after 10 s of silence and are
//! broken off after 20 s without an answer. A proxy that ends TCP answers for the server behind it:
//! there the watch's own timeout is what is left.

use std::time::Duration;

use hyper_util::{
    client::legacy::{Client as Connections, connect::HttpConnector},
    rt::TokioExecutor,
};
use kube::{Client, Config, client::ConfigExt};
use tower::{BoxError, ServiceBuilder};
use tower_http::decompression::DecompressionLayer;

/// A connection is made within this time, or not at all.
const CONNECT: Duration = Duration::from_secs(10);
/// After this long without a byte the peer is asked whether it lives.
const QUIET: Duration = Duration::from_secs(10);
/// Between two such questions, of which so many may stay unanswered.
const ASK_AGAIN: Duration = Duration::from_secs(5);
const QUESTIONS: u32 = 2;
/// A peer that has acknowledged nothing for this long, neither data nor questions, is gone. Well
/// below the 30 s for which a verdict waits for evidence: no verdict may rest on a dead watch.
const UNANSWERED: Duration = Duration::from_secs(20);

/// A client of the API server that `config` names.
pub(super) fn client(config: Config) -> kube::Result<Client> {
    if config.proxy_url.is_some() {
        // kube says which of its features that takes.
        return Client::try_from(config);
    }
    let mut sockets = HttpConnector::new();
    sockets.enforce_http(false);
    sockets.set_nodelay(true);
    sockets.set_connect_timeout(Some(CONNECT));
    sockets.set_keepalive(Some(QUIET));
    sockets.set_keepalive_interval(Some(ASK_AGAIN));
    sockets.set_keepalive_retries(Some(QUESTIONS));
    #[cfg(target_os = "linux")]
    sockets.set_tcp_user_timeout(Some(UNANSWERED));
    let connector = config.rustls_https_connector_with_connector(sockets)?;
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .layer(DecompressionLayer::new())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(Connections::builder(TokioExecutor::new()).build(connector));
    Ok(Client::new(service, config.default_namespace))
}
