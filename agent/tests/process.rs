//! The built binary as a process: what it exits with, and what it says.
//!
//! Everything is refused, missing or unreachable here; a working agent is the lab's to show. Each
//! test runs in a network namespace of its own, so addresses are free and the probes see nothing of
//! others. They need root, `ip` and `setpriv`.
#![cfg(feature = "probe")]

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    panic,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use nix::{
    sched::{CloneFlags, unshare},
    sys::signal::{Signal, kill},
    unistd::Pid,
};

const BINARY: &str = env!("CARGO_BIN_EXE_rollrace");

/// Enough for a debug build on a busy machine, and as many times as much as `ROLLRACE_SLOW` says where a
/// machine is slow by itself.
fn patience() -> Duration {
    let slow = std::env::var("ROLLRACE_SLOW").ok();
    let slow = slow.map_or(1, |text| text.parse().expect("ROLLRACE_SLOW is a number"));
    Duration::from_secs(30) * slow
}

/// A usable kubeconfig of a server that nobody runs.
const KUBECONFIG: &str = "apiVersion: v1\nkind: Config\ncurrent-context: lab\n\
    clusters: [{name: lab, cluster: {server: 'http://127.0.0.1:6443'}}]\n\
    users: [{name: lab, user: {}}]\n\
    contexts: [{name: lab, context: {cluster: lab, user: lab}}]\n";

/// Runs a test in a thread with a network namespace of its own, loopback up.
fn in_a_namespace(test: impl FnOnce() + Send + 'static) {
    let thread = thread::spawn(|| {
        unshare(CloneFlags::CLONE_NEWNET).expect("unshare the network namespace (as root)");
        let up = Command::new("ip").args(["link", "set", "lo", "up"]).status().expect("run ip");
        assert!(up.success());
        test();
    });
    thread.join().unwrap_or_else(|panic| panic::resume_unwind(panic));
}

/// A folder of a test's own.
fn folder(test: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("process").join(test);
    fs::create_dir_all(&folder).expect("make a folder for the test");
    folder
}

/// A file in it.
fn file(test: &str, content: &str) -> String {
    let path = folder(test).join("kubeconfig");
    fs::write(&path, content).expect("write the test's file");
    path.into_os_string().into_string().expect("a path in UTF-8")
}

/// `rollrace agent` with a good kubeconfig, then these arguments.
fn agent(test: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(BINARY);
    command.args(["agent", "--node-name", "n1", "--kubeconfig", &file(test, KUBECONFIG)]);
    command.args(["--listen", "127.0.0.1:9465", "--api-listen", "off"]).args(arguments);
    command
}

/// A child that does not outlive the test.
struct Running(Child);

impl Running {
    fn start(command: &mut Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        for name in ["KUBECONFIG", "NODE_NAME", "NODE_IP", "KUBERNETES_SERVICE_HOST"] {
            command.env_remove(name);
        }
        Self(command.spawn().expect("run the binary"))
    }

    /// Its exit code and what it wrote to standard error.
    fn end(mut self, deadline: Duration) -> (Option<i32>, String) {
        let mut stderr = self.0.stderr.take().expect("standard error is a pipe");
        // It ends when the child does.
        let reader = thread::spawn(move || {
            let mut text = String::new();
            stderr.read_to_string(&mut text).expect("read standard error");
            text
        });
        let end = Instant::now() + deadline;
        let status = loop {
            if let Some(status) = self.0.try_wait().expect("wait for the binary") {
                break status;
            }
            if Instant::now() >= end {
                self.0.kill().expect("kill the binary");
                let text = reader.join().expect("the reader's thread");
                panic!("still running after {deadline:?}; it wrote:\n{text}");
            }
            thread::sleep(Duration::from_millis(5));
        };
        (status.code(), reader.join().expect("the reader's thread"))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail if it has ended, and then there is nothing to do.
        drop((self.0.kill(), self.0.wait()));
    }
}

/// Runs to the end, and checks the exit code and that the message holds all of these.
fn assert_ends(mut command: Command, code: i32, words: &[&str]) {
    let (ended, told) = Running::start(&mut command).end(patience());
    assert_eq!(ended, Some(code), "{command:?} wrote:\n{told}");
    for word in words {
        assert!(told.contains(word), "no {word:?} in what {command:?} wrote:\n{told}");
    }
}

/// Status code and body of a GET from the address of [`agent`], tried until somebody listens.
fn get(path: &str) -> (u16, String) {
    get_from("127.0.0.1:9465", path)
}

/// The same from any address.
fn get_from(address: &str, path: &str) -> (u16, String) {
    let end = Instant::now() + patience();
    let mut stream = loop {
        match TcpStream::connect(address) {
            Ok(stream) => break stream,
            Err(error) => assert!(Instant::now() < end, "nobody listens at {address}: {error}"),
        }
        thread::sleep(Duration::from_millis(5));
    };
    stream.set_read_timeout(Some(patience())).expect("set a timeout");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: n1\r\nConnection: close\r\n\r\n").expect("ask");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("read the answer");
    let code = answer.split(' ').nth(1).and_then(|code| code.parse().ok());
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    (code.unwrap_or_else(|| panic!("no HTTP answer: {answer}")), body.to_owned())
}

#[test]
fn bad_usage_ends_with_64() {
    let usages: [&[&str]; 7] = [
        &[],
        &["no-such-command"],
        &["agent"],
        &["agent", "--node-name", ""],
        &["agent", "--node-name", "n1", "--listen", "nowhere"],
        &["agent", "--node-name", "n1", "--ring-buffer", "1000"],
        &["agent", "--node-name", "n1", "--attempt-deadline", "0"],
    ];
    for usage in usages {
        let mut command = Command::new(BINARY);
        command.args(usage);
        assert_ends(command, 64, &[]);
    }
}

#[test]
fn help_and_version_are_no_errors() {
    for flag in ["--help", "--version"] {
        let mut command = Command::new(BINARY);
        command.arg(flag);
        assert_ends(command, 0, &[]);
    }
}

#[test]
fn a_kernel_without_btf_is_told_with_the_option_it_lacks() {
    in_a_namespace(|| {
        let empty = folder("no-btf/empty");
        let mut command = agent("no-btf", &[]);
        command.env("ROLLRACE_BTF", &empty);
        let vmlinux = empty.join("vmlinux");
        assert_ends(command, 69, &[&vmlinux.to_string_lossy(), "CONFIG_DEBUG_INFO_BTF"]);
    });
}

/// The agent without capabilities.
fn without(test: &str, capabilities: &str) -> Command {
    let mut command = Command::new("setpriv");
    let agent = agent(test, &[]);
    // For root, what is not in the bounding set is not in the effective one after exec.
    command.args(["--bounding-set", capabilities, "--inh-caps", capabilities]).arg(BINARY);
    command.args(agent.get_args());
    command
}

#[test]
fn a_missing_capability_is_named() {
    in_a_namespace(|| {
        // CAP_SYS_ADMIN stands in for both.
        let cases = [
            ("no-bpf", "-sys_admin,-bpf", "lacks CAP_BPF;"),
            ("no-perfmon", "-sys_admin,-perfmon", "lacks CAP_PERFMON;"),
            ("neither", "-sys_admin,-bpf,-perfmon", "lacks CAP_BPF and CAP_PERFMON;"),
        ];
        for (test, capabilities, message) in cases {
            assert_ends(without(test, capabilities), 69, &[message, "not permitted to"]);
        }
    });
}

#[test]
fn an_address_in_use_is_named_with_its_flag() {
    in_a_namespace(|| {
        let _taken = TcpListener::bind("127.0.0.1:9465").expect("take the port");
        let words = ["127.0.0.1:9465", "--listen", "in use"];
        assert_ends(agent("in-use", &[]), 69, &words);
        let mut other = Command::new(BINARY);
        other.args(["agent", "--node-name", "n1", "--kubeconfig", &file("in-use", KUBECONFIG)]);
        other.args(["--listen", "127.0.0.1:9467", "--api-listen", "127.0.0.1:9465"]);
        assert_ends(other, 69, &["127.0.0.1:9465", "--api-listen", "in use"]);
    });
}

#[test]
fn a_kubeconfig_that_cannot_be_used_is_named() {
    let unknown = KUBECONFIG.replace("current-context: lab", "current-context: other");
    let cases = [
        ("bad-yaml", "clusters: [".to_owned(), "correct its YAML"),
        ("no-context", unknown, "use-context"),
        ("no-file", String::new(), "check the path"),
    ];
    for (test, content, remedy) in cases {
        let path = file(test, &content);
        if content.is_empty() {
            fs::remove_file(&path).expect("remove the file again");
        }
        let mut command = Command::new(BINARY);
        command.args(["agent", "--node-name", "n1", "--kubeconfig", &path]);
        assert_ends(command, 69, &[&path, remedy]);
        // `start` takes an inherited KUBECONFIG away; this one is part of the command line.
        let wrapped = ["-c", "KUBECONFIG=\"$1\" exec \"$0\" agent --node-name n1", BINARY, &path];
        let mut shell = Command::new("sh");
        shell.args(wrapped);
        assert_ends(shell, 69, &[&path, remedy]);
    }
}

#[test]
fn without_any_way_to_an_api_server_it_says_what_to_name() {
    let mut command = Command::new(BINARY);
    command.args(["agent", "--node-name", "n1"]);
    assert_ends(command, 69, &["--kubeconfig", "KUBECONFIG"]);
}

#[test]
fn a_recording_that_cannot_be_written_is_told_before_anything_runs() {
    in_a_namespace(|| {
        let path = folder("record").join("no-such-folder/n1.jsonl");
        let path = path.to_string_lossy();
        assert_ends(agent("record", &["--record", &path]), 69, &[&path]);
    });
}

/// It must be alive, unready for a reason, and, once `until` holds, gone in time after SIGTERM. What it wrote.
fn assert_alive_but_not_ready(test: &str, until: impl Fn() -> bool) -> String {
    let running = Running::start(&mut agent(test, &[]));
    let end = Instant::now() + patience();
    while !until() {
        assert!(Instant::now() < end, "{}", get("/metrics").1);
        thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(get("/livez").0, 200);
    let (code, reason) = get("/readyz");
    assert_eq!(code, 503);
    assert!(reason.contains("endpointslices"), "it says what it waits for: {reason}");
    let (code, metrics) = get("/metrics");
    assert_eq!(code, 200);
    assert!(metrics.contains("rollrace_probe_attached"), "it captures meanwhile: {metrics}");
    let uncovered = "rollrace_coverage_since_timestamp_seconds 0\n";
    assert!(metrics.contains(uncovered), "and does not claim to cover anything: {metrics}");
    let pid = Pid::from_raw(i32::try_from(running.0.id()).expect("a process number"));
    kill(pid, Signal::SIGTERM).expect("send SIGTERM");
    let (code, told) = running.end(Duration::from_secs(5));
    assert_eq!(code, Some(0), "{told}");
    told
}

#[test]
fn on_a_node_with_ipv6_only_it_is_reached_without_any_option() {
    in_a_namespace(|| {
        let lines = ["address add fd00:172:30::b/64 dev lo nodad", "route add default dev lo"];
        for line in lines {
            let mut ip = Command::new("ip");
            let set = ip.arg("-6").args(line.split(' ')).status().expect("run ip");
            assert!(set.success(), "ip -6 {line}");
        }
        let mut command = Command::new(BINARY);
        command.args(["agent", "--node-name", "n1", "--kubeconfig", &file("ipv6", KUBECONFIG)]);
        let _running = Running::start(&mut command);
        for address in ["[fd00:172:30::b]:9465", "127.0.0.1:9465"] {
            assert_eq!(get_from(address, "/livez").0, 200, "{address}");
        }
        assert_eq!(get_from("[fd00:172:30::b]:9466", "/api/v1/status").0, 200);
    });
}

#[test]
fn an_agent_that_was_stopped_for_a_while_says_that_there_is_a_gap() {
    in_a_namespace(|| {
        let running = Running::start(&mut agent("stopped", &[]));
        let gaps = || {
            let (_, metrics) = get("/metrics");
            let name = "rollrace_coverage_gaps_total{reason=\"suspended\"} ";
            let value = metrics.lines().find_map(|line| line.strip_prefix(name).map(str::to_owned));
            value.and_then(|value| value.parse::<u64>().ok()).expect("the metric")
        };
        let before = gaps();
        let pid = Pid::from_raw(i32::try_from(running.0.id()).expect("a process number"));
        kill(pid, Signal::SIGSTOP).expect("send SIGSTOP");
        // The time that it takes to be a gap, and its last tick's time before.
        thread::sleep(Duration::from_millis(5_500));
        kill(pid, Signal::SIGCONT).expect("send SIGCONT");
        let end = Instant::now() + patience();
        while gaps() == before {
            assert!(Instant::now() < end, "no gap was told");
            thread::sleep(Duration::from_millis(20));
        }
    });
}

#[test]
fn an_unreachable_api_server_leaves_it_alive_but_not_ready_until_sigterm_ends_it() {
    in_a_namespace(|| {
        // First lists are spread over half a second.
        let has_tried = || {
            let (_, metrics) = get("/metrics");
            let name = "rollrace_watch_restarts_total{";
            let mut lines = metrics.lines().filter(|line| line.starts_with(name));
            lines.any(|line| line.contains("\"endpointslices\"") && !line.ends_with(" 0"))
        };
        let told = assert_alive_but_not_ready("unreachable", has_tried);
        assert!(told.contains("endpointslices") && told.contains("refused"), "{told}");
    });
}

#[test]
fn an_api_server_that_never_answers_does_not_hold_the_end_up() {
    in_a_namespace(|| {
        let _mute = TcpListener::bind("127.0.0.1:6443").expect("listen in the server's place");
        assert_alive_but_not_ready("mute", || true);
    });
}

/// While it lives the kernel loads no modules.
struct NoModules {
    loader: String,
}

impl NoModules {
    const LOADER: &str = "/proc/sys/kernel/modprobe";

    fn new() -> Self {
        let loader = fs::read_to_string(Self::LOADER).expect("read what loads modules");
        fs::write(Self::LOADER, "/bin/false").expect("let the kernel load no modules");
        Self { loader }
    }
}

impl Drop for NoModules {
    fn drop(&mut self) {
        fs::write(Self::LOADER, &self.loader).expect("let the kernel load modules again");
    }
}

#[test]
#[ignore = "needs a machine whose nf_conntrack is a module that is not loaded: cargo xtask vm"]
fn an_agent_that_was_there_before_conntrack_takes_it_up_when_it_comes() {
    in_a_namespace(|| {
        // Its own questions to conntrack would make the kernel load the module.
        let no_modules = NoModules::new();
        let mut command = Command::new(BINARY);
        command.args(["agent", "--node-name", "n1", "--listen", "127.0.0.1:9465"]);
        command.args(["--kubeconfig", &file("before-conntrack", KUBECONFIG)]);
        command.args(["--api-listen", "127.0.0.1:9466"]);
        let running = Running::start(&mut command);
        let status = || get_from("127.0.0.1:9466", "/api/v1/status").1;
        let before = status();
        assert!(before.contains("\"conntrack\":false"), "{before}");
        assert!(before.contains("{\"feature\":\"conntrack\""), "it says so: {before}");
        drop(no_modules);
        let modprobe = Command::new("modprobe").arg("nf_conntrack").status().expect("run modprobe");
        assert!(modprobe.success());
        let end = Instant::now() + patience();
        while !status().contains("\"conntrack\":true") {
            assert!(Instant::now() < end, "it does not take conntrack up: {}", status());
            thread::sleep(Duration::from_millis(100));
        }
        let pid = Pid::from_raw(i32::try_from(running.0.id()).expect("a process number"));
        kill(pid, Signal::SIGTERM).expect("send SIGTERM");
        let (code, told) = running.end(patience());
        assert_eq!(code, Some(0), "{told}");
        for word in ["conntrack is not there yet", "conntrack has come"] {
            assert!(told.contains(word), "no {word:?} in {told}");
        }
    });
}
