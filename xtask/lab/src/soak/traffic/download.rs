//! One request, and lines in answer until the server closes.

use std::io::ErrorKind;

use anyhow::Result;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::super::client::Client;

pub async fn run(client: &Client) -> Result<()> {
    while !client.is_over() {
        let Some((mut stream, mut track)) = client.dial().await? else { continue };
        let feed = async {
            stream.write_all(b"feed\n").await?;
            let mut lines = Vec::new();
            stream.read_to_end(&mut lines).await?;
            if lines.ends_with(b"\n") { Ok(()) } else { Err(ErrorKind::UnexpectedEof.into()) }
        };
        client.exchange(&mut track, feed).await?;
        client.pause(50..500).await;
    }
    Ok(())
}
