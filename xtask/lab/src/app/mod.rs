//! The processes that run in pods: a server and the client that makes the load.

pub mod client;
pub mod connection;
pub mod failure;
pub mod http;
pub mod listen;
pub mod server;
