//! The bound of label sets that come from the cluster: past it they share one.

use std::{
    collections::{BTreeMap, HashSet},
    hash::{DefaultHasher, Hash as _, Hasher as _},
};

/// The most series of one family whose labels come from the cluster.
pub const SERIES_CAP: usize = 5_000;
/// The most label sets past the cap that are told apart, to count them.
const CAPPED: usize = 65_536;
/// What stands in a label past the cap.
const OTHER: &str = "_other";

/// Label sets in use, by family.
#[derive(Debug, Default)]
pub struct Series {
    families: BTreeMap<&'static str, HashSet<Vec<String>>>,
    capped: HashSet<u64>,
}

impl Series {
    /// How many label sets of a family have a series of their own.
    pub fn count(&self, family: &str) -> usize {
        self.families.get(family).map_or(0, HashSet::len)
    }

    /// The labels, or `_other` in the first `open` of them past the cap; and whether this is a label
    /// set that found no room, for the first time.
    pub fn labels(
        &mut self,
        family: &'static str,
        labels: &[&str],
        open: usize,
    ) -> (Vec<String>, bool) {
        let own: Vec<String> = labels.iter().map(|label| (*label).to_owned()).collect();
        let known = self.families.entry(family).or_default();
        if known.contains(&own) {
            return (own, false);
        }
        if known.len() < SERIES_CAP {
            known.insert(own.clone());
            return (own, false);
        }
        let mut hasher = DefaultHasher::new();
        (family, &own).hash(&mut hasher);
        let is_new = self.capped.len() < CAPPED && self.capped.insert(hasher.finish());
        let other = |(i, label)| if i < open { OTHER.to_owned() } else { label };
        (own.into_iter().enumerate().map(other).collect(), is_new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn past_the_cap_a_family_shares_one_series_and_another_family_is_not_touched() {
        let mut series = Series::default();
        for number in 0..SERIES_CAP {
            let own = number.to_string();
            assert_eq!(series.labels("a", &[&own, "x"], 1).0, [own, "x".to_owned()]);
        }
        let other = (vec!["_other".to_owned(), "x".to_owned()], true);
        assert_eq!(series.labels("a", &["new", "x"], 1), other);
        assert_eq!(series.labels("a", &["new", "x"], 1), (other.0, false), "counted once");
        assert_eq!(series.labels("a", &["7", "x"], 1).0, ["7", "x"], "the first ones stay");
        assert_eq!(series.labels("b", &["new", "x"], 1).0, ["new", "x"]);
        assert_eq!(series.families["a"].len(), SERIES_CAP);
    }
}
