//! Network namespaces held by a descriptor: gone with the test, however it ends.

use std::{
    fs::{self, File},
    io::Write as _,
    net::{IpAddr, SocketAddr, TcpListener},
    os::fd::AsRawFd as _,
    panic,
    process::{self, Command, Stdio},
    sync::Arc,
    thread,
    time::Instant,
};

use nix::sched::{CloneFlags, setns, unshare};

use super::patience;

/// A network namespace without a name; it lives as long as one of its clones.
#[derive(Clone)]
pub struct Namespace {
    file: Arc<File>,
}

impl Namespace {
    /// A new one, its loopback up, addresses usable at once.
    pub fn new() -> Self {
        let made = thread::spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET).expect("unshare the network namespace (as root)");
            File::open("/proc/thread-self/ns/net").expect("open the new network namespace")
        });
        let namespace =
            Self { file: Arc::new(made.join().expect("the thread that makes a namespace")) };
        namespace.sysctl("net/ipv6/conf/default/accept_dad", "0");
        namespace.ip("link set lo up");
        namespace
    }

    /// Runs something in a thread that lives there.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        thread::scope(|scope| {
            let worker = scope.spawn(|| {
                setns(self.file.as_ref(), CloneFlags::CLONE_NEWNET)
                    .expect("enter a network namespace");
                work()
            });
            worker.join().unwrap_or_else(|panic| panic::resume_unwind(panic))
        })
    }

    /// What `ip` takes as the name of this namespace.
    pub fn path(&self) -> String {
        format!("/proc/{}/fd/{}", process::id(), self.file.as_raw_fd())
    }

    /// Runs lines of `ip -batch`.
    pub fn ip(&self, lines: &str) {
        self.tool("ip", &["-batch", "-"], lines);
    }

    /// Runs a program to its end, with `input`; it must succeed. What it printed.
    pub fn tool(&self, program: &str, arguments: &[&str], input: &str) -> String {
        let output = self.run(|| {
            let mut child = Command::new(program)
                .args(arguments)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap_or_else(|error| panic!("run {program}: {error}"));
            let mut stdin = child.stdin.take().expect("its standard input is a pipe");
            stdin.write_all(input.as_bytes()).expect("write to a child's standard input");
            drop(stdin);
            child.wait_with_output().expect("wait for a child")
        });
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{program} {arguments:?} failed: {told}\ninput:\n{input}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Waits until a link carries packets: the kernel gives it its queue only after its peer is up,
    /// by a work of its own, and drops what comes sooner.
    pub fn await_link(&self, name: &str) {
        self.await_shown(&["-oneline", "link", "show", "dev", name], " state UP ");
    }

    /// Waits until an IPv6 address takes packets: its local route, too, is made by a work of its own,
    /// even without duplicate address detection.
    pub fn await_v6(&self, address: IpAddr) {
        self.await_shown(&["-6", "route", "show", "table", "local"], &format!("local {address} "));
    }

    fn await_shown(&self, arguments: &[&str], text: &str) {
        let deadline = Instant::now() + patience();
        loop {
            let shown = self.tool("ip", arguments, "");
            if shown.contains(text) {
                return;
            }
            assert!(Instant::now() < deadline, "no {text:?} in ip {arguments:?}: {shown}");
            thread::yield_now();
        }
    }

    /// Sets a kernel parameter of the namespace.
    pub fn sysctl(&self, key: &str, value: &str) {
        let path = format!("/proc/sys/{key}");
        // /proc/sys shows the namespace of the thread that opens it.
        self.run(|| fs::write(&path, value))
            .unwrap_or_else(|error| panic!("write {value} to {path}: {error}"));
    }

    /// A listener there; the kernel answers for it without anybody accepting.
    pub fn listen(&self, address: SocketAddr) -> TcpListener {
        self.run(|| TcpListener::bind(address))
            .unwrap_or_else(|error| panic!("listen on {address}: {error}"))
    }
}
