//! The image: from scratch, the static binary with the eBPF object in it, licences, a bill of
//! materials, and no shell. The same source makes the same image to the byte.

mod archive;
mod sbom;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, bail, ensure};
use serde_json::{Value, json};

pub use archive::Archive;
pub use sbom::bill_of_materials;

use crate::repository;

/// The image with all its files stays below this, uncompressed.
pub const LIMIT_BYTES: u64 = 25 * 1_000_000;

/// Where the binary is in it.
pub const BINARY: &str = "rollrace";
/// Where the bill of materials is in it.
pub const SBOM: &str = "usr/share/rollrace/sbom.cdx.json";
/// Where the licences are in it.
pub const LICENCES: &str = "usr/share/rollrace/licences";

/// What was made.
#[derive(Debug)]
pub struct Image {
    /// The files as a container sees them.
    pub root: PathBuf,
    /// The OCI archive.
    pub archive: PathBuf,
    /// Digest of the manifest.
    pub digest: String,
    /// Bytes of all files.
    pub unpacked: u64,
    /// Bytes of the archive.
    pub packed: u64,
}

/// Makes root folder and archive below a folder.
///
/// # Errors
/// If the binary is not static, or the image too large.
pub fn build(binary: &Path, out: &Path) -> anyhow::Result<Image> {
    ensure_static(binary)?;
    let root = out.join("root");
    if root.exists() {
        fs::remove_dir_all(&root).context("cannot clear the image's root")?;
    }
    let version = env!("CARGO_PKG_VERSION");
    // What a container mounts over must be there: the root is read-only.
    for folder in ["dev", "proc", "sys", "var/lib/rollrace", LICENCES] {
        fs::create_dir_all(root.join(folder)).with_context(|| format!("cannot make {folder}"))?;
    }
    let copy = |from: &Path, to: &str| {
        fs::copy(from, root.join(to))
            .map(drop)
            .with_context(|| format!("cannot copy {} into the image", from.display()))
    };
    copy(binary, BINARY)?;
    for licence in ["LICENSE-MIT", "LICENSE-APACHE", "agent-ebpf/LICENSE-GPL2"] {
        let name = licence.rsplit('/').next().unwrap_or(licence);
        copy(&repository().join(licence), &format!("{LICENCES}/{name}"))?;
    }
    let sbom = serde_json::to_string_pretty(&bill_of_materials()?)?;
    fs::write(root.join(SBOM), sbom).context("cannot write the bill of materials")?;
    let archive = out.join(format!("rollrace-{version}.oci.tar"));
    let written = Archive::of(&root)?.write(&archive, &config(), version)?;
    let packed = fs::metadata(&archive).context("cannot look at the archive")?.len();
    ensure!(
        written.unpacked < LIMIT_BYTES,
        "the image has {} bytes, more than the {LIMIT_BYTES} it may have",
        written.unpacked
    );
    Ok(Image { root, archive, digest: written.digest, unpacked: written.unpacked, packed })
}

/// How a container of it runs.
fn config() -> Value {
    json!({
        "User": "0:0",
        "Entrypoint": [format!("/{BINARY}")],
        "Cmd": ["--help"],
        "WorkingDir": "/",
        "ExposedPorts": {"9465/tcp": {}, "9466/tcp": {}},
        "Labels": labels(),
    })
}

/// The labels that the OCI names.
fn labels() -> Value {
    let revision = Command::new("git")
        .args(["rev-parse", "HEAD"])
        .current_dir(repository())
        .output()
        .ok()
        .filter(|output| output.status.success())
        .map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    json!({
        "org.opencontainers.image.title": "rollrace",
        "org.opencontainers.image.description":
            "Attributes failed connections to the Kubernetes rollout that broke them",
        "org.opencontainers.image.version": env!("CARGO_PKG_VERSION"),
        "org.opencontainers.image.licenses": "(MIT OR Apache-2.0) AND GPL-2.0-only",
        "org.opencontainers.image.revision": revision.unwrap_or_default(),
    })
}

/// From scratch there is no loader: the program may ask for none.
fn ensure_static(binary: &Path) -> anyhow::Result<()> {
    const PT_INTERP: u32 = 3;
    let bytes = fs::read(binary).with_context(|| format!("cannot read {}", binary.display()))?;
    let short = |at: usize| bytes.get(at..at + 2).map(|b| u16::from_le_bytes([b[0], b[1]]));
    let long = |at: usize| bytes.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes);
    if !bytes.starts_with(b"\x7fELF\x02\x01") {
        bail!("{} is no 64-bit ELF file", binary.display());
    }
    let headers = || -> Option<bool> {
        let table = usize::try_from(long(32)?).ok()?;
        let (size, count) = (usize::from(short(54)?), usize::from(short(56)?));
        Some((0..count).any(|number| {
            bytes.get(table + number * size..).and_then(|header| header.get(..4))
                == Some(&PT_INTERP.to_le_bytes())
        }))
    };
    match headers() {
        Some(false) => Ok(()),
        Some(true) => bail!(
            "{} asks for a loader, and an image from scratch has none: build it with `cargo xtask image`",
            binary.display()
        ),
        None => bail!("{} is cut short", binary.display()),
    }
}
