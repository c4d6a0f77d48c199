//! Recording rules and alerts: what promtool says of them, and what each alert must carry.

use std::{fmt::Write as _, path::Path};

use rollrace_deploy::{deploy, rules::Rules, tools::Tool};

use crate::metrics;

/// A folder with the rules as promtool reads them, gone with the value.
struct Folder(std::path::PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::create_dir_all(&path).unwrap();
        std::fs::write(path.join("rules.json"), Rules::shipped().unwrap().file().unwrap()).unwrap();
        Self(path)
    }

    fn test(&self, text: &str) -> anyhow::Result<String> {
        std::fs::write(self.0.join("tests.yaml"), text).unwrap();
        Tool::Promtool.run_in(&self.0, ["test", "rules", "tests.yaml"])
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

#[test]
fn promtool_understands_every_rule() {
    let folder = Folder::new("check");
    Tool::Promtool.run_in(&folder.0, ["check", "rules", "rules.json"]).unwrap();
}

#[test]
fn the_rules_pass_their_unit_tests() {
    let text = std::fs::read_to_string(deploy("components/rules/tests.yaml")).unwrap();
    Folder::new("unit").test(&text).unwrap();
    let wrong = text.replacen("value: 75", "value: 74", 1);
    assert!(Folder::new("wrong").test(&wrong).is_err(), "a wrong expectation must be found");
}

#[test]
fn five_hundred_nodes_make_one_alert_of_each_kind() {
    let mut text = "rule_files: [rules.json]\nevaluation_interval: 1m\n\
         group_eval_order: [rollrace.rules, rollrace.alerts]\ntests:\n- interval: 1m\n  input_series:\n"
        .to_owned();
    for node in 0..500 {
        let target = format!(
            "job=\"rollrace/rollrace\", instance=\"n{node}\", pod=\"rollrace-{node}\", node=\"n{node}\""
        );
        let failures = "namespace=\"shop\", service=\"api\", workload_kind=\"Deployment\", workload=\"api\", \
                        class=\"timeout\", cause=\"rollout\"";
        for (series, values) in [
            (format!("up{{{target}}}"), "1x9 0x60"),
            (format!("rollrace_build_info{{{target}}}"), "1x60"),
            (
                format!(
                    "rollrace_connection_failures_total{{{target}, {failures}, phase=\"during\"}}"
                ),
                "0x9 1x60",
            ),
            (
                format!(
                    "rollrace_connection_failures_total{{{target}, {failures}, phase=\"after\"}}"
                ),
                "0x9 1x60",
            ),
            (format!("rollrace_stale_conntrack_entries{{{target}, protocol=\"tcp\"}}"), "200+1x60"),
            (
                format!("rollrace_kernel_events_lost_total{{{target}, reason=\"ring_full\"}}"),
                "0+100x60",
            ),
        ] {
            writeln!(text, "  - {{series: '{series}', values: '{values}'}}").unwrap();
        }
    }
    text += "  promql_expr_test:\n  - expr: count by (alertname) (ALERTS{alertstate=\"firing\"})\n    eval_time: 24m\n    exp_samples:\n";
    let expected = [
        "RollraceAgentBlind",
        "RollraceAgentLosesEvents",
        "RollraceFailuresAfterCompletion",
        "RollraceRolloutDropsConnections",
        "RollraceStaleConntrackGrowing",
    ];
    for alert in expected {
        writeln!(text, "    - {{labels: '{{alertname=\"{alert}\"}}', value: 1}}").unwrap();
    }
    Folder::new("many").test(&text).unwrap();
}

#[test]
fn every_query_of_a_rule_names_metrics_and_labels_that_there_are() {
    for rule in Rules::shipped().unwrap().all() {
        let name = rule.record.as_deref().or(rule.alert.as_deref()).unwrap();
        metrics::check(name, &rule.expr);
    }
}

#[test]
fn every_alert_has_a_severity_words_and_a_runbook_and_no_runbook_is_without_its_alert() {
    let rules = Rules::shipped().unwrap();
    let mut runbooks = Vec::new();
    for rule in rules.all() {
        let Some(alert) = &rule.alert else {
            assert!(rule.annotations.is_empty() && rule.lasts.is_none(), "{:?}", rule.record);
            continue;
        };
        assert_eq!(rule.labels.get("severity").map(String::as_str), Some("ticket"), "{alert}");
        for words in ["summary", "description"] {
            let text = rule.annotations.get(words).map_or("", String::as_str);
            assert!(text.len() > 20, "{alert} has no {words}");
        }
        let runbook = rule.annotations.get("runbook_url").unwrap();
        assert_eq!(runbook, &format!("deploy/runbooks/{alert}.md"));
        let text = std::fs::read_to_string(rollrace_deploy::repository().join(runbook))
            .unwrap_or_else(|error| panic!("{alert} has no runbook: {error}"));
        assert!(text.starts_with(&format!("# {alert}\n")), "{runbook} is not about {alert}");
        for heading in ["## What you see", "## What to do", "## What it is not"] {
            assert!(text.contains(heading), "{runbook} lacks {heading:?}");
        }
        assert!(text.contains("rollrace "), "{runbook} does not use the command line");
        runbooks.push(format!("{alert}.md"));
    }
    for entry in std::fs::read_dir(deploy("runbooks")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(runbooks.contains(&name), "deploy/runbooks/{name} is of no alert");
    }
}
