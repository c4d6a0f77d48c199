//! A pool of connections: each works for a while, idles, works again, and is given up or closed by the
//! server; before each request it is looked at, as pools do.

use anyhow::Result;

use super::super::client::Client;
use super::http1;

/// Connections of a pool.
const SIZE: usize = 4;

pub async fn run(client: &Client) -> Result<()> {
    futures::future::try_join_all((0..SIZE).map(|_| one(client))).await.map(drop)
}

async fn one(client: &Client) -> Result<()> {
    while !client.is_over() {
        let Some((mut stream, mut track)) = client.dial().await? else { continue };
        for _ in 0..fastrand::u32(1..6) {
            let mut good = true;
            for _ in 0..fastrand::u32(1..8) {
                let answer = client.exchange(&mut track, http1::get(&mut stream, http1::KEPT));
                good = answer.await?.is_some_and(|answer| !answer.close)
                    && client.idle(&stream, 5..400).await;
                if !good || client.is_over() {
                    break;
                }
            }
            if !good || client.is_over() || !client.idle(&stream, 1_000..6_000).await {
                break;
            }
        }
    }
    Ok(())
}
