//! Nodes of failing endpoints, as they were when they were last asked about.

use std::sync::Arc;

use crate::{
    model::{Mono, NodeFacts},
    owners::remembered::Remembered,
};

/// The most nodes remembered: more than Kubernetes supports in one cluster.
const MAX_NODES: usize = 10_000;

/// An answer is good for this long; then the node is asked about again, if it still matters.
const ASK_AGAIN_NANOS: u64 = 5_000_000_000;

/// What was said of a node.
#[derive(Clone, Debug, Default)]
struct Known {
    asked: Option<Mono>,
    answered: Option<Mono>,
    /// `None`: there is no such node.
    facts: Option<Arc<NodeFacts>>,
}

/// Nodes by name.
#[derive(Clone, Debug)]
pub struct Nodes {
    known: Remembered<Known>,
}

impl Default for Nodes {
    fn default() -> Self {
        Self { known: Remembered::new(MAX_NODES) }
    }
}

impl Nodes {
    /// Whether to ask about a node now; notes that it is asked.
    pub fn ask(&mut self, name: &Arc<str>, now: Mono) -> bool {
        let mut known = self.known.get(name).cloned().unwrap_or_default();
        if known.asked.is_some_and(|asked| now.since(asked) < ASK_AGAIN_NANOS) {
            return false;
        }
        known.asked = Some(now);
        self.known.insert(name.clone(), known);
        true
    }

    /// How many had to go for want of room.
    pub fn forgotten(&self) -> u64 {
        self.known.forgotten()
    }

    /// The answer: the node, or that there is none of that name.
    pub fn answered(&mut self, name: &Arc<str>, facts: Option<Arc<NodeFacts>>, at: Mono) {
        let asked = self.known.get(name).and_then(|known| known.asked);
        self.known.insert(name.clone(), Known { asked, answered: Some(at), facts });
    }

    /// Why a node does not carry its pods any more, by an answer that is younger than `since`;
    /// `None` if it does, or if nothing so young is known.
    pub fn lost(&self, name: &str, since: Mono) -> Option<String> {
        let known = self.known.get(name)?;
        known.answered.filter(|answered| *answered >= since)?;
        match &known.facts {
            None => Some(format!("its node {name} is gone")),
            Some(facts) if facts.is_not_ready() => {
                Some(format!("its node {name} is not ready (Ready is {})", facts.ready))
            }
            Some(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(ready: &str) -> Arc<NodeFacts> {
        Arc::new(NodeFacts { name: "n2".into(), ready: ready.into(), since: None })
    }

    #[test]
    fn a_node_is_lost_when_it_is_not_ready_or_gone_and_not_when_nothing_is_known() {
        let name: Arc<str> = "n2".into();
        for (ready, lost) in
            [(Some("True"), false), (Some("False"), true), (Some("Unknown"), true), (None, true)]
        {
            let mut nodes = Nodes::default();
            assert_eq!(nodes.lost("n2", Mono(0)), None);
            nodes.answered(&name, ready.map(said), Mono(10));
            assert_eq!(nodes.lost("n2", Mono(5)).is_some(), lost, "{ready:?}");
        }
        let mut nodes = Nodes::default();
        nodes.answered(&name, Some(said("")), Mono(10));
        assert_eq!(nodes.lost("n2", Mono(5)), None, "no condition says nothing");
    }

    #[test]
    fn an_answer_from_before_the_failure_does_not_explain_it() {
        let mut nodes = Nodes::default();
        nodes.answered(&"n2".into(), Some(said("False")), Mono(10));
        assert_eq!(nodes.lost("n2", Mono(11)), None);
    }

    #[test]
    fn a_node_is_not_asked_about_twice_in_a_row() {
        let mut nodes = Nodes::default();
        let name: Arc<str> = "n2".into();
        assert!(nodes.ask(&name, Mono(0)));
        assert!(!nodes.ask(&name, Mono(ASK_AGAIN_NANOS - 1)));
        assert!(nodes.ask(&name, Mono(ASK_AGAIN_NANOS)));
    }
}
