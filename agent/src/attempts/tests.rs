use super::{Attempts, Failed, Outcome};
use crate::model::{Answer, Attempt, AttemptKey, Class, Drop, Mono, Sighting};

const MILLI: u64 = 1_000_000;

fn at(millis: u64) -> Mono {
    Mono(1_000_000 * MILLI + millis * MILLI)
}

fn attempt(dnat: bool) -> Attempt {
    let original = "10.96.0.80:80".parse().unwrap();
    let backend = if dnat { "10.244.2.7:8080".parse().unwrap() } else { original };
    Attempt {
        key: AttemptKey { client: "10.244.1.5:42526".parse().unwrap(), original, isn: 7 },
        backend: Some(backend),
        first_syn: at(0),
        last_syn: at(0),
        syns: 1,
        dnat,
        confirmed: true,
        stale: false,
    }
}

fn abandoned(attempt: Attempt, errno: i32, millis: u64) -> Sighting {
    Sighting::Abandoned { attempt, started: Some(at(0)), errno, at: at(millis) }
}

fn dropped(attempt: Attempt, reason: &str, millis: u64) -> Sighting {
    Sighting::Dropped { attempt, drop: Drop { reason: reason.into() }, at: at(millis) }
}

fn icmp(attempt: Attempt, code: u8, v6: bool, millis: u64) -> Sighting {
    Sighting::Answered { attempt, answer: Answer::Icmp { code, v6 }, at: at(millis) }
}

/// The one failure that these sightings of a local client's attempt amount to.
fn failed(sightings: &[Sighting]) -> Failed {
    let mut attempts = Attempts::default();
    let mut failed = Vec::new();
    for sighting in sightings {
        if let Outcome::Failed(one) = attempts.saw(sighting, |_| true, true) {
            failed.push(*one);
        }
    }
    failed.extend(attempts.overdue(at(400_000), |_| true));
    assert_eq!(failed.len(), 1, "{failed:#?}");
    assert!(attempts.is_empty());
    failed.remove(0)
}

#[test]
fn the_class_follows_from_what_was_seen() {
    let nat = attempt(true);
    let own = attempt(false);
    let rst = Sighting::Answered { attempt: nat, answer: Answer::Rst, at: at(1) };
    let superseded = Sighting::Superseded { attempt: nat, at: at(60_000) };
    for (class, sightings) in [
        (Class::Refused, vec![rst]),
        (Class::Refused, vec![abandoned(nat, 111, 1)]),
        (Class::Timeout, vec![abandoned(nat, 0, 3_000)]),
        (Class::Timeout, vec![abandoned(nat, 110, 130_000)]),
        (Class::Timeout, vec![superseded]),
        (Class::Timeout, vec![dropped(nat, "NETFILTER_DROP", 1), abandoned(nat, 0, 3_000)]),
        (Class::Unreachable, vec![abandoned(nat, 113, 3_000)]),
        (Class::Unreachable, vec![dropped(nat, "NEIGH_FAILED", 3_000), abandoned(nat, 0, 3_001)]),
        (Class::Unreachable, vec![dropped(nat, "IP_OUTNOROUTES", 0), abandoned(nat, 101, 1)]),
        (Class::Unreachable, vec![icmp(nat, 1, false, 2), abandoned(nat, 113, 3)]),
        (Class::Unreachable, vec![icmp(nat, 3, true, 2), abandoned(nat, 113, 3)]),
        (
            Class::Rejected,
            vec![icmp(nat, 3, false, 2), dropped(nat, "NETFILTER_DROP", 2), abandoned(nat, 111, 3)],
        ),
        (Class::Rejected, vec![icmp(own, 3, false, 0), abandoned(own, 111, 1)]),
        (Class::Rejected, vec![icmp(own, 4, true, 0), abandoned(own, 111, 1)]),
        (Class::Rejected, vec![dropped(own, "NETFILTER_DROP", 0), abandoned(own, 111, 1)]),
    ] {
        assert_eq!(failed(&sightings).class, class, "{sightings:#?}");
    }
}

#[test]
fn a_failure_begins_with_connect_where_that_was_seen() {
    let failed = failed(&[
        Sighting::Dropped {
            attempt: Attempt { first_syn: at(3_000), ..attempt(true) },
            drop: Drop { reason: "NEIGH_FAILED".into() },
            at: at(3_000),
        },
        abandoned(attempt(true), 113, 3_001),
    ]);
    assert_eq!(failed.began, at(0));
}

#[test]
fn a_neighbour_that_fails_just_after_the_client_gave_up_still_tells_the_backend() {
    let unseen = Attempt { backend: None, syns: 0, dnat: false, ..attempt(true) };
    for (code, v6, reason) in [(1, false, "NEIGH_FAILED"), (3, true, "NOT_SPECIFIED")] {
        let failed = failed(&[
            abandoned(unseen, 0, 3_002),
            icmp(unseen, code, v6, 3_075),
            dropped(attempt(true), reason, 3_076),
        ]);
        assert_eq!(failed.class, Class::Unreachable);
        assert_eq!(failed.attempt.backend, attempt(true).backend);
    }
}

#[test]
fn an_attempt_given_up_before_its_first_retransmit_is_early() {
    for (syns, millis, early) in [(1, 999, true), (1, 1_000, false), (2, 900, false)] {
        let attempt = Attempt { syns, ..attempt(true) };
        assert_eq!(failed(&[abandoned(attempt, 0, millis)]).early, early, "{syns} in {millis} ms");
    }
}

#[test]
fn a_late_answer_ends_an_attempt_that_was_only_dropped_once() {
    let mut attempts = Attempts::default();
    attempts.saw(&dropped(attempt(true), "QDISC_DROP", 0), |_| true, true);
    let answer =
        Sighting::Answered { attempt: attempt(true), answer: Answer::SynAck, at: at(1_050) };
    assert_eq!(attempts.saw(&answer, |_| true, true), Outcome::Answered);
    assert!(attempts.overdue(at(400_000), |_| true).is_empty());
}

#[test]
fn the_sweep_decides_for_clients_whose_socket_is_not_seen_and_waits_for_the_others() {
    for is_local in [false, true] {
        let mut attempts = Attempts::default();
        let mut swept = |millis| {
            let sighting = Sighting::Unanswered { attempt: attempt(true), at: at(millis) };
            attempts.saw(&sighting, |_| true, is_local)
        };
        assert_eq!(matches!(swept(10_000), Outcome::Failed(_)), !is_local);
        // The kernel is about to forget it.
        assert_eq!(matches!(swept(120_000), Outcome::Failed(_)), is_local);
    }
}

#[test]
fn an_attempt_is_decided_once_whatever_is_heard_of_it_later() {
    let mut attempts = Attempts::default();
    let rst = Sighting::Answered { attempt: attempt(true), answer: Answer::Rst, at: at(1) };
    assert!(matches!(attempts.saw(&rst, |_| true, true), Outcome::Failed(_)));
    for later in [
        rst,
        dropped(attempt(true), "NO_SOCKET", 2),
        icmp(attempt(true), 1, false, 3),
        abandoned(attempt(true), 111, 4),
        Sighting::Superseded { attempt: attempt(true), at: at(5_000) },
        Sighting::Unanswered { attempt: attempt(true), at: at(130_000) },
    ] {
        assert_eq!(attempts.saw(&later, |_| true, true), Outcome::Known, "{later:?}");
    }
    // Another ISN on the same tuple is another attempt.
    let key = AttemptKey { isn: 8, ..attempt(true).key };
    let next = Attempt { key, ..attempt(true) };
    let rst = Sighting::Answered { attempt: next, answer: Answer::Rst, at: at(6_000) };
    assert!(matches!(attempts.saw(&rst, |_| true, true), Outcome::Failed(_)));
}

#[test]
fn decided_attempts_are_forgotten_when_nothing_more_can_be_heard_of_them() {
    let mut attempts = Attempts::default();
    let rst = Sighting::Answered { attempt: attempt(true), answer: Answer::Rst, at: at(0) };
    attempts.saw(&rst, |_| true, true);
    attempts.overdue(at(299_000), |_| true);
    assert_eq!(attempts.decided(), 1);
    attempts.overdue(at(300_000), |_| true);
    assert_eq!(attempts.decided(), 0);
}
