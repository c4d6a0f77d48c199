//! The life of each pod that a rollout replaced or brought, as this node saw it: a lane of the
//! page's timeline.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    sync::Arc,
};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{State, TransportAddress, dialled};
use crate::{
    endpoints::Lifetime,
    model::{Class, Clock, Mono, Rollout, RolloutId, Side},
};

/// The most lanes told of one rollout; those left out are counted.
pub const MAX_LANES: usize = 1_000;

/// A new pod may have been seen this long before its rollout was: two watches deliver in any order.
const BEFORE_NANOS: u64 = 10_000_000_000;

/// One pod's life during a rollout. Times are those at which this node saw it, but for `deleted`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LaneReport {
    /// Pod.
    pub pod: Arc<str>,
    /// UID of the pod.
    pub uid: Arc<str>,
    /// Where it listens; two of a dual-stack pod, more of one with several ports.
    pub endpoints: Vec<TransportAddress>,
    /// Its node, if said.
    pub node: Option<Arc<str>>,
    /// `old`: of a revision that the rollout replaces; `new`: of the one it goes to.
    pub side: Side,
    /// Template hash or controller revision.
    pub hash: Arc<str>,
    /// First seen in a slice; null if it was there when the agent came.
    pub appeared: Option<Timestamp>,
    /// First seen ready.
    pub ready: Option<Timestamp>,
    /// First answered a SYN of this node.
    pub first_answer: Option<Timestamp>,
    /// Its deletion as the API server tells it: 1 s resolution, truncated.
    pub deleted: Option<Timestamp>,
    /// First not ready, terminating, or absent from every slice.
    pub leaving: Option<Timestamp>,
    /// First refused SYN after it left: its listener was closed by then. Null: none was seen.
    pub listener_closed: Option<Timestamp>,
    /// Absent from every slice.
    pub gone: Option<Timestamp>,
    /// Its object was gone.
    pub removed: Option<Timestamp>,
}

/// The lanes of a rollout.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LanesReport {
    /// Old pods first, each side in the order in which they left or came.
    pub lanes: Vec<LaneReport>,
    /// Pods left out for want of room.
    pub left_out: usize,
}

/// A pod's lifetimes at all its addresses, joined.
struct Lane<'a> {
    side: Side,
    hash: Arc<str>,
    endpoints: BTreeSet<SocketAddr>,
    lives: Vec<&'a Lifetime>,
}

/// By the pod's UID.
type Lanes<'a> = BTreeMap<&'a str, Lane<'a>>;

impl State {
    /// The pods that a rollout replaced or brought; `None` if there is no such rollout.
    pub fn lanes(&self, id: &RolloutId) -> Option<LanesReport> {
        let rollout = self.rollouts.get(id)?;
        let mut seen: BTreeMap<&str, Option<Lane<'_>>> = BTreeMap::new();
        for life in self.lives_during(rollout) {
            let Some(pod) = &life.pod else { continue };
            let lane = seen.entry(&pod.uid).or_insert_with(|| {
                let (side, hash) = self.side_of(rollout, life, &pod.uid)?;
                Some(Lane { side, hash, endpoints: BTreeSet::new(), lives: Vec::new() })
            });
            if let Some(lane) = lane {
                lane.endpoints.insert(life.endpoint);
                lane.lives.push(life);
            }
        }
        let by_pod: Lanes<'_> =
            seen.into_iter().filter_map(|(uid, lane)| Some((uid, lane?))).collect();
        let closed = self.listeners_closed(&by_pod);
        let mut lanes: Vec<LaneReport> = by_pod
            .iter()
            .map(|(uid, lane)| self.lane(uid, lane, closed.get(uid).copied()))
            .collect();
        lanes.sort_by(|one, other| {
            let key = |lane: &LaneReport| match lane.side {
                Side::Old => (lane.side, lane.leaving.unwrap_or(Timestamp::MAX)),
                Side::New => (lane.side, lane.appeared.unwrap_or(Timestamp::MIN)),
            };
            key(one).cmp(&key(other)).then_with(|| one.pod.cmp(&other.pod))
        });
        let left_out = lanes.len().saturating_sub(MAX_LANES);
        lanes.truncate(MAX_LANES);
        Some(LanesReport { lanes, left_out })
    }

    /// Lifetimes in the rollout's namespace that overlap it.
    fn lives_during<'a>(&'a self, rollout: &Rollout) -> impl Iterator<Item = &'a Lifetime> {
        let namespace = rollout.workload.namespace.clone();
        let begin = Mono(rollout.started.0.saturating_sub(BEFORE_NANOS));
        let end = dialled::counts_until(rollout).unwrap_or(self.now).min(self.now);
        let end = rollout.last_failure.map_or(end, |last| last.max(end));
        self.endpoints.all().filter(move |life| {
            let is_there = life.first_seen <= end && life.gone.is_none_or(|gone| gone >= begin);
            life.namespace == namespace && is_there
        })
    }

    /// Which side of the rollout a pod is on, and its revision; `None` if it is no part of it.
    fn side_of(&self, rollout: &Rollout, life: &Lifetime, uid: &str) -> Option<(Side, Arc<str>)> {
        let place = self.owners.place(uid)?;
        if place.workload.uid != rollout.workload.uid {
            return None;
        }
        let is_from = rollout.from.as_ref().is_some_and(|from| from.hash == place.hash);
        let side = if place.hash == rollout.to.hash {
            Side::New
        } else if is_from || life.first_seen <= rollout.started {
            Side::Old
        } else {
            // Of a revision that came later.
            return None;
        };
        Some((side, place.hash))
    }

    /// When each pod first refused a SYN after it had left, by UID.
    fn listeners_closed<'a>(&self, by_pod: &Lanes<'a>) -> BTreeMap<&'a str, Mono> {
        let mut at: BTreeMap<SocketAddr, Vec<(&'a str, &'a Lifetime)>> = BTreeMap::new();
        for (uid, lane) in by_pod {
            for life in &lane.lives {
                at.entry(life.endpoint).or_default().push((uid, life));
            }
        }
        let mut closed: BTreeMap<&str, Mono> = BTreeMap::new();
        for failure in self.failures.iter().filter(|failure| failure.class == Class::Refused) {
            let lives = failure.backend.and_then(|backend| at.get(&backend)).into_iter().flatten();
            for (uid, life) in lives {
                let is_of_pod = life.pod.as_ref().is_some_and(|pod| pod.name == failure.pod);
                // It may have left before that was seen here.
                let left = life.left_after.or(life.left);
                if is_of_pod && left.is_some_and(|left| failure.ended >= left) {
                    let known = closed.entry(uid).or_insert(failure.ended);
                    *known = failure.ended.min(*known);
                }
            }
        }
        closed
    }

    fn lane(&self, uid: &str, lane: &Lane<'_>, closed: Option<Mono>) -> LaneReport {
        let clock: Clock = self.clock();
        let wall = |at: Option<Mono>| at.map(|at| clock.wall(at));
        let lives = || lane.lives.iter();
        let pod = lives().find_map(|life| life.pod.as_ref());
        let baseline = lives().any(|life| life.baseline);
        let appeared = lives().map(|life| life.first_seen).min().filter(|_| !baseline);
        let present = lives().any(|life| life.gone.is_none());
        let known = self.owners.pod_by_uid(uid);
        LaneReport {
            pod: pod.map_or_else(|| "".into(), |pod| pod.name.clone()),
            uid: uid.into(),
            endpoints: lane.endpoints.iter().copied().map(Into::into).collect(),
            node: lives().find_map(|life| life.node.clone()),
            side: lane.side,
            hash: lane.hash.clone(),
            appeared: wall(appeared),
            ready: wall(lives().filter_map(|life| life.ready).min()),
            first_answer: wall(lives().filter_map(|life| life.first_answer).min()),
            deleted: known.and_then(|pod| pod.deleted_at),
            leaving: wall(lives().filter_map(|life| life.left).min()),
            listener_closed: wall(closed),
            gone: wall(lives().filter_map(|life| life.gone).max().filter(|_| !present)),
            removed: wall(known.and_then(|pod| pod.gone)),
        }
    }
}
