//! The kinds of traffic, each behind a Service of its own.

use clap::ValueEnum;

/// A kind of traffic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Kind {
    /// Pools of HTTP/1.1 connections that open, work and idle
    Pools,
    /// Clients that close abruptly: by RST, before the answer, with unread bytes
    Abrupt,
    /// Servers that close in order: after each answer, and when a connection is idle
    Orderly,
    /// TLS, ended by either side's `close_notify`
    Tls,
    /// HTTP/2 with PING, and GOAWAY from either side
    Http2,
    /// gRPC streams in both directions, ended by trailers or cancelled
    Grpc,
    /// WebSocket, closed by either side
    Websocket,
    /// A protocol whose client says goodbye and lets the server close (`MySQL`'s quit)
    Goodbye,
    /// One-way streams that nobody answers
    Upload,
    /// One-way streams of answers, whose end is the end of the connection
    Download,
    /// Requests whose client closes its half before the answer
    HalfClose,
    /// A Service's port that no pod listens on: real refusals, and no rollout's
    ClosedPort,
    /// Scans of the closed ports of live pods
    Scan,
    /// TCP health checks: half-open probes, connect-and-close
    Health,
    /// Source ports used again after good connections
    Reuse,
}

/// The first of the ports that pods listen on; that of the readiness probe as well.
const FIRST_PORT: u16 = 8080;

impl Kind {
    /// All of them.
    pub fn all() -> &'static [Self] {
        Self::value_variants()
    }

    /// The name: of its Service, and in results.
    pub fn name(self) -> String {
        let value = self.to_possible_value();
        value.map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    /// The port of its pods.
    pub fn port(self) -> u16 {
        let number = Self::all().iter().position(|kind| *kind == self).unwrap_or_default();
        FIRST_PORT + u16::try_from(number).unwrap_or_default()
    }

    /// Whether anything listens there.
    pub fn is_served(self) -> bool {
        self != Self::ClosedPort
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_kind_answers_the_readiness_probe() {
        assert_eq!((Kind::Pools.port(), Kind::Pools.name().as_str()), (8080, "pools"));
        assert!(Kind::Pools.is_served());
    }
}
