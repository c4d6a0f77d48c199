//! The node's two clocks, read together.

use jiff::Timestamp;

use crate::model::{Clock, Mono};

/// A reading with less between its two ends than this is taken at once.
const TIGHT_NANOS: u64 = 100_000;

/// Readings tried: a busy machine can take the processor away in the middle of any of them.
const TRIES: usize = 4;

/// How far the civil clock may drift from the monotonic one before the engine is told at once,
/// rather than at its next tick.
const STEP_NANOS: u128 = 50_000_000;

/// The monotonic clock, the kernel's own for its events.
pub fn now() -> Mono {
    let time = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC);
    let nanos = time.map_or(0, |time| {
        let seconds = u64::try_from(time.tv_sec()).unwrap_or(0);
        seconds * 1_000_000_000 + u64::try_from(time.tv_nsec()).unwrap_or(0)
    });
    Mono(nanos)
}

/// Both clocks.
pub fn read() -> Clock {
    tightest(now, Timestamp::now)
}

/// The reading of the civil clock with the least time around it.
fn tightest(mut mono: impl FnMut() -> Mono, mut wall: impl FnMut() -> Timestamp) -> Clock {
    let mut best: Option<(u64, Clock)> = None;
    for _ in 0..TRIES {
        let before = mono();
        let wall = wall();
        let took = mono().since(before);
        if best.is_none_or(|(least, _)| took < least) {
            best = Some((took, Clock { mono: before.plus(took / 2), wall }));
        }
        if took < TIGHT_NANOS {
            break;
        }
    }
    best.map_or(Clock { mono: Mono(0), wall: Timestamp::UNIX_EPOCH }, |(_, clock)| clock)
}

/// Whether the civil clock was stepped between two readings.
pub fn is_stepped(before: Clock, after: Clock) -> bool {
    let drift = after.wall.as_nanosecond() - before.wall(after.mono).as_nanosecond();
    drift.unsigned_abs() >= STEP_NANOS
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn at(mono: u64, wall: i64) -> Clock {
        Clock { mono: Mono(mono * SECOND), wall: Timestamp::from_second(wall).unwrap() }
    }

    #[test]
    fn a_step_of_the_civil_clock_is_seen_in_both_directions_and_time_alone_is_none() {
        let before = at(100, 1_000_000);
        assert!(!is_stepped(before, at(160, 1_000_060)));
        assert!(is_stepped(before, at(101, 1_003_601)));
        assert!(is_stepped(before, at(101, 996_401)));
    }

    #[test]
    fn a_reading_that_was_interrupted_is_not_believed_when_a_better_one_is_to_be_had() {
        let mut readings = [0, 7 * SECOND, 7 * SECOND + 10, 7 * SECOND + 30].map(Mono).into_iter();
        let mut walls = [1_000, 1_007].map(|at| Timestamp::from_second(at).unwrap()).into_iter();
        let clock = tightest(|| readings.next().unwrap(), || walls.next().unwrap());
        assert_eq!(clock, Clock { mono: Mono(7 * SECOND + 20), wall: walls_at(1_007) });
    }

    fn walls_at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }
}
