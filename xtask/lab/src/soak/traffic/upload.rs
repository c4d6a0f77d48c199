//! A stream of lines that nobody answers. When the server closes its half some stop at once, others go
//! on for a while: nothing of it is lost either way.

use anyhow::Result;
use tokio::io::AsyncWriteExt;

use super::super::client::Client;

/// A line as a log shipper sends it.
const LINE: &[u8] = b"2026-01-01T00:00:00Z soak a line that is taken in, and not answered at all\n";

pub async fn run(client: &Client) -> Result<()> {
    while !client.is_over() {
        let Some((mut stream, mut track)) = client.dial().await? else { continue };
        let mut left = fastrand::u32(10..80);
        while left > 0 && !client.is_over() {
            let sent = client.exchange(&mut track, stream.write_all(LINE)).await?;
            if sent.is_none() {
                break;
            }
            left -= 1;
            if !client.idle(&stream, 20..150).await {
                left = left.min(if fastrand::bool() { 0 } else { 5 });
                client.pause(20..150).await;
            }
        }
        client.exchange(&mut track, stream.shutdown()).await?;
    }
    Ok(())
}
