//! A Service's port that no pod listens on.

use anyhow::Result;

use super::super::client::Client;

pub async fn run(client: &Client) -> Result<()> {
    while !client.is_over() {
        // Each is refused, and noted as that.
        drop(client.dial().await?);
        client.pause(1_000..2_500).await;
    }
    Ok(())
}
