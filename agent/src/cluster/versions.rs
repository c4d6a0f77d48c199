//! The version of each object of a kind, as last seen: what comes again, or late, is no news.
//!
//! A watch delivers each object's changes in order; what stands between (a proxy that repeats, a
//! server behind its siblings) may not. Pods and owners carry their versions into the engine;
//! slices and Services do not, and an old slice would bring an endpoint back that has left.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use super::object::Identity;

/// Of the deleted ones the last are remembered.
const MAX_GONE: usize = 1_024;

type Key = (Arc<str>, Arc<str>);

#[derive(Debug, Default)]
pub(super) struct Versions {
    seen: BTreeMap<Key, u64>,
    gone: VecDeque<Key>,
}

impl Versions {
    /// A list begins: whatever it says is how things are.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Takes note of an object's version; false if it was seen already, or one after it. A version
    /// that is no number is news.
    pub(super) fn is_news(&mut self, identity: &Identity) -> bool {
        let Ok(version) = identity.resource_version.parse::<u64>() else { return true };
        let key = (identity.namespace.clone(), identity.name.clone());
        let known = self.seen.insert(key.clone(), version);
        if let Some(known) = known.filter(|known| *known >= version) {
            self.seen.insert(key, known);
            return false;
        }
        true
    }

    /// The same for a deletion.
    pub(super) fn is_gone(&mut self, identity: &Identity) -> bool {
        let key = (identity.namespace.clone(), identity.name.clone());
        // A server may give the deletion no version of its own.
        let is_news = self.is_news(identity)
            || self.seen.get(&key).map(u64::to_string).as_deref()
                == Some(&identity.resource_version);
        if is_news && self.seen.contains_key(&key) {
            self.gone.push_back(key);
            if self.gone.len() > MAX_GONE
                && let Some(oldest) = self.gone.pop_front()
                && !self.gone.contains(&oldest)
            {
                self.seen.remove(&oldest);
            }
        }
        is_news
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(name: &str, version: &str) -> Identity {
        Identity {
            namespace: "shop".into(),
            name: name.into(),
            uid: "".into(),
            resource_version: version.into(),
        }
    }

    #[test]
    fn what_comes_again_or_late_is_no_news() {
        let mut versions = Versions::default();
        assert!(versions.is_news(&object("a", "10")));
        assert!(!versions.is_news(&object("a", "10")), "again");
        assert!(versions.is_news(&object("b", "9")), "another object's");
        assert!(versions.is_gone(&object("a", "12")));
        assert!(!versions.is_news(&object("a", "11")), "late, after the deletion");
        assert!(versions.is_news(&object("a", "13")), "made anew");
        versions.clear();
        assert!(versions.is_news(&object("a", "3")), "listed by a server that went back");
    }

    #[test]
    fn deleted_objects_are_remembered_up_to_a_bound() {
        let mut versions = Versions::default();
        for number in 0..2 * MAX_GONE {
            versions.is_gone(&object(&format!("s{number}"), "5"));
        }
        assert_eq!((versions.seen.len(), versions.gone.len()), (MAX_GONE, MAX_GONE));
    }
}
