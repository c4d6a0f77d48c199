//! Few source ports, each used again as soon as the connection before it has ended well.

use anyhow::Result;

use super::super::client::Client;
use super::http1;

/// Source ports of a task: below those that the kernel chooses from.
const FIRST_PORT: u16 = 20_000;
const PORTS: u16 = 8;

pub async fn run(client: &Client) -> Result<()> {
    let mut next = 0;
    while !client.is_over() {
        let port = FIRST_PORT + client.lane * PORTS + next;
        next = (next + 1) % PORTS;
        let Some((mut stream, mut track)) = client.dial_with(Some(port)).await? else { continue };
        if client.exchange(&mut track, http1::get(&mut stream, http1::ONCE)).await?.is_some() {
            client.exchange(&mut track, http1::end(&mut stream)).await?;
        }
        drop(stream);
        client.pause(20..100).await;
    }
    Ok(())
}
