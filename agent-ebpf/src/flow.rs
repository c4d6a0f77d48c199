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
    /// The client has asked for something after the backend's FIN.
    pub const ASKED_LATE: u16 = 1 << 9;
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

/// Bytes of a TLS record with an alert: TLS 1.3, and TLS 1.2 with AES-GCM and with `ChaCha20`.
const ALERTS: [u32; 3] = [24, 31, 23];

/// What a segment with so many bytes of payload says, by its first bytes if they could be read.
#[inline(always)]
pub fn said(length: u32, bytes: Option<&[u8; PEEK]>) -> Said {
    let Some(bytes) = bytes else {
        return if length <= DOUBTFUL_UNREAD { Said::Doubtful(0) } else { Said::Message(0) };
    };
    let is_tls = length > 5 && bytes[1] == 3 && bytes[2] <= 4 && matches!(bytes[0], 0x14..=0x17);
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
    if matches!(length, 9..=SHORT) && is_http2_control(bytes) {
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
        4 => matches!(length, 0 | 6 | 12 | 18 | 24 | 30 | 36) && stream == 0,
        // PING
        6 => length == 8 && stream == 0,
        // GOAWAY
        7 => matches!(length, 8..=63) && stream == 0,
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
    let has_fin = flow.flags & state::BACKEND_FIN != 0;
    // The RST that answers a request which crossed the FIN; the client may have read the FIN, and have
    // closed its own end before the RST came.
    let is_late = is_rst && has_fin && flow.flags & state::ASKED_LATE != 0;
    if flow.flags & state::TOLD != 0 || flow.flags & state::CLIENT_DONE != 0 && !is_late {
        return None;
    }
    if has_fin && !is_rst {
        return None;
    }
    let since = seq.wrapping_sub(flow.ack);
    // A server that says close_notify before it closes has answered nothing by that.
    let is_alert = !has_fin
        && flow.flags & state::PLAIN == 0
        && (since == ALERTS[0] || since == ALERTS[1] || since == ALERTS[2]);
    if since == 0 || is_alert && flow.flags & state::TLS != 0 {
        return Some(unanswered(flow));
    }
    // After a FIN in order a RST only says that nobody is there any more.
    match (is_rst && !has_fin, is_alert) {
        (true, _) => Some(End::Reset),
        (false, true) => Some(End::Closed),
        (false, false) => None,
    }
}

/// What it is that the last message has no answer.
#[inline(always)]
fn unanswered(flow: &Flow) -> End {
    if is_one_way(flow) || flow.flags & state::DOUBTFUL != 0 { End::Closed } else { End::Cut }
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
    if flow.flags & state::BACKEND_FIN != 0 {
        flow.flags |= state::ASKED_LATE;
    }
    if ack == flow.ack {
        if doubtful == 0 && flow.unanswered < u16::MAX {
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A connection whose client has asked once, at this ack.
    fn asked(ack: u32) -> Flow {
        Flow { ack, next: 1_000, unanswered: 1, flags: state::FROM_BEGIN, ..Flow::default() }
    }

    fn peek(bytes: &[u8]) -> Said {
        let mut first = [0; PEEK];
        let length = bytes.len().min(PEEK);
        first[..length].copy_from_slice(&bytes[..length]);
        said(u32::try_from(bytes.len()).unwrap(), Some(&first))
    }

    /// A record of this type and length, header included.
    fn record(kind: u8, length: u8) -> Vec<u8> {
        let mut bytes = vec![kind, 3, 3, 0, length - 5];
        bytes.resize(length.into(), 0xaa);
        bytes
    }

    /// An HTTP/2 frame.
    fn frame(kind: u8, stream: u8, payload: u8) -> Vec<u8> {
        let mut bytes = vec![0, 0, payload, kind, 0, 0, 0, 0, stream];
        bytes.resize(9 + usize::from(payload), 0);
        bytes
    }

    #[test]
    fn a_close_is_a_cut_if_not_a_byte_came_since_the_request() {
        for is_rst in [false, true] {
            assert_eq!(end(&asked(500), 500, is_rst), Some(End::Cut));
        }
        assert_eq!(end(&asked(500), 700, false), None, "answered, and closed in order");
        assert_eq!(end(&asked(500), 700, true), Some(End::Reset));
        assert_eq!(end(&asked(u32::MAX), u32::MAX, false), Some(End::Cut));
    }

    #[test]
    fn after_the_clients_goodbye_nothing_is_lost() {
        let done = Flow { flags: state::CLIENT_DONE, ..asked(500) };
        for (seq, is_rst) in [(500, false), (500, true), (700, true)] {
            assert_eq!(end(&done, seq, is_rst), None);
        }
    }

    #[test]
    fn one_connection_ends_once() {
        let told = Flow { flags: state::TOLD | state::BACKEND_FIN, ..asked(500) };
        assert_eq!(end(&told, 500, true), None);
    }

    #[test]
    fn a_request_that_crosses_a_fin_in_order_is_cut_by_the_rst_that_answers_it() {
        let mut idle = Flow { flags: state::BACKEND_FIN, ..asked(500) };
        assert_eq!(end(&idle, 700, true), None, "nobody asked anything any more");
        message(&mut idle, 1_000, 100, 700, Said::Message(state::PLAIN));
        assert_eq!(end(&idle, 700, false), None, "the FIN once more");
        assert_eq!(end(&idle, 700, true), Some(End::Cut));
        // Also where the client has read the FIN, and has closed its own end since.
        idle.flags |= state::CLIENT_DONE;
        assert_eq!(end(&idle, 700, true), Some(End::Cut));
    }

    #[test]
    fn what_a_client_sends_on_after_a_half_close_is_no_cut_without_a_rst() {
        let mut upload = Flow { flags: state::BACKEND_FIN, ..asked(500) };
        message(&mut upload, 1_000, 100, 501, Said::Message(state::PLAIN));
        upload.flags |= state::CLIENT_DONE;
        assert_eq!(end(&upload, 501, false), None);
    }

    #[test]
    fn a_close_notify_of_the_server_hides_no_unanswered_request() {
        for alert in ALERTS {
            let tls = Flow { flags: state::TLS, ..asked(500) };
            assert_eq!(end(&tls, 500 + alert, false), Some(End::Cut));
            // Where it is not known to be TLS it may be a short answer.
            assert_eq!(end(&asked(500), 500 + alert, false), Some(End::Closed));
            let plain = Flow { flags: state::PLAIN, ..asked(500) };
            assert_eq!(end(&plain, 500 + alert, false), None);
        }
    }

    #[test]
    fn an_alert_of_the_clients_is_no_message() {
        assert_eq!(peek(&record(0x15, 31)), Said::Nothing);
        assert_eq!(peek(&record(0x17, 24)), Said::Nothing);
        let mut flow = asked(500);
        message(&mut flow, 1_000, 24, 700, Said::Nothing);
        assert_eq!(flow.ack, 500);
    }

    #[test]
    fn what_may_go_without_an_answer_is_doubtful() {
        let tls = Said::Doubtful(state::TLS);
        assert_eq!(peek(&record(0x17, 35)), tls, "an HTTP/2 WINDOW_UPDATE under TLS 1.3");
        assert_eq!(peek(&record(0x17, 46)), tls, "a PING under TLS 1.2");
        assert_eq!(peek(&record(0x14, 64)), tls, "the end of a handshake");
        let plain = Said::Doubtful(state::PLAIN);
        for control in [frame(8, 1, 4), frame(6, 0, 8), frame(4, 0, 0), frame(7, 0, 8)] {
            assert_eq!(peek(&control), plain, "{control:?}");
        }
        assert_eq!(said(46, None), Said::Doubtful(0), "what cannot be read");
    }

    #[test]
    fn what_is_answered_is_a_message() {
        for request in [
            &b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"[..],
            b"PING\r\n",
            b"*1\r\n$4\r\nPING\r\n",
            b"quit\n",
            b"a",
            &frame(1, 1, 30),
            &[3, 0, 0, 0, 0x0e],
        ] {
            assert_eq!(peek(request), Said::Message(state::PLAIN), "{request:?}");
        }
        assert_eq!(peek(&record(0x17, 100)), Said::Message(state::TLS));
        assert_eq!(peek(&record(0x16, 200)), Said::Message(state::TLS));
        assert_eq!(said(47, None), Said::Message(0));
    }

    #[test]
    fn a_protocols_own_goodbye_is_one() {
        for goodbye in [&[1, 0, 0, 0, 1][..], &[b'X', 0, 0, 0, 4], &[0x88, 0x82, 1, 2, 3, 4, 5, 6]]
        {
            assert_eq!(peek(goodbye), Said::Goodbye, "{goodbye:?}");
        }
        let mut flow = asked(500);
        message(&mut flow, 1_000, 5, 500, Said::Goodbye);
        assert_eq!(end(&flow, 500, false), None);
    }

    #[test]
    fn a_doubtful_message_closes_and_does_not_hide_a_request() {
        let mut flow = asked(500);
        message(&mut flow, 1_000, 13, 700, Said::Doubtful(state::PLAIN));
        assert_eq!(end(&flow, 700, false), Some(End::Closed));
        let mut flow = asked(500);
        message(&mut flow, 1_000, 13, 500, Said::Doubtful(state::PLAIN));
        assert_eq!(
            end(&flow, 500, false),
            Some(End::Cut),
            "the request before it is still unanswered"
        );
        message(&mut flow, 1_013, 90, 500, Said::Message(state::PLAIN));
        assert_eq!(end(&flow, 500, false), Some(End::Cut));
    }

    #[test]
    fn a_stream_that_nobody_answers_closes() {
        let mut flow = asked(500);
        for sent in 0..2 {
            assert_eq!(end(&flow, 500, false), Some(End::Cut), "{sent} more");
            message(&mut flow, 1_000 + sent * 10, 10, 500, Said::Message(state::PLAIN));
        }
        assert_eq!(end(&flow, 500, false), Some(End::Closed));
        // On a connection that was answered before, a request comes in a few segments.
        let mut upload = Flow { flags: state::ANSWERED | state::FROM_BEGIN, ..asked(500) };
        for sent in 0..6 {
            message(&mut upload, 1_000 + sent * 10, 10, 500, Said::Message(state::PLAIN));
        }
        assert_eq!(end(&upload, 500, false), Some(End::Cut));
    }

    #[test]
    fn a_retransmit_is_no_message() {
        let mut flow = asked(500);
        message(&mut flow, 900, 100, 700, Said::Message(0));
        assert_eq!((flow.ack, flow.unanswered), (500, 1));
    }

    proptest! {
        #[test]
        fn any_bytes_are_looked_into_without_panic(length: u32, bytes: [u8; PEEK]) {
            let _ = said(length, Some(&bytes));
        }

        #[test]
        fn an_answered_request_is_never_cut_by_a_fin(ack: u32, answer in 100_u32..1 << 30) {
            prop_assert_eq!(end(&asked(ack), ack.wrapping_add(answer), false), None);
        }
    }
}
