//! The node's conntrack table over netlink: which entries nobody has answered, and the deletion of
//! single ones.
//!
//! One dump of all families, filtered in the kernel by status only: a filter on addresses is inverted
//! for IPv6 (6.18), one on protocols needs a family, and IPVS does not say that it changes the
//! destination. So protocol and NAT are told apart here, by comparing the tuples.
//!
//! # Layout
//! - `message`: entries from and to netlink attributes
//! - `counts`: how full the table is, and what the kernel dropped

mod counts;
mod message;

use std::io;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_netfilter::{
    NetfilterHeader, NetfilterMessage, NetfilterMessageInner, NetfilterProtoFamily,
    conntrack::{ConntrackAttribute, ConntrackMessage},
};
use netlink_sys::{Socket, SocketAddr as NetlinkAddress, protocols::NETLINK_NETFILTER};
use thiserror::Error;

pub use self::counts::TableCounts;
use crate::model::{ConntrackEntry, EntryKey, Mono};

/// Room for one read: the kernel fills up to 32 KiB of a dump at a time.
const READ_BYTES: usize = 1 << 16;

/// Why the table cannot be read or changed.
#[derive(Debug, Error)]
pub enum ConntrackError {
    /// The socket failed.
    #[error("cannot {what} netlink: {source}")]
    Socket {
        /// Operation.
        what: &'static str,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The kernel refused.
    #[error("the kernel does not {what} conntrack entries: {source}{}", remedy(.source))]
    Refused {
        /// Operation.
        what: &'static str,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Something that is no netlink message.
    #[error("netlink answered with something else than a conntrack message: {0}")]
    Malformed(String),
}

fn remedy(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::PermissionDenied => ": give the agent CAP_NET_ADMIN",
        _ => "",
    }
}

impl ConntrackError {
    fn socket(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Socket { what, source }
    }

    /// The entry asked about is not there.
    fn is_missing(&self) -> bool {
        matches!(self, Self::Refused { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }
}

/// The node's conntrack table.
pub struct Conntrack {
    socket: Socket,
    sequence: u32,
    buffer: Vec<u8>,
}

impl Conntrack {
    /// A socket in the caller's network namespace.
    ///
    /// # Errors
    /// If the kernel has no netfilter netlink.
    pub fn open() -> Result<Self, ConntrackError> {
        let mut socket = Socket::new(NETLINK_NETFILTER).map_err(ConntrackError::socket("open"))?;
        socket.bind_auto().map_err(ConntrackError::socket("bind"))?;
        socket.connect(&NetlinkAddress::new(0, 0)).map_err(ConntrackError::socket("connect"))?;
        Ok(Self { socket, sequence: 0, buffer: Vec::with_capacity(READ_BYTES) })
    }

    /// Calls `found` with every TCP or UDP entry that nobody has answered and whose packets go
    /// elsewhere than they were dialled.
    ///
    /// # Errors
    /// If the kernel refuses, or its answer is not understood.
    pub fn unanswered(
        &mut self,
        now: Mono,
        mut found: impl FnMut(ConntrackEntry),
    ) -> Result<(), ConntrackError> {
        let request = ConntrackMessage::Get(message::unanswered());
        self.exchange("dump", NetfilterProtoFamily::Unspec, request, NLM_F_DUMP, |attributes| {
            if let Some(entry) = message::entry(attributes, now)
                && entry.backend != entry.key.original
            {
                found(entry);
            }
        })
    }

    /// The entry of this tuple and zone as it is now.
    ///
    /// # Errors
    /// If the kernel refuses, or its answer is not understood.
    pub fn get(
        &mut self,
        key: &EntryKey,
        now: Mono,
    ) -> Result<Option<ConntrackEntry>, ConntrackError> {
        let request = ConntrackMessage::Get(message::identity(key, None));
        let mut found = None;
        let asked = self.exchange("show", message::family(key), request, NLM_F_ACK, |attributes| {
            found = message::entry(attributes, now);
        });
        match asked {
            Err(error) if error.is_missing() => Ok(None),
            Err(error) => Err(error),
            Ok(()) => Ok(found),
        }
    }

    /// Deletes the one entry of this tuple, zone and id; whether it was there.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn delete(&mut self, key: &EntryKey, id: u32) -> Result<bool, ConntrackError> {
        let request = ConntrackMessage::Delete(message::identity(key, Some(id)));
        match self.exchange("delete", message::family(key), request, NLM_F_ACK, |_| {}) {
            Err(error) if error.is_missing() => Ok(false),
            Err(error) => Err(error),
            Ok(()) => Ok(true),
        }
    }

    /// Sends a request, and reads until its end: of the dump, or the acknowledgement.
    fn exchange(
        &mut self,
        what: &'static str,
        family: NetfilterProtoFamily,
        request: ConntrackMessage,
        flags: u16,
        mut each: impl FnMut(&[ConntrackAttribute]),
    ) -> Result<(), ConntrackError> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | flags;
        header.sequence_number = self.sequence;
        let inner = NetfilterMessage::new(NetfilterHeader::new(family, 0, 0), request);
        let mut packet = NetlinkMessage::new(header, NetlinkPayload::from(inner));
        packet.finalize();
        let mut bytes = vec![0; packet.buffer_len()];
        packet.serialize(&mut bytes);
        self.socket.send(&bytes, 0).map_err(ConntrackError::socket("write to"))?;
        loop {
            self.buffer.clear();
            let read = self.socket.recv(&mut self.buffer, 0);
            read.map_err(ConntrackError::socket("read from"))?;
            let mut rest = &self.buffer[..];
            while !rest.is_empty() {
                let answer = NetlinkMessage::<NetfilterMessage>::deserialize(rest)
                    .map_err(|error| ConntrackError::Malformed(error.to_string()))?;
                // Messages are aligned to 4 bytes.
                let length = (answer.header.length as usize).next_multiple_of(4).max(4);
                rest = rest.get(length..).unwrap_or_default();
                // What is left of an exchange that failed in its middle.
                if answer.header.sequence_number != self.sequence {
                    continue;
                }
                match answer.payload {
                    NetlinkPayload::Done(_) => return Ok(()),
                    NetlinkPayload::Error(error) if error.code.is_none() => return Ok(()),
                    NetlinkPayload::Error(error) => {
                        return Err(ConntrackError::Refused { what, source: error.to_io() });
                    }
                    NetlinkPayload::InnerMessage(NetfilterMessage {
                        inner: NetfilterMessageInner::Conntrack(ConntrackMessage::New(attributes)),
                        ..
                    }) => each(&attributes),
                    _ => {}
                }
            }
        }
    }
}
