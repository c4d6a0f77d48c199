//! What agents answer, taken leniently: an older one says less, a newer one more.
//!
//! Every text is made harmless here, in one place: names come from whoever can write an object, and
//! reach a terminal.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::advise::facts::{Address, ConntrackTable, Figures};

/// `/api/v1/status`, as far as the CLI uses it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Status {
    /// Node.
    pub node: String,
    /// Version of the agent.
    pub version: String,
    /// Version of the API server, if the agent knows it.
    pub kubernetes: Option<String>,
    /// When the agent started.
    pub started: Timestamp,
    /// What it was there for.
    pub coverage: Coverage,
    /// Ready.
    pub ready: bool,
    /// What it is not ready for.
    pub not_ready: Vec<String>,
    /// Failures decided.
    pub failures: u64,
    /// Failures that wait for evidence.
    pub undecided_failures: u64,
    /// Counts are lower bounds.
    pub lower_bound: bool,
    /// What was lost, by reason.
    pub losses: BTreeMap<String, u64>,
    /// What the API server's side tells of itself.
    pub cluster: ClusterSide,
    /// What its kernel side does without.
    pub lacks: Vec<Lack>,
    /// The conntrack table, from agents that look at it.
    pub conntrack_scan: Option<Scan>,
}

/// `conntrack_scan`, as far as the CLI uses it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Scan {
    /// Entries.
    pub table_entries: Option<u64>,
    /// The most that it may hold.
    pub table_limit: Option<u64>,
    /// Packets dropped for want of room.
    pub table_drops: Option<u64>,
    /// Entries that could not be inserted.
    pub insert_failed: Option<u64>,
}

impl Status {
    /// The conntrack table; what an agent does not tell counts as nothing to complain about.
    pub fn conntrack_table(&self) -> Option<ConntrackTable> {
        let scan = self.conntrack_scan?;
        Some(ConntrackTable {
            entries: scan.table_entries?,
            limit: scan.table_limit.unwrap_or(0),
            drops: scan.table_drops.unwrap_or(0),
            insert_failed: scan.insert_failed.unwrap_or(0),
        })
    }

    /// Everything that was lost.
    pub fn lost(&self) -> u64 {
        self.losses.values().sum()
    }
}

/// `coverage`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Coverage {
    /// Since when.
    pub since: Option<Timestamp>,
    /// Gaps, oldest first.
    pub gaps: Vec<Gap>,
}

/// A time of which something may be missing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Gap {
    /// Not earlier than this.
    pub from: Timestamp,
    /// Not later than this.
    pub until: Timestamp,
    /// Why, in words.
    pub why: String,
}

/// What an agent's kernel side does without.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Lack {
    /// What.
    pub feature: String,
    /// What has it.
    pub since: String,
    /// What it means.
    pub without: String,
}

/// `cluster`, as far as the CLI uses it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClusterSide {
    /// Whether the watches are in step.
    pub synced: bool,
    /// What the API server forbids the agent.
    pub denied: Vec<DeniedRight>,
}

/// A right that an agent lacks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DeniedRight {
    /// Verb.
    pub verb: String,
    /// Resource.
    pub resource: String,
    /// What that costs.
    pub costs: String,
}

/// `/api/v1/rollouts`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Rollouts {
    /// Node.
    pub node: String,
    /// Rollouts, newest first.
    pub rollouts: Vec<Figures>,
}

/// `/api/v1/failures`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Failures {
    /// Node.
    pub node: String,
    /// Where to go on from with `?since=`; `None` from agents that do not know it.
    pub next: Option<u64>,
    /// Failures that were asked for, and are not listed any more.
    pub skipped: u64,
    /// Failures, newest last.
    pub failures: Vec<Failure>,
}

/// One failure.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Failure {
    /// Class.
    pub class: String,
    /// Client.
    pub client: Option<Address>,
    /// Whose client it is.
    pub client_workload: String,
    /// What it dialled.
    pub original: Option<Address>,
    /// Where its last SYN went.
    pub backend: Option<Address>,
    /// Begin of the attempt.
    pub first_syn: Timestamp,
    /// Outcome known.
    pub ended: Timestamp,
    /// Namespace.
    pub namespace: String,
    /// Service.
    pub service: String,
    /// Pod.
    pub pod: String,
    /// Workload.
    pub workload: Option<WorkloadName>,
    /// Cause.
    pub cause: String,
    /// Side.
    pub side: Option<String>,
    /// Phase.
    pub phase: String,
    /// Rollout.
    pub rollout: Option<String>,
    /// Revision.
    pub revision: Option<String>,
    /// Evidence.
    pub evidence: Vec<String>,
}

/// A workload by kind and name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct WorkloadName {
    /// Kind.
    pub kind: String,
    /// Name.
    pub name: String,
}

/// Reads an answer.
///
/// # Errors
/// If it is no JSON, or not of that shape.
pub fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, serde_json::Error> {
    let mut value: Value = serde_json::from_slice(bytes)?;
    harmless(&mut value);
    serde_json::from_value(value)
}

/// A report of this version as it would have come over the wire.
///
/// # Panics
/// If this version does not read what it writes.
pub fn as_told<R: Serialize, T: DeserializeOwned>(report: &R) -> T {
    let bytes = serde_json::to_vec(report).expect("a report has only text as keys");
    read(&bytes).expect("this version reads what it writes")
}

fn harmless(value: &mut Value) {
    match value {
        Value::String(text) if text.contains(is_harmful) => *text = plain(text),
        Value::Array(items) => items.iter_mut().for_each(harmless),
        Value::Object(fields) => {
            fields.values_mut().for_each(harmless);
            let harmful: Vec<String> =
                fields.keys().filter(|key| key.contains(is_harmful)).cloned().collect();
            for key in harmful {
                if let Some(field) = fields.remove(&key) {
                    fields.insert(plain(&key), field);
                }
            }
        }
        _ => {}
    }
}

/// Control characters can take a terminal over, and those that turn the direction of writing around
/// can make a name look like another.
fn is_harmful(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

/// A text with what could harm a terminal written out, as `\u{1b}`.
pub fn plain(text: &str) -> String {
    let escape = |c: char| {
        if is_harmful(c) { c.escape_unicode().to_string() } else { c.to_string() }
    };
    text.chars().map(escape).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_names_reach_no_terminal_unescaped() {
        let hostile = br#"{"node": "n1\u001b]0;owned\u0007", "rollouts": [
            {"name": "api\u202egnp", "clients": {"a\u001b[31m": 3}}]}"#;
        let answer: Rollouts = read(hostile).unwrap();
        assert_eq!(answer.node, "n1\\u{1b}]0;owned\\u{7}");
        assert_eq!(answer.rollouts[0].name, "api\\u{202e}gnp");
        assert_eq!(answer.rollouts[0].clients.keys().next().unwrap(), "a\\u{1b}[31m");
    }

    #[test]
    fn an_agent_of_another_version_is_read_as_far_as_both_know() {
        let newer = br#"{"node": "n1", "news": {"deep": []}, "rollouts": [
            {"id": "u/h/1", "kind": "Deployment", "failures": {"refused": 2, "imploded": 1},
             "convergence": [{"pod": "p", "seconds": null, "colour": "red"}]}]}"#;
        let answer: Rollouts = read(newer).unwrap();
        assert_eq!(answer.rollouts[0].failed(), 3);
        let older: Status = read(br#"{"node": "n1"}"#).unwrap();
        assert_eq!(older.kubernetes, None);
    }
}
