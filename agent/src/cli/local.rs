//! A server for the browser of whoever started it: on this machine, until Ctrl-C.

use std::{
    io::Write as _,
    net::{IpAddr, SocketAddr},
};

use anyhow::Context as _;
use axum::{
    Router,
    extract::Request,
    http::{StatusCode, header},
    middleware::{self, Next},
    response::{IntoResponse, Response},
};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::Failed;
use crate::http;

/// Binds, says where, and serves what is made until Ctrl-C.
pub(super) fn serve(
    address: SocketAddr,
    flag: &str,
    make: impl AsyncFnOnce(CancellationToken) -> Result<Router, Failed>,
) -> Result<(), Failed> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    runtime.block_on(async {
        let listener = TcpListener::bind(address)
            .await
            .with_context(|| format!("cannot listen on {address}: name another with {flag}"))
            .map_err(Failed::unavailable)?;
        let bound = listener.local_addr().context("the listener has no address")?;
        let shutdown = CancellationToken::new();
        let router = make(shutdown.clone()).await?;
        // Other sites must not read it through a name of theirs that leads here.
        let router = if bound.ip().is_loopback() {
            router.layer(middleware::from_fn(only_by_local_name))
        } else {
            router
        };
        println!("http://{bound}/");
        std::io::stdout().flush().context("cannot write to standard output")?;
        let token = shutdown.clone();
        tokio::spawn(async move {
            // Without a handler Ctrl-C ends the process all the same.
            drop(tokio::signal::ctrl_c().await);
            token.cancel();
        });
        http::serve(listener, router, shutdown).await.map_err(Failed::from)
    })
}

async fn only_by_local_name(request: Request, next: Next) -> Response {
    let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
    if host.is_some_and(is_local) {
        next.run(request).await
    } else {
        let why =
            "this page is served to this machine only: open it by the address that was printed\n";
        (StatusCode::MISDIRECTED_REQUEST, why).into_response()
    }
}

/// Whether a Host header names this machine by an address of the loopback interface, or localhost.
fn is_local(host: &str) -> bool {
    if let Ok(socket) = host.parse::<SocketAddr>() {
        return socket.ip().is_loopback();
    }
    let name = host.rsplit_once(':').map_or(host, |(name, port)| {
        if port.bytes().all(|byte| byte.is_ascii_digit()) { name } else { host }
    });
    let bare = name.trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost")
        || bare.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_this_machine_are_served() {
        for host in
            ["localhost", "localhost:9467", "127.0.0.1:9467", "127.0.0.1", "[::1]:9467", "[::1]"]
        {
            assert!(is_local(host), "{host}");
        }
        for host in ["example.org", "example.org:9467", "127.0.0.1.example.org", "10.0.0.1:80", ""]
        {
            assert!(!is_local(host), "{host}");
        }
    }
}
