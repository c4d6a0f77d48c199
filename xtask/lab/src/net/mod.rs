//! Network namespaces, the fabric between nodes, and the small tools that work on them.

mod address_plan;
mod command;
mod fabric;
mod family;
mod http;
mod namespace;

pub use address_plan::{AddressPlan, LabNumber, NodeAddresses};
pub use command::run_tool;
pub use fabric::build_fabric;
pub use family::{Family, IpFamily};
pub use http::{HttpAnswer, http_get};
pub use namespace::{ADDRESSES_AT_ONCE, Namespace, add_address, on_link};
