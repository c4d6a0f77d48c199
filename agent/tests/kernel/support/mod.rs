//! A cluster's wires in namespaces: nodes, pods, Services, clients, and probes that watch a node.
//!
//! # Layout
//! - `namespace`: network namespaces held by descriptors, and running things in them
//! - `address`: who has which address
//! - `node`: a node, its pods on links of their own or on a bridge, and the way outside
//! - `service`: a Service in kube-proxy's own rules
//! - `client`: a client that tells its port and its error
//! - `wire`: SYNs made by hand, ISNs read from the wire
//! - `watcher`: the probes, and waiting for a sighting

mod address;
mod client;
mod namespace;
mod node;
mod service;
mod watcher;
mod wire;

pub use address::{Ip, at};
pub use client::{Dial, TIMED_OUT};
pub use namespace::Namespace;
pub use node::{Node, add_pod, bare_node};
pub use service::Service;
pub use watcher::{Watcher, is_refusal, now, of, patience};
pub use wire::Syn;
