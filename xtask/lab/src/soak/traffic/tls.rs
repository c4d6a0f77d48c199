//! HTTP/1.1 under TLS: either side ends it by `close_notify`.

use anyhow::Result;
use tokio::io::AsyncWriteExt;

use super::super::client::Client;
use super::super::tls;
use super::http1;

pub async fn run(client: &Client) -> Result<()> {
    let (connector, name) = tls::connector()?;
    while !client.is_over() {
        let Some((stream, mut track)) = client.dial().await? else { continue };
        let handshake = connector.connect(name.clone(), stream);
        let Some(mut stream) = client.exchange(&mut track, handshake).await? else { continue };
        let mut good = true;
        for _ in 0..fastrand::u32(1..12) {
            let answer = client.exchange(&mut track, http1::get(&mut stream, http1::KEPT)).await?;
            good = answer.is_some_and(|answer| !answer.close)
                && client.idle(stream.get_ref().0, 5..800).await;
            if !good || client.is_over() {
                break;
            }
        }
        if good && fastrand::bool() {
            // The server closes first.
            let last = client.exchange(&mut track, http1::get(&mut stream, http1::ONCE)).await?;
            if last.is_some() {
                client.exchange(&mut track, http1::end(&mut stream)).await?;
            }
        } else if good {
            client.exchange(&mut track, stream.shutdown()).await?;
        }
    }
    Ok(())
}
