//! Times for people: local with the offset from UTC, or UTC.

use jiff::{Timestamp, Unit, tz::TimeZone};

use crate::advise::duration;

/// In which zone times are shown.
#[derive(Clone, Debug)]
pub struct Times {
    zone: TimeZone,
}

impl Times {
    /// UTC, or where this machine is.
    pub fn new(utc: bool) -> Self {
        Self { zone: if utc { TimeZone::UTC } else { TimeZone::system() } }
    }

    /// `2026-11-30 06:03:12+01:00`; in UTC `2026-11-30 05:03:12Z`.
    pub fn full(&self, at: Timestamp) -> String {
        self.format(at, "%Y-%m-%d %H:%M:%S")
    }

    /// `06:03:12+01:00`.
    pub fn clock(&self, at: Timestamp) -> String {
        self.format(at, "%H:%M:%S")
    }

    fn format(&self, at: Timestamp, format: &str) -> String {
        let at = at.round(Unit::Second).unwrap_or(at).to_zoned(self.zone.clone());
        let offset = if at.offset().seconds() == 0 { "Z" } else { "%:z" };
        at.strftime(&format!("{format}{offset}")).to_string()
    }
}

/// From one time to another, as `9.10 s`; earlier ones as `-3.0 s`.
pub(super) fn between(from: Timestamp, to: Timestamp) -> String {
    let seconds = to.duration_since(from).as_secs_f64();
    if seconds < 0.0 { format!("-{}", duration(-seconds)) } else { duration(seconds) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_local_time_has_its_offset() {
        let at: Timestamp = "2026-11-30T05:03:12.6Z".parse().unwrap();
        assert_eq!(Times::new(true).full(at), "2026-11-30 05:03:13Z");
        let zone = TimeZone::fixed(jiff::tz::offset(1));
        assert_eq!(Times { zone }.full(at), "2026-11-30 06:03:13+01:00");
    }
}
