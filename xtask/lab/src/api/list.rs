//! Lists: the present or a past revision, whole or in chunks that all show the same revision.

use std::sync::Arc;

use serde_json::{Value, json};

use super::failure::Failure;
use super::object;
use super::request::Params;
use super::resource::Resource;
use super::selector::Selector;
use super::store::{Key, State};
use super::view::View;

/// Answers a list.
pub fn list(
    state: &State,
    resource: &Resource,
    namespace: Option<&str>,
    params: &Params,
    view: View,
) -> Result<Value, Failure> {
    let selector =
        Selector::parse(resource, params.get("labelSelector"), params.get("fieldSelector"))?;
    let limit = params.number("limit")?.filter(|limit| *limit > 0);
    let (revision, after) = match params.get("continue") {
        Some(token) => {
            let (revision, key) = parse_continue(resource, token)?;
            (revision, Some(key))
        }
        None => (wanted_revision(state, params)?, None),
    };
    let objects: Vec<(Key, Arc<Value>)> = if revision == state.revision() {
        state
            .list(resource, namespace)
            .map(|(key, object)| (key.clone(), Arc::clone(object)))
            .collect()
    } else {
        let past = state.list_at(resource, namespace, revision).map_err(|failure| match after {
            Some(_) => Failure::new(
                410,
                "Expired",
                "The provided continue parameter is too old to display a consistent list result. You can start a new \
                 list without the continue parameter.",
            ),
            None => failure,
        })?;
        past.into_iter().collect()
    };
    let mut rest = objects.into_iter().filter(|(key, object)| {
        after.as_ref().is_none_or(|after| key > after) && selector.matches(object)
    });
    let page: Vec<(Key, Arc<Value>)> = match limit {
        Some(limit) => rest.by_ref().take(usize::try_from(limit).unwrap_or(usize::MAX)).collect(),
        None => rest.by_ref().collect(),
    };
    let remaining = rest.count();
    let mut metadata = json!({ "resourceVersion": revision.to_string() });
    if let Some((last, _)) = page.last()
        && remaining > 0
    {
        metadata["continue"] = format!("{revision}/{}/{}", last.namespace, last.name).into();
        metadata["remainingItemCount"] = remaining.into();
    }
    let (kind, api_version) = view.list_type(resource);
    let items: Vec<Value> = page.iter().map(|(_, object)| view.item(resource, object)).collect();
    Ok(json!({ "kind": kind, "apiVersion": api_version, "metadata": metadata, "items": items }))
}

/// The revision that `resourceVersion` and `resourceVersionMatch` ask for.
fn wanted_revision(state: &State, params: &Params) -> Result<u64, Failure> {
    let current = state.revision();
    let asked = params.number("resourceVersion")?;
    match (params.get("resourceVersionMatch"), asked) {
        (Some("Exact"), None | Some(0)) => Err(Failure::bad_request(
            "resourceVersionMatch Exact needs a resourceVersion other than 0",
        )),
        (Some(_), None) => {
            Err(Failure::bad_request("resourceVersionMatch needs a resourceVersion"))
        }
        (_, Some(asked)) if asked > current => Err(Failure::too_large_revision(asked, current)),
        (Some("Exact"), Some(asked)) => Ok(asked),
        (None | Some("NotOlderThan"), _) => Ok(current),
        (Some(other), _) => {
            Err(Failure::bad_request(format!("resourceVersionMatch is \"{other}\"")))
        }
    }
}

fn parse_continue(resource: &Resource, token: &str) -> Result<(u64, Key), Failure> {
    let mut parts = token.splitn(3, '/');
    match (parts.next().and_then(|revision| revision.parse().ok()), parts.next(), parts.next()) {
        (Some(revision), Some(namespace), Some(name)) => {
            Ok((revision, Key::new(resource, namespace, name)))
        }
        _ => Err(Failure::bad_request(format!("continue key is not valid: {token}"))),
    }
}

/// The objects that a watch begins with, when it is to begin with the present state.
pub fn initial(
    state: &State,
    resource: &Resource,
    namespace: Option<&str>,
    selector: &Selector,
) -> Vec<Arc<Value>> {
    let mut objects: Vec<Arc<Value>> = state
        .list(resource, namespace)
        .filter(|(_, object)| selector.matches(object))
        .map(|(_, object)| Arc::clone(object))
        .collect();
    objects.sort_by_key(|object| object::revision(object));
    objects
}
