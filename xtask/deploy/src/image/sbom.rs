//! The bill of materials, in `CycloneDX`: every crate that is compiled into the binary and into the eBPF
//! object, by what Cargo itself says.

use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    process::Command,
};

use anyhow::{Context as _, ensure};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::repository;

/// What of this repository is in the image.
const ROOTS: [&str; 2] = ["rollrace", "rollrace-ebpf"];

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    resolve: Resolve,
}

#[derive(Deserialize)]
struct Package {
    id: String,
    name: String,
    version: String,
    license: Option<String>,
    description: Option<String>,
    source: Option<String>,
}

#[derive(Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    id: String,
    deps: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    pkg: String,
    dep_kinds: Vec<Kind>,
}

#[derive(Deserialize)]
struct Kind {
    kind: Option<String>,
}

/// The bill.
///
/// # Errors
/// If Cargo does not tell.
pub fn bill_of_materials() -> anyhow::Result<Value> {
    let target = format!("{}-unknown-linux-gnu", env::consts::ARCH);
    let output = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["metadata", "--format-version=1", "--locked", "--filter-platform", &target])
        .current_dir(repository())
        .output()
        .context("cannot run cargo metadata")?;
    ensure!(
        output.status.success(),
        "cargo metadata failed: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let metadata: Metadata =
        serde_json::from_slice(&output.stdout).context("cannot read cargo metadata")?;
    let packages: BTreeMap<&str, &Package> =
        metadata.packages.iter().map(|package| (package.id.as_str(), package)).collect();
    let edges: BTreeMap<&str, Vec<&str>> = metadata
        .resolve
        .nodes
        .iter()
        .map(|node| {
            // Not what only tests and build scripts use.
            let compiled = node
                .deps
                .iter()
                .filter(|dependency| dependency.dep_kinds.iter().any(|kind| kind.kind.is_none()));
            (node.id.as_str(), compiled.map(|dependency| dependency.pkg.as_str()).collect())
        })
        .collect();
    let mut left: Vec<&str> = metadata
        .packages
        .iter()
        .filter(|package| package.source.is_none() && ROOTS.contains(&package.name.as_str()))
        .map(|package| package.id.as_str())
        .collect();
    ensure!(left.len() == ROOTS.len(), "cargo metadata lacks one of {ROOTS:?}");
    let mut reached = BTreeSet::new();
    while let Some(id) = left.pop() {
        if reached.insert(id) {
            left.extend(edges.get(id).into_iter().flatten().copied());
        }
    }
    let mut components = Vec::new();
    let mut dependencies = Vec::new();
    for id in reached {
        let package = packages.get(id).context("a dependency without a package")?;
        components.push(component(package));
        let on: BTreeSet<String> = edges
            .get(id)
            .into_iter()
            .flatten()
            .filter_map(|id| packages.get(id).map(|package| reference(package)))
            .collect();
        dependencies.push(json!({"ref": reference(package), "dependsOn": on}));
    }
    components.sort_by_key(|component| component["bom-ref"].as_str().map(str::to_owned));
    dependencies.sort_by_key(|dependency| dependency["ref"].as_str().map(str::to_owned));
    Ok(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": {
            "type": "application", "name": "rollrace", "version": env!("CARGO_PKG_VERSION"),
            "bom-ref": "rollrace-image",
        }},
        "components": components,
        "dependencies": dependencies,
    }))
}

/// The package's address in the language of such bills.
fn reference(package: &Package) -> String {
    format!("pkg:cargo/{}@{}", package.name, package.version)
}

fn component(package: &Package) -> Value {
    let mut component = json!({
        "type": "library",
        "bom-ref": reference(package),
        "purl": reference(package),
        "name": package.name,
        "version": package.version,
    });
    if let Some(license) = &package.license {
        // Old packages write MIT/Apache-2.0.
        component["licenses"] = json!([{"expression": license.replace('/', " OR ")}]);
    }
    if let Some(description) = &package.description {
        component["description"] = json!(description.trim());
    }
    component
}
