//! Strategic merge patch, what `kubectl patch` sends: lists of things with a name are merged by it.
//!
//! Known are the lists of a pod template, and the directive `$patch: delete`; all else is refused
//! rather than done differently from Kubernetes.

use serde_json::{Map, Value};

use super::failure::Failure;

/// The lists that are merged, and by which field (`patchMergeKey` in `k8s.io/api`). Other lists are
/// replaced.
const MERGED_BY: [(&str, &str); 8] = [
    ("containers", "name"),
    ("initContainers", "name"),
    ("ephemeralContainers", "name"),
    ("env", "name"),
    ("volumes", "name"),
    ("imagePullSecrets", "name"),
    ("ports", "containerPort"),
    ("volumeMounts", "mountPath"),
];

/// Applies a patch.
pub fn merge(target: &mut Value, patch: &Value) -> Result<(), Failure> {
    let Value::Object(patch) = patch else {
        return Err(Failure::bad_request("a strategic merge patch is an object"));
    };
    merge_object(target, patch)
}

fn merge_object(target: &mut Value, patch: &Map<String, Value>) -> Result<(), Failure> {
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Value::Object(target) = target else { unreachable!("it was made an object just above") };
    for (field, value) in patch {
        if field.starts_with('$') {
            let message = format!("the lab's API server does not know the directive {field} here");
            return Err(Failure::bad_request(message));
        }
        match value {
            Value::Null => {
                target.remove(field);
            }
            Value::Object(object) => {
                merge_object(target.entry(field).or_insert(Value::Null), object)?;
            }
            Value::Array(list) => {
                let key = MERGED_BY.iter().find(|(of, _)| of == field).map(|(_, key)| *key);
                match (key, target.get_mut(field)) {
                    (Some(key), Some(Value::Array(known))) => merge_list(known, list, field, key)?,
                    _ => drop(target.insert(field.clone(), value.clone())),
                }
            }
            plain => drop(target.insert(field.clone(), plain.clone())),
        }
    }
    Ok(())
}

fn merge_list(
    known: &mut Vec<Value>,
    patch: &[Value],
    field: &str,
    key: &str,
) -> Result<(), Failure> {
    for item in patch {
        let Value::Object(object) = item else {
            return Err(Failure::bad_request(format!("an item of {field} is no object")));
        };
        let name = object.get(key).filter(|name| !name.is_null()).ok_or_else(|| {
            Failure::bad_request(format!("map: {item} does not contain declared merge key: {key}"))
        })?;
        let at = known.iter().position(|one| one.get(key) == Some(name));
        match (object.get("$patch").and_then(Value::as_str), at) {
            (Some("delete"), Some(at)) => drop(known.remove(at)),
            (Some("delete"), None) => {}
            (_, Some(at)) => merge_object(&mut known[at], object)?,
            (_, None) => {
                let mut new = Value::Null;
                merge_object(&mut new, object)?;
                known.push(new);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn containers_and_their_environment_are_merged_by_name_and_other_lists_are_replaced() {
        let mut object = json!({"spec": {"containers": [
            {"name": "api", "image": "a:1", "command": ["a", "b"],
             "env": [{"name": "APP", "value": "api"}, {"name": "VERSION", "value": "1"}]},
            {"name": "proxy", "image": "p:1"}]}});
        let patch = json!({"spec": {"terminationGracePeriodSeconds": 60, "containers": [
            {"name": "api", "command": ["c"], "env": [{"name": "VERSION", "value": "2"}],
             "lifecycle": {"preStop": {"sleep": {"seconds": 5}, "exec": null}}},
            {"name": "proxy", "$patch": "delete"}]}});
        merge(&mut object, &patch).expect("a patch that is known");
        assert_eq!(
            object,
            json!({"spec": {"terminationGracePeriodSeconds": 60, "containers": [
                {"name": "api", "image": "a:1", "command": ["c"],
                 "env": [{"name": "APP", "value": "api"}, {"name": "VERSION", "value": "2"}],
                 "lifecycle": {"preStop": {"sleep": {"seconds": 5}}}}]}})
        );
    }

    #[test]
    fn what_would_be_done_differently_is_refused() {
        for patch in [
            json!({"spec": {"$retainKeys": ["type"]}}),
            json!({"containers": [{"image": "without-a-name"}]}),
            json!([]),
        ] {
            let mut object = json!({"spec": {}, "containers": [{"name": "api"}]});
            assert!(merge(&mut object, &patch).is_err(), "{patch}");
        }
    }
}
