//! Deletion: pods leave in two steps, everything else at once and with what it owns.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::Removal;
use super::failure::Failure;
use super::object;
use super::resource::{RESOURCES, Resource};
use super::store::{Key, State};
use super::write;

/// The name under which Kubernetes' garbage collector writes.
const COLLECTOR: &str = "system:serviceaccount:kube-system:generic-garbage-collector";

/// `DeleteOptions`, as far as they matter here.
#[derive(Debug, Clone, Default)]
pub struct DeleteOptions {
    /// Seconds until the kill; the pod's own when absent.
    pub grace_seconds: Option<i64>,
    /// The object must have this UID.
    pub uid: Option<String>,
    /// The object must have this resource version.
    pub resource_version: Option<String>,
    /// What the object owns stays.
    pub orphan: bool,
}

impl DeleteOptions {
    /// From the body of the request and its `gracePeriodSeconds` and `propagationPolicy`
    /// parameters.
    pub fn parse(body: &Value, grace: Option<&str>, policy: Option<&str>) -> Result<Self, Failure> {
        let grace_seconds = match grace {
            Some(text) => Some(text.parse().map_err(|_| {
                Failure::bad_request(format!(
                    "gracePeriodSeconds is \"{text}\", expected a number of seconds"
                ))
            })?),
            None => body["gracePeriodSeconds"].as_i64(),
        };
        let text = |field: &str| body["preconditions"][field].as_str().map(str::to_owned);
        Ok(Self {
            grace_seconds,
            uid: text("uid"),
            resource_version: text("resourceVersion"),
            orphan: policy.or(body["propagationPolicy"].as_str()) == Some("Orphan"),
        })
    }
}

/// What a deletion leaves.
#[derive(Debug)]
pub enum Deleted {
    /// A pod that still has its grace.
    Terminating(Arc<Value>),
    /// The last state of what is gone.
    Gone(Arc<Value>),
}

/// Deletes an object.
pub fn delete(
    state: &mut State,
    resource: &'static Resource,
    namespace: &str,
    name: &str,
    options: &DeleteOptions,
    user: &str,
    now: Timestamp,
) -> Result<Deleted, Failure> {
    let current = state.get(resource, namespace, name)?;
    for (wanted, field) in [(&options.uid, "uid"), (&options.resource_version, "resourceVersion")] {
        if wanted.is_some() && wanted.as_deref() != object::meta(&current, field) {
            return Err(Failure::precondition(
                resource,
                name,
                &format!("{field} differs from the one that is kept"),
            ));
        }
    }
    let key = Key::new(resource, namespace, name);
    if resource.plural == "pods" {
        return Ok(delete_pod(state, &key, &current, options.grace_seconds, user, now));
    }
    let last = state.remove(&key).unwrap_or(current);
    if !options.orphan
        && let Some(uid) = object::meta(&last, "uid")
    {
        collect_dependents(state, uid, now);
    }
    Ok(Deleted::Gone(last))
}

/// Evicts a pod: marks why, then deletes it.
pub fn evict(
    state: &mut State,
    pods: &'static Resource,
    namespace: &str,
    name: &str,
    options: &DeleteOptions,
    user: &str,
    now: Timestamp,
) -> Result<(), Failure> {
    let current = state.get(pods, namespace, name)?;
    let mut marked = Value::clone(&current);
    write::set_condition(
        &mut marked,
        json!({
            "type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI",
            "message": "Eviction API: evicting", "lastProbeTime": null, "lastTransitionTime": object::time(now),
        }),
    );
    state.put(Key::new(pods, namespace, name), marked);
    delete(state, pods, namespace, name, options, user, now).map(drop)
}

/// The pod's way out: the first deletion sets the time of the kill, the one without grace (the
/// kubelet's) removes the object, after one last update that says so.
fn delete_pod(
    state: &mut State,
    key: &Key,
    current: &Arc<Value>,
    asked: Option<i64>,
    user: &str,
    now: Timestamp,
) -> Deleted {
    let leaving = object::meta(current, "deletionTimestamp").is_some();
    let grace = grace_seconds(current, asked);
    if !leaving {
        state.removals.push(Removal {
            namespace: key.namespace.clone(),
            pod: key.name.clone(),
            uid: object::meta(current, "uid").unwrap_or_default().to_owned(),
            at: now,
            user: user.to_owned(),
            grace_seconds: grace,
        });
    } else if asked.is_none()
        || grace >= current["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or(0)
    {
        // Only a shorter grace changes anything; a pod whose grace is over is being removed
        // already.
        return Deleted::Terminating(Arc::clone(current));
    }
    let mut next = Value::clone(current);
    let generation = next["metadata"]["generation"].as_i64().unwrap_or(0);
    let deadline = now.saturating_add(SignedDuration::from_secs(grace)).unwrap_or(now);
    let metadata = object::meta_mut(&mut next);
    metadata.insert("deletionTimestamp".into(), object::time(deadline).into());
    metadata.insert("deletionGracePeriodSeconds".into(), grace.into());
    if !leaving {
        metadata.insert("generation".into(), (generation + 1).into());
    }
    let written = state.put(key.clone(), next);
    if grace > 0 {
        return Deleted::Terminating(written);
    }
    Deleted::Gone(state.remove(key).unwrap_or(written))
}

/// The grace that counts: none for a pod without a node or whose containers have ended.
fn grace_seconds(pod: &Value, asked: Option<i64>) -> i64 {
    let unscheduled = pod["spec"]["nodeName"].as_str().unwrap_or("").is_empty();
    let ended = matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
    if unscheduled || ended {
        return 0;
    }
    // 30 s: the API's default of terminationGracePeriodSeconds.
    asked.or(pod["spec"]["terminationGracePeriodSeconds"].as_i64()).unwrap_or(30).max(0)
}

/// Removes an object whose owners are all gone already, as the collector does with one that a
/// controller made too late.
pub fn collect_orphan(state: &mut State, key: &Key, object: &Value, now: Timestamp) {
    let owners = object["metadata"]["ownerReferences"].as_array().map_or(&[][..], Vec::as_slice);
    if !owners.is_empty() && owners.iter().all(|owner| is_absent(state, &key.namespace, owner)) {
        collect(state, key, now);
    }
}

/// Whether an owner is surely not there; one of a kind that is not served may be.
fn is_absent(state: &State, namespace: &str, owner: &Value) -> bool {
    let text = |field: &str| owner[field].as_str().unwrap_or_default();
    let Some(resource) =
        RESOURCES.iter().find(|r| r.kind == text("kind") && r.api_version() == text("apiVersion"))
    else {
        return false;
    };
    let namespace = if resource.namespaced { namespace } else { "" };
    match state.get(resource, namespace, text("name")) {
        Ok(found) => object::meta(&found, "uid") != Some(text("uid")),
        Err(_) => true,
    }
}

fn collect_dependents(state: &mut State, owner_uid: &str, now: Timestamp) {
    for key in state.dependents(owner_uid) {
        collect(state, &key, now);
    }
}

fn collect(state: &mut State, key: &Key, now: Timestamp) {
    let options = DeleteOptions::default();
    if let Err(failure) =
        delete(state, key.resource(), &key.namespace, &key.name, &options, COLLECTOR, now)
    {
        // A dependent of two owners may be gone already, with the other one.
        tracing::debug!(?key, ?failure, "nothing left to collect");
    }
}
