//! TCP health checks: connect and close; and half-open probes, whose SYN+ACK is answered by a RST.

use std::net::{SocketAddr, SocketAddrV4, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};

use anyhow::{Context, Result, bail};
use etherparse::TcpHeader;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrIn, sendto, socket,
};

use super::super::client::Client;

/// Source ports of the half-open probes: nobody else's.
const PORTS: std::ops::Range<u16> = 10_000..19_000;

pub async fn run(client: &Client) -> Result<()> {
    let SocketAddr::V4(target) = client.target else { bail!("the soak's Services are of IPv4") };
    let half_open = HalfOpen::towards(target)?;
    while !client.is_over() {
        if client.dial().await?.is_some() {
            client.probed();
        }
        half_open.probe(fastrand::u16(PORTS))?;
        client.probed();
        client.pause(200..600).await;
    }
    Ok(())
}

/// Sends SYNs past the kernel's own sockets: as none of them waits for the answer, the kernel resets it.
struct HalfOpen {
    socket: OwnedFd,
    source: SocketAddrV4,
    target: SocketAddrV4,
}

impl HalfOpen {
    fn towards(target: SocketAddrV4) -> Result<Self> {
        let route = UdpSocket::bind("0.0.0.0:0").context("make a socket")?;
        route.connect(target).context("find the way to the Service")?;
        let SocketAddr::V4(source) = route.local_addr().context("ask for the own address")? else {
            bail!("a socket of IPv4 has an address of IPv6")
        };
        let (kind, flags) = (SockType::Raw, SockFlag::SOCK_CLOEXEC);
        let socket = socket(AddressFamily::Inet, kind, flags, SockProtocol::Tcp)
            .context("make a raw socket")?;
        Ok(Self { socket, source, target })
    }

    fn probe(&self, port: u16) -> Result<()> {
        let mut syn = TcpHeader::new(port, self.target.port(), fastrand::u32(..), 64_240);
        syn.syn = true;
        let (source, target) = (self.source.ip().octets(), self.target.ip().octets());
        syn.checksum =
            syn.calc_checksum_ipv4_raw(source, target, &[]).context("sum up a segment")?;
        let segment = syn.to_bytes();
        let to = SockaddrIn::from(self.target);
        sendto(self.socket.as_raw_fd(), &segment, &to, MsgFlags::empty())
            .context("send a SYN")
            .map(drop)
    }
}
