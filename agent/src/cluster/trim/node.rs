//! Node → [`NodeFacts`].

use k8s_openapi::api::core::v1 as api;
use serde_json::Value;

use super::text;
use crate::{cluster::object::Facts, model::NodeFacts};

impl Facts for NodeFacts {
    const KIND: &'static str = "Node";

    fn trim(raw: Value, _: &mut Vec<String>) -> Result<Self, serde_json::Error> {
        let node: api::Node = serde_json::from_value(raw)?;
        let conditions = node.status.and_then(|status| status.conditions).unwrap_or_default();
        let ready = conditions.into_iter().find(|condition| condition.type_ == "Ready");
        Ok(Self {
            name: text(node.metadata.name),
            since: ready.as_ref().and_then(|ready| Some(ready.last_transition_time.as_ref()?.0)),
            ready: ready.map(|ready| ready.status).unwrap_or_default().into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cluster::object::Object;

    #[test]
    fn a_node_tells_whether_it_is_ready() {
        let node = Object::<NodeFacts>::from_value(json!({
            "metadata": {"name": "n2"},
            "status": {"conditions": [
                {"type": "MemoryPressure", "status": "False"},
                {"type": "Ready", "status": "Unknown", "lastTransitionTime": "2026-01-02T03:04:05Z"},
            ]},
        }));
        let facts = node.facts.unwrap();
        assert!(facts.is_not_ready());
        assert_eq!(facts.since.unwrap().to_string(), "2026-01-02T03:04:05Z");
        let bare = Object::<NodeFacts>::from_value(json!({"metadata": {"name": "n3"}}));
        assert!(!bare.facts.unwrap().is_not_ready());
    }
}
