//! Reading and writing the metadata of an object that is kept as JSON.

use jiff::Timestamp;
use serde_json::{Map, Value};

/// The alphabet of generated names: no vowels, no characters that are mistaken for one another
/// (`k8s.io/apimachinery/pkg/util/rand`).
const NAME_ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
/// Length of a generated suffix (`k8s.io/apiserver/pkg/storage/names`).
const SUFFIX_LENGTH: usize = 5;

/// A dotted path as a JSON pointer.
pub fn pointer(path: &str) -> String {
    format!("/{}", path.replace('.', "/"))
}

/// A field of the metadata that is text.
pub fn meta<'a>(object: &'a Value, field: &str) -> Option<&'a str> {
    object["metadata"].get(field).and_then(Value::as_str).filter(|text| !text.is_empty())
}

/// The metadata, made if it is absent or no object.
pub fn meta_mut(object: &mut Value) -> &mut Map<String, Value> {
    if !object["metadata"].is_object() {
        object["metadata"] = Value::Object(Map::new());
    }
    match &mut object["metadata"] {
        Value::Object(map) => map,
        _ => unreachable!("it was made an object just above"),
    }
}

/// The object's resource version.
pub fn revision(object: &Value) -> u64 {
    meta(object, "resourceVersion").and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// A time as Kubernetes writes it: RFC 3339, cut to the second.
pub fn time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// The random end of a generated name.
pub fn name_suffix() -> String {
    (0..SUFFIX_LENGTH)
        .map(|_| char::from(NAME_ALPHABET[fastrand::usize(..NAME_ALPHABET.len())]))
        .collect()
}

/// A random (version 4) UUID.
pub fn uid() -> String {
    let bits = fastrand::u128(..);
    let bits = (bits & !(0xf << 76) & !(0x3 << 62)) | (0x4 << 76) | (0x2 << 62);
    let hex = format!("{bits:032x}");
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

/// JSON merge patch (RFC 7386): objects are merged, `null` removes, everything else replaces.
pub fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Value::Object(target) = target else { unreachable!("it was made an object just above") };
    for (key, value) in patch {
        if value.is_null() {
            target.remove(key);
        } else {
            merge(target.entry(key.clone()).or_insert(Value::Null), value);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_merge_patch_follows_the_rfc() {
        let mut object = json!({ "a": { "b": 1, "c": 2 }, "list": [1, 2] });
        merge(&mut object, &json!({ "a": { "b": null, "d": { "e": null } }, "list": [3] }));
        assert_eq!(object, json!({ "a": { "c": 2, "d": {} }, "list": [3] }));
    }

    #[test]
    fn a_uid_is_a_version_4_uuid() {
        let uid = uid();
        assert_eq!(uid.len(), 36);
        assert_eq!(&uid[14..15], "4");
        assert!("89ab".contains(&uid[19..20]), "{uid}");
    }
}
