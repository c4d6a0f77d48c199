//! What the API server forbids: by verb and resource, with what is lost by it.

use std::collections::BTreeMap;

use serde::Serialize;

/// The most pairs of verb and resource that are told apart; the agent's `ClusterRole` grants some
/// twenty.
const MAX_DENIED: usize = 64;

/// A verb on a resource that the server refused the last time it was asked for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Denied {
    /// `get`, `list`, `watch` or `create`.
    pub verb: &'static str,
    /// `resource.group`, as an RBAC rule spells it.
    pub resource: String,
    /// The server's words, and the remedy.
    pub error: String,
    /// What does not work without it.
    pub costs: &'static str,
}

/// All refusals in force.
#[derive(Clone, Debug, Default)]
pub(super) struct Denials(BTreeMap<(&'static str, String), Denied>);

impl Denials {
    /// It was refused; whether that is news.
    pub(super) fn put(&mut self, verb: &'static str, resource: &str, error: &str) -> bool {
        let key = (verb, resource.to_owned());
        let is_news = !self.0.contains_key(&key);
        if is_news && self.0.len() >= MAX_DENIED {
            return false;
        }
        let resource = resource.to_owned();
        let costs = costs(verb, &resource);
        self.0.insert(key, Denied { verb, resource, error: error.to_owned(), costs });
        is_news
    }

    /// It was granted.
    pub(super) fn lift(&mut self, verb: &'static str, resource: &str) {
        if !self.0.is_empty() {
            self.0.remove(&(verb, resource.to_owned()));
        }
    }

    pub(super) fn all(&self) -> Vec<Denied> {
        self.0.values().cloned().collect()
    }
}

fn costs(verb: &str, resource: &str) -> &'static str {
    let name = resource.split_once('.').map_or(resource, |(name, _)| name);
    match (name, verb) {
        ("endpointslices", _) => "no failure can be attributed, and the agent is not ready",
        ("services", _) => {
            "connections to a Service without endpoints are not known to be a Service's, and \
             Services are named by their slices only"
        }
        ("pods", "get") => "the owner of a pod elsewhere is told by the pod's name",
        ("pods", "list") => {
            "of the pods of a workload that rolls out only those that change are known"
        }
        ("pods", _) => {
            "when a pod was deleted, evicted or restarted is not known: convergence is not \
             measured, and more failures stay unknown"
        }
        ("replicasets", "list") => {
            "a pod is not placed in a rollout of its Deployment unless that is followed already"
        }
        ("replicasets", "watch") => {
            "which revision a Deployment goes to is known as of the last look-up only"
        }
        ("deployments" | "statefulsets" | "daemonsets" | "rollouts", "get" | "list") => {
            "who owns a pod, and what its workload wanted, may be unknown"
        }
        ("deployments" | "statefulsets" | "daemonsets" | "rollouts", "watch") => {
            "a rollout of this kind is seen late, and not to end"
        }
        ("controllerrevisions", _) => {
            "revisions of StatefulSets and DaemonSets have no number, and which one a DaemonSet \
             goes to is unknown"
        }
        ("events", _) => {
            "no rollout that broke connections shows in `kubectl describe`; --events off asks for none"
        }
        ("nodes", _) => "failures of a lost node stay unknown",
        ("discovery", _) => "the resource of an unknown kind is guessed from its name",
        _ => "rollouts of that kind may stay unknown",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_news_once_and_gone_when_granted() {
        let mut denials = Denials::default();
        assert!(denials.put("watch", "pods", "403"));
        assert!(!denials.put("watch", "pods", "403 again"));
        assert!(denials.put("get", "nodes", "403"));
        denials.lift("watch", "pods");
        assert_eq!(denials.all().len(), 1);
        assert_eq!(denials.all()[0].costs, "failures of a lost node stay unknown");
    }

    #[test]
    fn past_the_bound_nothing_grows() {
        let mut denials = Denials::default();
        for number in 0..2 * MAX_DENIED {
            denials.put("watch", &format!("kind{number}.example.org"), "403");
        }
        assert_eq!(denials.all().len(), MAX_DENIED);
    }
}
