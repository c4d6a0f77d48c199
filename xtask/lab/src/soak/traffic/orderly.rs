//! Servers that close: after each answer, and when a connection has been idle for a while.

use anyhow::Result;

use super::super::client::Client;
use super::http1;

pub async fn run(client: &Client) -> Result<()> {
    while !client.is_over() {
        let Some((mut stream, mut track)) = client.dial().await? else { continue };
        let version = if fastrand::bool() { http1::KEPT } else { http1::ONCE };
        if client.exchange(&mut track, http1::get(&mut stream, version)).await?.is_some() {
            client.exchange(&mut track, http1::end(&mut stream)).await?;
        }
        drop(stream);
        client.pause(50..200).await;
    }
    Ok(())
}
