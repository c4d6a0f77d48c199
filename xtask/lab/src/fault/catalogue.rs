//! The faults: their names, what they are about, and their dials.

use std::fmt::Write;

use clap::ValueEnum;

/// A fault of the API server as the agents see it: everybody else's server is well.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Fault {
    /// Each answer comes 2 s late
    ApiSlow,
    /// Connections are cut, and new ones refused
    ApiGone,
    /// Every packet is dropped: open watches hang
    ApiSilent,
    /// The server comes back with its state of before the rollout, and catches up later
    ApiOlder,
    /// Two rights are taken away: to get pods, and nodes
    ApiDenied,
    /// Watches are closed again and again, and the history they would resume from is forgotten
    WatchChaos,
}

/// The dials of a fault.
#[derive(Debug, Clone, Copy)]
pub struct Dials {
    /// How long it lasts, in seconds.
    pub lasts: u64,
    /// How long after the begin of the rollout it sets in, in seconds: the first old pod is being
    /// removed by then.
    pub after: u64,
    /// How long the clients make requests, in seconds.
    pub load: u64,
}

impl Fault {
    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::ApiSlow => "api-slow",
            Self::ApiGone => "api-gone",
            Self::ApiSilent => "api-silent",
            Self::ApiOlder => "api-older",
            Self::ApiDenied => "api-denied",
            Self::WatchChaos => "watch-chaos",
        }
    }

    /// The dials.
    pub fn dials(self) -> Dials {
        match self {
            Self::ApiSlow | Self::ApiDenied | Self::WatchChaos => {
                Dials { lasts: 15, after: 0, load: 22 }
            }
            Self::ApiGone | Self::ApiSilent => Dials { lasts: 60, after: 3, load: 25 },
            Self::ApiOlder => Dials { lasts: 8, after: 4, load: 25 },
        }
    }
}

/// Every fault with what it is about, a line each.
pub fn table() -> String {
    let mut text = String::new();
    for fault in Fault::value_variants() {
        let value = fault.to_possible_value();
        let about = value.and_then(|value| value.get_help().map(ToString::to_string));
        // Writing to a String cannot fail.
        let _infallible = writeln!(text, "{:<12} {}", fault.name(), about.unwrap_or_default());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fault_has_the_name_that_the_command_line_takes() {
        for fault in Fault::value_variants() {
            let value = fault.to_possible_value().expect("a name");
            assert_eq!(value.get_name(), fault.name());
        }
    }
}
