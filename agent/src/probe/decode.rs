//! Bytes of the ring buffer → sightings. The only byte parser of user space.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use rollrace_ebpf::{
    abi::{self, Address, Event, Kind, Tuple, flag},
    flow,
};
use thiserror::Error;

use super::layout::Layout;
use crate::model::{Answer, Attempt, AttemptKey, Drop, End, Mono, Sighting};

/// Why a record is not understood.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DecodeError {
    /// It has another length than an event.
    #[error("a record of {0} bytes, expected {expected}", expected = size_of::<Event>())]
    Length(usize),
    /// Its kind is not known.
    #[error("a record of unknown kind {0}")]
    Kind(u32),
    /// The end of a connection that it tells is not known.
    #[error("a record of an end of unknown kind {0}")]
    End(u32),
}

/// Decodes one record.
///
/// # Errors
/// If it is no event of this ABI; never panics, whatever the bytes.
pub fn decode(bytes: &[u8], layout: &Layout) -> Result<Sighting, DecodeError> {
    let mut bytes = Cursor::new(bytes)?;
    let ns = bytes.u64();
    let started_ns = bytes.u64();
    let attempt = abi::Attempt {
        first_ns: bytes.u64(),
        last_ns: bytes.u64(),
        backend: bytes.socket(),
        isn: bytes.u32(),
        syns: bytes.u32(),
        flags: bytes.u16(),
        payload: bytes.u16(),
    };
    let tuple = bytes.tuple();
    let (kind, code, family) = (bytes.u32(), bytes.u32(), bytes.u32());
    let kind = Kind::from_number(kind).ok_or(DecodeError::Kind(kind))?;
    let attempt = to_attempt(&tuple, &attempt);
    let at = Mono(ns);
    Ok(match kind {
        Kind::Refused => Sighting::Answered { attempt, answer: Answer::Rst, at },
        Kind::Answered => Sighting::Answered { attempt, answer: Answer::SynAck, at },
        Kind::Dropped => {
            let reason = layout.drop_reason(code).into();
            Sighting::Dropped { attempt, drop: Drop { reason }, at }
        }
        Kind::Icmp => {
            let code = u8::try_from(code).unwrap_or(u8::MAX);
            Sighting::Answered { attempt, answer: Answer::Icmp { code, v6: family == 6 }, at }
        }
        Kind::Abandoned => Sighting::Abandoned {
            attempt,
            started: (started_ns != 0).then_some(Mono(started_ns)),
            errno: i32::try_from(code).unwrap_or(i32::MAX),
            at,
        },
        Kind::Superseded => Sighting::Superseded { attempt, at },
        Kind::Ended => {
            let end = match flow::End::from_number(code).ok_or(DecodeError::End(code))? {
                flow::End::Cut => End::Cut,
                flow::End::Reset => End::Reset,
                flow::End::Closed => End::Closed,
            };
            Sighting::Ended { attempt, end, at }
        }
    })
}

/// An attempt of the kernel's maps as the model has it.
pub fn to_attempt(tuple: &Tuple, attempt: &abi::Attempt) -> Attempt {
    Attempt {
        key: AttemptKey {
            client: socket(tuple.src, tuple.sport),
            original: socket(tuple.dst, tuple.dport),
            isn: attempt.isn,
        },
        backend: (attempt.syns > 0).then(|| socket(attempt.backend.address, attempt.backend.port)),
        first_syn: Mono(attempt.first_ns),
        last_syn: Mono(attempt.last_ns),
        syns: attempt.syns,
        dnat: attempt.flags & flag::DNAT != 0,
        confirmed: attempt.flags & flag::CONFIRMED != 0,
        stale: attempt.flags & flag::STALE != 0,
    }
}

/// An address of the kernel's.
pub fn address(address: Address) -> IpAddr {
    IpAddr::from(Ipv6Addr::from(address.octets())).to_canonical()
}

/// An address and port of the kernel's.
pub fn socket(from: Address, port: u16) -> SocketAddr {
    SocketAddr::new(address(from), port)
}

/// A reader over exactly one event's bytes.
struct Cursor<'a> {
    bytes: &'a [u8],
}

impl<'a> Cursor<'a> {
    fn new(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        if bytes.len() == size_of::<Event>() {
            Ok(Self { bytes })
        } else {
            Err(DecodeError::Length(bytes.len()))
        }
    }

    fn take<const N: usize>(&mut self) -> [u8; N] {
        match self.bytes.split_first_chunk::<N>() {
            Some((head, rest)) => {
                self.bytes = rest;
                *head
            }
            // Not reached: the length was checked against the same struct.
            None => [0; N],
        }
    }

    fn u16(&mut self) -> u16 {
        u16::from_ne_bytes(self.take())
    }

    fn u32(&mut self) -> u32 {
        u32::from_ne_bytes(self.take())
    }

    fn u64(&mut self) -> u64 {
        u64::from_ne_bytes(self.take())
    }

    fn address(&mut self) -> Address {
        Address::from_octets(self.take())
    }

    fn socket(&mut self) -> abi::Socket {
        abi::Socket { address: self.address(), port: self.u16(), pad: self.u16() }
    }

    fn tuple(&mut self) -> Tuple {
        Tuple { src: self.address(), dst: self.address(), sport: self.u16(), dport: self.u16() }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_refusal_keeps_tuple_backend_and_isn() {
        let v4 = |a, b, c, d| Address::v4(u32::from_ne_bytes([a, b, c, d]));
        let event = Event {
            ns: 9,
            kind: Kind::Refused as u32,
            family: 4,
            tuple: Tuple { src: v4(10, 244, 1, 5), dst: v4(10, 96, 0, 80), sport: 4242, dport: 80 },
            attempt: abi::Attempt {
                isn: 7,
                syns: 1,
                flags: flag::DNAT | flag::CONFIRMED,
                backend: abi::Socket { address: v4(10, 244, 2, 7), port: 8080, pad: 0 },
                ..abi::Attempt::default()
            },
            ..Event::default()
        };
        let seen = decode(&event.to_bytes(), &Layout::default()).unwrap();
        let Sighting::Answered { attempt, answer: Answer::Rst, at: Mono(9) } = seen else {
            panic!("{seen:?}")
        };
        assert_eq!(attempt.key.client, "10.244.1.5:4242".parse().unwrap());
        assert_eq!(attempt.key.original, "10.96.0.80:80".parse().unwrap());
        assert_eq!(attempt.backend, Some("10.244.2.7:8080".parse().unwrap()));
        assert!(attempt.dnat && attempt.confirmed && !attempt.stale);
    }

    #[test]
    fn an_unknown_kind_and_a_short_record_are_errors() {
        let event = Event { kind: 99, ..Event::default() };
        assert_eq!(decode(&event.to_bytes(), &Layout::default()), Err(DecodeError::Kind(99)));
        assert_eq!(decode(&[0; 3], &Layout::default()), Err(DecodeError::Length(3)));
    }

    proptest! {
        #[test]
        fn decoding_any_bytes_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..256)) {
            let _ = decode(&bytes, &Layout::default());
        }

        #[test]
        fn decoding_any_event_sized_bytes_never_panics(
            bytes in proptest::collection::vec(any::<u8>(), size_of::<Event>()),
        ) {
            let _ = decode(&bytes, &Layout::default());
        }
    }
}
