//! report and explain over a few agents, one of which does not answer.

use std::process::Output;

use crate::{
    cluster::{Agent, Cluster},
    golden::golden,
};

fn three(name: &str) -> crate::cluster::Served {
    let agents = vec![Agent::Answers, Agent::Answers, Agent::Hangs, Agent::Pending];
    Cluster::new(agents, |at| 5 + u64::try_from(at).unwrap_or(0)).serve(name)
}

fn text(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("UTF-8")
}

fn errors(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("UTF-8")
}

#[test]
fn explain_says_why_what_to_change_and_who_did_not_answer() {
    let cluster = three("explain");
    let output = cluster.run(&["explain", "deploy/api", "--utc", "--timeout", "1"]);
    assert_eq!(output.status.code(), Some(1), "{}", errors(&output));
    golden("explain.txt", &text(&output));
}

#[test]
fn report_joins_the_nodes_and_tells_who_is_missing() {
    let cluster = three("report");
    let output = cluster.run(&["report", "--utc", "-o", "wide", "--timeout", "1"]);
    assert_eq!(output.status.code(), Some(1), "{}", errors(&output));
    golden("report.txt", &text(&output));
}

#[test]
fn the_patch_alone_can_be_piped_to_kubectl() {
    let cluster = three("patch");
    let output = cluster.run(&["explain", "deploy/api", "-o", "patch", "--timeout", "1"]);
    golden("patch.yaml", &text(&output));
}

#[test]
fn json_has_what_the_table_has_in_utc() {
    let cluster = three("json");
    let output = cluster.run(&["report", "-o", "json", "--timeout", "1"]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let rollout = &report["rollouts"][0];
    assert_eq!(rollout["failed"], 11);
    assert_eq!(rollout["started"], "2026-11-30T05:00:00.2Z");
    assert_eq!(rollout["nodes"]["n1"], 6);
    assert_eq!(report["missing"].as_array().map(Vec::len), Some(2));
}

#[test]
fn an_unknown_workload_is_answered_with_near_ones() {
    let cluster = three("near");
    let output = cluster.run(&["explain", "deploy/apl", "--timeout", "1"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        errors(&output).contains("did you mean deployment/api -n shop?"),
        "{}",
        errors(&output)
    );
}

#[test]
fn what_the_api_server_forbids_is_named_with_verb_and_resource() {
    let cluster = Cluster::forbidden().serve("forbidden");
    let output = cluster.run(&["report"]);
    assert_eq!(output.status.code(), Some(2));
    let errors = errors(&output);
    for part in ["cannot list the agents' pods in namespace rollrace", "pods/proxy"] {
        assert!(errors.contains(part), "{part} in {errors}");
    }
}

#[test]
fn nobody_answering_is_no_clean_report() {
    let cluster = Cluster::new(vec![Agent::Hangs], |_| 0).serve("nobody");
    let output = cluster.run(&["report", "--timeout", "1"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(errors(&output).contains("none of 1 agents answered: n0"), "{}", errors(&output));
}

#[test]
fn all_agents_answering_and_nothing_failed_is_clean() {
    let cluster = Cluster::new(vec![Agent::Answers; 3], |_| 0).serve("clean");
    let output = cluster.run(&["report", "deploy/api"]);
    assert_eq!(output.status.code(), Some(0), "{}{}", text(&output), errors(&output));
}

#[test]
fn as_a_kubectl_plugin_it_goes_by_that_name() {
    let link = std::env::temp_dir().join(format!("rollrace-{}", std::process::id()));
    std::fs::create_dir_all(&link).expect("a folder");
    let plugin = link.join("kubectl-rollrace");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_rollrace"), &plugin).expect("a link");
    let output = std::process::Command::new(&plugin).args(["explain", "--help"]).output();
    std::fs::remove_dir_all(&link).expect("remove the folder");
    let help = text(&output.expect("run it"));
    assert!(help.contains("Usage: kubectl rollrace explain"), "{help}");
}
