//! Recordings of a real Kubernetes through the whole of user space's logic: trimming, lifetimes,
//! rollouts, attempts, attribution. No lab of ours shaped them.

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "the recordings have their times as seconds in a float, of which a microsecond is enough"
)]

mod support;

use std::{collections::BTreeMap, net::SocketAddr};

use jiff::Timestamp;
use rollrace::{
    engine::{AttemptCounts, Config, FreshSyns, Input, State, What, step},
    model::{
        Answer, Attempt, AttemptKey, Cause, Class, Clock, End, Failure, Mono, Phase, Sighting, Wall,
    },
    record::{Recorder, Recording},
};
use rollrace_ebpf::{abi::Flow, flow};
use support::recording::{ALL, Wire, WireConnection, changes, client_failures, meta, wire};

/// The clients' own timeout in the experiment.
const CLIENT_TIMEOUT: f64 = 3.0;

fn mono(seconds: f64) -> Mono {
    // The monotonic clock of the replay begins a day before the recording.
    const BEGIN: f64 = 1_795_900_000.0;
    Mono(((seconds - BEGIN) * 1e9) as u64)
}

fn wall(seconds: f64) -> Wall {
    Timestamp::from_microsecond((seconds * 1e6) as i64).unwrap()
}

/// What the node n1's agent would have received, in order.
fn inputs(name: &str) -> Vec<Input> {
    let mut timed: Vec<(f64, What)> =
        changes(name).into_iter().map(|(t, change)| (t, What::Cluster(change))).collect();
    let begin = timed[0].0;
    if has_wire(name) {
        timed.extend(sightings(&wire(name)));
    }
    let end = timed.iter().map(|(t, _)| *t).fold(begin, f64::max) + 40.0;
    let mut t = begin - 0.5;
    while t < end {
        timed.push((t, What::Tick(Clock { mono: mono(t), wall: wall(t) })));
        t += 0.25;
    }
    timed.sort_by(|a, b| a.0.total_cmp(&b.0));
    timed.into_iter().map(|(t, what)| Input { at: mono(t), what }).collect()
}

fn has_wire(name: &str) -> bool {
    name.ends_with("-wire")
}

/// What the probes would have sent up: refusals, and attempts given up by the client.
fn sightings(lines: &[Wire]) -> Vec<(f64, What)> {
    let mut open: BTreeMap<AttemptKey, (f64, Attempt)> = BTreeMap::new();
    let mut out = Vec::new();
    for line in lines {
        match line {
            Wire::Syn { t, client, original, backend, isn, stale } => {
                let key = AttemptKey { client: *client, original: *original, isn: *isn };
                let (_, attempt) =
                    open.entry(key).or_insert_with(|| (*t, first(key, *backend, *t, *stale)));
                attempt.last_syn = mono(*t);
                attempt.syns += 1;
            }
            Wire::Rst(answer) | Wire::Synack(answer) => {
                let key = AttemptKey {
                    client: answer.client,
                    original: answer.original,
                    isn: answer.isn,
                };
                let Some((_, attempt)) = open.remove(&key) else { continue };
                let at = mono(answer.t);
                let rst = matches!(line, Wire::Rst(_));
                let answer_kind = if rst { Answer::Rst } else { Answer::SynAck };
                let sighting = Sighting::Answered { attempt, answer: answer_kind, at };
                out.push((answer.t, What::Saw(sighting)));
            }
            Wire::Said { .. } | Wire::Fin(_) | Wire::ClientFin(_) => {}
            Wire::Backend {
                backend,
                original,
                answered,
                refused,
                unanswered,
                first_fresh_syn,
                last_fresh_syn,
                fresh_by_second,
                ..
            } => {
                let fresh = FreshSyns {
                    endpoint: *backend,
                    last: mono(*last_fresh_syn),
                    first_answer: (*answered > 0).then(|| mono(*first_fresh_syn)),
                    answers_forgotten: false,
                    by_second: fresh_by_second
                        .iter()
                        .map(|(second, count)| (mono(*second as f64).0 / 1_000_000_000, *count))
                        .collect(),
                };
                out.push((*last_fresh_syn + 0.5, What::Fresh(fresh)));
                let counts = AttemptCounts {
                    original: *original,
                    attempts: answered + refused + unanswered,
                    answered: *answered,
                    refused: *refused,
                };
                out.push((*first_fresh_syn, What::Attempts(counts)));
            }
        }
    }
    out.extend(ends(lines));
    for (t, attempt) in open.into_values() {
        let closed = t + CLIENT_TIMEOUT;
        let sighting =
            Sighting::Abandoned { attempt, started: Some(mono(t)), errno: 0, at: mono(closed) };
        out.push((closed, What::Saw(sighting)));
    }
    out
}

/// The ends that the probes would have told, by the very functions by which they decide.
fn ends(lines: &[Wire]) -> Vec<(f64, What)> {
    let mut flows: BTreeMap<AttemptKey, Flow> = BTreeMap::new();
    let mut out = Vec::new();
    let key =
        |of: &WireConnection| AttemptKey { client: of.client, original: of.original, isn: of.isn };
    for line in lines {
        match line {
            Wire::Said { of, length, ack, first } => {
                let bytes: Vec<u8> = (0..first.len() / 2)
                    .map(|at| u8::from_str_radix(&first[at * 2..at * 2 + 2], 16).unwrap())
                    .collect();
                let said = flow::said(*length, bytes.first_chunk());
                let next = of.seq.wrapping_sub(1);
                let flow = flows.entry(key(of)).or_insert(Flow { next, ..Flow::default() });
                flow::message(flow, of.seq, *length, *ack, said);
            }
            Wire::ClientFin(of) => {
                flows.entry(key(of)).or_default().flags |= flow::state::CLIENT_DONE;
            }
            Wire::Fin(of) => {
                let Some(flow) = flows.get(&key(of)) else { continue };
                let end = match flow::end(flow, of.seq, false) {
                    Some(flow::End::Cut) => End::Cut,
                    Some(flow::End::Reset) => End::Reset,
                    Some(flow::End::Closed) => End::Closed,
                    None => continue,
                };
                let attempt = Attempt { syns: 1, ..first(key(of), of.backend, of.opened, false) };
                let at = mono(of.t);
                out.push((of.t, What::Saw(Sighting::Ended { attempt, end, at })));
            }
            _ => {}
        }
    }
    out
}

fn first(key: AttemptKey, backend: SocketAddr, t: f64, stale: bool) -> Attempt {
    Attempt {
        key,
        backend: Some(backend),
        first_syn: mono(t),
        last_syn: mono(t),
        syns: 0,
        dnat: true,
        confirmed: true,
        stale,
    }
}

fn run(inputs: Vec<Input>) -> (State, Vec<Failure>) {
    let mut state = State::new(Config::new("n1"));
    let failures = inputs.into_iter().flat_map(|input| step(&mut state, input).failures).collect();
    (state, failures)
}

#[test]
fn each_recording_shows_one_rollout_with_its_start_completion_and_revisions() {
    for name in ALL {
        let (state, _) = run(inputs(name));
        let meta = meta(name);
        let rollouts: Vec<_> = state.rollouts().all().collect();
        assert_eq!(rollouts.len(), 1, "{name}: {rollouts:#?}");
        let rollout = rollouts[0];
        assert_eq!(
            (&*rollout.workload.kind, &*rollout.workload.name),
            ("Deployment", "api"),
            "{name}"
        );
        let from = rollout.from.as_ref().and_then(|from| from.revision).unwrap();
        assert_eq!(rollout.to.revision, Some(from + 1), "{name}");
        let seconds = |at: Mono| state.clock().wall(at).as_duration().as_secs_f64();
        let late = seconds(rollout.started) - meta.rollout_start;
        assert!((0.0..0.6).contains(&late), "{name}: started {late} s after the change");
        let late = seconds(rollout.completed.unwrap()) - meta.rollout_done;
        // kubectl returns a little after the status that it waits for.
        assert!(
            (-1.0..0.5).contains(&late),
            "{name}: complete {late} s after rollout status returned"
        );
        assert!(rollout.last_old_pod_gone.is_some(), "{name}: old pods are gone");
    }
}

#[test]
fn each_recording_has_three_departures_of_old_pods_and_no_other() {
    for name in ALL {
        let (state, _) = run(inputs(name));
        let rollout = state.rollouts().all().next().unwrap();
        let old = rollout.from.as_ref().unwrap().hash.clone();
        let mut left = 0;
        for life in state.endpoints().all() {
            let uid = &life.pod.as_ref().unwrap().uid;
            let place = state.owners().place(uid).unwrap();
            assert_eq!(life.left.is_some(), place.hash == old, "{name}: {life:#?}");
            if let Some(left_at) = life.left {
                assert!(life.terminating.is_some() && life.gone.is_some(), "{name}: {life:#?}");
                let deleted = state.owners().pod_by_uid(uid).unwrap().deleted_at.unwrap();
                let lag = state.clock().wall(left_at).duration_since(deleted).as_secs_f64();
                assert!((0.0..2.0).contains(&lag), "{name}: left {lag} s after the deletion");
                left += 1;
            }
        }
        assert_eq!(left, 3, "{name}");
        assert_eq!(rollout.convergence.len(), 3, "{name}");
    }
}

fn by_class(failures: &[Failure]) -> BTreeMap<Class, usize> {
    let mut classes = BTreeMap::new();
    for failure in failures {
        *classes.entry(failure.class).or_insert(0) += 1;
    }
    classes
}

#[test]
fn failures_on_the_wire_are_decided_one_for_one_and_blamed_on_the_rollout() {
    for (name, refused, unanswered, after, cut) in [
        ("readiness-fresh-wire", 23, 35, 15, 0),
        ("readiness-keepalive-wire", 3, 0, 0, 13),
        ("prestop-drain-keepalive-wire", 0, 0, 0, 0),
    ] {
        let (state, failures) = run(inputs(name));
        let classes = by_class(&failures);
        assert_eq!(classes.get(&Class::Refused).copied().unwrap_or(0), refused, "{name}");
        let of = |class| classes.get(&class).copied().unwrap_or(0);
        assert_eq!(of(Class::Timeout) + of(Class::StaleNat), unanswered, "{name}");
        assert_eq!(of(Class::Cut), cut, "{name}: {classes:?}");
        assert_eq!(failures.len(), refused + unanswered + cut, "{name}: {classes:?}");
        let rollout = state.rollouts().all().next().unwrap();
        for failure in &failures {
            assert_eq!(failure.cause, Cause::Rollout, "{name}: {failure:#?}");
            assert_eq!(failure.rollout.as_ref(), Some(&rollout.id), "{name}");
            assert_eq!((&*failure.namespace, &*failure.service), ("shop", "api"), "{name}");
        }
        // The tail: begun over 5 s after completion.
        let completed = rollout.completed.unwrap();
        let tail = failures.iter().filter(|f| f.first_syn > completed.plus(5_000_000_000));
        assert!(tail.clone().all(|failure| failure.phase == Phase::After), "{name}");
        assert_eq!(tail.clone().count(), after, "{name}: begun over 5 s after completion");
        assert!(tail.clone().all(|failure| failure.class == Class::StaleNat), "{name}");
        assert_eq!(of(Class::StaleNat), after, "{name}: the late ones and no others");
        // One for one with what the clients wrote down.
        let mut truth: Vec<u16> = client_failures(name)
            .into_iter()
            // The wire of the first was read for its SYNs only.
            .filter(|failure| failure.phase == "connect" || name != "readiness-fresh-wire")
            .map(|failure| failure.lport)
            .collect();
        let mut told: Vec<u16> = failures.iter().map(|failure| failure.client.port()).collect();
        truth.sort_unstable();
        told.sort_unstable();
        assert_eq!(told, truth, "{name}");
    }
}

#[test]
fn convergence_is_between_the_last_fresh_syn_and_a_second_more() {
    let name = "readiness-fresh-wire";
    let (state, _) = run(inputs(name));
    let rollout = state.rollouts().all().next().unwrap();
    let measured = rollout.convergence.iter().filter(|known| known.nanos.is_some()).count();
    assert!(measured > 0, "{:#?}", rollout.convergence);
    for known in &rollout.convergence {
        let Some(nanos) = known.nanos else { continue };
        assert!(nanos < 3_000_000_000, "{known:#?}");
        assert!(known.fresh_syns_after > 0, "{known:#?}");
    }
}

#[test]
fn a_replay_of_the_recorded_inputs_gives_the_same_to_the_byte() {
    let name = "readiness-fresh-wire";
    let inputs = inputs(name);
    let outputs = |inputs: Vec<Input>| {
        let mut state = State::new(Config::new("n1"));
        let lines: Vec<String> = inputs
            .into_iter()
            .map(|input| serde_json::to_string(&step(&mut state, input)).unwrap())
            .collect();
        lines.join("\n")
    };
    let folder = std::env::temp_dir().join(format!("rollrace-replay-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("recording.jsonl");
    let mut recorder = Recorder::create(&path, &Config::new("n1")).unwrap();
    for input in &inputs {
        recorder.input(input).unwrap();
    }
    recorder.flush().unwrap();
    drop(recorder);
    let again = Recording::read(&path).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!(again.cut_off_at, None);
    assert_eq!(again.inputs, inputs);
    assert_eq!(outputs(again.inputs), outputs(inputs));
}
