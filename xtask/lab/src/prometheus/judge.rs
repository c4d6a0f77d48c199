//! What a run must look like in Prometheus.

use std::collections::BTreeSet;

use anyhow::Result;
use rollrace_deploy::dashboards::Dashboard;
use rollrace_deploy::query::Named;
use rollrace_deploy::rules::Rules;

use super::{Prometheus, value_of};
use crate::agent::Agent;

/// Metrics without a series, or without enough of them, in most runs: what they count did not happen,
/// or takes hours. A query that names one may return nothing.
const MAY_BE_EMPTY: [&str; 8] = [
    "rollrace_stale_conntrack_expiry_timestamp_seconds",
    "rollrace_coverage_gaps_total",
    "rollrace_forgotten_total",
    "node:rollrace_convergence_seconds:p90_6h",
    "cluster:rollrace_convergence_seconds:median_p90_6h",
    "rollrace_watch_restarts_total",
    "rollrace_objects_skipped_total",
    "rollrace_api_denied",
];

/// The alert's threshold.
const DROPS_AT: u64 = 10;
/// The alert's threshold.
const AFTER_AT: u64 = 5;

/// What the agents have decided, and so what Prometheus must show.
#[derive(Debug, Default)]
pub struct Expected {
    /// Failures of the rollout.
    rollout: u64,
    /// Those that began after completion.
    after: u64,
    /// Old pods of which an agent knows when it was told that they leave.
    told: u64,
    /// Agents.
    agents: u32,
}

impl Expected {
    /// From what the agents say themselves.
    pub async fn of(agents: &[Agent]) -> Result<Self> {
        let mut expected = Self { agents: u32::try_from(agents.len())?, ..Self::default() };
        for agent in agents {
            let failures = agent.failures().await?.failures;
            let of_rollouts = failures.iter().filter(|f| f.cause.as_deref() == Some("rollout"));
            for failure in of_rollouts {
                expected.rollout += 1;
                expected.after += u64::from(failure.phase.as_deref() == Some("after"));
            }
            let rollouts = agent.rollouts().await?.rollouts;
            let left = rollouts.iter().flat_map(|rollout| &rollout.convergence);
            let told = left.filter(|pod| pod.control_plane_lag_seconds.is_some());
            expected.told += u64::try_from(told.count())?;
        }
        Ok(expected)
    }

    fn alerts(&self) -> BTreeSet<String> {
        let mut alerts = BTreeSet::new();
        if self.rollout >= DROPS_AT {
            alerts.insert("RollraceRolloutDropsConnections".to_owned());
        }
        if self.after >= AFTER_AT {
            alerts.insert("RollraceFailuresAfterCompletion".to_owned());
        }
        alerts
    }
}

pub(super) async fn objections(
    prometheus: &Prometheus,
    expected: &Expected,
) -> Result<Vec<String>> {
    let mut objections = prometheus.sick_rules().await?;
    for (place, query) in queries()? {
        match prometheus.ask(&query).await {
            Err(error) => objections.push(format!("{place}: {error:#}")),
            Ok(series) if series.is_empty() && must_have_data(&place, &query, expected)? => {
                objections.push(format!("{place}: no data: {query}"));
            }
            Ok(_) => {}
        }
    }
    for (query, count) in [
        (
            "count(rollrace_build_info{namespace=\"rollrace\", container=\"agent\"})",
            u64::from(expected.agents),
        ),
        ("sum(rollrace_rollout_failures) or vector(0)", expected.rollout),
        ("sum(rollrace_rollout_failures{phase=\"after\"}) or vector(0)", expected.after),
        (
            "sum(rollrace_connection_failures_total{cause=\"rollout\", namespace=\"shop\"}) or vector(0)",
            expected.rollout,
        ),
        ("sum(rollrace_control_plane_lag_seconds_count)", expected.told),
        ("count(count by (node) (rollrace_build_info))", u64::from(expected.agents)),
    ] {
        let found = value_of(&prometheus.ask(query).await?);
        #[expect(clippy::cast_precision_loss, reason = "a few thousand")]
        if found != Some(count as f64) {
            objections.push(format!("{query} is {found:?}, and the agents say {count}"));
        }
    }
    let (fires, should) = (prometheus.firing().await?, expected.alerts());
    objections.extend(should.difference(&fires).map(|alert| format!("{alert} does not fire")));
    objections.extend(fires.difference(&should).map(|alert| format!("{alert} fires")));
    Ok(objections)
}

/// Every query that is shipped, and where it stands.
fn queries() -> Result<Vec<(String, String)>> {
    let mut queries = Vec::new();
    for rule in Rules::shipped()?.all() {
        // An alert's query has no data where nothing is wrong: whether it fires is judged instead.
        if let Some(record) = &rule.record {
            queries.push((record.clone(), rule.expr.clone()));
        }
    }
    for board in Dashboard::shipped()? {
        queries.extend(board.queries().into_iter().map(|query| (query.place, query.expression)));
    }
    Ok(queries)
}

/// Whether a query must return something; a rule's place is the series that it makes.
fn must_have_data(place: &str, query: &str, expected: &Expected) -> Result<bool> {
    let named = Named::of(query)?;
    let rare = |metric: &str| {
        MAY_BE_EMPTY.contains(&metric)
            || (expected.rollout == 0 && metric == "rollrace_rollout_failures")
            || (expected.after == 0 && query.contains("phase=\"after\""))
    };
    Ok(!rare(place) && !named.selected.iter().any(|selected| rare(&selected.metric)))
}
