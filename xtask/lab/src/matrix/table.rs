//! The table at the end.

use comfy_table::{ContentArrangement, Table, presets};

use super::record::Outcome;
use crate::run::counts_text;

/// A row for each cell.
pub fn table(outcomes: &[&Outcome]) -> Table {
    let mut table = Table::new();
    table
        .load_style(presets::UTF8_FULL_CONDENSED)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_header([
            "cell",
            "requests",
            "clients saw fail",
            "agents reported",
            "missed",
            "extra",
            "misattributed",
            "not compared",
            "convergence measured / true, ms",
            "on time, max ms",
            "",
        ]);
    for outcome in outcomes {
        let counts = &outcome.counts;
        let sum =
            |counts: &std::collections::BTreeMap<String, u64>| -> u64 { counts.values().sum() };
        let figure =
            |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |ms| format!("{ms:.0}"));
        table.add_row([
            outcome.name.clone(),
            counts.requests.to_string(),
            counts_text(&counts.truth),
            counts_text(&counts.agent),
            sum(&counts.missed).to_string(),
            sum(&counts.extra).to_string(),
            counts.misattributed.to_string(),
            sum(&counts.not_compared).to_string(),
            format!(
                "{} / {}",
                figure(counts.convergence_ms.max),
                figure(counts.true_convergence_ms.max)
            ),
            figure(counts.on_time_ms.max),
            outcome.word().to_owned(),
        ]);
    }
    table
}
