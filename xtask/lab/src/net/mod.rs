//! Network namespaces, the fabric between nodes, and the small tools that work on them.

mod command;
mod fabric;
mod http;
mod namespace;

pub use command::run_tool;
pub use fabric::{API_ADDRESS, CLUSTER_CIDR, NodeAddresses, build_fabric};
pub use http::{HttpAnswer, http_get};
pub use namespace::Namespace;
