//! The cluster side against a scripted API server: real HTTP, real watches, one story a test.

#[path = "../support/mod.rs"]
mod support;

mod agent;
mod denied;
mod events;
mod faults;
mod follow;
mod malformed;
mod many;
mod objects;
mod order;
mod resolve;
mod transport;
mod watch;
