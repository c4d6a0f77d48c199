//! From the lab's own logs to the cause that a failed connection must have. Pure.
//!
//! What is used: which backend the kernel chose, which pod had that address, who removed that pod
//! and when, what the acts did. Never what an agent says.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use super::catalogue::BAD_BACKEND_AFTER_SECONDS;
use super::pods::PodRecord;
use super::routes::Routes;
use super::stage::{Action, Deployed, Served};
use crate::api::Removal;
use crate::compare::{Judge, Reported, Truth};

/// A controller acts on a template some time after it was changed.
const CONTROLLER_LAG: SignedDuration = SignedDuration::from_millis(200);
/// The lab notes a container's exit this much later than it happened at most.
const NOTED_WITHIN: SignedDuration = SignedDuration::from_millis(500);
/// An agent's wait for evidence.
const EVIDENCE: SignedDuration = SignedDuration::from_secs(30);
/// An agent observes a rollout this much later than the change at most, its own watch delay apart.
const OBSERVED_WITHIN: SignedDuration = SignedDuration::from_secs(5);

/// A pod's start, from the journal.
#[derive(Debug, Clone)]
pub struct Start {
    /// When.
    pub at: Timestamp,
    /// Its UID.
    pub uid: String,
    /// Its node.
    pub node: String,
    /// Its addresses, one of each family.
    pub addresses: Vec<IpAddr>,
    /// When it first listened, by its own word.
    pub listened: Option<Timestamp>,
}

/// A rollout: which application, to which version, and since when.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Rolled {
    /// The application.
    pub application: String,
    /// The version.
    pub version: String,
    /// When the template was changed.
    pub at: Timestamp,
}

/// What a verdict may be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Expected {
    /// The cause.
    pub cause: &'static str,
    /// The side of the rollout.
    pub side: Option<&'static str>,
    /// The rollout.
    pub rollout: Option<Rolled>,
}

impl Expected {
    fn cause(cause: &'static str) -> Self {
        Self { cause, side: None, rollout: None }
    }

    fn rollout(side: &'static str, rolled: &Rolled) -> Self {
        Self { cause: "rollout", side: Some(side), rollout: Some(rolled.clone()) }
    }

    /// In a few words.
    pub fn text(&self) -> String {
        match (&self.side, &self.rollout) {
            (Some(side), Some(rolled)) => {
                format!("{} ({side}, {} {})", self.cause, rolled.application, rolled.version)
            }
            _ => self.cause.to_owned(),
        }
    }
}

/// A rollout as an agent knows it.
#[derive(Debug, Clone)]
pub struct KnownRollout {
    /// The target's hash.
    pub hash: String,
    /// When the agent says that it began.
    pub started: Option<Timestamp>,
}

/// Everything that was logged.
#[derive(Debug, Default)]
pub struct Ledger {
    /// Pods by UID.
    pub pods: BTreeMap<String, PodRecord>,
    /// Their starts.
    pub starts: Vec<Start>,
    /// Who removed which pod.
    pub removals: Vec<Removal>,
    /// Containers that exited, by pod name.
    pub exits: Vec<(Timestamp, String)>,
    /// What the acts did.
    pub actions: Vec<(Timestamp, Action)>,
    /// The backend of each connection.
    pub routes: Routes,
    /// Workloads by application.
    pub deployed: BTreeMap<String, Deployed>,
    /// What each client dials.
    pub dialled: BTreeMap<String, Served>,
    /// Each agent's rollouts: (node, id).
    pub rollouts: BTreeMap<(String, String), KnownRollout>,
    /// A node whose agent knows nothing of what came before.
    pub blind: Option<(String, Timestamp)>,
    /// How much later the agents see each event.
    pub agent_delay: SignedDuration,
}

/// A failed connection as the lab's logs show it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Judged {
    /// The backend, if one was chosen.
    pub backend: Option<SocketAddr>,
    /// The pod's name.
    pub pod: Option<String>,
    /// What the verdict may be; nothing: the lab itself cannot tell.
    pub expected: Vec<Expected>,
}

impl Ledger {
    /// What a client's failure must be blamed on.
    pub fn judge(&self, truth: &Truth) -> Judged {
        let (start, end) = (time(truth.failure.connect_start), time(truth.failure.end));
        let Some(served) = self.dialled.get(&truth.client) else {
            return Judged { backend: None, pod: None, expected: Vec::new() };
        };
        let local = truth.failure.local;
        let dialled = served.addresses.iter().find(|a| a.is_ipv4() == local.is_ipv4());
        let backend = dialled.and_then(|dialled| {
            let times = (truth.failure.connect_start, truth.failure.end);
            self.routes.backend(&truth.node, local, *dialled, times)
        });
        // Between two sets of rules a SYN can pass as it is: an entry without a backend.
        let Some(backend) = backend.filter(|backend| !served.addresses.contains(backend)) else {
            // Nothing was chosen: the removal that emptied the Service is to blame.
            let emptied = self
                .removals
                .iter()
                .rfind(|r| r.at <= end && self.is_of(&r.uid, &served.application));
            let expected = emptied.map(|removal| self.removed(removal)).unwrap_or_default();
            return Judged { backend: None, pod: None, expected };
        };
        let began =
            self.starts.iter().rfind(|s| s.addresses.contains(&backend.ip()) && s.at <= end);
        let Some((began, pod)) = began.and_then(|s| Some((s, self.pods.get(&s.uid)?))) else {
            return Judged { backend: Some(backend), pod: None, expected: Vec::new() };
        };
        Judged {
            backend: Some(backend),
            pod: Some(pod.name.clone()),
            expected: self.causes(began, pod, start, end),
        }
    }

    fn is_of(&self, uid: &str, application: &str) -> bool {
        self.pods.get(uid).is_some_and(|pod| pod.application == application)
    }

    fn causes(
        &self,
        began: &Start,
        pod: &PodRecord,
        start: Timestamp,
        end: Timestamp,
    ) -> Vec<Expected> {
        let lost = self.actions.iter().any(|(at, action)| {
            *at <= end && matches!(action, Action::NodeLost { node } if *node == began.node)
        });
        if lost {
            return vec![Expected::cause("node_loss")];
        }
        if began.listened.is_none_or(|listened| start < listened) {
            let rolled = self.current(&pod.application, began.at);
            let new = rolled.filter(|rolled| rolled.version == pod.version);
            return new.map(|rolled| Expected::rollout("new", &rolled)).into_iter().collect();
        }
        if let Some(removal) = self.removals.iter().find(|r| r.uid == began.uid && r.at <= end) {
            return self.removed(removal);
        }
        // A client sees its connection end before anybody notes that the process did.
        let noted = end.checked_add(NOTED_WITHIN).unwrap_or(end);
        if self.exits.iter().any(|(at, name)| *name == pod.name && *at <= noted) {
            return vec![Expected::cause("restart")];
        }
        let bad = self.actions.iter().find(
            |(at, action)| matches!(action, Action::MadeBad { pod: bad } if *bad == pod.name && *at <= end),
        );
        bad.map(|(at, _)| bad_backend(*at, end)).unwrap_or_default()
    }

    /// What the removal of a pod was.
    fn removed(&self, removal: &Removal) -> Vec<Expected> {
        match &*removal.user {
            "lab-delete" => vec![Expected::cause("deleted")],
            "lab-evict" => vec![Expected::cause("eviction")],
            "replicaset-controller" | "statefulset-controller" | "daemonset-controller" => {
                self.removed_by_controller(removal)
            }
            _ => Vec::new(),
        }
    }

    fn removed_by_controller(&self, removal: &Removal) -> Vec<Expected> {
        let Some(pod) = self.pods.get(&removal.uid) else { return Vec::new() };
        // Just after a change the controller may still be acting on the state before it.
        let before = removal.at.saturating_sub(CONTROLLER_LAG).unwrap_or(removal.at);
        let mut expected = Vec::new();
        for at in [removal.at, before] {
            let found = match self.current(&pod.application, at) {
                Some(rolled) if rolled.version != pod.version => Expected::rollout("old", &rolled),
                _ => Expected::cause("scale_down"),
            };
            let possible = found.rollout.is_some() || self.was_scaled(&pod.application, removal.at);
            if possible && !expected.contains(&found) {
                expected.push(found);
            }
        }
        expected
    }

    fn was_scaled(&self, of: &str, by: Timestamp) -> bool {
        self.actions.iter().any(|(at, action)| {
            *at <= by && matches!(action, Action::Scaled { application, .. } if application == of)
        })
    }

    /// The rollout in force.
    fn current(&self, of: &str, by: Timestamp) -> Option<Rolled> {
        self.actions.iter().rev().find_map(|(at, action)| match action {
            Action::RolledOut { application, version } if application == of && *at <= by => {
                Some(Rolled { application: of.to_owned(), version: version.clone(), at: *at })
            }
            _ => None,
        })
    }

    fn hash(&self, rolled: &Rolled) -> Option<&str> {
        self.pods
            .values()
            .find(|pod| pod.application == rolled.application && pod.version == rolled.version)
            .map(|pod| pod.hash.as_str())
    }

    /// What speaks against one of the possible verdicts.
    fn against(&self, expected: &Expected, reported: &Reported) -> Vec<String> {
        let failure = &reported.failure;
        let mut why = Vec::new();
        let mut check = |what: &str, is: Option<&str>, should: Option<&str>| {
            if is != should {
                let (is, should) = (is.unwrap_or("absent"), should.unwrap_or("absent"));
                why.push(format!("{what} is {is}, should be {should}"));
            }
        };
        check("cause", failure.cause.as_deref(), Some(expected.cause));
        check("side", failure.side.as_deref(), expected.side);
        let known = failure
            .rollout
            .as_ref()
            .and_then(|id| self.rollouts.get(&(reported.node.clone(), id.clone())));
        let hash = expected.rollout.as_ref().and_then(|rolled| self.hash(rolled));
        check("the rollout's target", known.map(|known| known.hash.as_str()), hash);
        if let (Some(started), Some(rolled)) =
            (known.and_then(|known| known.started), &expected.rollout)
        {
            let late = started.duration_since(rolled.at) - self.agent_delay;
            if late > OBSERVED_WITHIN || late < -OBSERVED_WITHIN {
                why.push(format!("the rollout began at {started}, should be {}", rolled.at));
            }
        }
        why
    }
}

/// A replica that has failed for too short a time is not called bad yet; verdicts wait, though.
fn bad_backend(since: Timestamp, end: Timestamp) -> Vec<Expected> {
    let failing = end.duration_since(since);
    let after = SignedDuration::from_secs(i64::try_from(BAD_BACKEND_AFTER_SECONDS).unwrap_or(0));
    let mut expected = Vec::new();
    if failing + EVIDENCE >= after {
        expected.push(Expected::cause("bad_backend"));
    }
    // One second for the first failure to come, and for the agent's clock to tick.
    if failing < after + SignedDuration::from_secs(1) {
        expected.push(Expected::cause("unknown"));
    }
    expected
}

impl Ledger {
    /// Whether the pod was removed when the agent that reported was not there: it cannot know.
    fn is_before_agent(&self, judged: &Judged, reported: &Reported) -> bool {
        let Some((node, until)) = &self.blind else { return false };
        let mut removals = self.removals.iter().filter(|removal| removal.at < *until);
        let was_removed = |uid: &str| {
            self.pods.get(uid).is_some_and(|pod| judged.pod.as_ref() == Some(&pod.name))
        };
        *node == reported.node && removals.any(|removal| was_removed(&removal.uid))
    }
}

impl Judge for Ledger {
    fn objections(&self, truth: &Truth, reported: &Reported) -> Vec<String> {
        let judged = self.judge(truth);
        let failure = &reported.failure;
        let mut why = Vec::new();
        if let Some(served) = self.dialled.get(&truth.client) {
            if failure.service.as_deref() != Some(&served.service) {
                why.push(format!("service is {:?}, should be {}", failure.service, served.service));
            }
            if let (Some(deployed), Some(workload)) =
                (self.deployed.get(&served.application), &failure.workload)
                && (workload.kind != deployed.kind || workload.name != deployed.application)
            {
                why.push(format!("workload is {workload:?}, should be {deployed:?}"));
            }
        }
        let is_before_agent =
            failure.cause.as_deref() == Some("unknown") && self.is_before_agent(&judged, reported);
        let names_none = is_before_agent && failure.pod.as_deref() == Some("");
        if let (Some(pod), Some(named)) = (&judged.pod, failure.pod.as_deref())
            && pod != named
            && !names_none
        {
            why.push(format!("pod is {named}, should be {pod}"));
        }
        if is_before_agent {
            return why;
        }
        let possible: Vec<Vec<String>> =
            judged.expected.iter().map(|expected| self.against(expected, reported)).collect();
        match possible.iter().min_by_key(|against| against.len()) {
            Some(against) => why.extend(against.iter().cloned()),
            None => why.push("the lab's own log shows no cause".to_owned()),
        }
        why
    }
}

fn time(nanoseconds: i64) -> Timestamp {
    Timestamp::from_nanosecond(nanoseconds.into()).unwrap_or(Timestamp::UNIX_EPOCH)
}
