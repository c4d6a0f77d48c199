//! A named network namespace, gone with its last holder.

use std::fs::File;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::path::PathBuf;

use anyhow::{Context, Result};
use nix::sched::{CloneFlags, setns};
use tokio::process::Command;

use super::{Family, run_tool};

/// No duplicate address detection on the devices that are made after this: an IPv6 address, the
/// link-local ones included, can be used at once.
pub const ADDRESSES_AT_ONCE: (&str, &str) = ("net/ipv6/conf/default/accept_dad", "0");

/// The line of `ip -batch` that gives a device an address. An IPv6 one is usable even while the link
/// has no carrier yet.
pub fn add_address(address: IpAddr, prefix: u8, device: &str) -> String {
    let at_once = if address.is_ipv6() { " nodad" } else { "" };
    format!("address add {address}/{prefix} dev {device}{at_once}\n")
}

/// The lines that give a device its addresses on a link with others.
pub fn on_link(addresses: &[IpAddr], device: &str) -> String {
    let line = |address: &IpAddr| add_address(*address, Family::of(*address).link_prefix(), device);
    addresses.iter().map(line).collect()
}

/// A network namespace with a name in the lab's private `/run/netns`.
#[derive(Debug)]
pub struct Namespace {
    name: String,
    file: File,
}

impl Namespace {
    /// Makes a namespace with its loopback up.
    pub async fn create(name: &str) -> Result<Self> {
        let mut ip = Command::new("ip");
        ip.args(["netns", "add", name]);
        run_tool(ip, "").await?;
        let path = PathBuf::from("/run/netns").join(name);
        let file = File::open(&path).with_context(|| format!("open {}", path.display()))?;
        let namespace = Self { name: name.to_owned(), file };
        namespace.ip_batch("link set lo up\n").await?;
        Ok(namespace)
    }

    /// The name in `/run/netns`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Moves the calling thread into the namespace, for good.
    pub fn enter(&self) -> Result<()> {
        enter(self.file.as_fd())
            .with_context(|| format!("enter the network namespace {}", self.name))
    }

    /// A command that will run in the namespace.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        let descriptor: RawFd = self.file.as_raw_fd();
        // SAFETY: the file outlives the spawn (the command is spawned while `self` is borrowed or
        // the namespace is kept by its owner), and setns is async-signal-safe.
        unsafe {
            command.pre_exec(move || {
                let file = BorrowedFd::borrow_raw(descriptor);
                enter(file).map_err(std::io::Error::from)
            });
        }
        command
    }

    /// Runs lines of `ip -batch` in the namespace.
    pub async fn ip_batch(&self, lines: &str) -> Result<()> {
        let mut ip = self.command("ip");
        ip.args(["-batch", "-"]);
        run_tool(ip, lines).await
    }

    /// Sets kernel parameters (`net/ipv4/ip_forward`, …) of the namespace.
    pub fn sysctl(&self, settings: &[(&str, &str)]) -> Result<()> {
        let file = self.file.try_clone().context("duplicate the namespace's descriptor")?;
        let settings: Vec<(String, String)> =
            settings.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        // /proc/sys shows the namespace of the thread that opens it.
        let writer = std::thread::spawn(move || -> Result<()> {
            enter(file.as_fd()).context("enter the namespace")?;
            for (key, value) in settings {
                let path = format!("/proc/sys/{key}");
                std::fs::write(&path, &value)
                    .with_context(|| format!("write {value} to {path}"))?;
            }
            Ok(())
        });
        match writer.join() {
            Ok(result) => result,
            Err(_) => anyhow::bail!("the thread that sets kernel parameters panicked"),
        }
        .with_context(|| format!("set kernel parameters of {}", self.name))
    }

    /// Waits until something in the namespace's reach accepts connections: one try, no retry.
    pub async fn can_connect(&self, address: SocketAddr) -> Result<bool> {
        let file = self.file.try_clone().context("duplicate the namespace's descriptor")?;
        let tried = tokio::task::spawn_blocking(move || {
            std::thread::spawn(move || {
                enter(file.as_fd())?;
                Ok::<_, nix::Error>(
                    std::net::TcpStream::connect_timeout(
                        &address,
                        std::time::Duration::from_secs(1),
                    )
                    .is_ok(),
                )
            })
            .join()
        })
        .await
        .context("run the connection attempt")?;
        match tried {
            Ok(result) => result.with_context(|| format!("enter {}", self.name)),
            Err(_) => anyhow::bail!("the thread of the connection attempt panicked"),
        }
    }

    /// Removes the name; the namespace goes with its last process.
    pub async fn remove(self) -> Result<()> {
        let mut ip = Command::new("ip");
        ip.args(["netns", "del", &self.name]);
        run_tool(ip, "").await
    }
}

fn enter(file: BorrowedFd<'_>) -> nix::Result<()> {
    setns(file, CloneFlags::CLONE_NEWNET)
}
