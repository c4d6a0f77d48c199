//! What the agents should have said of themselves. Pure.

use jiff::Timestamp;
use serde_json::Value;

use super::befall::{Observed, READY_AGAIN, Said};
use crate::agent::{AgentReport, Readiness};

/// A server whose connections are cut is missed at once, but for a look and a busy machine.
const CUT_IS_NOTICED_MS: f64 = 2_000.0;
/// A silent one within this time: 20 s without an acknowledgement, and the last byte may just have
/// come.
const SILENCE_IS_NOTICED_MS: f64 = 30_000.0;

/// What was not as it should have been, in words.
pub fn objections(observed: &Observed, reports: &[AgentReport]) -> Vec<String> {
    let mut found = Vec::new();
    for (node, said) in &observed.agents {
        for objection in of_agent(observed, said) {
            found.push(format!("{}: the agent of {node} {objection}", observed.fault));
        }
    }
    for report in reports {
        let rollouts: Vec<&str> =
            report.rollouts.rollouts.iter().map(|rollout| rollout.id.as_str()).collect();
        if rollouts.len() != 1 {
            let (fault, node) = (observed.fault, &report.node);
            found.push(format!(
                "{fault}: the agent of {node} reports {} rollouts of one: {}",
                rollouts.len(),
                rollouts.join(", ")
            ));
        }
    }
    found
}

fn of_agent(observed: &Observed, said: &Said) -> Vec<String> {
    let mut found = Vec::new();
    let lasted = observed.ended.duration_since(observed.began).as_millis_f64();
    match observed.fault {
        "api-slow" | "api-denied" => {
            if let Some(lost) = first_not_ready(said, observed.began) {
                found.push(format!("was not ready, though its watches were open: {}", lost.said));
            }
            if observed.fault == "api-denied" {
                names_denials(&mut found, said);
            }
        }
        "api-gone" => notices(&mut found, observed, said, CUT_IS_NOTICED_MS),
        "api-silent" if lasted > SILENCE_IS_NOTICED_MS => {
            notices(&mut found, observed, said, SILENCE_IS_NOTICED_MS);
        }
        "api-older" => counts(&mut found, said, "endpointslices", "version_ahead", 1),
        "watch-chaos" => {
            counts(&mut found, said, "endpointslices", "closed", 4);
            counts(&mut found, said, "endpointslices", "gone_410", 1);
        }
        _ => {}
    }
    if !said.ready_again {
        found.push(format!("was not ready {} s after the fault", READY_AGAIN.as_secs()));
    }
    let synced = |status: &Value| status["cluster"]["synced"] == true;
    for (when, status) in ["before the fault", "after it"].iter().zip([0, 2]) {
        if !synced(&said.status[status]) {
            found.push(format!("did not say {when} that its watches are in step"));
        }
    }
    found
}

/// It says in time that it is not ready, names the API server, and says so until the end.
fn notices(found: &mut Vec<String>, observed: &Observed, said: &Said, within_ms: f64) {
    let Some(lost) = first_not_ready(said, observed.began) else {
        found.push("was ready all the while".to_owned());
        return;
    };
    let after = lost.at.duration_since(observed.began).as_millis_f64();
    if after > within_ms {
        found.push(format!("was ready for {after:.0} ms more, allowed are {within_ms:.0}"));
    }
    if !lost.said.contains("has lost the API server") {
        found.push(format!("does not name the API server: {:?}", lost.said));
    }
    let within = |look: &&Readiness| look.at > lost.at && look.at < observed.ended;
    if said.readiness.iter().filter(within).any(|look| look.ready) {
        found.push("was ready again while the server was away".to_owned());
    }
    let watch = &said.status[1]["cluster"]["watches"]["endpointslices"];
    if watch["state"] != "lost" || !watch["last_error"].is_string() {
        found.push(format!("does not say in its status what is lost and why: {watch}"));
    }
    if said.status[1]["ready"] != false {
        found.push("says in its status that it is ready".to_owned());
    }
}

/// Each right that was missing when it was needed is named with its remedy.
fn names_denials(found: &mut Vec<String>, said: &Said) {
    let denied = said.status[1]["cluster"]["denied"].as_array().cloned().unwrap_or_default();
    if said.refused.is_empty() {
        found.push("was refused nothing: the fault did not befall it".to_owned());
    }
    for resource in &said.refused {
        let named = denied.iter().any(|denied| {
            denied["verb"] == "get"
                && denied["resource"] == *resource
                && denied["error"].as_str().is_some_and(|error| error.contains("ClusterRole"))
        });
        if !named {
            found.push(format!("does not say that it may not get {resource}, and the remedy"));
        }
    }
}

fn first_not_ready(said: &Said, began: Timestamp) -> Option<&Readiness> {
    said.readiness.iter().find(|look| look.at >= began && !look.ready)
}

fn counts(found: &mut Vec<String>, said: &Said, watch: &str, reason: &str, least: u64) {
    let count = |status: &Value| {
        status["cluster"]["watches"][watch]["restarts"][reason].as_u64().unwrap_or(0)
    };
    let rose = count(&said.status[2]).saturating_sub(count(&said.status[0]));
    if rose < least {
        found.push(format!(
            "counts {rose} restarts of the watch of {watch} for {reason}, at least {least} were due"
        ));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_000 + second).expect("a time")
    }

    fn look(second: i64, ready: bool, said: &str) -> Readiness {
        Readiness { at: at(second), ready, said: said.to_owned() }
    }

    fn observed(fault: &'static str, readiness: Vec<Readiness>) -> Observed {
        let well = json!({"ready": true, "cluster": {"synced": true}});
        let lost = json!({"ready": false, "cluster": {"watches": {"endpointslices": {
            "state": "lost", "last_error": "connection refused"}}}});
        let status = [well.clone(), lost, well];
        let said = Said { readiness, status, refused: vec!["pods".to_owned()], ready_again: true };
        let agents = BTreeMap::from([("n1".to_owned(), said)]);
        Observed { fault, began: at(0), ended: at(60), agents }
    }

    const LOST: &str = "the watch of pods has lost the API server: connection refused";

    #[test]
    fn an_agent_that_says_in_time_what_it_lost_is_right() {
        let looks = vec![look(-5, true, "ok"), look(1, false, LOST), look(63, true, "ok")];
        assert_eq!(objections(&observed("api-gone", looks), &[]), Vec::<String>::new());
    }

    #[test]
    fn an_agent_that_notices_late_never_or_not_to_the_end_is_not() {
        for looks in [
            vec![look(-5, true, "ok"), look(40, false, LOST), look(63, true, "ok")],
            vec![look(-5, true, "ok")],
            vec![look(1, false, LOST), look(20, true, "ok"), look(30, false, LOST)],
        ] {
            assert_eq!(objections(&observed("api-silent", looks), &[]).len(), 1);
        }
    }

    #[test]
    fn restarts_that_were_due_and_are_not_counted_are_missed() {
        let found = objections(&observed("watch-chaos", vec![look(-5, true, "ok")]), &[]);
        assert_eq!(found.len(), 2, "{found:?}");
    }
}
