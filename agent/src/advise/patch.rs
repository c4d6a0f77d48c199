//! The change of the pod template, as a strategic merge patch.

use serde::Serialize;
use serde_json::{Value, json};

use super::{
    Case, Finding, PreStop, Rule, Weight,
    prestop::{GUESS, grace},
    words::float,
};
use crate::model::{ContainerFacts, PreStopFacts};

/// Kinds that take a strategic merge patch; a custom resource does not, and would lose its other
/// containers to a merge patch.
const BUILT_IN: [&str; 3] = ["Deployment", "StatefulSet", "DaemonSet"];

/// A strategic merge patch, in the order in which people write it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WorkloadPatch {
    spec: SpecPatch,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct SpecPatch {
    template: TemplatePatch,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct TemplatePatch {
    spec: PodPatch,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct PodPatch {
    #[serde(skip_serializing_if = "Option::is_none")]
    termination_grace_period_seconds: Option<i64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    init_containers: Vec<ContainerPatch>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    containers: Vec<ContainerPatch>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct ContainerPatch {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    readiness_probe: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lifecycle: Option<Value>,
}

/// The patch, and what to know before it is applied.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Patch {
    /// A strategic merge patch of the workload.
    pub value: WorkloadPatch,
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
    let mut changes =
        ContainerPatch { name: container.name.to_string(), ..ContainerPatch::default() };
    let mut notes = Vec::new();
    if has(&[Rule::NoReadiness])
        && let Some(port) = case.port().or(container.ports.first().copied())
    {
        let probe = json!({"tcpSocket": {"port": port}, "periodSeconds": 2});
        changes.readiness_probe = Some(probe);
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
        changes.lifecycle = Some(json!({"preStop": hook(now, seconds, prestop, &mut notes)}));
    }
    let slept = target.or(sleeps.flatten()).unwrap_or(0);
    let needs_grace = target.is_some() || has(&[Rule::PreStopOverGrace, Rule::GraceTruncates]);
    let grace = grace(case, slept, prestop.drain_seconds);
    let grace = (needs_grace && grace > template.grace_seconds).then_some(grace);
    if !changes.changes() && grace.is_none() {
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

impl ContainerPatch {
    fn changes(&self) -> bool {
        self.readiness_probe.is_some() || self.lifecycle.is_some()
    }
}

fn value(container: &ContainerFacts, changes: ContainerPatch, grace: Option<i64>) -> WorkloadPatch {
    let mut spec = PodPatch { termination_grace_period_seconds: grace, ..PodPatch::default() };
    if changes.changes() {
        let list = if container.sidecar { &mut spec.init_containers } else { &mut spec.containers };
        list.push(changes);
    }
    WorkloadPatch { spec: SpecPatch { template: TemplatePatch { spec } } }
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
