//! Grafana's dashboards, as far as they can be checked without Grafana.

use std::{collections::BTreeMap, path::Path};

use anyhow::Context as _;
use serde_json::Value;

use crate::deploy;

/// Their folder in `deploy/`.
pub const FOLDER: &str = "components/dashboards";

/// What Grafana would put in place of its variables, longest names first.
const VARIABLES: [(&str, &str); 8] = [
    ("${datasource}", "prometheus"),
    ("$__rate_interval", "1m"),
    ("$__interval", "15s"),
    ("$__range", "15m"),
    ("$namespace", ".*"),
    ("$workload", ".*"),
    ("$cluster", ".*"),
    ("$node", ".*"),
];

/// A dashboard.
#[derive(Clone, Debug)]
pub struct Dashboard {
    /// The file's name.
    pub file: String,
    /// What it holds.
    pub json: Value,
}

/// A query of a dashboard.
#[derive(Clone, Debug)]
pub struct Query {
    /// Where it stands: the panel's title, or the variable or annotation.
    pub place: String,
    /// As Prometheus would get it, all variables replaced.
    pub expression: String,
}

impl Dashboard {
    /// Those that are shipped, by file name.
    ///
    /// # Errors
    /// If one cannot be read.
    pub fn shipped() -> anyhow::Result<Vec<Self>> {
        let folder = deploy(FOLDER);
        let mut found = BTreeMap::new();
        let entries = std::fs::read_dir(&folder)
            .with_context(|| format!("cannot read {}", folder.display()))?;
        for entry in entries {
            let path = entry.context("cannot list the dashboards")?.path();
            if path.extension().is_some_and(|extension| extension == "json") {
                let dashboard = Self::read(&path)?;
                found.insert(dashboard.file.clone(), dashboard);
            }
        }
        Ok(found.into_values().collect())
    }

    fn read(path: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read {}", path.display()))?;
        let json = serde_json::from_str(&text)
            .with_context(|| format!("cannot parse {}", path.display()))?;
        let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Self { file, json })
    }

    /// A text of it, e.g. `uid`.
    pub fn text(&self, key: &str) -> &str {
        self.json.get(key).and_then(Value::as_str).unwrap_or("")
    }

    /// A list of it by JSON pointer, empty if it has none.
    pub fn list(&self, pointer: &str) -> &[Value] {
        self.json.pointer(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }

    /// The panels; none is hidden in a collapsed row.
    pub fn panels(&self) -> &[Value] {
        self.list("/panels")
    }

    /// Every query: of the panels, the annotations and the variables.
    pub fn queries(&self) -> Vec<Query> {
        let title = |value: &Value, key: &str| {
            let title = value.get(key).and_then(Value::as_str).unwrap_or("?");
            format!("{}: {title}", self.file)
        };
        let mut queries = Vec::new();
        for panel in self.panels() {
            let targets = panel.get("targets").and_then(Value::as_array);
            for target in targets.into_iter().flatten() {
                if let Some(expression) = target.get("expr").and_then(Value::as_str) {
                    queries.push(Query {
                        place: title(panel, "title"),
                        expression: replaced(expression),
                    });
                }
            }
        }
        for annotation in self.list("/annotations/list") {
            if let Some(expression) = annotation.get("expr").and_then(Value::as_str) {
                queries.push(Query {
                    place: title(annotation, "name"),
                    expression: replaced(expression),
                });
            }
        }
        for variable in self.list("/templating/list") {
            let definition = variable.get("definition").and_then(Value::as_str);
            if let Some(metric) = definition.and_then(selector_of) {
                queries
                    .push(Query { place: title(variable, "name"), expression: replaced(metric) });
            }
        }
        queries
    }
}

/// The query with Grafana's variables replaced.
fn replaced(expression: &str) -> String {
    VARIABLES.iter().fold(expression.to_owned(), |text, (name, value)| text.replace(name, value))
}

/// What `label_values(SELECTOR, label)` selects.
fn selector_of(definition: &str) -> Option<&str> {
    let inner = definition.strip_prefix("label_values(")?.strip_suffix(')')?;
    inner.rsplit_once(',').map(|(selector, _)| selector.trim())
}
