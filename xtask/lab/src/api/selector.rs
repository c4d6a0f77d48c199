//! Label and field selectors.

use serde_json::Value;

use super::failure::Failure;
use super::object;
use super::resource::Resource;

/// One requirement on a label.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Label {
    In(String, Vec<String>),
    NotIn(String, Vec<String>),
    Exists(String),
    Absent(String),
}

impl Label {
    fn matches(&self, object: &Value) -> bool {
        let label = |key: &str| object["metadata"]["labels"].get(key).and_then(Value::as_str);
        match self {
            Self::In(key, values) => label(key).is_some_and(|v| values.iter().any(|w| w == v)),
            // An object without the label matches, as in Kubernetes.
            Self::NotIn(key, values) => label(key).is_none_or(|v| values.iter().all(|w| w != v)),
            Self::Exists(key) => label(key).is_some(),
            Self::Absent(key) => label(key).is_none(),
        }
    }
}

/// One requirement on a field.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Field {
    pointer: String,
    value: String,
    equal: bool,
}

impl Field {
    fn matches(&self, object: &Value) -> bool {
        let found = match object.pointer(&self.pointer) {
            None | Some(Value::Null) => String::new(),
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
        };
        // Kubernetes renders an unset boolean field as "false".
        let found = if found.is_empty() && matches!(self.value.as_str(), "true" | "false") {
            "false".to_owned()
        } else {
            found
        };
        (found == self.value) == self.equal
    }
}

/// Which objects a list or watch is about.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selector {
    labels: Vec<Label>,
    fields: Vec<Field>,
}

impl Selector {
    /// Reads the `labelSelector` and `fieldSelector` parameters; a field that the resource cannot
    /// select is refused.
    pub fn parse(
        resource: &Resource,
        labels: Option<&str>,
        fields: Option<&str>,
    ) -> Result<Self, Failure> {
        Ok(Self {
            labels: parse_labels(labels.unwrap_or(""))?,
            fields: parse_fields(resource, fields.unwrap_or(""))?,
        })
    }

    /// Whether the object is selected.
    pub fn matches(&self, object: &Value) -> bool {
        self.labels.iter().all(|l| l.matches(object))
            && self.fields.iter().all(|f| f.matches(object))
    }
}

/// Splits at commas that are not inside parentheses.
fn requirements(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_i32;
    text.split(move |c| {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        c == ',' && depth == 0
    })
    .map(str::trim)
    .filter(|part| !part.is_empty())
}

fn parse_labels(text: &str) -> Result<Vec<Label>, Failure> {
    requirements(text).map(parse_label).collect()
}

fn parse_label(part: &str) -> Result<Label, Failure> {
    let owned = |key: &str, value: &str| (key.trim().to_owned(), vec![value.trim().to_owned()]);
    if let Some((key, value)) = part.split_once("!=") {
        let (key, values) = owned(key, value);
        return Ok(Label::NotIn(key, values));
    }
    if let Some((key, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
        let (key, values) = owned(key, value);
        return Ok(Label::In(key, values));
    }
    if let Some((head, set)) = part.split_once('(') {
        let Some(set) = set.strip_suffix(')') else {
            return Err(Failure::bad_request(format!(
                "unable to parse requirement: \"{part}\" has no closing ')'"
            )));
        };
        let values = set.split(',').map(|v| v.trim().to_owned()).collect();
        return match head.split_whitespace().collect::<Vec<_>>()[..] {
            [key, "in"] => Ok(Label::In(key.to_owned(), values)),
            [key, "notin"] => Ok(Label::NotIn(key.to_owned(), values)),
            _ => Err(Failure::bad_request(format!(
                "unable to parse requirement: \"{part}\" is neither in nor notin"
            ))),
        };
    }
    Ok(match part.strip_prefix('!') {
        Some(key) => Label::Absent(key.trim().to_owned()),
        None => Label::Exists(part.to_owned()),
    })
}

fn parse_fields(resource: &Resource, text: &str) -> Result<Vec<Field>, Failure> {
    requirements(text)
        .map(|part| {
            let (path, value, equal) = if let Some((path, value)) = part.split_once("!=") {
                (path, value, false)
            } else if let Some((path, value)) =
                part.split_once("==").or_else(|| part.split_once('='))
            {
                (path, value, true)
            } else {
                return Err(Failure::bad_request(format!("invalid field selector \"{part}\"")));
            };
            let path = path.trim();
            if !["metadata.name", "metadata.namespace"].contains(&path)
                && !resource.fields.contains(&path)
            {
                return Err(Failure::bad_request(format!("field label not supported: {path}")));
            }
            Ok(Field { pointer: object::pointer(path), value: value.trim().to_owned(), equal })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::resource;

    fn selects(labels: &str, fields: &str) -> bool {
        let pods = resource::find("", "v1", "pods").expect("pods are served");
        let pod = json!({
            "metadata": { "name": "a", "labels": { "app": "api", "tier": "web" } },
            "spec": { "nodeName": "n1" },
        });
        Selector::parse(pods, Some(labels), Some(fields)).expect("a valid selector").matches(&pod)
    }

    #[test]
    fn a_label_selector_understands_every_operator() {
        for yes in [
            "app=api",
            "app==api",
            "app!=x",
            "none!=x",
            "app in (x, api),tier",
            "app notin (x)",
            "!none",
            "",
        ] {
            assert!(selects(yes, ""), "{yes}");
        }
        for no in [
            "app=x",
            "app!=api",
            "app in (x,y)",
            "app notin (api)",
            "!app",
            "none",
            "app=api,tier=x",
        ] {
            assert!(!selects(no, ""), "{no}");
        }
    }

    #[test]
    fn a_field_selector_compares_and_takes_an_absent_field_for_empty() {
        assert!(selects("", "spec.nodeName=n1,metadata.name==a"));
        assert!(selects("", "spec.nodeName!=,status.phase="));
        assert!(!selects("", "spec.nodeName="));
        assert!(selects("", "spec.hostNetwork=false"));
    }

    #[test]
    fn a_field_that_cannot_be_selected_is_refused() {
        let pods = resource::find("", "v1", "pods").expect("pods are served");
        assert_eq!(
            Selector::parse(pods, None, Some("spec.color=red")).expect_err("unsupported").code,
            400
        );
    }
}
