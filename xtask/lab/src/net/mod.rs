//! Network namespaces, the fabric between nodes, and the small tools that work on them.

mod address_plan;
mod command;
mod fabric;
mod http;
mod namespace;

pub use address_plan::{AddressPlan, LabNumber, NodeAddresses};
pub use command::run_tool;
pub use fabric::build_fabric;
pub use http::{HttpAnswer, http_get};
pub use namespace::Namespace;
