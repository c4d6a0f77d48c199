//! What is new since the agents were last asked.

use std::collections::{BTreeMap, BTreeSet};

use super::{answers::Failure, gather::Gathered};

/// Something to tell.
#[derive(Debug, PartialEq)]
pub enum News<'a> {
    /// Failures that were not told yet.
    Failures {
        /// Node.
        node: &'a str,
        /// They, oldest first.
        failures: &'a [Failure],
        /// Further ones that the agent does not list any more.
        skipped: u64,
    },
    /// An agent does not answer, or no longer.
    Silent {
        /// What it covers.
        node: &'a str,
        /// Why.
        why: &'a str,
    },
    /// It answers again.
    Back {
        /// Node.
        node: &'a str,
    },
}

/// Remembers up to where each agent's list was told.
#[derive(Debug)]
pub struct Watcher {
    past: bool,
    /// By agent.
    next: BTreeMap<String, u64>,
    silent: BTreeSet<String>,
}

impl Watcher {
    /// Begins with what failed before, or with what fails from now on.
    pub fn new(past: bool) -> Self {
        Self { past, next: BTreeMap::new(), silent: BTreeSet::new() }
    }

    /// Where each agent's list goes on: for `?since=`.
    pub fn since(&self) -> &BTreeMap<String, u64> {
        &self.next
    }

    /// What is new in these answers.
    pub fn take<'a>(&mut self, gathered: &'a Gathered) -> Vec<News<'a>> {
        let mut news = Vec::new();
        for answered in &gathered.answered {
            let node = &*answered.status.node;
            if self.silent.remove(node) {
                news.push(News::Back { node });
            }
            let listed = &answered.failures;
            let next = listed.next.unwrap_or(answered.status.failures);
            let before = self.next.get(&answered.agent).copied();
            // An agent that began anew counts from 0 again.
            let began_anew = before.is_some_and(|before| next < before);
            self.next.insert(answered.agent.clone(), if began_anew { 0 } else { next });
            let is_told = before.is_none() && !self.past;
            if !is_told && (!listed.failures.is_empty() || listed.skipped > 0) {
                let (failures, skipped) = (&*listed.failures, listed.skipped);
                news.push(News::Failures { node, failures, skipped });
            }
        }
        for missing in &gathered.missing {
            if self.silent.insert(missing.covers().to_owned()) {
                news.push(News::Silent { node: missing.covers(), why: &missing.why });
            }
        }
        news
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        advise::facts::Missing,
        oncall::{
            answers::{Failures, Status},
            gather::Answered,
        },
    };

    fn said(next: u64, failures: usize) -> Gathered {
        let failures = Failures {
            next: Some(next),
            failures: vec![Failure::default(); failures],
            ..Failures::default()
        };
        let status = Status { node: "n1".into(), ..Status::default() };
        let answered = Answered { agent: "a".into(), status, failures, ..Answered::default() };
        Gathered { answered: vec![answered], ..Gathered::default() }
    }

    fn told(watcher: &mut Watcher, gathered: &Gathered) -> usize {
        let count = |news: &News<'_>| match news {
            News::Failures { failures, .. } => failures.len(),
            _ => 0,
        };
        watcher.take(gathered).iter().map(count).sum()
    }

    #[test]
    fn what_failed_before_is_told_only_if_it_is_asked_for() {
        let mut from_now = Watcher::new(false);
        assert_eq!(told(&mut from_now, &said(7, 7)), 0);
        assert_eq!(from_now.since().get("a"), Some(&7));
        assert_eq!(told(&mut from_now, &said(9, 2)), 2);
        assert_eq!(told(&mut Watcher::new(true), &said(7, 7)), 7);
    }

    #[test]
    fn an_agent_that_began_anew_is_asked_from_its_begin() {
        let mut watcher = Watcher::new(false);
        told(&mut watcher, &said(100, 0));
        told(&mut watcher, &said(3, 0));
        assert_eq!(watcher.since().get("a"), Some(&0));
        assert_eq!(told(&mut watcher, &said(3, 3)), 3);
    }

    #[test]
    fn silence_and_its_end_are_told_once() {
        let mut watcher = Watcher::new(false);
        let silent = Gathered {
            missing: vec![Missing {
                agent: "a".into(),
                node: Some("n1".into()),
                why: "down".into(),
            }],
            ..Gathered::default()
        };
        assert_eq!(watcher.take(&silent), [News::Silent { node: "n1", why: "down" }]);
        assert_eq!(watcher.take(&silent), []);
        assert_eq!(watcher.take(&said(0, 0)), [News::Back { node: "n1" }]);
    }
}
