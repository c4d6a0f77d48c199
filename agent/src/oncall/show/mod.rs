//! How it is shown: tables and text for people, JSON and YAML for programs.
//!
//! # Layout
//! - `times`: local with offset for people, UTC on request
//! - `style`: colour, on a terminal only
//! - `report`: rollouts as a table
//! - `explain`: one rollout as text
//! - `failures`: one failure as a line
//! - `checks`: the doctor's checks
//! - `data`: the same as data

mod checks;
mod data;
mod explain;
mod failures;
mod report;
mod style;
mod times;

use clap::ValueEnum;
use serde::Serialize;

pub use checks::checks;
pub use data::{ExplainData, ReportData};
pub use explain::{explain, explain_plainly};
pub use failures::failure_line;
pub use report::report;
pub use style::Style;
pub use times::Times;

/// How it is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For reading
    Table,
    /// For reading, with more columns
    Wide,
    /// JSON
    Json,
    /// YAML
    Yaml,
}

/// Data as JSON or YAML.
///
/// # Errors
/// If it cannot be written as such.
pub fn data(value: &impl Serialize, format: Format) -> anyhow::Result<String> {
    Ok(match format {
        Format::Yaml => serde_saphyr::to_string(value)?,
        _ => serde_json::to_string_pretty(value)? + "\n",
    })
}
