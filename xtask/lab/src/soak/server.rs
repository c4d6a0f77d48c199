//! The server process: a port for each kind of traffic, each of which drains at SIGTERM.

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::args::SoakServerArgs;
use super::kind::Kind;
use super::serve;
use crate::app::http::report;
use crate::app::listen::{listen, serve as serve_port, until_sigterm};
use crate::app::server::LISTENING;

/// Serves until the drain has ended.
pub fn run(args: &SoakServerArgs) -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("start the server's runtime")?;
    let pod = Arc::<str>::from(args.pod.as_str());
    runtime.block_on(async {
        let draining = until_sigterm()?;
        let mut ports = JoinSet::new();
        let mut listeners = Vec::new();
        for kind in Kind::all().iter().filter(|kind| kind.is_served()) {
            listeners.push((*kind, listen(kind.port()).await?));
        }
        println!("{LISTENING}{}", jiff::Timestamp::now());
        for (kind, listener) in listeners {
            let (pod, draining) = (Arc::clone(&pod), draining.clone());
            ports.spawn(async move {
                let converse = |stream| converse(kind, stream, Arc::clone(&pod), draining.clone());
                serve_port(listener, draining.clone(), converse).await
            });
        }
        while let Some(port) = ports.join_next().await {
            port.context("a task of the server panicked")??;
        }
        Ok(ExitCode::SUCCESS)
    })
}

async fn converse(kind: Kind, stream: TcpStream, pod: Arc<str>, draining: watch::Receiver<bool>) {
    report(match kind {
        Kind::Tls => serve::tls(stream, &pod, draining).await,
        Kind::Http2 | Kind::Grpc => serve::http2(stream, draining).await,
        Kind::Websocket => serve::websocket(stream, draining).await,
        Kind::Goodbye => serve::goodbye(stream, draining).await,
        Kind::Upload => serve::swallow(stream, draining).await,
        Kind::Download => serve::feed(stream, draining).await,
        _ => serve::http1(kind, stream, &pod, draining).await,
    });
}
