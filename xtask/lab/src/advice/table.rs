//! The outcomes as a table.

use comfy_table::{ContentArrangement, Table, presets};

use super::outcome::{Outcome, Suffered};
use crate::run::counts_text;

/// A row for each setup and mode.
pub fn table(outcomes: &[Outcome]) -> Table {
    let mut table = Table::new();
    table
        .load_style(presets::UTF8_FULL_CONDENSED)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_header(["setup", "mode", "failed before", "found", "changed", "failed after", ""]);
    let text = |of: &Suffered| format!("{} of {}", counts_text(&of.failed), of.requests);
    for outcome in outcomes {
        for (mode, before) in &outcome.before {
            let after = outcome.after.as_ref().map(|after| &after[mode]);
            let good = if outcome.objections.is_empty() { "as it should be" } else { "NOT" };
            table.add_row([
                outcome.setup.clone(),
                mode.clone(),
                text(before),
                found(outcome),
                changed(outcome),
                after.map_or_else(|| "-".to_owned(), text),
                good.to_owned(),
            ]);
        }
    }
    table
}

fn found(outcome: &Outcome) -> String {
    let findings = outcome.explained.findings.iter();
    let lines: Vec<String> =
        findings.map(|finding| format!("{} ({})", finding.rule, finding.weight)).collect();
    lines.join("\n")
}

/// The patch without the way down to the container.
fn changed(outcome: &Outcome) -> String {
    let explained = &outcome.explained;
    let mut lines: Vec<&str> = Vec::new();
    for line in explained.patch.iter().flat_map(|patch| patch.lines()) {
        let word = line.trim_start_matches([' ', '-']);
        let leads_there = ["spec:", "template:", "containers:", "name:"];
        if !leads_there.iter().any(|key| word.starts_with(key)) {
            lines.push(word);
        }
    }
    if explained.needs_drain {
        lines.push("the application drains");
    }
    if lines.is_empty() { "nothing".to_owned() } else { lines.join("\n") }
}
