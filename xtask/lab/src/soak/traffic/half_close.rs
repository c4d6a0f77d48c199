//! A client that closes its half with its request, and then reads the answer.

use anyhow::Result;
use tokio::io::AsyncWriteExt;

use super::super::client::Client;
use super::http1;

pub async fn run(client: &Client) -> Result<()> {
    while !client.is_over() {
        let Some((mut stream, mut track)) = client.dial().await? else { continue };
        let exchange = async {
            http1::ask(&mut stream, http1::ONCE).await?;
            stream.shutdown().await?;
            http1::answer(&mut stream).await?;
            http1::end(&mut stream).await
        };
        client.exchange(&mut track, exchange).await?;
        client.pause(50..300).await;
    }
    Ok(())
}
