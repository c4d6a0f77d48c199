//! Two clocks that are never mixed silently: the kernel's, which orders packets, and the API's.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Nanoseconds on the node's monotonic clock (`CLOCK_MONOTONIC`, what `bpf_ktime_get_ns` returns).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Mono(pub u64);

/// A point of civil time. From the API server it has a resolution of 1 s (`metav1.Time`).
pub type Wall = Timestamp;

impl Mono {
    /// Nanoseconds from `earlier` to `self`, 0 if it is not earlier.
    pub const fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// The point `nanos` later.
    #[must_use]
    pub const fn plus(self, nanos: u64) -> Self {
        Self(self.0.saturating_add(nanos))
    }
}

/// How the two clocks stood to each other when last compared; a step of the civil clock changes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clock {
    /// A reading of the monotonic clock.
    pub mono: Mono,
    /// The civil time at that reading.
    pub wall: Wall,
}

impl Clock {
    /// The civil time of a monotonic reading.
    pub fn wall(&self, at: Mono) -> Wall {
        let delta = i128::from(at.0) - i128::from(self.mono.0);
        Timestamp::from_nanosecond(self.wall.as_nanosecond() + delta).unwrap_or(self.wall)
    }

    /// The monotonic reading of a civil time; 0 for a time before the machine started.
    pub fn mono(&self, at: Wall) -> Mono {
        let nanos = i128::from(self.mono.0) + at.as_nanosecond() - self.wall.as_nanosecond();
        Mono(u64::try_from(nanos.max(0)).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_two_clocks_convert_both_ways() {
        let clock = Clock { mono: Mono(5_000), wall: Timestamp::from_second(1_000).unwrap() };
        let later = clock.wall(Mono(2_000_005_000));
        assert_eq!(later.as_second(), 1_002);
        assert_eq!(clock.mono(later), Mono(2_000_005_000));
    }

    #[test]
    fn a_time_before_the_boot_is_the_boot() {
        let clock = Clock { mono: Mono(5_000), wall: Timestamp::from_second(1_000).unwrap() };
        assert_eq!(clock.mono(Timestamp::from_second(1).unwrap()), Mono(0));
    }
}
