//! A map with a bound: what is retired goes first, then what was touched longest ago.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

/// Entries by UID.
#[derive(Clone, Debug)]
pub struct Remembered<V> {
    entries: BTreeMap<Arc<str>, (u64, V)>,
    /// Living ones by when they were last touched.
    touched: BTreeMap<u64, Arc<str>>,
    /// Retired ones, first first.
    retired: VecDeque<Arc<str>>,
    turn: u64,
    bound: usize,
    forgotten: u64,
}

/// In `entries`: it is in `retired`.
const RETIRED: u64 = 0;

impl<V> Remembered<V> {
    /// Empty, with a bound.
    pub fn new(bound: usize) -> Self {
        Self {
            entries: BTreeMap::new(),
            touched: BTreeMap::new(),
            retired: VecDeque::new(),
            turn: RETIRED,
            bound,
            forgotten: 0,
        }
    }

    /// The entry.
    pub fn get(&self, uid: &str) -> Option<&V> {
        self.entries.get(uid).map(|(_, value)| value)
    }

    /// The entry, to change it.
    pub fn get_mut(&mut self, uid: &str) -> Option<&mut V> {
        self.entries.get_mut(uid).map(|(_, value)| value)
    }

    /// All entries.
    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.entries.values().map(|(_, value)| value)
    }

    /// Changes each entry; none counts as touched by it.
    pub fn for_each_mut(&mut self, mut change: impl FnMut(&mut V)) {
        for (_, value) in self.entries.values_mut() {
            change(value);
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// How many had to go for want of room.
    pub fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Inserts or replaces; returns what had to go for want of room.
    pub fn insert(&mut self, uid: Arc<str>, value: V) -> Option<(Arc<str>, V)> {
        self.turn += 1;
        let turn = match self.entries.get(&uid) {
            Some((RETIRED, _)) => RETIRED,
            known => {
                if let Some((before, _)) = known {
                    self.touched.remove(before);
                }
                self.touched.insert(self.turn, uid.clone());
                self.turn
            }
        };
        self.entries.insert(uid, (turn, value));
        if self.entries.len() > self.bound { self.pop() } else { None }
    }

    /// Lets it be among the first to go.
    pub fn retire(&mut self, uid: &Arc<str>) {
        if let Some((turn, _)) = self.entries.get_mut(uid)
            && *turn != RETIRED
        {
            self.touched.remove(turn);
            *turn = RETIRED;
            self.retired.push_back(uid.clone());
        }
    }

    /// Removes an entry.
    pub fn remove(&mut self, uid: &str) -> Option<V> {
        let (turn, value) = self.entries.remove(uid)?;
        if turn == RETIRED {
            self.retired.retain(|retired| &**retired != uid);
        } else {
            self.touched.remove(&turn);
        }
        Some(value)
    }

    fn pop(&mut self) -> Option<(Arc<str>, V)> {
        let uid = match self.retired.pop_front() {
            Some(uid) => uid,
            None => self.touched.pop_first()?.1,
        };
        let (_, value) = self.entries.remove(&uid)?;
        self.forgotten += 1;
        Some((uid, value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn past_the_bound_the_retired_go_first_and_then_those_not_touched_for_longest() {
        let mut map = Remembered::new(3);
        for uid in ["a", "b", "c"] {
            assert!(map.insert(uid.into(), uid).is_none());
        }
        map.retire(&"b".into());
        map.insert("a".into(), "a again");
        assert_eq!(map.insert("d".into(), "d").unwrap().1, "b");
        assert_eq!(map.insert("e".into(), "e").unwrap().1, "c");
        assert_eq!(map.insert("f".into(), "f").unwrap().1, "a again");
        assert_eq!((map.len(), map.forgotten()), (3, 3));
    }

    #[test]
    fn a_retired_entry_that_is_touched_again_stays_retired() {
        let mut map = Remembered::new(2);
        map.insert("a".into(), 1);
        map.retire(&"a".into());
        map.insert("a".into(), 2);
        map.insert("b".into(), 3);
        assert_eq!(map.insert("c".into(), 4).unwrap(), ("a".into(), 2));
    }
}
