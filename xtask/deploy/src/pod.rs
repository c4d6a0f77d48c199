//! The DaemonSet's container as an OCI runtime gets it: the image's files as its root, and the security
//! context of the shipped manifest, to run it without a cluster.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail, ensure};
use serde_json::{Value, json};

use crate::{deploy, repository};

/// The DaemonSet, in `deploy/`.
const MANIFEST: &str = "base/daemonset.yaml";
/// The profile for runtimes whose own forbids bpf(2), in `deploy/`.
const SHIPPED_PROFILE: &str = "seccomp/rollrace.json";
/// The profile that CRI-O and Podman share, as Debian packages it: `cargo xtask setup` gets it.
const RUNTIME_PROFILE: &str = "target/tools/share/seccomp.json";

/// Which seccomp profile the container runs under.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seccomp {
    /// `RuntimeDefault` of containerd from 1.7 and Docker from 23: the common list, and bpf(2) and
    /// `perf_event_open(2)` with the capabilities that are theirs.
    Runtime,
    /// `RuntimeDefault` of CRI-O and Podman, where both need `CAP_SYS_ADMIN`.
    Podman,
    /// `deploy/seccomp/rollrace.json`.
    Shipped,
}

/// The container.
#[derive(Clone, Debug)]
pub struct Pod {
    container: Value,
    state_dir: String,
    /// Capabilities, as the kernel names them.
    pub capabilities: Vec<String>,
    /// The profile.
    pub seccomp: Seccomp,
}

impl Pod {
    /// As the manifest has it.
    ///
    /// # Errors
    /// If it cannot be read, or says what is not understood here.
    pub fn shipped() -> anyhow::Result<Self> {
        let path = deploy(MANIFEST);
        let text =
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let set: Value = serde_saphyr::from_str(&text)
            .with_context(|| format!("cannot parse {}", path.display()))?;
        let pod = &set["spec"]["template"]["spec"];
        ensure!(pod["hostNetwork"] == true, "{MANIFEST}: not in the node's network namespace");
        let profile = &pod["securityContext"]["seccompProfile"]["type"];
        ensure!(profile == "RuntimeDefault", "{MANIFEST}: the seccomp profile is {profile}");
        let container = pod["containers"][0].clone();
        let context = &container["securityContext"];
        ensure!(context["privileged"] != true, "{MANIFEST}: privileged");
        ensure!(context["capabilities"]["drop"] == json!(["ALL"]), "{MANIFEST}: not all dropped");
        let added = context["capabilities"]["add"].as_array().context("no capabilities")?;
        let capabilities = added.iter().filter_map(|name| Some(format!("CAP_{}", name.as_str()?)));
        let capabilities = capabilities.collect();
        let state_dir = container["volumeMounts"][0]["mountPath"].as_str();
        let state_dir = state_dir.context("no state folder")?.to_owned();
        Ok(Self { container, state_dir, capabilities, seccomp: Seccomp::Runtime })
    }

    /// Writes the bundle that a runtime runs: `root` is the image's files, `state` what the node keeps,
    /// `shared` a folder that is seen at the same path inside, and `further` arguments and environment
    /// that the node's kubelet would give.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn bundle(
        &self,
        folder: &Path,
        root: &Path,
        state: &Path,
        shared: &Path,
        further: &[String],
    ) -> anyhow::Result<()> {
        let context = &self.container["securityContext"];
        let own = self.container["args"].as_array().context("the container has no arguments")?;
        let own = own.iter().filter_map(|argument| argument.as_str().map(str::to_owned));
        let mut arguments = vec!["/rollrace".to_owned()];
        arguments.extend(own);
        arguments.extend(further.iter().cloned());
        let bind = |from: &Path, to: &str| json!({"destination": to, "source": from, "type": "bind", "options": ["rbind", "rw"]});
        let shared_inside = shared.to_str().context("a path is not UTF-8")?;
        let config = json!({
            "ociVersion": "1.0.2",
            "root": {"path": root, "readonly": context["readOnlyRootFilesystem"] == true},
            "hostname": "rollrace",
            "process": {
                "terminal": false,
                "user": {"uid": context["runAsUser"], "gid": 0},
                "args": arguments,
                "env": ["PATH=/"],
                "cwd": "/",
                "noNewPrivileges": context["allowPrivilegeEscalation"] == false,
                "capabilities": {
                    "bounding": self.capabilities,
                    "effective": self.capabilities,
                    "permitted": self.capabilities,
                },
            },
            "mounts": [
                {"destination": "/proc", "type": "proc", "source": "proc"},
                {"destination": "/dev", "type": "tmpfs", "source": "tmpfs",
                 "options": ["nosuid", "strictatime", "mode=755", "size=65536k"]},
                {"destination": "/sys", "type": "sysfs", "source": "sysfs",
                 "options": ["nosuid", "noexec", "nodev", "ro"]},
                bind(state, &self.state_dir),
                bind(shared, shared_inside),
            ],
            "linux": {
                // The network namespace is the one that the runtime is started in: the node's.
                "namespaces": [{"type": "pid"}, {"type": "ipc"}, {"type": "uts"}, {"type": "mount"}],
                "maskedPaths": ["/proc/kcore", "/proc/keys", "/proc/timer_list", "/proc/sched_debug",
                    "/proc/scsi", "/sys/firmware"],
                "readonlyPaths": ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys",
                    "/proc/sysrq-trigger"],
                "seccomp": self.profile()?,
            },
        });
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let path = folder.join("config.json");
        fs::write(&path, serde_json::to_string_pretty(&config)?)
            .with_context(|| format!("cannot write {}", path.display()))
    }

    fn profile(&self) -> anyhow::Result<Value> {
        let read = |path: PathBuf| -> anyhow::Result<Value> {
            let text = fs::read_to_string(&path).with_context(|| {
                format!("cannot read {}: get it with `cargo xtask setup`", path.display())
            })?;
            serde_json::from_str(&text).with_context(|| format!("cannot parse {}", path.display()))
        };
        if self.seccomp == Seccomp::Shipped {
            return read(deploy(SHIPPED_PROFILE));
        }
        let template = read(repository().join(RUNTIME_PROFILE))?;
        let mut rules: Vec<Value> = Vec::new();
        let listed = template["syscalls"].as_array().context("the runtime's profile is empty")?;
        for rule in listed.iter().filter(|rule| self.applies(rule)) {
            let mut resolved = json!({"names": rule["names"], "action": rule["action"]});
            if let Some(arguments) = rule["args"].as_array().filter(|list| !list.is_empty()) {
                resolved["args"] = json!(arguments);
            }
            if let Some(number) = rule["errnoRet"].as_u64() {
                resolved["errnoRet"] = json!(number);
            }
            rules.push(resolved);
        }
        if self.seccomp == Seccomp::Runtime {
            for (capability, call) in [("CAP_BPF", "bpf"), ("CAP_PERFMON", "perf_event_open")] {
                if self.has(capability) {
                    for rule in &mut rules {
                        if let Some(names) = rule["names"].as_array_mut() {
                            names.retain(|name| name != call);
                        }
                    }
                    rules.push(json!({"names": [call], "action": "SCMP_ACT_ALLOW"}));
                }
            }
        }
        rules.retain(|rule| rule["names"].as_array().is_some_and(|names| !names.is_empty()));
        Ok(json!({
            "defaultAction": template["defaultAction"],
            "defaultErrnoRet": template["defaultErrnoRet"],
            "architectures": [architecture()?],
            "syscalls": rules,
        }))
    }

    /// Whether a rule of the runtime's template is one for these capabilities.
    fn applies(&self, rule: &Value) -> bool {
        let list = |of: &str, what: &str| -> Vec<String> {
            let names = rule[of][what].as_array().into_iter().flatten();
            names.filter_map(|name| name.as_str().map(str::to_owned)).collect()
        };
        let own = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        };
        let (wanted, unwanted) = (list("includes", "caps"), list("excludes", "caps"));
        let (arches, not_arches) = (list("includes", "arches"), list("excludes", "arches"));
        wanted.iter().all(|name| self.has(name))
            && !unwanted.iter().any(|name| self.has(name))
            && (arches.is_empty() || arches.iter().any(|name| name == own))
            && !not_arches.iter().any(|name| name == own)
    }

    fn has(&self, capability: &str) -> bool {
        self.capabilities.iter().any(|name| name == capability)
    }
}

fn architecture() -> anyhow::Result<&'static str> {
    match std::env::consts::ARCH {
        "x86_64" => Ok("SCMP_ARCH_X86_64"),
        "aarch64" => Ok("SCMP_ARCH_AARCH64"),
        other => bail!("no seccomp profile is known for {other}"),
    }
}
