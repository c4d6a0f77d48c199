//! One input, one step.

use super::{
    Gap, GapReason, Input, Lost, Outputs, State, Watch, What, announce, ask, cluster, converge,
    dialled, history, stale, verdicts,
};
use crate::{
    attempts::Outcome,
    endpoints::Change,
    model::{Clock, Mono, Sighting},
};

/// How often everything is looked over for what can be forgotten.
const SWEEP_NANOS: u64 = 60_000_000_000;

/// The longest that a client tries to connect: `tcp_syn_retries` 6, and some slack.
const CONNECT_NANOS: u64 = 130_000_000_000;

/// Folds one input into the state.
pub fn step(state: &mut State, input: Input) -> Outputs {
    let mut out = Outputs::default();
    // The sources are not ordered among each other: time never goes back.
    state.now = state.now.max(input.at);
    let overflowed = state.overflowed();
    match input.what {
        What::Tick(clock) => tick(state, clock, &mut out),
        What::Saw(sighting) => saw(state, &sighting, &mut out),
        What::Fresh(fresh) => converge::fresh(state, &fresh),
        What::Attempts(counts) => dialled::count(state, counts),
        // Not for the kernel: there a client of the node is told by its namespace.
        What::NodeAddresses(addresses) => {
            state.node_addresses = addresses.into_iter().collect();
            verdicts::claim(state, &mut out);
        }
        What::Recalled(recalled) => history::recall(state, *recalled, &mut out),
        What::Attached => state.coverage.attached(state.now),
        What::Lost(Lost { count, since }) => {
            state.lost += count;
            let from = since.min(state.now);
            state.coverage.note(Gap { from, until: state.now, reason: GapReason::Lost });
        }
        What::Conntrack(scan) => stale::scanned(state, &scan, &mut out),
        What::Evicted(evicted) => stale::evicted(state, &evicted),
        What::Cluster(change) => cluster::changed(state, change, &mut out),
    }
    if state.endpoints.is_overfull() {
        forget(state, &mut out);
    }
    if state.overflowed() > overflowed {
        let (from, until) = (state.now, state.now);
        state.coverage.note(Gap { from, until, reason: GapReason::Overflow });
    }
    out
}

fn tick(state: &mut State, clock: Clock, out: &mut Outputs) {
    state.clock = clock;
    let now = state.now;
    state.coverage.tick(now);
    let endpoints = &state.endpoints;
    for failed in state.attempts.overdue(now, |address| endpoints.service_at(address).is_some()) {
        verdicts::hold(state, failed, out);
    }
    if now.since(state.swept) >= SWEEP_NANOS {
        state.swept = now;
        forget(state, out);
        dialled::forget(state);
        ask::unfollow_settled(state, out);
    }
    verdicts::decide_held(state, out);
    stale::tick(state, out);
    announce::tick(state, out);
}

fn forget(state: &mut State, out: &mut Outputs) {
    let forgotten = state.endpoints.forget(state.now).into_iter();
    out.watch.extend(forgotten.filter_map(|change| match change {
        Change::Forgotten(endpoint) => Some(Watch::Forget(endpoint)),
        Change::Appeared(_) | Change::Left(_) | Change::Gone(_) => None,
    }));
}

fn saw(state: &mut State, sighting: &Sighting, out: &mut Outputs) {
    let sighting = &stale::of_own_entry(state, sighting);
    let is_local = state.is_local(sighting.attempt().key.client.ip());
    let endpoints = &state.endpoints;
    let dialled_service = |address| endpoints.service_at(address).is_some();
    match state.attempts.saw(sighting, dialled_service, is_local) {
        Outcome::Failed(failed) => verdicts::hold(state, *failed, out),
        Outcome::Unseen => unseen(state),
        Outcome::Pending | Outcome::Answered | Outcome::Known => {}
    }
}

/// Just after the probes came it began before them; later its begin was lost.
fn unseen(state: &mut State) {
    state.unseen += 1;
    let now = state.now;
    let attached = state.coverage.attached_at();
    if attached.is_some_and(|attached| now.since(attached) >= CONNECT_NANOS) {
        let from = Mono(now.0.saturating_sub(CONNECT_NANOS));
        state.coverage.note(Gap { from, until: now, reason: GapReason::Lost });
    }
}
