//! What an answered connection says, and how it ends. Pure; the programs and the tests share it.
//!
//! One number decides: the ack of the client's last message. Where the backend's FIN or RST has that
//! very sequence number, not a byte came since the request.

use crate::abi::Flow;

/// Flags of [`Flow::flags`].
pub mod state {
    /// The client has said goodbye: a FIN, or a protocol's own.
    pub const CLIENT_DONE: u16 = 1;
    /// The backend has sent its FIN.
    pub const BACKEND_FIN: u16 = 1 << 1;
    /// Its end is told.
    pub const TOLD: u16 = 1 << 2;
    /// The last message may be one that nobody answers.
    pub const DOUBTFUL: u16 = 1 << 3;
    /// It carries TLS.
    pub const TLS: u16 = 1 << 4;
    /// It carries something else than TLS.
    pub const PLAIN: u16 = 1 << 5;
    /// The backend has answered a message.
    pub const ANSWERED: u16 = 1 << 6;
    /// The begin of the connection was seen.
    pub const FROM_BEGIN: u16 = 1 << 7;
    /// Conntrack shows a DNAT.
    pub const DNAT: u16 = 1 << 8;
}

/// What a segment of the client's says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    /// Nothing that is answered: a TLS alert.
    Nothing,
    /// That it will ask for nothing more.
    Goodbye,
    /// Something that may go without an answer; TLS, plain, or not known.
    Doubtful(u16),
    /// Something that is answered; TLS, plain, or not known.
    Message(u16),
}

/// Segments up to so many bytes of payload are looked into: whatever goes without an answer is short.
pub const SHORT: u32 = 80;

/// Bytes that are looked at.
pub const PEEK: usize = 16;

/// The longest of the segments that usually go without an answer (an HTTP/2 PING under TLS 1.2:
/// 17 bytes of frame, 29 of record), where the bytes themselves cannot be read.
const DOUBTFUL_UNREAD: u32 = 46;

/// TLS records of an alert: under TLS 1.3, and under TLS 1.2 with AES-GCM and with ChaCha20.
const ALERTS: [u32; 3] = [24, 31, 23];

/// What a segment with so many bytes of payload says, by its first bytes if they could be read.
#[inline(always)]
pub fn said(length: u32, bytes: Option<&[u8; PEEK]>) -> Said {
    let Some(bytes) = bytes else {
        return if length <= DOUBTFUL_UNREAD { Said::Doubtful(0) } else { Said::Message(0) };
    };
    let is_tls = length > 5 && bytes[1] == 3 && bytes[2] <= 4 && bytes[0] >= 0x14 && bytes[0] <= 0x17;
    if is_tls {
        return match bytes[0] {
            0x15 => Said::Nothing,
            // The one record of TLS 1.3 that is no longer than an alert: type, tag, two bytes.
            0x17 if length == 24 && bytes[3] == 0 && bytes[4] == 0x13 => Said::Nothing,
            // The end of a handshake, after which the client may ask for nothing; and records as
            // short as those of HTTP/2's PING, WINDOW_UPDATE and GOAWAY.
            0x14 | 0x17 if length <= SHORT => Said::Doubtful(state::TLS),
            _ => Said::Message(state::TLS),
        };
    }
    // MySQL's COM_QUIT, PostgreSQL's Terminate.
    if length == 5
        && (first_word(bytes) == 0x0100_0000 && bytes[4] == 1
            || bytes[0] == b'X' && first_word(bytes) == 0x5800_0000 && bytes[4] == 4)
    {
        return Said::Goodbye;
    }
    // A client's WebSocket frames are masked (RFC 6455): close, ping, pong.
    if length > 5 && bytes[1] & 0x80 != 0 {
        match bytes[0] {
            0x88 => return Said::Goodbye,
            0x89 | 0x8a => return Said::Doubtful(state::PLAIN),
            _ => {}
        }
    }
    if length >= 9 && length <= SHORT && is_http2_control(bytes) {
        return Said::Doubtful(state::PLAIN);
    }
    Said::Message(state::PLAIN)
}

/// The first four bytes as a number.
#[inline(always)]
const fn first_word(bytes: &[u8; PEEK]) -> u32 {
    u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

/// Whether an HTTP/2 frame without an answer of its own begins here (RFC 9113, 6): each type has its
/// length, and but for two its stream.
#[inline(always)]
fn is_http2_control(bytes: &[u8; PEEK]) -> bool {
    let length = first_word(bytes) >> 8;
    let stream = u32::from_be_bytes([bytes[5], bytes[6], bytes[7], bytes[8]]);
    match bytes[3] {
        // PRIORITY, RST_STREAM
        2 => length == 5 && stream != 0,
        3 => length == 4 && stream != 0,
        // SETTINGS
        4 => length % 6 == 0 && length <= 60 && stream == 0,
        // PING
        6 => length == 8 && stream == 0,
        // GOAWAY
        7 => length >= 8 && length < 64 && stream == 0,
        // WINDOW_UPDATE
        8 => length == 4,
        _ => false,
    }
}

/// How a connection ended that the client had not ended itself. The numbers are part of the ABI.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Not a byte came since the client's last message.
    Cut = 1,
    /// A RST, after at least a byte of an answer or before any message.
    Reset = 2,
    /// Not a byte came since the client's last message, which may be one that nobody answers.
    Closed = 3,
}

impl End {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 3] = [Self::Cut, Self::Reset, Self::Closed];

    /// The one of that number, if there is one.
    pub fn from_number(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|end| *end as u32 == number)
    }
}

/// So many messages without a byte in answer are a stream that nobody answers, on a connection whose
/// backend has never said anything; and on any other.
const ONE_WAY: (u16, u16) = (3, 8);

/// What a FIN or RST of the backend's with this sequence number means; `None`: nothing to tell.
#[inline(always)]
pub fn end(flow: &Flow, seq: u32, is_rst: bool) -> Option<End> {
    if flow.flags & (state::CLIENT_DONE | state::TOLD) != 0 {
        return None;
    }
    let has_fin = flow.flags & state::BACKEND_FIN != 0;
    if has_fin && !is_rst {
        return None;
    }
    let since = seq.wrapping_sub(flow.ack);
    // A server that says close_notify before it closes has answered nothing by that.
    let is_alert = !has_fin
        && flow.flags & state::PLAIN == 0
        && (since == ALERTS[0] || since == ALERTS[1] || since == ALERTS[2]);
    if since == 0 || is_alert && flow.flags & state::TLS != 0 {
        return Some(if is_one_way(flow) || flow.flags & state::DOUBTFUL != 0 {
            End::Closed
        } else {
            End::Cut
        });
    }
    // After a FIN in order a RST only says that nobody is there any more.
    match (is_rst && !has_fin, is_alert) {
        (true, _) => Some(End::Reset),
        (false, true) => Some(End::Closed),
        (false, false) => None,
    }
}

#[inline(always)]
fn is_one_way(flow: &Flow) -> bool {
    let never_answered = flow.flags & (state::ANSWERED | state::FROM_BEGIN) == state::FROM_BEGIN;
    flow.unanswered >= ONE_WAY.1 || never_answered && flow.unanswered >= ONE_WAY.0
}

/// Takes a message of the client's into account: `seq` and `length` of its payload, and what it says.
#[inline(always)]
pub fn message(flow: &mut Flow, seq: u32, length: u32, ack: u32, said: Said) {
    let next = seq.wrapping_add(length);
    // A retransmit, or the same segment on a second device: the first was the message.
    if next.wrapping_sub(flow.next).wrapping_sub(1) >= 1 << 31 {
        return;
    }
    flow.next = next;
    let (doubtful, what) = match said {
        Said::Nothing => return,
        Said::Goodbye => {
            flow.flags |= state::CLIENT_DONE;
            return;
        }
        Said::Doubtful(what) => (state::DOUBTFUL, what),
        Said::Message(what) => (0, what),
    };
    if ack == flow.ack {
        if flow.unanswered < u16::MAX {
            flow.unanswered += 1;
        }
        // What was asked before is still asked.
        if flow.flags & state::DOUBTFUL != 0 {
            flow.flags = flow.flags & !state::DOUBTFUL | doubtful;
        }
    } else {
        flow.ack = ack;
        flow.unanswered = 1;
        flow.flags = flow.flags & !state::DOUBTFUL | doubtful | state::ANSWERED;
    }
    // What began as TLS stays so: a record that does not begin with a segment looks plain.
    match what {
        state::TLS => flow.flags = flow.flags & !state::PLAIN | state::TLS,
        state::PLAIN if flow.flags & state::TLS == 0 => flow.flags |= state::PLAIN,
        _ => {}
    }
}
