//! The cluster side against a scripted API server: real HTTP, real watches, one story a test.

#[path = "../support/mod.rs"]
mod support;

mod agent;
mod follow;
mod objects;
mod resolve;
mod watch;
