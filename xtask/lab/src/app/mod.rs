//! The processes that run in pods: a server and the client that makes the load.

pub mod client;
mod connection;
pub mod failure;
pub mod server;
