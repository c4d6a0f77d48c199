//! What the API shows: times as civil times, addresses in parts.

use std::{
    collections::BTreeMap,
    fmt,
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{GapReason, StaleEndpoint, StaleSum, State};
use crate::{
    model::{
        Cause, Class, Failure, Mono, Phase, Revision, Rollout, RolloutId, Side, StrategyFacts,
        TemplateFacts, Transport,
    },
    owners::Pod,
};

/// An address and port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransportAddress {
    /// Address.
    pub address: IpAddr,
    /// Port.
    pub port: u16,
}

impl fmt::Display for TransportAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        SocketAddr::new(self.address, self.port).fmt(f)
    }
}

impl From<SocketAddr> for TransportAddress {
    fn from(socket: SocketAddr) -> Self {
        Self { address: socket.ip(), port: socket.port() }
    }
}

/// A workload by kind and name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkloadName {
    /// Kind.
    pub kind: Arc<str>,
    /// Name.
    pub name: Arc<str>,
}

/// One failure as `/api/v1/failures` shows it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FailureReport {
    /// How it failed.
    pub class: Class,
    /// Client.
    pub client: TransportAddress,
    /// Whose it is: `NAMESPACE/NAME` of a workload of this node, `node NAME`, or `outside`.
    #[serde(default)]
    pub client_workload: Arc<str>,
    /// What it dialled.
    pub original: TransportAddress,
    /// Where its last SYN went.
    pub backend: Option<TransportAddress>,
    /// Initial sequence number.
    pub isn: u32,
    /// Begin of the attempt.
    pub first_syn: Timestamp,
    /// SYNs seen.
    pub syns: u32,
    /// Outcome known.
    pub ended: Timestamp,
    /// Verdict reached.
    pub decided: Timestamp,
    /// Namespace.
    pub namespace: Arc<str>,
    /// Service; empty if unknown.
    pub service: Arc<str>,
    /// Pod; empty if unknown.
    pub pod: Arc<str>,
    /// Workload.
    pub workload: Option<WorkloadName>,
    /// Cause.
    pub cause: Cause,
    /// Side of the rollout.
    pub side: Option<Side>,
    /// Phase of the rollout.
    pub phase: Phase,
    /// Rollout.
    pub rollout: Option<RolloutId>,
    /// Revision that the rollout goes to.
    pub revision: Option<String>,
    /// Chain of evidence.
    pub evidence: Vec<String>,
}

/// One revision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RevisionReport {
    /// Number, where it has one; a `StatefulSet`'s and `DaemonSet`'s revision is its hash.
    pub revision: Option<String>,
    /// Template hash or controller revision.
    pub hash: Arc<str>,
    /// Images.
    pub images: Vec<Arc<str>>,
    /// What its template says about leaving and arriving, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<Arc<TemplateFacts>>,
}

impl From<&Revision> for RevisionReport {
    fn from(revision: &Revision) -> Self {
        Self {
            revision: revision.revision.map(|number| number.to_string()),
            hash: revision.hash.clone(),
            images: revision.images.clone(),
            template: revision.template.clone(),
        }
    }
}

/// Convergence of one endpoint on this node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ConvergenceReport {
    /// Backend.
    pub endpoint: TransportAddress,
    /// Pod.
    pub pod: Arc<str>,
    /// Deletion → last fresh SYN, in seconds; null: not measured.
    pub seconds: Option<f64>,
    /// Fresh SYNs after the deletion; 0 with null seconds means "not measured".
    pub fresh_syns_after: u64,
    /// Deletion, 1 s resolution, truncated.
    pub deleted: Timestamp,
    /// How much later the deletion may have been: `seconds` is at most this much too long.
    pub precision_seconds: f64,
    /// Last fresh SYN.
    pub last_fresh_syn: Option<Timestamp>,
    /// Deletion → first SYN answered by a RST, in seconds: the listener was closed by then. Null: no
    /// such SYN was seen. Too long by `precision_seconds` at most.
    #[serde(default)]
    pub listener_gap_seconds: Option<f64>,
    /// Control-plane lag: deletion → this node was told that the endpoint leaves, in seconds. Null: not
    /// measured. Too long by `precision_seconds` at most.
    #[serde(default)]
    pub control_plane_lag_seconds: Option<f64>,
    /// The node it ran on, if that is known.
    #[serde(default)]
    pub node: Option<Arc<str>>,
    /// Deletion → the pod object gone, in seconds; null: not seen.
    #[serde(default)]
    pub gone_seconds: Option<f64>,
    /// Exit codes of its containers, as far as they were seen.
    #[serde(default)]
    pub exit_codes: BTreeMap<Arc<str>, i32>,
}

/// The workload of a rollout as it was when the report was made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkloadReport {
    /// Replicas wanted.
    pub replicas: i32,
    /// How it replaces its pods; null where its kind does not say.
    pub strategy: Option<StrategyFacts>,
    /// Its strategy may take every replica away.
    pub outage_by_design: bool,
}

/// A Service that the workload's pods are behind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceReport {
    /// Name.
    pub name: Arc<str>,
    /// It has no cluster address.
    pub headless: bool,
    /// `publishNotReadyAddresses`.
    pub publish_not_ready: bool,
    /// `internalTrafficPolicy` or `externalTrafficPolicy` is Local.
    pub local_policy: bool,
}

/// One rollout as `/api/v1/rollouts` shows it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RolloutReport {
    /// Identity.
    pub id: RolloutId,
    /// Namespace.
    pub namespace: Arc<str>,
    /// Kind.
    pub kind: Arc<str>,
    /// Name.
    pub name: Arc<str>,
    /// UID of the workload.
    pub uid: Arc<str>,
    /// Where it came from.
    pub from: Option<RevisionReport>,
    /// Where it goes.
    pub to: RevisionReport,
    /// First observed.
    pub started: Timestamp,
    /// How much of it this agent was there for.
    pub covered: CoveredReport,
    /// Complete; null while it runs.
    pub completed: Option<Timestamp>,
    /// A later one began before it was complete.
    pub superseded: bool,
    /// Last old pod gone.
    pub last_old_pod_gone: Option<Timestamp>,
    /// Failures by class.
    pub failures: BTreeMap<Class, u64>,
    /// Failures begun after completion.
    pub after: u64,
    /// Failures by side.
    #[serde(default)]
    pub sides: BTreeMap<Side, u64>,
    /// Failures by client workload.
    #[serde(default)]
    pub clients: BTreeMap<Arc<str>, u64>,
    /// The workload itself; null if it is not known.
    #[serde(default)]
    pub workload: Option<WorkloadReport>,
    /// The Services that its pods are behind.
    #[serde(default)]
    pub services: Vec<ServiceReport>,
    /// Attempts to its Services.
    pub attempts: u64,
    /// First failure's begin.
    pub first_failure: Option<Timestamp>,
    /// Last failure's begin.
    pub last_failure: Option<Timestamp>,
    /// Convergence by endpoint.
    pub convergence: Vec<ConvergenceReport>,
    /// Conntrack entries that still lead to its old pods: who is at risk, and until when. Null: there
    /// never were any.
    #[serde(default)]
    pub stale: Option<StaleReport>,
    /// Counts are lower bounds: the agent was not there for all of it, or something was lost.
    pub lower_bound: bool,
}

/// Stale conntrack entries, as `/api/v1/rollouts` and `/api/v1/status` show them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StaleReport {
    /// How many now.
    pub entries: u64,
    /// The most at a time so far.
    pub peak: u64,
    /// When the last one will be gone, by its timer. Null without any, and where no end can be
    /// predicted.
    pub expires: Option<Timestamp>,
    /// Clients keep some alive by trying again from the same ports: no end can be predicted.
    pub refreshed: bool,
    /// By endpoint.
    pub endpoints: Vec<StaleEndpointReport>,
}

/// Stale conntrack entries of one endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StaleEndpointReport {
    /// Where they lead.
    pub endpoint: TransportAddress,
    /// Their protocol.
    pub protocol: Transport,
    /// Namespace of the endpoint.
    pub namespace: Arc<str>,
    /// Its pod; empty if unknown.
    pub pod: Arc<str>,
    /// The Service that was dialled; empty if unknown.
    pub service: Arc<str>,
    /// What took the endpoint away; null while that is not known.
    pub cause: Option<Cause>,
    /// The rollout, if that was it.
    pub rollout: Option<RolloutId>,
    /// How many.
    pub entries: u64,
    /// When the last of them expires, by its timer.
    pub expires: Timestamp,
    /// Clients keep some of them alive.
    pub refreshed: bool,
}

/// What this agent was there for, as `/api/v1/status` shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CoverageReport {
    /// Since when: probes attached, watches in step. Null: not yet.
    pub since: Option<Timestamp>,
    /// Times of which something may be missing, oldest first; the last 256.
    pub gaps: Vec<GapReport>,
    /// Earlier gaps that are not listed any more.
    pub gaps_forgotten: u64,
}

/// A time of which something may be missing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GapReport {
    /// Not earlier than this.
    pub from: Timestamp,
    /// Not later than this.
    pub until: Timestamp,
    /// Why: `probes`, `suspended`, `lost` or `overflow`.
    pub reason: String,
    /// Why, in words.
    pub why: String,
}

/// How much of a rollout an agent was there for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CoveredReport {
    /// Since when; null: not yet.
    pub since: Option<Timestamp>,
    /// Some of it was before that, or fell into a gap: counts are lower bounds.
    pub partial: bool,
    /// Gaps that it fell into.
    pub gaps: usize,
}

impl State {
    /// What this agent was there for, for people.
    pub fn coverage_report(&self) -> CoverageReport {
        let clock = self.clock();
        let gaps = self.coverage().gaps().map(|gap| GapReport {
            from: clock.wall(gap.from),
            until: clock.wall(gap.until),
            reason: gap.reason.name().to_owned(),
            why: GapReason::why(gap.reason).to_owned(),
        });
        let since = self.coverage().since().map(|at| clock.wall(at));
        let past = self.past();
        let reason = GapReason::Stopped;
        let open = self.coverage().stopped().map(|from| clock.wall(from)).or(past.ended);
        let open = open.map(|from| GapReport {
            from,
            until: clock.wall(self.now),
            reason: reason.name().to_owned(),
            why: reason.why().to_owned(),
        });
        CoverageReport {
            since: past.since.or(since),
            gaps: past.gaps.iter().cloned().chain(gaps).chain(open).collect(),
            gaps_forgotten: self.coverage().forgotten(),
        }
    }

    /// All stale entries for people.
    pub fn stale_report(&self) -> StaleReport {
        self.stale_of_these(&self.stale_sum(), self.stale_endpoints().iter())
    }

    fn stale_of_these<'a>(
        &self,
        sum: &StaleSum,
        endpoints: impl Iterator<Item = &'a StaleEndpoint>,
    ) -> StaleReport {
        let clock = self.clock();
        let endpoints = endpoints.map(|of| StaleEndpointReport {
            endpoint: of.endpoint.into(),
            protocol: of.protocol,
            namespace: of.namespace.clone(),
            pod: of.pod.clone(),
            service: of.service.clone(),
            cause: of.cause,
            rollout: of.rollout.clone(),
            entries: of.entries,
            expires: clock.wall(of.expires),
            refreshed: of.refreshed,
        });
        StaleReport {
            entries: sum.entries,
            peak: sum.peak,
            expires: sum.predicted().map(|at| clock.wall(at)),
            refreshed: sum.refreshed,
            endpoints: endpoints.collect(),
        }
    }

    /// A failure for people.
    pub fn failure_report(&self, failure: &Failure) -> FailureReport {
        let clock = self.clock();
        let rollout = failure.rollout.as_ref().and_then(|id| self.rollouts().get(id));
        FailureReport {
            class: failure.class,
            client: failure.client.into(),
            client_workload: failure.client_workload.clone(),
            original: failure.original.into(),
            backend: failure.backend.map(Into::into),
            isn: failure.isn,
            first_syn: clock.wall(failure.first_syn),
            syns: failure.syns,
            ended: clock.wall(failure.ended),
            decided: clock.wall(failure.decided),
            namespace: failure.namespace.clone(),
            service: failure.service.clone(),
            pod: failure.pod.clone(),
            workload: failure
                .workload
                .as_ref()
                .map(|key| WorkloadName { kind: key.kind.clone(), name: key.name.clone() }),
            cause: failure.cause,
            side: failure.side,
            phase: failure.phase,
            rollout: failure.rollout.clone(),
            revision: rollout.map(Rollout::revision),
            evidence: failure.evidence.clone(),
        }
    }

    /// A rollout for people.
    pub fn rollout_report(&self, rollout: &Rollout) -> RolloutReport {
        let clock = self.clock();
        let partly = self.coverage().of(rollout, self.now);
        let covered_since = self.coverage().since();
        let covered_since = covered_since.map(|since| since.max(rollout.started));
        RolloutReport {
            id: rollout.id.clone(),
            namespace: rollout.workload.namespace.clone(),
            kind: rollout.workload.kind.clone(),
            name: rollout.workload.name.clone(),
            uid: rollout.workload.uid.clone(),
            from: rollout.from.as_ref().map(Into::into),
            to: (&rollout.to).into(),
            started: clock.wall(rollout.started),
            covered: CoveredReport {
                since: covered_since.map(|since| clock.wall(since)),
                partial: partly.is_partial(),
                gaps: partly.gaps,
            },
            completed: rollout.completed.map(|at| clock.wall(at)),
            superseded: rollout.superseded,
            last_old_pod_gone: rollout.last_old_pod_gone.map(|at| clock.wall(at)),
            failures: rollout.failures(),
            after: rollout.failures_after(),
            sides: rollout.failures_by_side.clone(),
            clients: rollout.failures_by_client.clone(),
            workload: self.workload_report(rollout),
            services: self.service_reports(rollout),
            attempts: rollout.attempts,
            first_failure: rollout.first_failure.map(|at| clock.wall(at)),
            last_failure: rollout.last_failure.map(|at| clock.wall(at)),
            convergence: self.convergence_reports(rollout),
            stale: self.stale_of(&rollout.id).map(|sum| {
                let of_it = |of: &&StaleEndpoint| of.rollout.as_ref() == Some(&rollout.id);
                self.stale_of_these(sum, self.stale_endpoints().iter().filter(of_it))
            }),
            lower_bound: partly.is_partial(),
        }
    }
}

impl State {
    fn workload_report(&self, rollout: &Rollout) -> Option<WorkloadReport> {
        let facts = self.owners().workload_by_uid(&rollout.workload.uid)?;
        Some(WorkloadReport {
            replicas: facts.wanted,
            strategy: facts.strategy.clone(),
            outage_by_design: facts.outage_by_design,
        })
    }

    fn service_reports(&self, rollout: &Rollout) -> Vec<ServiceReport> {
        let namespace = &rollout.workload.namespace;
        let services = self.services_of(&rollout.workload).into_iter();
        let facts = services.filter_map(|name| {
            let facts = self.endpoints().service_facts(&(namespace.clone(), name))?;
            Some(ServiceReport {
                name: facts.name.clone(),
                headless: facts.cluster_ips.is_empty(),
                publish_not_ready: facts.publish_not_ready,
                local_policy: facts.internal_local || facts.external_local,
            })
        });
        facts.collect()
    }

    fn convergence_reports(&self, rollout: &Rollout) -> Vec<ConvergenceReport> {
        let clock = self.clock();
        let pods: BTreeMap<&str, &Pod> = self
            .owners()
            .pods_of(&rollout.workload.uid)
            .map(|pod| (&*pod.facts.name, pod))
            .collect();
        let reports = rollout.convergence.iter().map(|known| {
            let pod = pods.get(&*known.pod);
            let deleted = clock.mono(known.deleted);
            let after = |at: Mono| seconds(at.since(deleted));
            ConvergenceReport {
                endpoint: known.endpoint.into(),
                pod: known.pod.clone(),
                seconds: known.nanos.map(seconds),
                fresh_syns_after: known.fresh_syns_after,
                deleted: known.deleted,
                precision_seconds: seconds(known.precision_nanos),
                last_fresh_syn: known.last_fresh_syn.map(|at| clock.wall(at)),
                listener_gap_seconds: known.first_refused.map(after),
                control_plane_lag_seconds: known.lag_nanos.map(seconds),
                node: pod.and_then(|pod| pod.facts.node.clone()),
                gone_seconds: pod.and_then(|pod| pod.gone).map(after),
                exit_codes: pod.map(|pod| pod.facts.exit_codes.clone()).unwrap_or_default(),
            }
        });
        reports.collect()
    }
}

/// Nanoseconds as seconds.
#[expect(clippy::cast_precision_loss, reason = "for people: a microsecond in a year is enough")]
pub fn seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_can_be_told_from_an_ipv6_address() {
        let text = |socket: &str| {
            let socket: SocketAddr = socket.parse().expect("an address");
            TransportAddress::from(socket).to_string()
        };
        assert_eq!(text("10.96.0.80:80"), "10.96.0.80:80");
        assert_eq!(text("[fd00:10:96::50]:80"), "[fd00:10:96::50]:80");
    }
}
