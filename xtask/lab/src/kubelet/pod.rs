//! A pod's life: network, container, probes, restarts, preStop, SIGTERM, grace, SIGKILL, teardown.

use std::future::pending;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container as Spec, Pod, PodSpec};
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Api, ResourceExt};
use nix::sys::signal::Signal;
use tokio::process::Child;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, sleep_until};

use super::Shared;
use super::container::{self, Container};
use super::probe::ReadinessProbe;
use super::status::{State, Status};
use crate::journal::Event;
use crate::net::Namespace;
use crate::node::PodLink;

/// A pod with this annotation gets that address, as soon as nobody has it: address reuse at will.
pub const ADDRESS_OF_ANNOTATION: &str = "lab/address";

/// Grace when the object does not say (`terminationGracePeriodSeconds` defaults to it).
const DEFAULT_GRACE: Duration = Duration::from_secs(30);
/// What is left after SIGTERM even when preStop has used the grace up (the kubelet's minimum).
const LEAST_GRACE: Duration = Duration::from_secs(2);
/// The first wait of a crash loop, doubled each time up to five minutes.
const FIRST_BACK_OFF: Duration = Duration::from_secs(10);
const LONGEST_BACK_OFF: Duration = Duration::from_secs(300);

/// Runs a pod from its first sight to the deletion of its object.
pub async fn run(shared: Shared, pod: watch::Receiver<Pod>) -> Result<()> {
    let first = pod.borrow().clone();
    let spec = first.spec.clone().context("the pod has no spec")?;
    let container = spec.containers.first().context("the pod has no container")?.clone();
    let host_network = spec.host_network.unwrap_or(false);
    let wanted = first.annotations().get(ADDRESS_OF_ANNOTATION);
    let wanted = wanted.map(|ip| ip.parse()).transpose().context("read the wanted address")?;
    let link = if host_network { None } else { Some(shared.network.attach(wanted).await?) };
    let addresses = link.as_ref().map_or(&shared.node.addresses, |link| &link.addresses).clone();
    let worker = Worker {
        full_name: format!("{}/{}", first.namespace().unwrap_or_default(), first.name_any()),
        status: Status::new(addresses, Timestamp::now()),
        stop: None,
        shared,
        pod,
        spec,
        container,
        link,
    };
    Box::pin(worker.run(&first)).await
}

/// When the container gets which signal.
#[derive(Debug, Clone, Copy)]
struct Stop {
    term_at: Option<Instant>,
    kill_at: Option<Instant>,
}

struct Worker {
    shared: Shared,
    pod: watch::Receiver<Pod>,
    full_name: String,
    spec: PodSpec,
    container: Spec,
    link: Option<PodLink>,
    status: Status,
    stop: Option<Stop>,
}

impl Worker {
    async fn run(mut self, first: &Pod) -> Result<()> {
        let uid = first.uid().unwrap_or_default();
        let mut back_off = FIRST_BACK_OFF;
        loop {
            let started = Timestamp::now();
            let process = self.start()?;
            if self.status.restarts == 0 {
                self.note(|node, pod| Event::PodStarted {
                    node,
                    pod,
                    uid: uid.clone(),
                    addresses: self.status.addresses.clone(),
                });
            }
            let code = self.run_container(process, started).await?;
            self.note(|node, pod| Event::ContainerExited { node, pod, code });
            let again = self.stop.is_none() && self.restarts_after(code);
            self.status.final_exit = !again;
            self.status.state = State::Terminated { started, finished: Timestamp::now(), code };
            self.status.set_ready(false, Timestamp::now());
            self.write_status().await?;
            if !again {
                break;
            }
            self.status.last_state = Some(self.status.state);
            if self.status.restarts > 0 {
                self.status.state = State::BackOff;
                self.write_status().await?;
                tokio::select! {
                    () = sleep(back_off) => back_off = (back_off * 2).min(LONGEST_BACK_OFF),
                    () = deletion(&mut self.pod) => break,
                }
            }
            self.status.restarts += 1;
        }
        deletion(&mut self.pod).await;
        self.tear_down(&uid).await
    }

    fn start(&self) -> Result<Container> {
        let log =
            self.shared.settings.logs.join(format!("{}.log", self.full_name.replace('/', "_")));
        let name = self.full_name.rsplit('/').next().unwrap_or_default();
        Container::start(&self.container, name, self.namespace(), &log)
    }

    fn namespace(&self) -> &Namespace {
        self.link.as_ref().map_or_else(|| self.shared.network.node_namespace(), |l| &l.namespace)
    }

    fn restarts_after(&self, code: i32) -> bool {
        match self.spec.restart_policy.as_deref() {
            Some("Never") => false,
            Some("OnFailure") => code != 0,
            _ => true,
        }
    }

    /// Runs a started container to its exit. Readiness is probed to the end: it is what decides
    /// `serving` while the pod terminates.
    async fn run_container(&mut self, mut process: Container, started: Timestamp) -> Result<i32> {
        let (changes, mut readiness) = mpsc::channel(1);
        let address = *self.status.addresses.first().context("the pod has no address")?;
        let probe = ReadinessProbe::of(&self.container, address, self.namespace())?;
        let probed = probe.is_some();
        let mut probing = std::pin::pin!(async move {
            match probe {
                Some(probe) => probe.run(changes).await,
                None => pending().await,
            }
        });
        let mut hook = None;
        self.status.state = State::Running(started);
        self.status.set_ready(!probed, started);
        self.write_status().await?;
        loop {
            tokio::select! {
                biased;
                code = process.exited() => return code,
                () = deletion(&mut self.pod), if self.stop.is_none() => {
                    hook = self.begin_stop()?;
                }
                () = pre_stopped(self.stop.and_then(|s| s.term_at), &mut hook) => {
                    // What is left of the hook is killed with it.
                    hook = None;
                    self.signal(&process, Signal::SIGTERM)?;
                    self.stop = self.stop.map(|s| Stop { term_at: None, ..s });
                }
                () = at(self.stop.and_then(|s| s.kill_at)) => {
                    self.signal(&process, Signal::SIGKILL)?;
                    self.stop = self.stop.map(|s| Stop { kill_at: None, ..s });
                }
                Some(ready) = readiness.recv() => {
                    self.status.set_ready(ready, Timestamp::now());
                    self.write_status().await?;
                }
                () = &mut probing, if probed => {}
            }
        }
    }

    /// Begins with preStop; hands out its process, if it has one.
    fn begin_stop(&mut self) -> Result<Option<Child>> {
        self.note(|node, pod| Event::PodTerminating { node, pod });
        let now = Instant::now();
        // An object that is gone already was deleted by force: no grace.
        let forced = self.pod.has_changed().is_err();
        let grace = self.pod.borrow().metadata.deletion_grace_period_seconds;
        let grace = match grace.map(u64::try_from) {
            _ if forced => Duration::ZERO,
            Some(Ok(seconds)) => Duration::from_secs(seconds),
            _ => DEFAULT_GRACE,
        };
        let pre_stop = self.container.lifecycle.as_ref().and_then(|l| l.pre_stop.as_ref());
        let exec = pre_stop.and_then(|handler| handler.exec.as_ref()?.command.as_deref());
        let command = exec.and_then(|words| container::command(words, self.namespace()));
        let hook = command.map(|mut command| command.stdin(Stdio::null()).spawn()).transpose();
        let hook = hook.with_context(|| format!("start the preStop of {}", self.full_name))?;
        let slept = pre_stop.and_then(|handler| handler.sleep.as_ref());
        let slept = slept.map(|s| Duration::from_secs(u64::try_from(s.seconds).unwrap_or(0)));
        let longest =
            if hook.is_some() { grace } else { slept.unwrap_or(Duration::ZERO).min(grace) };
        let term_at = now + longest;
        let kill_at = if forced { now } else { (now + grace).max(term_at + LEAST_GRACE) };
        self.stop = Some(Stop { term_at: Some(term_at), kill_at: Some(kill_at) });
        Ok(hook)
    }

    fn signal(&self, process: &Container, signal: Signal) -> Result<()> {
        self.note(|node, pod| Event::Signal { node, pod, signal: signal.to_string() });
        process.signal(signal)
    }

    async fn tear_down(mut self, uid: &str) -> Result<()> {
        sleep(self.shared.settings.teardown_delay).await;
        if let Some(link) = self.link.take() {
            self.shared.network.detach(link).await?;
            self.note(|node, pod| Event::PodNetworkGone { node, pod });
        }
        let (namespace, name) = self.full_name.split_once('/').unwrap_or_default();
        let pods: Api<Pod> = Api::namespaced(self.shared.client.clone(), namespace);
        let parameters = DeleteParams::default()
            .grace_period(0)
            .preconditions(Preconditions { uid: Some(uid.to_owned()), resource_version: None });
        match pods.delete(name, &parameters).await {
            Ok(_) => Ok(()),
            Err(error) if is_gone(&error) => Ok(()),
            Err(error) => Err(error).context("delete the pod's object"),
        }
    }

    async fn write_status(&self) -> Result<()> {
        let pod = self.pod.borrow().clone();
        let patch = self.status.patch(&pod, &self.container, &self.shared.node);
        let pods: Api<Pod> =
            Api::namespaced(self.shared.client.clone(), &pod.namespace().unwrap_or_default());
        match pods
            .patch_status(&pod.name_any(), &PatchParams::default(), &Patch::Merge(&patch))
            .await
        {
            Ok(_) => Ok(()),
            Err(error) if is_gone(&error) => Ok(()),
            Err(error) => Err(error).context("write the pod's status"),
        }
    }

    fn note(&self, event: impl FnOnce(String, String) -> Event) {
        let event = event(self.shared.node.name.clone(), self.full_name.clone());
        self.shared.journal.note(event);
    }
}

/// Waits until the pod's object is being deleted or is gone.
async fn deletion(pod: &mut watch::Receiver<Pod>) {
    // An error means that the sender is gone, and with it the object.
    drop(pod.wait_for(|pod| pod.metadata.deletion_timestamp.is_some()).await);
}

/// Waits until preStop is over: its process has ended, or its time is up.
async fn pre_stopped(term_at: Option<Instant>, hook: &mut Option<Child>) {
    let ended = async {
        match (term_at, hook) {
            (Some(_), Some(process)) => drop(process.wait().await),
            _ => pending().await,
        }
    };
    tokio::select! {
        () = at(term_at) => {}
        () = ended => {}
    }
}

async fn at(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => pending().await,
    }
}

/// The object is gone, or another one has its name.
fn is_gone(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if matches!(status.code, 404 | 409))
}
