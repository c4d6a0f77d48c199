//! Conntrack entries from and to netlink attributes (`include/uapi/linux/netfilter/nfnetlink_conntrack.h`).

use std::net::{IpAddr, SocketAddr};

use netlink_packet_core::{DefaultNla, Nla as _};
use netlink_packet_netfilter::{
    NetfilterProtoFamily,
    conntrack::{
        ConntrackAttribute, IPTuple, ProtoInfo, ProtoInfoTCP, ProtoTuple, Protocol, Status, Tuple,
    },
};

use crate::model::{ConntrackEntry, EntryKey, Mono, SEEN_REPLY, Transport};

const CTA_ID: u16 = 12;
const CTA_ZONE: u16 = 18;
/// Since 5.15: compares only these bits of the status.
const CTA_STATUS_MASK: u16 = 26;

/// What a dump of the entries without an answer asks for.
pub(super) fn unanswered() -> Vec<ConntrackAttribute> {
    vec![
        ConntrackAttribute::CtaStatus(Status::empty()),
        other(CTA_STATUS_MASK, &SEEN_REPLY.to_be_bytes()),
    ]
}

/// What names one entry: its original tuple and zone, and its id to be certain.
pub(super) fn identity(key: &EntryKey, id: Option<u32>) -> Vec<ConntrackAttribute> {
    let protocol = match key.protocol {
        Transport::Tcp => Protocol::Tcp,
        Transport::Udp => Protocol::Udp,
    };
    let mut attributes = vec![ConntrackAttribute::CtaTupleOrig(vec![
        Tuple::Ip(vec![
            IPTuple::SourceAddress(key.client.ip()),
            IPTuple::DestinationAddress(key.original.ip()),
        ]),
        Tuple::Proto(vec![
            ProtoTuple::Protocol(protocol),
            ProtoTuple::SourcePort(key.client.port()),
            ProtoTuple::DestinationPort(key.original.port()),
        ]),
    ])];
    if key.zone != 0 {
        attributes.push(other(CTA_ZONE, &key.zone.to_be_bytes()));
    }
    attributes.extend(id.map(|id| other(CTA_ID, &id.to_be_bytes())));
    attributes
}

/// The address family that a request about one entry names.
pub(super) fn family(key: &EntryKey) -> NetfilterProtoFamily {
    if key.original.is_ipv4() { NetfilterProtoFamily::IPv4 } else { NetfilterProtoFamily::IPv6 }
}

fn other(kind: u16, value: &[u8]) -> ConntrackAttribute {
    ConntrackAttribute::Other(DefaultNla::new(kind, value.to_vec()))
}

/// An entry; nothing of other protocols, or where something is missing.
pub(super) fn entry(attributes: &[ConntrackAttribute], now: Mono) -> Option<ConntrackEntry> {
    let (mut original, mut reply, mut state) = (None, None, None);
    let (mut status, mut id, mut zone, mut timeout) = (0, 0, 0, 0);
    for attribute in attributes {
        match attribute {
            ConntrackAttribute::CtaTupleOrig(parts) => original = ends(parts),
            ConntrackAttribute::CtaTupleReply(parts) => reply = ends(parts),
            ConntrackAttribute::CtaStatus(bits) => status = bits.bits(),
            ConntrackAttribute::CtaTimeout(seconds) => timeout = u64::from(*seconds),
            ConntrackAttribute::CtaProtoInfo(infos) => state = tcp_state(infos),
            ConntrackAttribute::Other(nla) if nla.kind() == CTA_ID => {
                id = u32::from_be_bytes(value(nla)?);
            }
            ConntrackAttribute::Other(nla) if nla.kind() == CTA_ZONE => {
                zone = u16::from_be_bytes(value(nla)?);
            }
            _ => {}
        }
    }
    let (protocol, client, dialled) = original?;
    let (_, backend, _) = reply?;
    let key = EntryKey { protocol, client, original: dialled, zone };
    let expires = now.plus(timeout * 1_000_000_000);
    Some(ConntrackEntry { key, backend, id, status, state, expires })
}

fn value<const N: usize>(nla: &DefaultNla) -> Option<[u8; N]> {
    if nla.value_len() != N {
        return None;
    }
    let mut bytes = [0; N];
    nla.emit_value(&mut bytes);
    Some(bytes)
}

fn tcp_state(infos: &[ProtoInfo]) -> Option<u8> {
    infos.iter().find_map(|info| match info {
        ProtoInfo::TCP(parts) => parts.iter().find_map(|part| match part {
            ProtoInfoTCP::State(state) => Some(*state),
            _ => None,
        }),
        _ => None,
    })
}

/// Protocol, source and destination of a direction.
fn ends(parts: &[Tuple]) -> Option<(Transport, SocketAddr, SocketAddr)> {
    let (mut from, mut to): (Option<IpAddr>, Option<IpAddr>) = (None, None);
    let (mut protocol, mut from_port, mut to_port) = (None, None, None);
    for part in parts {
        match part {
            Tuple::Ip(addresses) => {
                for address in addresses {
                    match address {
                        IPTuple::SourceAddress(ip) => from = Some(*ip),
                        IPTuple::DestinationAddress(ip) => to = Some(*ip),
                        _ => {}
                    }
                }
            }
            Tuple::Proto(values) => {
                for value in values {
                    match value {
                        ProtoTuple::Protocol(Protocol::Tcp) => protocol = Some(Transport::Tcp),
                        ProtoTuple::Protocol(Protocol::Udp) => protocol = Some(Transport::Udp),
                        ProtoTuple::SourcePort(port) => from_port = Some(*port),
                        ProtoTuple::DestinationPort(port) => to_port = Some(*port),
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    Some((protocol?, SocketAddr::new(from?, from_port?), SocketAddr::new(to?, to_port?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> EntryKey {
        EntryKey {
            protocol: Transport::Tcp,
            client: "10.244.1.5:42526".parse().unwrap(),
            original: "10.96.0.80:80".parse().unwrap(),
            zone: 7,
        }
    }

    #[test]
    fn an_entry_is_read_from_what_names_it_and_the_rest() {
        let mut attributes = identity(&key(), Some(99));
        assert_eq!(entry(&attributes, Mono(5)), None, "without a reply tuple it is none");
        let reply = EntryKey {
            client: "10.244.2.7:8080".parse().unwrap(),
            original: "10.244.1.5:42526".parse().unwrap(),
            ..key()
        };
        let ConntrackAttribute::CtaTupleOrig(parts) = identity(&reply, None).remove(0) else {
            panic!("the tuple comes first")
        };
        attributes.push(ConntrackAttribute::CtaTupleReply(parts));
        attributes.push(ConntrackAttribute::CtaTimeout(112));
        attributes.push(ConntrackAttribute::CtaProtoInfo(vec![ProtoInfo::TCP(vec![
            ProtoInfoTCP::State(1),
        ])]));
        attributes.push(ConntrackAttribute::CtaStatus(Status::from_bits_retain(0x28)));
        let found = entry(&attributes, Mono(5)).expect("an entry");
        let expected = ConntrackEntry {
            key: key(),
            backend: "10.244.2.7:8080".parse().unwrap(),
            id: 99,
            status: 0x28,
            state: Some(1),
            expires: Mono(112_000_000_005),
        };
        assert_eq!(found, expected);
    }

    #[test]
    fn other_protocols_are_left_out() {
        let ConntrackAttribute::CtaTupleOrig(mut parts) = identity(&key(), None).remove(0) else {
            panic!("the tuple comes first")
        };
        parts[1] = Tuple::Proto(vec![ProtoTuple::Protocol(Protocol::Icmp)]);
        assert_eq!(ends(&parts), None);
    }
}
