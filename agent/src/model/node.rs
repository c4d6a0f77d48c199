//! A node, as far as it explains its pods' failures.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::Wall;

/// One node of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeFacts {
    /// Name.
    pub name: Arc<str>,
    /// Status of its condition `Ready`: `True`, `False` or `Unknown`; empty where it has none.
    pub ready: Arc<str>,
    /// When that last changed, 1 s resolution.
    pub since: Option<Wall>,
}

impl NodeFacts {
    /// Whether it is said not to be ready; a node without the condition says nothing.
    pub fn is_not_ready(&self) -> bool {
        matches!(&*self.ready, "False" | "Unknown")
    }
}
