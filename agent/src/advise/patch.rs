//! The change of the pod template, as a strategic merge patch.

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::{
    Case, Finding, PreStop, Rule, Weight,
    prestop::{GUESS, grace},
};
use crate::model::{ContainerFacts, PreStopFacts};

/// Kinds that take a strategic merge patch; a custom resource does not, and would lose its other
/// containers to a merge patch.
const BUILT_IN: [&str; 3] = ["Deployment", "StatefulSet", "DaemonSet"];

/// The patch, and what to know before it is applied.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Patch {
    /// A strategic merge patch of the workload.
    pub value: Value,
    /// The command that applies it from standard input; `None` for a kind that takes no such patch.
    pub command: Option<String>,
    /// What to know.
    pub notes: Vec<String>,
    /// preStop after it, in seconds, if it sets it.
    pub prestop_seconds: Option<i64>,
    /// `terminationGracePeriodSeconds` after it, if it sets it.
    pub grace_seconds: Option<i64>,
}

/// The patch for what was found; `None`: nothing in the template to mend, or the template is not
/// known.
pub(super) fn of(case: &Case, prestop: &PreStop, findings: &[Finding]) -> Option<Patch> {
    let has = |rules: &[Rule]| {
        findings.iter().any(|one| one.weight != Weight::Note && rules.contains(&one.rule))
    };
    let template = case.new_template()?;
    let container = template.serving(case.port())?;
    let mut changes = Map::new();
    let mut notes = Vec::new();
    if has(&[Rule::NoReadiness])
        && let Some(port) = case.port().or(container.ports.first().copied())
    {
        let probe = json!({"tcpSocket": {"port": port}, "periodSeconds": 2});
        changes.insert("readinessProbe".to_owned(), probe);
    }
    let leaves = has(&[
        Rule::NoPreStop,
        Rule::ShortPreStop,
        Rule::StaleTail,
        Rule::KeepaliveCut,
        Rule::IgnoresSigterm,
        Rule::GraceTruncates,
    ]);
    let now = container.pre_stop.as_ref();
    let sleeps = now.map(|hook| hook.seconds);
    let target = match sleeps {
        // It does something of its own; which no patch may throw away.
        Some(None) => None,
        _ if !leaves => None,
        current => {
            let guess = prestop.seconds.unwrap_or_else(|| {
                notes.push(format!(
                    "{GUESS} s is a guess: no new connection to a leaving pod was seen, so nothing \
                     was measured"
                ));
                GUESS
            });
            let measured = prestop.measured_seconds;
            let enough = |slept: i64| measured.is_some_and(|measured| float(slept) > measured);
            current.flatten().is_none_or(|slept| !enough(slept) && slept < guess).then_some(guess)
        }
    };
    if let Some(seconds) = target {
        changes.insert(
            "lifecycle".to_owned(),
            json!({"preStop": hook(now, seconds, prestop, &mut notes)}),
        );
    }
    let slept = target.or(sleeps.flatten()).unwrap_or(0);
    let needs_grace = target.is_some() || has(&[Rule::PreStopOverGrace, Rule::GraceTruncates]);
    let grace = grace(case, slept, prestop.drain_seconds);
    let grace = (needs_grace && grace > template.grace_seconds).then_some(grace);
    if changes.is_empty() && grace.is_none() {
        return None;
    }
    Some(Patch {
        value: value(container, changes, grace),
        command: command(case),
        notes: {
            notes.extend(caveats(case));
            notes
        },
        prestop_seconds: target,
        grace_seconds: grace,
    })
}

fn value(container: &ContainerFacts, mut changes: Map<String, Value>, grace: Option<i64>) -> Value {
    let mut spec = Map::new();
    if let Some(grace) = grace {
        spec.insert("terminationGracePeriodSeconds".to_owned(), grace.into());
    }
    if !changes.is_empty() {
        changes.insert("name".to_owned(), (&*container.name).into());
        let list = if container.sidecar { "initContainers" } else { "containers" };
        spec.insert(list.to_owned(), json!([changes]));
    }
    json!({"spec": {"template": {"spec": spec}}})
}

/// The preStop hook; what another kind of handler was there is taken away, since a hook has one.
fn hook(
    now: Option<&PreStopFacts>,
    seconds: i64,
    prestop: &PreStop,
    notes: &mut Vec<String>,
) -> Value {
    let (how, mut handler) = if prestop.has_sleep == Some(false) {
        notes.push(
            "before Kubernetes 1.30 there is no sleep action: this one needs a sleep binary in the \
             image"
                .to_owned(),
        );
        ("exec", json!({"exec": {"command": ["sleep", seconds.to_string()]}}))
    } else {
        if prestop.has_sleep.is_none() {
            notes.push(
                "the sleep action is there from Kubernetes 1.30 on; before that: exec, command \
                 [sleep, SECONDS], with a sleep binary in the image"
                    .to_owned(),
            );
        }
        ("sleep", json!({"sleep": {"seconds": seconds}}))
    };
    if let Some(now) = now.filter(|now| !now.how.is_empty() && &*now.how != how) {
        handler[&*now.how] = Value::Null;
    }
    handler
}

fn command(case: &Case) -> Option<String> {
    let kind = case.kind.to_lowercase();
    BUILT_IN.contains(&&*case.kind).then(|| {
        format!("kubectl -n {} patch {kind} {} --patch-file /dev/stdin", case.namespace, case.name)
    })
}

fn caveats(case: &Case) -> Vec<String> {
    let mut notes = Vec::new();
    if !BUILT_IN.contains(&&*case.kind) {
        notes.push(format!(
            "a {} takes no strategic merge patch: put it into its manifest by hand",
            case.kind
        ));
    }
    notes.push(
        "applying it is a rollout itself: the pods that leave by it are still of the template before"
            .to_owned(),
    );
    notes
}

#[expect(clippy::cast_precision_loss, reason = "seconds in a pod template")]
fn float(seconds: i64) -> f64 {
    seconds as f64
}
