//! Pods that keep failing without leaving: since when, and whether their siblings do better.

use std::{collections::BTreeMap, sync::Arc};

use crate::model::Mono;

/// The most pods of which it is remembered that they fail.
const MAX_PODS: usize = 4_096;

/// Two failures further apart than this are not of one streak, however long a streak must be.
const LONGEST_GAP_NANOS: u64 = 60_000_000_000;

/// A row of failures of one pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Streak {
    /// The first.
    pub since: Mono,
    /// The last.
    pub last: Mono,
    /// Attempts to the address dialled that had been answered when it began.
    pub answered: u64,
}

/// Streaks by pod UID.
#[derive(Clone, Debug, Default)]
pub struct Failing {
    streaks: BTreeMap<Arc<str>, Streak>,
    /// Streaks that had to go for want of room.
    pub forgotten: u64,
}

impl Failing {
    /// A connection to a pod failed. `answered`: how many to the same address had been answered.
    pub fn failed(&mut self, pod_uid: &Arc<str>, at: Mono, answered: u64) {
        let new = Streak { since: at, last: at, answered };
        let streak = self.streaks.entry(pod_uid.clone()).or_insert(new);
        if at.since(streak.last) > LONGEST_GAP_NANOS {
            *streak = new;
        }
        // Failures are told in the order in which they end, not in which they begin.
        streak.since = streak.since.min(at);
        streak.last = streak.last.max(at);
        if self.streaks.len() > MAX_PODS {
            let oldest = self.streaks.iter().min_by_key(|(_, streak)| streak.last);
            if let Some(uid) = oldest.map(|(uid, _)| uid.clone()) {
                self.streaks.remove(&uid);
                self.forgotten += 1;
            }
        }
    }

    /// The pod's streak.
    pub fn streak(&self, pod_uid: &str) -> Option<Streak> {
        self.streaks.get(pod_uid).copied()
    }

    /// Whether a pod has failed since then.
    pub fn has_failed_since(&self, pod_uid: &str, since: Mono) -> bool {
        self.streaks.get(pod_uid).is_some_and(|streak| streak.last >= since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn a_streak_lasts_from_its_first_to_its_last_failure() {
        let mut failing = Failing::default();
        let uid: Arc<str> = "a".into();
        for second in [10, 40, 90] {
            failing.failed(&uid, Mono(second * SECOND), second);
        }
        let streak = failing.streak("a").unwrap();
        assert_eq!((streak.since, streak.last), (Mono(10 * SECOND), Mono(90 * SECOND)));
        assert_eq!(streak.answered, 10);
        assert!(failing.has_failed_since("a", Mono(90 * SECOND)));
        assert!(!failing.has_failed_since("b", Mono(0)));
    }

    #[test]
    fn a_pause_of_more_than_a_minute_ends_a_streak() {
        let mut failing = Failing::default();
        let uid: Arc<str> = "a".into();
        failing.failed(&uid, Mono(10 * SECOND), 1);
        failing.failed(&uid, Mono(71 * SECOND), 2);
        assert_eq!(failing.streak("a").unwrap().since, Mono(71 * SECOND));
    }

    #[test]
    fn the_number_of_streaks_is_bounded() {
        let mut failing = Failing::default();
        for number in 0..=MAX_PODS {
            failing.failed(&format!("{number}").into(), Mono(number as u64), 0);
        }
        assert_eq!((failing.streaks.len(), failing.forgotten), (MAX_PODS, 1));
        assert_eq!(failing.streak("0"), None);
    }
}
