//! Pure reading of packet headers. Everything is bounds-known: the kernel's verifier must agree.

use crate::abi::{Address, Tuple};

/// Bytes taken from the network header on: IPv6 and TCP fit, so does IPv4 without options.
pub const HEADERS: usize = 60;

/// Of these, taken of an IPv4 packet.
pub const HEADERS_V4: usize = 40;

/// Bytes taken from an ICMP header on: its own 8, an IPv6 header, ports and sequence number.
pub const ICMP_HEADERS: usize = 56;

/// `ETH_P_IP` as it stands in `skb->protocol` (network byte order).
pub const ETH_P_IP: u16 = 0x0800u16.to_be();
/// `ETH_P_IPV6` as it stands in `skb->protocol`.
pub const ETH_P_IPV6: u16 = 0x86ddu16.to_be();

const IPPROTO_ICMP: u8 = 1;
const IPPROTO_TCP: u8 = 6;
const IPPROTO_ICMPV6: u8 = 58;

/// TCP flag bits.
pub mod tcp {
    /// FIN.
    pub const FIN: u8 = 0x01;
    /// SYN.
    pub const SYN: u8 = 0x02;
    /// RST.
    pub const RST: u8 = 0x04;
    /// PSH: the end of what was written at once.
    pub const PSH: u8 = 0x08;
    /// ACK.
    pub const ACK: u8 = 0x10;
}

/// What follows the IP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// A TCP header, this many bytes from the network header.
    Tcp(u32),
    /// An ICMP or `ICMPv6` header, this many bytes from the network header.
    Icmp(u32),
    /// Nothing of interest: another protocol, a later fragment, an extension header.
    Other,
}

/// The first bytes of an IPv4 packet up to the TCP flags, for a glance at it.
pub type GlanceV4 = [u64; 5];
/// Those of an IPv6 packet.
pub type GlanceV6 = [u64; 7];

/// Where a glance looks: bytes from the network header on.
pub mod place {
    /// Header length of IPv4, in the lower half.
    pub const LENGTH: u32 = 0;
    /// Protocol of IPv4.
    pub const PROTOCOL: u32 = 9;
    /// Next header of IPv6.
    pub const NEXT_HEADER: u32 = 6;
    /// TCP header behind an IPv4 header without options.
    pub const TCP_V4: u32 = 20;
    /// TCP header behind an IPv6 header.
    pub const TCP_V6: u32 = 40;
    /// Total length of IPv4.
    pub const TOTAL_V4: u32 = 2;
    /// Payload length of IPv6.
    pub const PAYLOAD_V6: u32 = 4;
    /// Sequence number, from the TCP header on.
    pub const SEQ: u32 = 4;
    /// Acknowledgement number, from the TCP header on.
    pub const ACK: u32 = 8;
    /// Header length, in the upper half, from the TCP header on.
    pub const OFFSET: u32 = 12;
    /// Flags, from the TCP header on.
    pub const FLAGS: u32 = 13;
}

/// What a glance at a packet yields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Glance {
    /// Nothing of interest.
    Away,
    /// Its headers must be read.
    Headers,
    /// A TCP segment without IP options that ends what was written at once.
    Speaks,
}

/// Whether a packet may be of interest. Nearly all are sent away here, so this is what a packet
/// costs; [`next`] has the last word. `length` is the first byte of an IPv4 header: with options the
/// flags are not where the glance looks.
#[inline(always)]
pub fn glance(protocol: u8, length: u8, flags: impl FnOnce() -> u8) -> Glance {
    match protocol {
        IPPROTO_TCP if length & 0x0f != 5 => Glance::Headers,
        IPPROTO_TCP => {
            let flags = flags();
            if flags & (tcp::SYN | tcp::RST | tcp::FIN) != 0 {
                Glance::Headers
            } else if flags & tcp::PSH != 0 {
                Glance::Speaks
            } else {
                Glance::Away
            }
        }
        IPPROTO_ICMP | IPPROTO_ICMPV6 => Glance::Headers,
        _ => Glance::Away,
    }
}

/// A byte of a glance, at a constant place.
#[inline(always)]
pub fn byte<const N: usize>(words: &[u64; N], at: u32) -> u8 {
    words[at as usize / 8].to_ne_bytes()[at as usize % 8]
}

/// Which header follows, from the first bytes of an IP packet. A datagram of no interest is told by
/// one byte.
#[inline(always)]
pub fn next(headers: &[u8; HEADERS], v6: bool) -> Next {
    if v6 {
        return match headers[6] {
            IPPROTO_TCP => Next::Tcp(40),
            IPPROTO_ICMPV6 => Next::Icmp(40),
            _ => Next::Other,
        };
    }
    let protocol = headers[9];
    if protocol != IPPROTO_TCP && protocol != IPPROTO_ICMP {
        return Next::Other;
    }
    let later_fragment = headers[6] & 0x1f != 0 || headers[7] != 0;
    let length = u32::from(headers[0] & 0x0f) * 4;
    if later_fragment || length < 20 {
        Next::Other
    } else if protocol == IPPROTO_TCP {
        Next::Tcp(length)
    } else {
        Next::Icmp(length)
    }
}

/// Writes source and destination of an IP packet; the ports are left as they are.
#[inline(always)]
pub fn addresses(headers: &[u8; HEADERS], v6: bool, into: &mut Tuple) {
    if v6 {
        into.src = address(headers, 8);
        into.dst = address(headers, 24);
    } else {
        into.src = Address::v4(word(headers, 12));
        into.dst = Address::v4(word(headers, 16));
    }
}

/// Length of the IP packet in bytes, headers included.
#[inline(always)]
pub fn total_length(headers: &[u8; HEADERS], v6: bool) -> u32 {
    if v6 { u32::from(half(headers, 4)) + 40 } else { u32::from(half(headers, 2)) }
}

/// The TCP header's fixed part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tcp {
    /// Source port.
    pub sport: u16,
    /// Destination port.
    pub dport: u16,
    /// Sequence number.
    pub seq: u32,
    /// Acknowledgement number.
    pub ack: u32,
    /// Header length in bytes.
    pub length: u32,
    /// Flags, see [`tcp`].
    pub flags: u8,
}

impl Tcp {
    /// From the 20 bytes of the header.
    #[inline(always)]
    pub fn read(header: &[u8; 20]) -> Self {
        Self {
            sport: half(header, 0),
            dport: half(header, 2),
            seq: u32::from_be(word(header, 4)),
            ack: u32::from_be(word(header, 8)),
            length: u32::from(header[12] >> 4) * 4,
            flags: header[13],
        }
    }
}

/// Reads a "destination unreachable" (ICMP type 3, `ICMPv6` type 1) about a TCP packet: its code and
/// the packet's sequence number, of a SYN the ISN; the packet's tuple is written to `about`. `None`
/// if it is another message. RFC 792: at least 8 bytes of the embedded transport header are there.
#[inline(always)]
pub fn unreachable(message: &[u8; ICMP_HEADERS], v6: bool, about: &mut Tuple) -> Option<(u8, u32)> {
    let code = message[1];
    if v6 {
        if message[0] != 1 || message[14] != IPPROTO_TCP {
            return None;
        }
        about.src = address(message, 16);
        about.dst = address(message, 32);
        about.sport = half(message, 48);
        about.dport = half(message, 50);
        Some((code, u32::from_be(word(message, 52))))
    } else {
        // Options in the embedded header are so rare that they are left out, not guessed at.
        if message[0] != 3 || message[8] != 0x45 || message[17] != IPPROTO_TCP {
            return None;
        }
        about.src = Address::v4(word(message, 20));
        about.dst = Address::v4(word(message, 24));
        about.sport = half(message, 28);
        about.dport = half(message, 30);
        Some((code, u32::from_be(word(message, 32))))
    }
}

/// Whether a RST with this `ack` answers the SYN: RFC 9293 acknowledges the SYN and, under TCP Fast
/// Open (RFC 7413), the data that came with it.
#[inline(always)]
pub fn answers(ack: u32, isn: u32, payload: u16) -> bool {
    ack.wrapping_sub(isn).wrapping_sub(1) <= u32::from(payload)
}

/// Two bytes at a constant place, as a number.
#[inline(always)]
const fn half<const N: usize>(bytes: &[u8; N], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// Four bytes at a constant place, as they stand in memory.
#[inline(always)]
const fn word<const N: usize>(bytes: &[u8; N], at: usize) -> u32 {
    u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[inline(always)]
const fn address<const N: usize>(bytes: &[u8; N], at: usize) -> Address {
    Address([word(bytes, at), word(bytes, at + 4), word(bytes, at + 8), word(bytes, at + 12)])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn v4(protocol: u8) -> [u8; HEADERS] {
        let mut bytes = [0; HEADERS];
        bytes[0] = 0x45;
        bytes[2..4].copy_from_slice(&60u16.to_be_bytes());
        bytes[9] = protocol;
        bytes[12..16].copy_from_slice(&[10, 244, 1, 5]);
        bytes[16..20].copy_from_slice(&[10, 96, 0, 80]);
        bytes
    }

    #[test]
    fn ip_options_move_the_tcp_header() {
        let mut bytes = v4(6);
        assert_eq!(next(&bytes, false), Next::Tcp(20));
        bytes[0] = 0x47;
        assert_eq!(next(&bytes, false), Next::Tcp(28));
    }

    #[test]
    fn a_later_fragment_has_no_tcp_header() {
        let mut bytes = v4(6);
        bytes[7] = 1;
        assert_eq!(next(&bytes, false), Next::Other);
    }

    #[test]
    fn udp_is_of_no_interest_in_either_version() {
        assert_eq!(next(&v4(17), false), Next::Other);
        let mut six = [0; HEADERS];
        six[0] = 0x60;
        six[6] = 17;
        assert_eq!(next(&six, true), Next::Other);
    }

    #[test]
    fn addresses_of_both_versions_share_one_form() {
        let mut tuple = Tuple::default();
        addresses(&v4(6), false, &mut tuple);
        assert_eq!(tuple.src.octets()[12..], [10, 244, 1, 5]);
        let mut six = [0; HEADERS];
        six[8..24].copy_from_slice(&[0xfd; 16]);
        addresses(&six, true, &mut tuple);
        assert_eq!(tuple.src, Address::from_octets([0xfd; 16]));
    }

    #[test]
    fn an_icmp_unreachable_names_the_syn_it_is_about() {
        let mut message = [0; ICMP_HEADERS];
        message[0] = 3;
        message[1] = 1;
        message[8] = 0x45;
        message[17] = 6;
        message[20..24].copy_from_slice(&[10, 244, 1, 5]);
        message[24..28].copy_from_slice(&[10, 96, 0, 80]);
        message[28..30].copy_from_slice(&4000u16.to_be_bytes());
        message[30..32].copy_from_slice(&80u16.to_be_bytes());
        message[32..36].copy_from_slice(&77u32.to_be_bytes());
        let mut about = Tuple::default();
        assert_eq!(unreachable(&message, false, &mut about), Some((1, 77)));
        assert_eq!((about.sport, about.dport), (4000, 80));
        message[0] = 11;
        assert_eq!(
            unreachable(&message, false, &mut about),
            None,
            "time exceeded is another message"
        );
    }

    #[test]
    fn a_rst_answers_a_syn_with_and_without_fast_open_data() {
        assert!(answers(101, 100, 0));
        assert!(!answers(102, 100, 0));
        assert!(answers(151, 100, 50));
        assert!(!answers(152, 100, 50));
        assert!(answers(0, u32::MAX, 0), "sequence numbers wrap");
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(bytes in any::<[u8; 32]>(), v6: bool) {
            let mut headers = [0; HEADERS];
            headers[..32].copy_from_slice(&bytes);
            headers[28..].copy_from_slice(&bytes);
            let _ = (next(&headers, v6), total_length(&headers, v6));
            addresses(&headers, v6, &mut Tuple::default());
            let mut message = [0; ICMP_HEADERS];
            message[..32].copy_from_slice(&bytes);
            let _ = unreachable(&message, v6, &mut Tuple::default());
        }
    }
}
