//! Checks of the source that no compiler makes.

use std::fs;

use anyhow::{Context as _, bail};

use crate::shell::workspace;

/// Modules that are pure: data in, data out.
const PURE: [&str; 9] = [
    "advise",
    "attempts",
    "attribute",
    "endpoints",
    "engine",
    "model",
    "owners",
    "rollouts",
    "stale",
];

/// What a pure module may not name: I/O, and the time of day.
const FORBIDDEN: [&str; 14] = [
    "aya::",
    "kube::",
    "k8s_openapi::",
    "tokio::",
    "prometheus::",
    "axum::",
    "crate::cluster",
    "crate::probe",
    "crate::metrics",
    "crate::http",
    "crate::agent",
    "Timestamp::now",
    "SystemTime",
    "Instant::now",
];

/// Fails if a pure module names something that is not.
///
/// # Errors
/// With file, line and word.
pub fn purity() -> anyhow::Result<()> {
    let source = workspace().join("agent/src");
    let mut found = Vec::new();
    for module in PURE {
        let mut files = vec![source.join(format!("{module}.rs"))];
        let mut folders = vec![source.join(module)];
        while let Some(folder) = folders.pop() {
            let Ok(entries) = fs::read_dir(&folder) else { continue };
            for entry in entries {
                let path = entry.context("cannot read the source folder")?.path();
                if path.is_dir() { folders.push(path) } else { files.push(path) }
            }
        }
        for file in files.into_iter().filter(|file| file.exists()) {
            let text = fs::read_to_string(&file)
                .with_context(|| format!("cannot read {}", file.display()))?;
            for (number, line) in text.lines().enumerate() {
                let code = line.split("//").next().unwrap_or_default();
                found.extend(FORBIDDEN.iter().filter(|word| code.contains(**word)).map(|word| {
                    format!("{}:{}: a pure module names {word}", file.display(), number + 1)
                }));
            }
        }
    }
    if !found.is_empty() {
        bail!("{}", found.join("\n"));
    }
    Ok(())
}
