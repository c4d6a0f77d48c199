//! The root folder as one layer, and the layer as an OCI archive.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::Write as _,
    path::Path,
};

use anyhow::Context as _;
use flate2::{Compression, GzBuilder};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tar::{Builder, EntryType, Header};

/// Files by path; `None` is a folder. Sorted, without owners and times: the same files make the same
/// bytes.
#[derive(Debug)]
pub struct Archive {
    files: BTreeMap<String, Option<Vec<u8>>>,
}

/// What was written.
#[derive(Debug)]
pub struct Written {
    /// Digest of the manifest.
    pub digest: String,
    /// Bytes of all files.
    pub unpacked: u64,
}

impl Archive {
    /// Everything in a folder.
    ///
    /// # Errors
    /// If something cannot be read.
    pub fn of(root: &Path) -> anyhow::Result<Self> {
        let mut archive = Self { files: BTreeMap::new() };
        let mut folders = vec![root.to_owned()];
        while let Some(folder) = folders.pop() {
            let entries = fs::read_dir(&folder)
                .with_context(|| format!("cannot read {}", folder.display()))?;
            for entry in entries {
                let path = entry.context("cannot list the image's files")?.path();
                let name = path.strip_prefix(root).context("a file outside the root")?;
                let name = name.to_str().context("a file name is not UTF-8")?.to_owned();
                if path.is_dir() {
                    folders.push(path);
                    archive.files.insert(name, None);
                } else {
                    let bytes = fs::read(&path)
                        .with_context(|| format!("cannot read {}", path.display()))?;
                    archive.files.insert(name, Some(bytes));
                }
            }
        }
        Ok(archive)
    }

    fn tar(&self) -> anyhow::Result<Vec<u8>> {
        let mut tar = Builder::new(Vec::new());
        for (name, bytes) in &self.files {
            let mut header = Header::new_ustar();
            header.set_mtime(0);
            header.set_uid(0);
            header.set_gid(0);
            let data = bytes.as_deref().unwrap_or_default();
            header.set_size(data.len() as u64);
            header.set_entry_type(if bytes.is_some() {
                EntryType::Regular
            } else {
                EntryType::Directory
            });
            let is_program = name == super::BINARY;
            header.set_mode(if bytes.is_none() || is_program { 0o755 } else { 0o644 });
            tar.append_data(&mut header, name, data)
                .with_context(|| format!("cannot pack {name}"))?;
        }
        tar.into_inner().context("cannot pack the layer")
    }

    /// Writes the OCI archive.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write(&self, path: &Path, run: &Value, tag: &str) -> anyhow::Result<Written> {
        let layer = self.tar()?;
        let layer_id = digest(&layer);
        let mut gzip = GzBuilder::new().mtime(0).write(Vec::new(), Compression::best());
        gzip.write_all(&layer).context("cannot compress the layer")?;
        let layer = gzip.finish().context("cannot compress the layer")?;
        let architecture = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        };
        let config = serde_json::to_vec(&json!({
            "architecture": architecture,
            "os": "linux",
            "config": run,
            "rootfs": {"type": "layers", "diff_ids": [layer_id]},
            "history": [{"created_by": "cargo xtask image", "comment": "from scratch"}],
        }))?;
        let manifest = serde_json::to_vec(&json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": described("application/vnd.oci.image.config.v1+json", &config),
            "layers": [described("application/vnd.oci.image.layer.v1.tar+gzip", &layer)],
            "annotations": run["Labels"],
        }))?;
        let mut entry = described("application/vnd.oci.image.manifest.v1+json", &manifest);
        entry["annotations"] = json!({"org.opencontainers.image.ref.name": tag});
        let index = serde_json::to_vec(&json!({"schemaVersion": 2, "manifests": [entry]}))?;
        let blob = |bytes: &[u8]| format!("blobs/{}", digest(bytes).replace(':', "/"));
        let mut files: BTreeMap<String, Option<Vec<u8>>> = BTreeMap::new();
        files.insert("blobs".to_owned(), None);
        files.insert("blobs/sha256".to_owned(), None);
        files.insert("index.json".to_owned(), Some(index));
        files.insert("oci-layout".to_owned(), Some(br#"{"imageLayoutVersion":"1.0.0"}"#.to_vec()));
        let digest = digest(&manifest);
        for bytes in [config, manifest, layer] {
            files.insert(blob(&bytes), Some(bytes));
        }
        let tar = Self { files }.tar()?;
        File::create(path)
            .and_then(|mut file| file.write_all(&tar))
            .with_context(|| format!("cannot write {}", path.display()))?;
        let sizes = self.files.values().flatten().map(|bytes| bytes.len() as u64);
        Ok(Written { digest, unpacked: sizes.sum() })
    }
}

fn described(media_type: &str, bytes: &[u8]) -> Value {
    json!({"mediaType": media_type, "digest": digest(bytes), "size": bytes.len()})
}

fn digest(bytes: &[u8]) -> String {
    format!("sha256:{:x}", Sha256::digest(bytes))
}
