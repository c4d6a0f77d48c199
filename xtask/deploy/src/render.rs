//! Objects as a cluster would get them.

use anyhow::Context as _;
use serde_json::Value;

use crate::{deploy, tools::Tool};

/// The namespace that everything is rendered for.
pub const NAMESPACE: &str = "rollrace";

/// What tells an object apart: API version, kind, namespace, name.
pub type Identity = (String, String, String, String);

/// The identity of an object.
pub fn identity(object: &Value) -> Identity {
    let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or("").to_owned();
    (text("/apiVersion"), text("/kind"), text("/metadata/namespace"), text("/metadata/name"))
}

/// The objects of a kustomization in `deploy/`.
///
/// # Errors
/// If it does not render.
pub fn kustomize(folder: &str) -> anyhow::Result<Vec<Value>> {
    let path = deploy(folder);
    let text = Tool::Kubectl.run(["kustomize".as_ref(), path.as_os_str()])?;
    objects(&text).with_context(|| format!("the kustomization {folder}"))
}

/// The objects of the chart, with values set as on Helm's command line.
///
/// # Errors
/// If it does not render, the values' schema included.
pub fn helm(values: &[&str]) -> anyhow::Result<Vec<Value>> {
    let chart = deploy("helm/rollrace");
    let mut arguments = vec!["template", "rollrace", "--namespace", NAMESPACE];
    arguments.extend(values.iter().flat_map(|value| ["--set", value]));
    let chart = chart.to_str().context("the repository's path is not UTF-8")?;
    arguments.push(chart);
    let text = Tool::Helm.run(arguments)?;
    objects(&text).context("the chart")
}

/// The objects of a YAML text; comments alone are none.
fn objects(text: &str) -> anyhow::Result<Vec<Value>> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(text).context("read the YAML")?;
    Ok(documents.into_iter().filter(|document| !document.is_null()).collect())
}
