//! Scaling outside a rollout's own steps: a changed number of replicas, in proportion if two
//! revisions are in flight.

use kube::ResourceExt;

use super::rollout::{DESIRED, MAX, Rollout, available, replicas};
use crate::controllers::runner::Failed;

/// Whether the wanted number has changed since the `ReplicaSets` were last told.
pub fn is_scaling(rollout: &Rollout) -> bool {
    let wanted = rollout.wanted().to_string();
    rollout
        .all()
        .filter(|set| replicas(set) > 0)
        .any(|set| set.annotations().get(DESIRED).is_some_and(|told| *told != wanted))
}

/// Gives the `ReplicaSets` their share of the new number.
pub async fn scale(rollout: &mut Rollout) -> Result<(), Failed> {
    let wanted = rollout.wanted();
    let active: Vec<usize> =
        (0..rollout.old.len()).filter(|at| replicas(&rollout.old[*at]) > 0).collect();
    let new_replicas = rollout.new.as_ref().map_or(0, replicas);
    // One active ReplicaSet, or none: it takes all.
    match (active[..].as_ref(), new_replicas > 0) {
        ([], _) => return rollout.scale_new(wanted).await.map(drop),
        ([only], false) => return rollout.scale_old(*only, wanted).await.map(drop),
        _ => {}
    }
    // The new one carries all: the old ones are done.
    if rollout.new.as_ref().is_some_and(|new| replicas(new) == wanted && available(new) == wanted) {
        for at in active {
            rollout.scale_old(at, 0).await?;
        }
        return Ok(());
    }
    if rollout.is_recreate() { Ok(()) } else { scale_in_proportion(rollout, &active).await }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Set {
    New,
    Old(usize),
}

async fn scale_in_proportion(rollout: &mut Rollout, active: &[usize]) -> Result<(), Failed> {
    let wanted = rollout.wanted();
    let allowed = if wanted > 0 { wanted + rollout.bounds().surge } else { 0 };
    // (which, its size, the total it was told to be part of), the newest last.
    let mut sets: Vec<(Set, i32, i32)> = active
        .iter()
        .map(|at| (Set::Old(*at), &rollout.old[*at]))
        .chain(rollout.new.as_ref().filter(|new| replicas(new) > 0).map(|new| (Set::New, new)))
        .map(|(set, found)| {
            let told = found.annotations().get(MAX).and_then(|text| text.parse().ok());
            let before =
                rollout.deployment.status.as_ref().and_then(|status| status.replicas).unwrap_or(0);
            (set, replicas(found), told.unwrap_or(before))
        })
        .collect();
    let to_add = allowed - sets.iter().map(|(_, size, _)| size).sum::<i32>();
    // The largest first; among equals the newer when growing, the older when shrinking. The sort is
    // stable.
    if to_add > 0 {
        sets.reverse();
    }
    sets.sort_by_key(|(_, size, _)| std::cmp::Reverse(*size));
    for (set, to) in shares(&sets, wanted, allowed, to_add) {
        match set {
            Set::New => rollout.scale_new(to).await?,
            Set::Old(at) => rollout.scale_old(at, to).await?,
        };
    }
    Ok(())
}

/// Each set's new size; what rounding leaves over goes to the first.
fn shares(sets: &[(Set, i32, i32)], wanted: i32, allowed: i32, to_add: i32) -> Vec<(Set, i32)> {
    let mut added = 0;
    let mut sizes: Vec<(Set, i32)> = Vec::with_capacity(sets.len());
    for (set, size, told) in sets {
        let fraction = if wanted == 0 || *told == 0 {
            -size
        } else {
            // Rounded half up, in integers: sizes are never negative.
            (2 * size * allowed + told) / (2 * told) - size
        };
        let left = to_add - added;
        let share = if to_add > 0 { fraction.min(left) } else { fraction.max(left) };
        let share = if to_add == 0 { 0 } else { share };
        added += share;
        sizes.push((*set, size + share));
    }
    if let Some((_, first)) = sizes.first_mut() {
        *first = (*first + to_add - added).max(0);
    }
    sizes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growing_in_the_middle_of_a_rollout_keeps_the_proportion() {
        // 10 replicas with a surge of 3: 8 old and 5 new; now 20 with a surge of 5.
        let sets = [(Set::Old(0), 8, 13), (Set::New, 5, 13)];
        let sizes = shares(&sets, 20, 25, 12);
        assert_eq!(sizes, [(Set::Old(0), 15), (Set::New, 10)]);
    }

    #[test]
    fn scaling_to_nothing_takes_everything_away() {
        let sets = [(Set::Old(0), 3, 4), (Set::New, 1, 4)];
        assert_eq!(shares(&sets, 0, 0, -4), [(Set::Old(0), 0), (Set::New, 0)]);
    }
}
