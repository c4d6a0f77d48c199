//! The tools that render and check: those that `cargo xtask setup` installed, else those of `PATH`.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, bail};

use crate::repository;

/// A tool as it is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tool {
    /// Renders kustomizations.
    Kubectl,
    /// Renders the chart.
    Helm,
    /// Checks and tests Prometheus rules.
    Promtool,
    /// Scrapes and evaluates.
    Prometheus,
}

impl Tool {
    fn name(self) -> &'static str {
        match self {
            Self::Kubectl => "kubectl",
            Self::Helm => "helm",
            Self::Promtool => "promtool",
            Self::Prometheus => "prometheus",
        }
    }

    /// Where it is.
    pub fn path(self) -> PathBuf {
        let own = repository().join("target/tools/bin").join(self.name());
        if own.exists() { own } else { PathBuf::from(self.name()) }
    }

    /// Runs it in the repository; what it prints on standard output.
    ///
    /// # Errors
    /// If it cannot be started or fails, with all that it said.
    pub fn run<Word: AsRef<std::ffi::OsStr>>(
        self,
        arguments: impl IntoIterator<Item = Word>,
    ) -> anyhow::Result<String> {
        self.run_in(repository(), arguments)
    }

    /// The same in another folder.
    ///
    /// # Errors
    /// If it cannot be started or fails, with all that it said.
    pub fn run_in<Word: AsRef<std::ffi::OsStr>>(
        self,
        folder: &Path,
        arguments: impl IntoIterator<Item = Word>,
    ) -> anyhow::Result<String> {
        let name = self.name();
        let output =
            Command::new(self.path()).args(arguments).current_dir(folder).output().with_context(
                || format!("cannot run {name}: install it with `cargo xtask setup`"),
            )?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        if !output.status.success() {
            let error = String::from_utf8_lossy(&output.stderr);
            bail!("{name} failed ({}):\n{said}{error}", output.status);
        }
        Ok(said)
    }
}
