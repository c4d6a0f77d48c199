//! Rollouts as a table, newest first.

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};

use super::{Style, Times, times::between};
use crate::{
    advise::{Case, count_of, share_of},
    oncall::{Gathered, workload::path},
};

/// The table, and below it what is missing from it.
pub fn report(
    gathered: &Gathered,
    cases: &[Case],
    wide: bool,
    times: &Times,
    style: Style,
) -> String {
    let mut text = String::new();
    if cases.is_empty() {
        let since = gathered.answered.iter().filter_map(|one| one.status.coverage.since).min();
        let since = since.map_or_else(String::new, |since| format!(" since {}", times.full(since)));
        text = format!("{text}No rollout was observed{since}.\n");
    } else {
        text.push_str(&table(cases, wide, times));
    }
    text.push_str(&footer(gathered, cases, style));
    text
}

fn table(cases: &[Case], wide: bool, times: &Times) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    let mut header = vec![
        "NAMESPACE",
        "WORKLOAD",
        "REVISION",
        "STARTED",
        "COMPLETE",
        "FAILED",
        "BY CLASS",
        "AFTER",
        "AT RISK UNTIL",
        "WORST NODE",
    ];
    if wide {
        header.extend(["OLD PODS GONE", "CLIENTS", "IMAGE"]);
    }
    table.set_header(&header);
    for case in cases {
        table.add_row(row(case, wide, times));
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    if let Some(after) = table.column_mut(7) {
        after.set_cell_alignment(CellAlignment::Right);
    }
    let lines = table.lines().map(|line| line.trim_end().to_owned() + "\n");
    lines.collect()
}

fn row(case: &Case, wide: bool, times: &Times) -> Vec<String> {
    let none = || "-".to_owned();
    let failed = case.failed();
    let bound = if case.is_lower_bound() { "≥ " } else { "" };
    let from = case.from.as_ref().map_or("?", |from| from.name());
    let classes: Vec<String> =
        case.failures().iter().map(|(class, count)| format!("{count} {class}")).collect();
    let complete = match case.completed {
        Some(at) => format!("after {}", between(case.started, at)),
        None if case.superseded => "superseded".to_owned(),
        None => "under way".to_owned(),
    };
    let risk = match case.stale() {
        None => "not known".to_owned(),
        Some(stale) if stale.entries == 0 => none(),
        Some(stale) => match stale.expires {
            Some(at) => times.clock(at),
            None => "no end".to_owned(),
        },
    };
    let mut row = vec![
        case.namespace.clone(),
        path(&case.kind, &case.name),
        format!("{from} → {}", case.to.name()),
        times.full(case.started),
        complete,
        format!("{bound}{}", share_of(failed, case.attempts())),
        if classes.is_empty() { none() } else { classes.join(", ") },
        case.after().to_string(),
        risk,
        case.worst_node().map_or_else(none, |(node, count)| format!("{node} ({count})")),
    ];
    if wide {
        let gone = case.last_old_pod_gone;
        row.push(gone.map_or_else(none, |at| format!("after {}", between(case.started, at))));
        let clients: Vec<String> = case
            .clients()
            .iter()
            .take(3)
            .map(|(name, count)| format!("{name} ({count})"))
            .collect();
        row.push(if clients.is_empty() { none() } else { clients.join(", ") });
        row.push(images(case));
    }
    row
}

/// `api:1 → api:2`.
pub(super) fn images(case: &Case) -> String {
    let to = case.to.images.join(", ");
    match &case.from {
        Some(from) if !from.images.is_empty() && from.images != case.to.images => {
            format!("{} → {to}", from.images.join(", "))
        }
        _ => to,
    }
}

/// Who is missing, and what the figures lack for it.
pub(super) fn footer(gathered: &Gathered, cases: &[Case], style: Style) -> String {
    let mut lines = Vec::new();
    for missing in &gathered.missing {
        lines.push(format!("no answer for {}: {}", missing.covers(), missing.why));
    }
    for answered in &gathered.answered {
        let status = &answered.status;
        if status.lost() > 0 {
            let lost = count_of(status.lost(), "event");
            lines.push(format!(
                "{lost} lost on {}: its counts of that time are lower bounds",
                status.node
            ));
        }
        if !status.ready {
            lines.push(format!("{} is not ready: {}", status.node, status.not_ready.join("; ")));
        }
    }
    let partial = cases.iter().filter(|case| case.figures().any(|(_, one)| one.covered.partial));
    match partial.count() {
        0 => {}
        count => lines.push(format!(
            "{} not covered from begin to end by every agent: their counts (≥) are lower bounds",
            count_of(u64::try_from(count).unwrap_or(u64::MAX), "rollout")
        )),
    }
    lines.extend(gathered.notes.iter().cloned());
    lines.iter().map(|line| style.warn(&format!("! {line}")) + "\n").collect()
}
