//! Which report belongs to which client failure.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use jiff::Timestamp;

use super::{Difference, Reported, Truth};

/// A client's start and an agent's first SYN of one connection differ by less than this.
const SAME_START_NS: i64 = 50_000_000;
/// An endpoint's end of a connection, as an agent saw it, and the client's error differ by less than
/// this: a client of many threads must get its turn. Its port can have no other such end meanwhile.
const SAME_END_NS: i64 = 500_000_000;
/// What is shown beside a difference: the same client port within this time.
const NEAR_NS: i64 = 10_000_000_000;

/// The outcome of pairing.
pub struct Matched<'a> {
    /// One connection, seen by both.
    pub pairs: Vec<(&'a Truth, &'a Reported)>,
    /// Seen by the client only.
    pub missed: Vec<&'a Truth>,
    /// Seen by an agent only.
    pub extra: Vec<&'a Reported>,
}

/// The first report of each connection, and the further ones as differences.
pub fn without_doubles(reported: &[Reported]) -> (Vec<&Reported>, Vec<Difference>) {
    let mut sorted: Vec<&Reported> = reported.iter().collect();
    sorted.sort_by_key(|r| (r.failure.client.socket(), first_syn(r)));
    let mut first: Vec<&Reported> = Vec::new();
    let mut doubles = Vec::new();
    for report in sorted {
        match first.last() {
            Some(earlier) if is_same_connection(earlier, report) => {
                doubles.push(Difference::Double {
                    first: Box::new((*earlier).clone()),
                    again: Box::new(report.clone()),
                });
            }
            _ => first.push(report),
        }
    }
    (first, doubles)
}

fn is_same_connection(a: &Reported, b: &Reported) -> bool {
    // A port that is used again at once has another initial sequence number.
    let same_isn = match (a.failure.isn, b.failure.isn) {
        (Some(a), Some(b)) => a == b,
        _ => true,
    };
    a.failure.client == b.failure.client
        && same_isn
        && (first_syn(a) - first_syn(b)).abs() <= SAME_START_NS
}

/// Pairs each report with the client failure of the same client port and kind that is nearest in time:
/// by its start, or of a connection that was answered by its end.
pub fn pair<'a>(truth: &[&'a Truth], reported: &[&'a Reported]) -> Matched<'a> {
    let mut open: BTreeMap<SocketAddr, Vec<&'a Truth>> = BTreeMap::new();
    for record in truth {
        open.entry(record.failure.local).or_default().push(record);
    }
    let mut matched = Matched { pairs: Vec::new(), missed: Vec::new(), extra: Vec::new() };
    for report in reported {
        let kinds = super::kind::client_kinds(&report.failure.class);
        let candidates = open.entry(report.failure.client.socket()).or_default();
        let nearest = candidates
            .iter()
            .enumerate()
            .filter(|(_, t)| kinds.contains(&t.failure.class))
            .map(|(index, t)| (distance(t, report), index))
            .filter(|(distance, index)| *distance <= allowed(candidates[*index]))
            .min();
        match nearest {
            Some((_, index)) => matched.pairs.push((candidates.swap_remove(index), report)),
            None => matched.extra.push(report),
        }
    }
    matched.missed = open.into_values().flatten().collect();
    matched.missed.sort_by_key(|record| record.failure.start);
    matched
}

/// The same client port, not far in time.
pub fn is_near(truth: &Truth, report: &Reported) -> bool {
    truth.failure.local == report.failure.client.socket() && distance(truth, report) <= NEAR_NS
}

fn distance(truth: &Truth, report: &Reported) -> i64 {
    if truth.failure.class.is_of_answered() {
        let ended = report.failure.ended.map_or(i64::MAX, nanoseconds);
        truth.failure.end.saturating_sub(ended).saturating_abs()
    } else {
        (truth.failure.connect_start - first_syn(report)).abs()
    }
}

fn allowed(truth: &Truth) -> i64 {
    if truth.failure.class.is_of_answered() { SAME_END_NS } else { SAME_START_NS }
}

fn first_syn(report: &Reported) -> i64 {
    nanoseconds(report.failure.first_syn)
}

fn nanoseconds(at: Timestamp) -> i64 {
    i64::try_from(at.as_nanosecond()).unwrap_or(i64::MAX)
}
