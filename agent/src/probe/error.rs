//! Why the probes cannot work here, and what to do about it.

use std::path::PathBuf;

use thiserror::Error;

/// Why the probes cannot work here. Each says the remedy.
#[derive(Debug, Error)]
pub enum ProbeError {
    /// The kernel has no BTF.
    #[error(
        "this kernel has no BTF ({path} is not there): it must be built with CONFIG_DEBUG_INFO_BTF=y, as the kernels of the large distributions are"
    )]
    NoBtf {
        /// Where it was looked for.
        path: PathBuf,
    },
    /// BTF cannot be read.
    #[error("cannot read the kernel's BTF at {path}")]
    Btf {
        /// Which file.
        path: PathBuf,
        /// Why.
        #[source]
        source: btf_rs::Error,
    },
    /// A field that the programs read is not in this kernel.
    #[error(
        "this kernel's BTF has no field {container}.{member}: rollrace does not know this kernel version; please report it with `uname -r`"
    )]
    MissingField {
        /// Struct.
        container: String,
        /// Member path.
        member: String,
    },
    /// Fields lie too far apart for one read.
    #[error(
        "the fields of {container} lie {span} bytes apart in this kernel, more than the {limit} read at once"
    )]
    TooFarApart {
        /// Struct.
        container: &'static str,
        /// Distance.
        span: u32,
        /// Limit.
        limit: usize,
    },
    /// The child that reads BTF failed.
    #[error("reading the kernel's struct layout in a child process failed: {0}")]
    Child(String),
    /// A capability is missing.
    #[error(
        "not permitted to {what}: the process lacks {missing}; run it as root, or give it CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN (kernel.unprivileged_bpf_disabled does not matter then)"
    )]
    NotPermitted {
        /// What was tried.
        what: String,
        /// Capabilities it has not.
        missing: String,
    },
    /// The kernel refuses although the capabilities are there.
    #[error(
        "not permitted to {what} although the capabilities are there: a seccomp profile, an LSM or kernel lockdown forbids bpf(2)"
    )]
    Forbidden {
        /// What was tried.
        what: String,
    },
    /// A tracepoint is not there.
    #[error("this kernel has no tracepoint {name}: the floor is Linux 6.1")]
    NoTracepoint {
        /// Which.
        name: &'static str,
    },
    /// Anything else about loading.
    #[error("cannot {what}")]
    Load {
        /// What was tried.
        what: String,
        /// Why.
        #[source]
        source: anyhow::Error,
    },
}
