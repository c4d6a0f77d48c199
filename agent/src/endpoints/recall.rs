//! Lifetimes that outlive the agent: kept in its history, and taken up again by the next one.

use std::{collections::BTreeSet, net::SocketAddr, sync::Arc};

use super::{Endpoints, Lifetime, Name, Stage, WATCH_LAG_NANOS};
use crate::model::Mono;

/// The most lifetimes kept of those that are gone, and of those that are not: the last ones count.
pub const MAX_KEPT: usize = 20_000;

impl Endpoints {
    /// What a later agent needs: the gone that are still remembered, the last gone first; and those
    /// present behind these Services, since they may go while no agent runs. Also how many there was
    /// no room for.
    pub fn kept<'a>(&self, services: impl Iterator<Item = &'a Name>) -> (Vec<Lifetime>, u64) {
        let mut gone: Vec<&Lifetime> = self.all().filter(|life| life.gone.is_some()).collect();
        gone.sort_unstable_by_key(|life| std::cmp::Reverse(life.gone));
        let mut addresses = BTreeSet::new();
        for name in services {
            addresses.extend(self.of_service.get(name).into_iter().flatten());
        }
        let present = addresses.iter().filter_map(|at| self.lifetimes.get(at)).flatten();
        let present: Vec<&Lifetime> = present.filter(|life| life.gone.is_none()).collect();
        let left_out = gone.len().saturating_sub(MAX_KEPT) + present.len().saturating_sub(MAX_KEPT);
        let kept = gone.into_iter().take(MAX_KEPT).chain(present.into_iter().take(MAX_KEPT));
        (kept.cloned().collect(), u64::try_from(left_out).unwrap_or(u64::MAX))
    }

    /// Takes up what an earlier agent kept at a time. What was present then counts as gone since,
    /// until a slice says that it is there.
    pub fn recall(&mut self, kept: Vec<Lifetime>, at: Mono) {
        for mut life in kept {
            if life.gone.is_none() {
                // This agent has not seen all that it answered.
                life.baseline = true;
                life.gone = Some(at);
                self.awaited.insert((life.endpoint, life.uid().into()));
            }
            if life.left.is_none() {
                life.left = Some(at);
                life.left_after = Some(Mono(at.0.saturating_sub(WATCH_LAG_NANOS)));
            }
            let endpoint = life.endpoint;
            if !life.uid().is_empty() {
                self.of_pod.entry(life.uid().into()).or_default().insert(endpoint);
            }
            for service in &life.services {
                let name = (life.namespace.clone(), service.clone());
                self.of_service.entry(name).or_default().insert(endpoint);
            }
            self.stages[Stage::Gone as usize] += 1;
            let list = self.lifetimes.entry(endpoint).or_default();
            list.push(life);
            list.sort_by_key(|life| life.first_seen);
        }
    }

    /// The first complete list after that: what is still awaited went while no agent ran, at the
    /// latest now.
    pub(super) fn settle_awaited(&mut self, at: Mono) {
        for (endpoint, uid) in std::mem::take(&mut self.awaited) {
            let list = self.lifetimes.get_mut(&endpoint).into_iter().flatten();
            for life in list.filter(|life| life.uid() == &*uid && life.gone.is_some()) {
                if life.left == life.gone {
                    life.left = Some(at);
                }
                life.gone = Some(at);
            }
        }
    }
}

/// Endpoints that an earlier agent left present, by address and pod.
pub(super) type Awaited = BTreeSet<(SocketAddr, Arc<str>)>;
