//! Colour and weight, on a terminal only.

use std::io::IsTerminal as _;

/// Whether to colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    colour: bool,
}

impl Style {
    /// Colours if standard output is a terminal and `NO_COLOR` is not set (<https://no-color.org>).
    pub fn of_stdout() -> Self {
        let wanted = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        Self { colour: wanted && std::io::stdout().is_terminal() }
    }

    /// No colour.
    pub const PLAIN: Self = Self { colour: false };

    fn paint(self, code: &str, text: &str) -> String {
        if self.colour { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }

    pub(super) fn bold(self, text: &str) -> String {
        self.paint("1", text)
    }

    pub(super) fn dim(self, text: &str) -> String {
        self.paint("2", text)
    }

    pub(super) fn bad(self, text: &str) -> String {
        self.paint("1;31", text)
    }

    pub(super) fn warn(self, text: &str) -> String {
        self.paint("33", text)
    }

    pub(super) fn good(self, text: &str) -> String {
        self.paint("32", text)
    }
}
