//! Packets made by hand, Ethernet header included.

use std::net::SocketAddrV4;

use super::world::{NODE_MAC, PEER_MAC};

/// TCP flag bits.
pub mod flag {
    /// FIN.
    pub const FIN: u8 = 0x01;
    /// SYN.
    pub const SYN: u8 = 0x02;
    /// RST.
    pub const RST: u8 = 0x04;
    /// PSH.
    pub const PSH: u8 = 0x08;
    /// ACK.
    pub const ACK: u8 = 0x10;
}

/// A TCP segment.
#[derive(Clone, Copy, Debug)]
pub struct Segment {
    /// Source.
    pub from: SocketAddrV4,
    /// Destination.
    pub to: SocketAddrV4,
    /// Sequence number.
    pub seq: u32,
    /// Acknowledgement number.
    pub ack: u32,
    /// See [`flag`].
    pub flags: u8,
    /// Bytes of payload.
    pub payload: u16,
}

/// Ethernet types.
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
/// Ethernet type of ARP.
pub const ARP: u16 = 0x0806;
const TCP: u8 = 6;
const UDP: u8 = 17;
/// Ethernet header: two addresses and a type.
const ETHERNET: usize = 14;

fn ethernet(kind: u16) -> Vec<u8> {
    let mut frame = Vec::with_capacity(1_500);
    frame.extend(NODE_MAC);
    frame.extend(PEER_MAC);
    frame.extend(kind.to_be_bytes());
    frame
}

/// An ARP reply to nobody.
pub fn arp() -> Vec<u8> {
    let mut frame = ethernet(ARP);
    frame[..6].copy_from_slice(&PEER_MAC);
    frame.extend([0, 1, 8, 0, 6, 4, 0, 2]);
    frame.extend([0; 20]);
    frame
}

/// A UDP datagram over IPv4 without checksum.
pub fn udp(from: SocketAddrV4, to: SocketAddrV4) -> Vec<u8> {
    let mut frame = ipv4(from, to, UDP, 28);
    frame.extend(from.port().to_be_bytes());
    frame.extend(to.port().to_be_bytes());
    frame.extend([0, 28, 0, 0]);
    frame.extend([0; 20]);
    frame
}

/// A TCP segment over IPv4.
pub fn tcp(segment: &Segment) -> Vec<u8> {
    let length = 20 + segment.payload;
    let mut frame = ipv4(segment.from, segment.to, TCP, length);
    let header = frame.len();
    tcp_header(&mut frame, segment);
    let addresses = &frame[ETHERNET + 12..ETHERNET + 20];
    let sum =
        sum(addresses) + u32::from(TCP) + u32::from(length) + sum_of_payload(&frame[header..]);
    let check = fold(sum);
    frame[header + 16..header + 18].copy_from_slice(&check.to_be_bytes());
    frame
}

/// A TCP segment over IPv6; the addresses of the segment are not used, its ports are.
pub fn tcp6(from: [u8; 16], to: [u8; 16], segment: &Segment) -> Vec<u8> {
    let length = 20 + segment.payload;
    let mut frame = ipv6(from, to, TCP, length);
    let header = frame.len();
    tcp_header(&mut frame, segment);
    let addresses = &frame[ETHERNET + 8..ETHERNET + 40];
    let check = fold(
        sum(addresses) + u32::from(TCP) + u32::from(length) + sum_of_payload(&frame[header..]),
    );
    frame[header + 16..header + 18].copy_from_slice(&check.to_be_bytes());
    frame
}

/// A UDP datagram over IPv6. Its checksum is not checked by routers.
pub fn udp6(from: [u8; 16], to: [u8; 16]) -> Vec<u8> {
    let mut frame = ipv6(from, to, UDP, 28);
    frame.extend([0x10, 0, 0x20, 0, 0, 28, 0xff, 0xff]);
    frame.extend([0; 20]);
    frame
}

fn ipv4(from: SocketAddrV4, to: SocketAddrV4, protocol: u8, payload: u16) -> Vec<u8> {
    let mut frame = ethernet(IPV4);
    frame.extend([0x45, 0]);
    frame.extend((20 + payload).to_be_bytes());
    frame.extend([0, 1, 0x40, 0, 64, protocol, 0, 0]);
    frame.extend(from.ip().octets());
    frame.extend(to.ip().octets());
    let check = fold(sum(&frame[ETHERNET..]));
    frame[ETHERNET + 10..ETHERNET + 12].copy_from_slice(&check.to_be_bytes());
    frame
}

fn ipv6(from: [u8; 16], to: [u8; 16], protocol: u8, payload: u16) -> Vec<u8> {
    let mut frame = ethernet(IPV6);
    frame.extend([0x60, 0, 0, 0]);
    frame.extend(payload.to_be_bytes());
    frame.extend([protocol, 64]);
    frame.extend(from);
    frame.extend(to);
    frame
}

fn tcp_header(frame: &mut Vec<u8>, segment: &Segment) {
    frame.extend(segment.from.port().to_be_bytes());
    frame.extend(segment.to.port().to_be_bytes());
    frame.extend(segment.seq.to_be_bytes());
    frame.extend(segment.ack.to_be_bytes());
    frame.extend([0x50, segment.flags, 0xff, 0xff, 0, 0, 0, 0]);
    frame.resize(frame.len() + usize::from(segment.payload), 0);
}

/// The payload is zeros: only the header counts.
fn sum_of_payload(segment: &[u8]) -> u32 {
    sum(&segment[..20])
}

fn sum(bytes: &[u8]) -> u32 {
    bytes.chunks_exact(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum()
}

/// The Internet checksum of a sum (RFC 1071).
fn fold(mut sum: u32) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    // Folded to 16 bits above.
    !u16::try_from(sum).unwrap_or(0)
}
