//! Lines of the conntrack tool: an entry that it lists, or an event.

use std::net::SocketAddr;

use jiff::Timestamp;

/// An entry, as a list or an event shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Line {
    /// When the event was read; nothing in a list.
    pub at: Option<Timestamp>,
    /// The source of the original direction.
    pub client: SocketAddr,
    /// The destination of the original direction.
    pub dialled: SocketAddr,
    /// The source of the reply direction.
    pub backend: SocketAddr,
    /// Nobody has answered.
    pub unanswered: bool,
}

impl Line {
    /// `[1700000000.123456] [NEW] tcp 6 120 SYN_SENT src=… dst=… sport=… dport=… [UNREPLIED] src=… dst=… sport=… dport=…`;
    /// a list has no time and no event in front.
    pub fn parse(line: &str) -> Option<Self> {
        let line = line.trim_start();
        let (at, rest) = match line.strip_prefix('[') {
            Some(dated) => {
                let (time, rest) = dated.split_once(']')?;
                (Some(time_of(time)?), rest)
            }
            None => (None, line),
        };
        let nth = |name: &str, n: usize| rest.split(name).nth(n)?.split(' ').next();
        let end = |address: &str, port: &str, n: usize| {
            Some(SocketAddr::new(nth(address, n)?.parse().ok()?, nth(port, n)?.parse().ok()?))
        };
        Some(Self {
            at,
            client: end(" src=", " sport=", 1)?,
            dialled: end(" dst=", " dport=", 1)?,
            backend: end(" src=", " sport=", 2)?,
            unanswered: rest.contains("[UNREPLIED]"),
        })
    }
}

fn time_of(text: &str) -> Option<Timestamp> {
    let (seconds, fraction) = text.trim().split_once('.')?;
    let nanoseconds: i32 = format!("{fraction:0<9}").get(..9)?.parse().ok()?;
    Timestamp::new(seconds.parse().ok()?, nanoseconds).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> SocketAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn an_event_tells_time_client_service_and_backend() {
        let line = "[1700000000.123456]\t    [NEW] tcp      6 120 SYN_SENT src=10.244.1.5 dst=10.96.0.80 \
                    sport=42526 dport=80 [UNREPLIED] src=10.244.2.7 dst=10.244.1.5 sport=8080 dport=42526";
        let line = Line::parse(line).expect("an event");
        let at = line.at.expect("a time");
        assert_eq!(at.as_nanosecond(), 1_700_000_000_123_456_000);
        assert_eq!(line.client, address("10.244.1.5:42526"));
        assert_eq!(line.dialled, address("10.96.0.80:80"));
        assert_eq!(line.backend, address("10.244.2.7:8080"));
        assert!(line.unanswered);
    }

    #[test]
    fn a_listed_entry_has_no_time() {
        let line = "tcp      6 86398 ESTABLISHED src=fd00::5 dst=fd00::80 sport=4 dport=80 \
                    src=fd00::7 dst=fd00::5 sport=8080 dport=4 [ASSURED] mark=0 use=1";
        let line = Line::parse(line).expect("an entry");
        assert_eq!((line.at, line.unanswered), (None, false));
        assert_eq!(line.backend, address("[fd00::7]:8080"));
    }
}
