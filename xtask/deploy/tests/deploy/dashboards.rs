//! The dashboards, as far as they can be checked without Grafana.

use std::collections::BTreeSet;

use rollrace_deploy::dashboards::Dashboard;
use serde_json::{Value, json};

use crate::metrics;

#[test]
fn there_are_three_with_addresses_of_their_own_and_links_between_them() {
    let boards = Dashboard::shipped().unwrap();
    let uids: BTreeSet<&str> = boards.iter().map(|board| board.text("uid")).collect();
    assert_eq!(
        uids.into_iter().collect::<Vec<_>>(),
        ["rollrace-agents", "rollrace-propagation", "rollrace-rollouts"]
    );
    for board in &boards {
        assert_eq!(board.file, format!("{}.json", board.text("uid")));
        assert!(board.list("/tags").contains(&json!("rollrace")), "{}", board.file);
        let [link] = board.list("/links") else { panic!("{} has one link", board.file) };
        assert_eq!((&link["type"], &link["tags"]), (&json!("dashboards"), &json!(["rollrace"])));
        assert_eq!(link["includeVars"], true, "{}", board.file);
        assert!(board.json.get("id").is_none(), "{}: an id belongs to one Grafana", board.file);
    }
}

#[test]
fn data_source_and_cluster_are_variables_that_every_query_uses() {
    for board in Dashboard::shipped().unwrap() {
        let variables: Vec<&str> = board
            .list("/templating/list")
            .iter()
            .filter_map(|variable| variable["name"].as_str())
            .collect();
        assert_eq!(variables[..2], ["datasource", "cluster"], "{}", board.file);
        for variable in &board.list("/templating/list")[1..] {
            let name = &variable["name"];
            // A cluster without a label `cluster` is one, too.
            assert_eq!(variable["allValue"], ".*", "{}: {name}", board.file);
            assert_eq!(variable["includeAll"], true, "{}: {name}", board.file);
        }
        let source = json!({"type": "prometheus", "uid": "${datasource}"});
        let annotations = board.list("/annotations/list").iter();
        let targets = board.panels().iter().flat_map(|panel| {
            assert_eq!(panel["datasource"], source, "{}: {}", board.file, panel["title"]);
            let targets = panel["targets"].as_array().unwrap();
            assert!(!targets.is_empty(), "{}: {} asks nothing", board.file, panel["title"]);
            targets
        });
        for asked in annotations.chain(targets) {
            assert_eq!(asked["datasource"], source, "{}", board.file);
            let expression = asked["expr"].as_str().unwrap();
            assert!(
                expression.contains("cluster=~\"$cluster\""),
                "{}: {expression} mixes clusters",
                board.file
            );
        }
    }
}

#[test]
fn every_query_names_metrics_and_labels_that_there_are() {
    for board in Dashboard::shipped().unwrap() {
        let queries = board.queries();
        assert!(queries.len() >= 8, "{} asks too little", board.file);
        for query in queries {
            assert!(
                !query.expression.contains('$'),
                "{}: an unknown variable: {}",
                query.place,
                query.expression
            );
            metrics::check(&query.place, &query.expression);
        }
    }
}

#[test]
fn no_panel_lies_on_another_and_each_is_explained() {
    for board in Dashboard::shipped().unwrap() {
        let mut taken = BTreeSet::new();
        let mut ids = BTreeSet::new();
        for panel in board.panels() {
            let title = &panel["title"];
            assert!(ids.insert(panel["id"].as_u64().unwrap()), "{}: {title}", board.file);
            let text = panel["description"].as_str().unwrap_or("");
            assert!(!text.is_empty(), "{}: {title} is not explained", board.file);
            let at = |key: &str| panel["gridPos"][key].as_u64().unwrap();
            assert!(at("x") + at("w") <= 24, "{}: {title} is too wide", board.file);
            for x in at("x")..at("x") + at("w") {
                for y in at("y")..at("y") + at("h") {
                    assert!(taken.insert((x, y)), "{}: {title} lies on another", board.file);
                }
            }
        }
    }
}

#[test]
fn rollouts_are_marked_where_they_start_and_where_they_are_complete() {
    let boards = Dashboard::shipped().unwrap();
    let rollouts = boards.iter().find(|board| board.text("uid") == "rollrace-rollouts").unwrap();
    let marks: Vec<(&str, bool)> = rollouts
        .list("/annotations/list")
        .iter()
        .map(|mark: &Value| {
            (mark["expr"].as_str().unwrap(), mark["useValueForTime"].as_bool().unwrap())
        })
        .collect();
    assert_eq!(marks.len(), 2);
    assert!(marks[0].0.contains("rollout_start_timestamp_seconds") && marks[0].1);
    assert!(marks[1].0.contains("rollout_complete_timestamp_seconds") && marks[1].1);
}
