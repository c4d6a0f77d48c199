//! Clients that go without a goodbye.

use anyhow::{Context, Result};
use nix::libc;
use nix::sys::socket::{setsockopt, sockopt};
use tokio::net::TcpStream;

use super::super::client::Client;
use super::http1;

pub async fn run(client: &Client) -> Result<()> {
    let mut turn = u64::from(client.lane);
    while !client.is_over() {
        let Some((mut stream, mut track)) = client.dial().await? else { continue };
        match turn % 4 {
            // By a RST after the answer.
            0 => {
                client.exchange(&mut track, http1::get(&mut stream, http1::KEPT)).await?;
                reset_on_close(&stream)?;
            }
            // By a RST before it.
            1 => {
                client.exchange(&mut track, http1::ask(&mut stream, http1::KEPT)).await?;
                client.pause(1..10).await;
                reset_on_close(&stream)?;
            }
            // By a FIN before it: the answer finds nobody.
            2 => drop(client.exchange(&mut track, http1::ask(&mut stream, http1::KEPT)).await?),
            // With the answer unread.
            _ => {
                client.exchange(&mut track, http1::ask(&mut stream, http1::KEPT)).await?;
                client.pause(60..100).await;
            }
        }
        drop(stream);
        turn += 1;
        client.pause(100..300).await;
    }
    Ok(())
}

/// Has the kernel send a RST instead of a FIN.
fn reset_on_close(stream: &TcpStream) -> Result<()> {
    let at_once = libc::linger { l_onoff: 1, l_linger: 0 };
    setsockopt(stream, sockopt::Linger, &at_once).context("close by a RST")
}
