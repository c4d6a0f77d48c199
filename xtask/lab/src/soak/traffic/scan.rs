//! Scans of pods that live: each port is closed, and says so; what the Service listens on is found open.

use std::net::{IpAddr, SocketAddr};

use anyhow::{Context, Result};
use nix::errno::Errno;
use serde::Deserialize;

use super::super::client::Client;
use super::super::kind::Kind;
use super::http1;

/// Ports that are tried, below all that anything listens on.
const PORTS: std::ops::Range<u16> = 1..1_024;
/// How many of them at a time.
const AT_A_TIME: usize = 20;

/// What a pod says of itself.
#[derive(Deserialize)]
struct Pod {
    address: IpAddr,
}

pub async fn run(client: &Client) -> Result<()> {
    while !client.is_over() {
        let Some((mut stream, mut track)) = client.dial().await? else { continue };
        let answer = client.exchange(&mut track, http1::get(&mut stream, http1::ONCE)).await?;
        drop(stream);
        let Some(answer) = answer else { continue };
        let pod: Pod = serde_json::from_slice(&answer.body).context("read a pod's address")?;
        // The open one: connected to, and let go.
        drop(client.dial_from(SocketAddr::new(pod.address, Kind::Scan.port()), None).await?);
        for _ in 0..AT_A_TIME {
            let closed = SocketAddr::new(pod.address, fastrand::u16(PORTS));
            if let Err(failed) = client.dial_from(closed, None).await?
                && failed.trouble.errno == Some(Errno::ECONNREFUSED as i32)
            {
                client.probed();
            }
        }
        client.pause(1_000..2_000).await;
    }
    Ok(())
}
