//! Create, update and patch, with the rules of Kubernetes' own registry: what a writer cannot
//! change, when the generation grows, when a write is a conflict, and that a write which changes
//! nothing makes no event.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::defaults;
use super::delete;
use super::failure::Failure;
use super::object;
use super::resource::{Generation, Resource};
use super::store::{Key, State};
use super::strategic;

/// Fields of the metadata that only the server writes.
const SERVER_FIELDS: &[&str] = &[
    "name",
    "namespace",
    "uid",
    "creationTimestamp",
    "generateName",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
];

/// What of an object a write is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// All but the status (for types that have the subresource).
    Main,
    /// The status, and the annotations.
    Status,
}

/// Creates an object from what the client sent.
pub fn create(
    state: &mut State,
    resource: &Resource,
    namespace: &str,
    mut object: Value,
    now: Timestamp,
) -> Result<Arc<Value>, Failure> {
    check_kind(resource, &mut object)?;
    check_namespace(&object, namespace)?;
    let name = match (object::meta(&object, "name"), object::meta(&object, "generateName")) {
        (Some(name), _) => name.to_owned(),
        (None, Some(prefix)) => generated_name(state, resource, namespace, prefix),
        (None, None) => {
            return Err(Failure::invalid(
                resource,
                "",
                "metadata.name: Required value: name or generateName is required",
            ));
        }
    };
    if state.get(resource, namespace, &name).is_ok() {
        return Err(Failure::already_exists(resource, &name));
    }
    let metadata = object::meta_mut(&mut object);
    if metadata.get("resourceVersion").and_then(Value::as_str).is_some_and(|text| !text.is_empty())
    {
        return Err(Failure::bad_request(
            "resourceVersion should not be set on objects to be created",
        ));
    }
    for field in ["deletionTimestamp", "deletionGracePeriodSeconds", "generation", "selfLink"] {
        metadata.remove(field);
    }
    metadata.insert("name".into(), name.clone().into());
    if resource.namespaced {
        metadata.insert("namespace".into(), namespace.into());
    }
    metadata.insert("uid".into(), object::uid().into());
    metadata.insert("creationTimestamp".into(), object::time(now).into());
    if resource.generation != Generation::None {
        metadata.insert("generation".into(), 1.into());
    }
    defaults::fill(resource, &mut object, state)?;
    let key = Key::new(resource, namespace, &name);
    let created = state.put(key.clone(), object);
    delete::collect_orphan(state, &key, &created, now);
    Ok(created)
}

/// Replaces an object, or its status.
pub fn update(
    state: &mut State,
    resource: &Resource,
    namespace: &str,
    name: &str,
    part: Part,
    mut object: Value,
) -> Result<Arc<Value>, Failure> {
    check_kind(resource, &mut object)?;
    check_namespace(&object, namespace)?;
    if object::meta(&object, "name").is_some_and(|sent| sent != name) {
        return Err(Failure::bad_request(format!(
            "the name of the object does not match the name on the URL ({name})"
        )));
    }
    let current = state.get(resource, namespace, name)?;
    let sent = object::meta(&object, "resourceVersion");
    if sent.is_some() && sent != object::meta(&current, "resourceVersion") {
        return Err(Failure::conflict(resource, name));
    }
    if object::meta(&object, "uid").is_some_and(|uid| Some(uid) != object::meta(&current, "uid")) {
        return Err(Failure::precondition(
            resource,
            name,
            "UID in the object differs from the one that is kept",
        ));
    }
    let mut next = match part {
        Part::Main => object,
        Part::Status => with_status_of(&current, &mut object),
    };
    keep_server_fields(&current, &mut next);
    if part == Part::Main {
        if resource.status {
            keep(&current, &mut next, "status");
        }
        defaults::fill(resource, &mut next, state)?;
        grow_generation(resource, &current, &mut next);
    }
    if next == *current {
        return Ok(current);
    }
    Ok(state.put(Key::new(resource, namespace, name), next))
}

/// How a patch is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PatchType {
    /// JSON merge patch.
    Merge,
    /// Strategic merge patch.
    Strategic,
}

/// Applies a patch to an object, or to its status.
pub fn patch(
    state: &mut State,
    resource: &Resource,
    namespace: &str,
    name: &str,
    part: Part,
    (patch_type, patch): (PatchType, &Value),
) -> Result<Arc<Value>, Failure> {
    let current = state.get(resource, namespace, name)?;
    let mut next = Value::clone(&current);
    match patch_type {
        PatchType::Merge => object::merge(&mut next, patch),
        PatchType::Strategic => strategic::merge(&mut next, patch)?,
    }
    update(state, resource, namespace, name, part, next)
}

/// Binds a pod to a node, as the scheduler's POST to `pods/NAME/binding` does; the generation
/// stays.
pub fn bind(
    state: &mut State,
    pods: &Resource,
    namespace: &str,
    name: &str,
    binding: &Value,
    now: Timestamp,
) -> Result<(), Failure> {
    let current = state.get(pods, namespace, name)?;
    let Some(node) = binding["target"]["name"].as_str().filter(|node| !node.is_empty()) else {
        return Err(Failure::invalid(
            pods,
            name,
            "target.name: Required value: a binding names its node",
        ));
    };
    if let Some(bound) = current["spec"]["nodeName"].as_str().filter(|bound| !bound.is_empty()) {
        let what = format!("pod {name} is already assigned to node \"{bound}\"");
        return Err(Failure::precondition(pods, name, &what));
    }
    let mut next = Value::clone(&current);
    next["spec"]["nodeName"] = node.into();
    set_condition(
        &mut next,
        json!({ "type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": object::time(now) }),
    );
    state.put(Key::new(pods, namespace, name), next);
    Ok(())
}

/// Puts a condition into the status, in the place of the one of its type.
pub fn set_condition(object: &mut Value, condition: Value) {
    if !object["status"]["conditions"].is_array() {
        object["status"]["conditions"] = json!([]);
    }
    if let Some(conditions) = object["status"]["conditions"].as_array_mut() {
        conditions.retain(|kept| kept["type"] != condition["type"]);
        conditions.push(condition);
    }
}

fn check_kind(resource: &Resource, object: &mut Value) -> Result<(), Failure> {
    let Value::Object(fields) = object else {
        return Err(Failure::bad_request("the body is not a JSON object"));
    };
    for (field, wanted) in
        [("kind", resource.kind.to_owned()), ("apiVersion", resource.api_version())]
    {
        let sent = fields.entry(field).or_insert_with(|| wanted.clone().into());
        if *sent != wanted.as_str() {
            return Err(Failure::bad_request(format!(
                "{field} in the body is {sent}, expected {wanted}"
            )));
        }
    }
    Ok(())
}

fn check_namespace(object: &Value, namespace: &str) -> Result<(), Failure> {
    match object::meta(object, "namespace") {
        Some(sent) if sent != namespace => Err(Failure::bad_request(format!(
            "the namespace of the provided object does not match the namespace sent on the request ({sent}, {namespace})"
        ))),
        _ => Ok(()),
    }
}

fn generated_name(state: &State, resource: &Resource, namespace: &str, prefix: &str) -> String {
    loop {
        let name = format!("{prefix}{}", object::name_suffix());
        if state.get(resource, namespace, &name).is_err() {
            return name;
        }
    }
}

fn with_status_of(current: &Value, sent: &mut Value) -> Value {
    let mut next = current.clone();
    if let Some(status) = sent.as_object_mut().and_then(|fields| fields.remove("status")) {
        next["status"] = status;
    }
    if let Some(annotations) = sent["metadata"].get("annotations").filter(|map| !map.is_null()) {
        next["metadata"]["annotations"] = annotations.clone();
    }
    next
}

fn keep(current: &Value, next: &mut Value, field: &str) {
    let Some(next) = next.as_object_mut() else {
        return;
    };
    match current.get(field) {
        Some(kept) => next.insert(field.to_owned(), kept.clone()),
        None => next.remove(field),
    };
}

fn keep_server_fields(current: &Value, next: &mut Value) {
    let metadata = object::meta_mut(next);
    for field in SERVER_FIELDS.iter().chain(&["resourceVersion", "generation"]) {
        match current["metadata"].get(*field) {
            Some(kept) => metadata.insert((*field).to_owned(), kept.clone()),
            None => metadata.remove(*field),
        };
    }
}

fn grow_generation(resource: &Resource, current: &Value, next: &mut Value) {
    let grows = match resource.generation {
        Generation::None => false,
        Generation::Spec => current["spec"] != next["spec"],
        Generation::SpecAndAnnotations => {
            current["spec"] != next["spec"]
                || current["metadata"]["annotations"] != next["metadata"]["annotations"]
        }
        Generation::Content => {
            let content = |object: &Value| {
                let mut object = object.clone();
                let labels = object["metadata"]["labels"].take();
                object["metadata"] = labels;
                object
            };
            content(current) != content(next)
        }
    };
    if grows {
        let generation = current["metadata"]["generation"].as_i64().unwrap_or(0) + 1;
        object::meta_mut(next).insert("generation".into(), generation.into());
    }
}
