//! The initial file system, and the machine.

use std::{
    fs::{self, File},
    io::{BufRead as _, BufReader, Write as _},
    os::unix::fs::{PermissionsExt as _, symlink},
    path::Path,
    process::{Command, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

use anyhow::{Context as _, bail};

use super::kernel::Kernel;
use crate::shell;

/// Modules that it takes to reach this machine's file system.
const MODULES: [&str; 4] = ["virtio_pci", "9pnet_virtio", "9p", "overlay"];

/// Programs of busybox that `INIT` uses.
const APPLETS: [&str; 5] = ["sh", "mount", "insmod", "switch_root", "mkdir"];

/// The line with which the command's exit code comes out.
const EXIT: &str = "vm-exit: ";

const INIT: &str = "#!/bin/sh
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
for module in /modules/*; do insmod $module; done
options=trans=virtio,version=9p2000.L,cache=loose,msize=262144,ro
mount -t 9p -o $options host /host
mount -t 9p -o $options kernel /kernel
mount -t tmpfs -o size=1g tmpfs /over
mkdir -p /over/up /over/work
mount -t overlay -o lowerdir=/kernel:/host,upperdir=/over/up,workdir=/over/work overlay /new
for folder in proc sys dev; do mount --move /$folder /new/$folder; done
exec switch_root /new /bin/sh /vm-run
";

const RUN: &str = "export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /tmp
mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs tmpfs /dev/shm
mount -t bpf bpf /sys/fs/bpf
mount -t cgroup2 cgroup /sys/fs/cgroup
ip link set lo up
modprobe br_netfilter
";

/// Boots it, runs the command in it, shows what it prints; the command's exit code.
///
/// # Errors
/// If it does not boot, or is not done in time.
pub fn run(kernel: &Kernel, command: &str, limit: Duration) -> anyhow::Result<u8> {
    let initrd = kernel.folder.with_extension("initrd");
    initial(kernel, &initrd)?;
    let run =
        format!("{RUN}{command}\necho \"\n{EXIT}$?\"\necho o > /proc/sysrq-trigger\nsleep 9\n");
    fs::write(kernel.folder.join("vm-run"), run).context("cannot write the command")?;
    let share = |name: &str, path: &Path| {
        let file_system = format!(
            "local,id={name},path={},security_model=none,readonly=on,multidevs=remap",
            path.display()
        );
        let device = format!("virtio-9p-pci,fsdev={name},mount_tag={name}");
        ["-fsdev".to_owned(), file_system, "-device".to_owned(), device]
    };
    let mut machine = Command::new("qemu-system-x86_64")
        .args(["-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2", "-m", "3072"])
        .args(["-nographic", "-no-reboot"])
        .arg("-kernel")
        .arg(kernel.image())
        .arg("-initrd")
        .arg(&initrd)
        .args(share("host", Path::new("/")))
        .args(share("kernel", &kernel.folder))
        .args(["-append", "quiet console=ttyS0 panic=-1 mitigations=off"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot run qemu-system-x86_64")?;
    let output = machine.stdout.take().context("the machine has no output")?;
    let (lines_out, lines) = mpsc::channel();
    let reader = thread::spawn(move || {
        for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
            if lines_out.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                return;
            }
        }
    });
    let mut code = None;
    let deadline = std::time::Instant::now() + limit;
    let ended = loop {
        match lines.recv_timeout(deadline.saturating_duration_since(std::time::Instant::now())) {
            Ok(line) => {
                println!("{}", line.trim_end());
                if let Some(said) = line.trim().strip_prefix(EXIT) {
                    code = said.parse().ok();
                }
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => break true,
            Err(mpsc::RecvTimeoutError::Timeout) => break false,
        }
    };
    if !ended {
        machine.kill().context("cannot end the machine")?;
    }
    machine.wait().context("cannot wait for the machine")?;
    drop(reader.join());
    if !ended {
        bail!("Linux {} was not done within {} s", kernel.release, limit.as_secs());
    }
    code.with_context(|| format!("Linux {} did not come to the command's end", kernel.release))
}

/// The initial file system: busybox, and what it takes to reach this machine's.
fn initial(kernel: &Kernel, to: &Path) -> anyhow::Result<()> {
    let root = kernel.folder.with_extension("root");
    if root.exists() {
        fs::remove_dir_all(&root)?;
    }
    for folder in ["bin", "dev", "proc", "sys", "host", "kernel", "over", "new", "modules"] {
        fs::create_dir_all(root.join(folder))?;
    }
    let busybox = shell::find("busybox").context("busybox is missing")?;
    fs::copy(busybox, root.join("bin/busybox"))?;
    for applet in APPLETS {
        symlink("busybox", root.join("bin").join(applet))?;
    }
    let init = root.join("init");
    fs::write(&init, INIT)?;
    fs::set_permissions(&init, fs::Permissions::from_mode(0o755))?;
    let mut inserted = Vec::new();
    for module in MODULES {
        for file in kernel.module(module)? {
            if !inserted.contains(&file) {
                inserted.push(file);
            }
        }
    }
    for (number, file) in inserted.iter().enumerate() {
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let name = format!("{number:02}-{}", name.trim_end_matches(".xz"));
        let to = root.join("modules").join(name);
        if file.extension().is_some_and(|extension| extension == "xz") {
            let unpacked = File::create(&to)?;
            shell::run(Command::new("xz").arg("-dc").arg(file).stdout(unpacked))?;
        } else {
            fs::copy(file, &to)?;
        }
    }
    let mut pack = Command::new("cpio")
        .args(["-o", "-H", "newc", "--quiet", "--null"])
        .current_dir(&root)
        .stdin(Stdio::piped())
        .stdout(File::create(to)?)
        .spawn()
        .context("cannot run cpio")?;
    let mut names = Vec::new();
    list(&root, Path::new(""), &mut names)?;
    let mut input = pack.stdin.take().context("cpio takes no input")?;
    for name in names {
        input.write_all(name.as_bytes())?;
        input.write_all(&[0])?;
    }
    drop(input);
    if !pack.wait()?.success() {
        bail!("cpio failed");
    }
    Ok(())
}

/// Names of everything in a folder, parents first.
fn list(root: &Path, folder: &Path, names: &mut Vec<String>) -> anyhow::Result<()> {
    for entry in fs::read_dir(root.join(folder))? {
        let entry = entry?;
        let name = folder.join(entry.file_name());
        names.push(name.to_string_lossy().into_owned());
        if entry.file_type()?.is_dir() {
            list(root, &name, names)?;
        }
    }
    Ok(())
}
