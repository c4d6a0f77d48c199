//! Debian's kernel packages, downloaded and unpacked under `target/vm`, not installed.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, bail};

use super::Version;
use crate::shell::{self, workspace};

/// An unpacked kernel.
pub struct Kernel {
    /// Its folder, shaped like a root: `boot`, `usr/lib/modules`.
    pub folder: PathBuf,
    /// What `uname -r` says in it.
    pub release: String,
}

impl Kernel {
    /// Downloads and unpacks it, unless it is there.
    pub fn get(version: Version) -> anyhow::Result<Self> {
        let vms = workspace().join("target/vm");
        fs::create_dir_all(&vms).with_context(|| format!("cannot make {}", vms.display()))?;
        let apt = Apt::of(version, &vms)?;
        let package = apt.image(match version {
            Version::V6_1 | Version::Latest => "linux-image-amd64",
            Version::V6_12 => "linux-image-6.12-amd64",
        })?;
        let folder = vms.join(&package);
        let modules = folder.join("usr/lib/modules");
        if !modules.exists() {
            println!("Downloading {package} into target/vm");
            apt.unpack(&package, &vms, &folder)?;
        }
        let mut found = fs::read_dir(&modules).with_context(|| modules.display().to_string())?;
        let release = found.next().context("the package has no modules")??;
        let release = release.file_name().to_string_lossy().into_owned();
        if !modules.join(&release).join("modules.dep.bin").exists() {
            shell::run(Command::new("/usr/sbin/depmod").arg("-b").arg(&folder).arg(&release))?;
        }
        Ok(Self { folder, release })
    }

    /// The kernel's image.
    pub fn image(&self) -> PathBuf {
        self.folder.join("boot").join(format!("vmlinuz-{}", self.release))
    }

    /// The files of a module and of what it needs, in the order in which they are inserted.
    pub fn module(&self, name: &str) -> anyhow::Result<Vec<PathBuf>> {
        let output = Command::new("/usr/sbin/modprobe")
            .arg("-d")
            .arg(&self.folder)
            .args(["-S", &self.release, "--show-depends", name])
            .output()
            .context("cannot run modprobe")?;
        if !output.status.success() {
            bail!("{} has no module {name}", self.release);
        }
        let text = String::from_utf8_lossy(&output.stdout);
        let files = text.lines().filter_map(|line| line.strip_prefix("insmod "));
        Ok(files.map(|file| PathBuf::from(file.trim())).collect())
    }
}

/// apt, with the machine's own sources or with those of the next Debian's backports.
struct Apt {
    options: Vec<String>,
}

impl Apt {
    fn of(version: Version, vms: &Path) -> anyhow::Result<Self> {
        if !matches!(version, Version::Latest) {
            return Ok(Self { options: Vec::new() });
        }
        // State of its own: the machine's stays as it is.
        let state = vms.join("apt");
        for folder in ["lists/partial", "cache/archives/partial"] {
            let folder = state.join(folder);
            fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
        }
        let sources = state.join("sources.list");
        let line = format!(
            "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] {} trixie-backports main\n",
            mirror()?
        );
        fs::write(&sources, line).with_context(|| sources.display().to_string())?;
        let options = [
            format!("Dir::Etc::sourcelist={}", sources.display()),
            "Dir::Etc::sourceparts=-".to_owned(),
            format!("Dir::State::lists={}", state.join("lists").display()),
            format!("Dir::Cache={}", state.join("cache").display()),
        ];
        let options = options.into_iter().flat_map(|option| ["-o".to_owned(), option]);
        let apt = Self { options: options.collect() };
        shell::run(apt.command("apt-get").args(["update", "-q"]))?;
        Ok(apt)
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.args(&self.options);
        command
    }

    /// The package that a meta package of kernels stands for.
    fn image(&self, meta: &str) -> anyhow::Result<String> {
        let mut image = self.depends(meta)?.into_iter();
        image
            .find(|package| package.starts_with("linux-image-"))
            .with_context(|| format!("apt knows no {meta}: run `apt-get update`, or use Debian 12"))
    }

    /// What a package depends on.
    fn depends(&self, package: &str) -> anyhow::Result<Vec<String>> {
        let output = self
            .command("apt-cache")
            .args(["depends", package])
            .output()
            .context("cannot run apt-cache")?;
        let text = String::from_utf8_lossy(&output.stdout);
        let depends = text.lines().filter_map(|line| line.trim().strip_prefix("Depends: "));
        Ok(depends.map(str::to_owned).collect())
    }

    /// Unpacks a kernel: newer ones come in several packages.
    fn unpack(&self, image: &str, vms: &Path, folder: &Path) -> anyhow::Result<()> {
        const PARTS: [&str; 2] = ["linux-binary-", "linux-modules-"];
        let mut packages = self.depends(image)?;
        packages.retain(|package| PARTS.iter().any(|part| package.starts_with(part)));
        packages.push(image.to_owned());
        let unpacked = folder.with_extension("new");
        for package in &packages {
            shell::run(self.command("apt-get").args(["download", "-q", package]).current_dir(vms))?;
            let begins = format!("{package}_");
            let file = fs::read_dir(vms)?
                .filter_map(Result::ok)
                .find(|entry| entry.file_name().to_string_lossy().starts_with(&begins))
                .with_context(|| format!("{package} was not downloaded"))?
                .path();
            shell::run(Command::new("dpkg").arg("-x").arg(&file).arg(&unpacked))?;
            fs::remove_file(&file)?;
        }
        // As on a system where /lib is /usr/lib.
        if unpacked.join("lib").is_dir() {
            fs::create_dir_all(unpacked.join("usr"))?;
            fs::rename(unpacked.join("lib"), unpacked.join("usr/lib"))?;
        }
        std::os::unix::fs::symlink("usr/lib", unpacked.join("lib"))?;
        fs::rename(&unpacked, folder)?;
        Ok(())
    }
}

/// Where the machine gets Debian's packages from.
fn mirror() -> anyhow::Result<String> {
    let lists = ["/etc/apt/sources.list", "/etc/apt/sources.list.d/debian.sources"];
    let text: String = lists.iter().filter_map(|list| fs::read_to_string(list).ok()).collect();
    let words = text.lines().filter(|line| !line.trim_start().starts_with('#')).flat_map(|line| {
        let is_source = line.starts_with("deb ") || line.starts_with("URIs:");
        line.split_whitespace().filter(move |_| is_source)
    });
    let mut mirrors = words.filter(|word| word.contains("://") && !word.contains("security"));
    mirrors.next().map(str::to_owned).context("apt's sources name no mirror of Debian")
}
