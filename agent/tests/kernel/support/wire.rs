//! SYNs made by hand, and SYNs read from the wire: ISNs known without asking the probes.

use std::{
    fs::File,
    io::Read as _,
    net::{IpAddr, SocketAddr},
    os::fd::AsRawFd as _,
};

use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrStorage, bind, sendto,
    socket,
};

use super::{Namespace, at};

/// A SYN to send, of no socket of this kernel.
#[derive(Clone, Copy, Debug)]
pub struct Syn {
    /// Source address (one of the namespace's) and port.
    pub from: SocketAddr,
    /// Destination.
    pub to: SocketAddr,
    /// Sequence number.
    pub isn: u32,
    /// Bytes of payload, as TCP Fast Open sends them; even.
    pub payload: usize,
}

impl Syn {
    fn segment(&self) -> Vec<u8> {
        let mut segment = Vec::with_capacity(20 + self.payload);
        segment.extend(self.from.port().to_be_bytes());
        segment.extend(self.to.port().to_be_bytes());
        segment.extend(self.isn.to_be_bytes());
        segment.extend([0; 4]);
        // Header of five words; SYN; a window; room for the checksum and the urgent pointer.
        segment.extend([0x50, 0x02, 0xff, 0xff, 0, 0, 0, 0]);
        segment.resize(20 + self.payload, 0);
        let sum = checksum(self.from.ip(), self.to.ip(), &segment);
        segment[16..18].copy_from_slice(&sum.to_be_bytes());
        segment
    }
}

/// The checksum of RFC 9293 (IPv4) and RFC 8200 (IPv6) over pseudo-header and segment.
fn checksum(from: IpAddr, to: IpAddr, segment: &[u8]) -> u16 {
    let octets = |address: IpAddr| match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    };
    let length = u16::try_from(segment.len()).expect("a short segment");
    let mut bytes = octets(from);
    bytes.extend(octets(to));
    bytes.extend([0, 6]);
    bytes.extend(length.to_be_bytes());
    bytes.extend(segment);
    let mut sum: u32 =
        bytes.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).expect("folded to 16 bits")
}

impl Namespace {
    /// Sends SYNs by hand, as clients of another machine would. The kernel here has no socket for
    /// them: it resets what is answered.
    pub fn send(&self, syns: &[Syn]) {
        self.run(|| {
            for syn in syns {
                let family =
                    if syn.to.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
                let raw = socket(family, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::Tcp);
                let raw = raw.expect("make a raw socket");
                let from = SockaddrStorage::from(at(syn.from.ip(), 0));
                bind(raw.as_raw_fd(), &from).expect("bind a raw socket");
                // The port of a raw socket's address is a protocol number, and must be 0.
                let to = SockaddrStorage::from(at(syn.to.ip(), 0));
                sendto(raw.as_raw_fd(), &syn.segment(), &to, MsgFlags::empty())
                    .expect("send a SYN by hand");
            }
        });
    }

    /// Begins to read all packets of the namespace.
    pub fn capture(&self) -> Capture {
        let packets = self.run(|| {
            let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
            socket(AddressFamily::Packet, SockType::Datagram, flags, SockProtocol::EthAll)
                .expect("make a packet socket")
        });
        Capture { packets: File::from(packets) }
    }
}

/// Packets of a namespace.
pub struct Capture {
    packets: File,
}

impl Capture {
    /// ISNs of the SYNs from a source port that were seen since the last look, retransmits too.
    pub fn isns(&mut self, from_port: u16) -> Vec<u32> {
        let mut isns = Vec::new();
        let mut bytes = [0; 2048];
        while let Ok(length) = self.packets.read(&mut bytes) {
            isns.extend(isn_of(&bytes[..length], from_port));
        }
        isns
    }
}

fn isn_of(packet: &[u8], from_port: u16) -> Option<u32> {
    let tcp = match packet.first()? >> 4 {
        4 if packet.get(9) == Some(&6) => packet.get(20..40)?,
        6 if packet.get(6) == Some(&6) => packet.get(40..60)?,
        _ => return None,
    };
    let only_syn = tcp[13] & 0x12 == 0x02;
    let from = u16::from_be_bytes([tcp[0], tcp[1]]);
    (only_syn && from == from_port).then(|| u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]]))
}
