//! What the clients of each kind do, one file a kind: connection after connection, until the load is over.

mod abrupt;
mod closed_port;
mod download;
mod goodbye;
mod grpc;
mod half_close;
mod health;
mod http1;
mod http2;
mod orderly;
mod pools;
mod reuse;
mod scan;
mod tls;
mod upload;
mod websocket;

use anyhow::Result;

use super::client::Client;
use super::kind::Kind;

/// Makes the traffic of a kind.
pub async fn run(kind: Kind, client: Client) -> Result<()> {
    match kind {
        Kind::Pools => pools::run(&client).await,
        Kind::Abrupt => abrupt::run(&client).await,
        Kind::Orderly => orderly::run(&client).await,
        Kind::Tls => tls::run(&client).await,
        Kind::Http2 => http2::run(&client).await,
        Kind::Grpc => grpc::run(&client).await,
        Kind::Websocket => websocket::run(&client).await,
        Kind::Goodbye => goodbye::run(&client).await,
        Kind::Upload => upload::run(&client).await,
        Kind::Download => download::run(&client).await,
        Kind::HalfClose => half_close::run(&client).await,
        Kind::ClosedPort => closed_port::run(&client).await,
        Kind::Scan => scan::run(&client).await,
        Kind::Health => health::run(&client).await,
        Kind::Reuse => reuse::run(&client).await,
    }
}
