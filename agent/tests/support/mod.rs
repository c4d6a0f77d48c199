//! Shared by the integration tests.

#![expect(dead_code, reason = "each test uses a part of it")]

pub mod api_server;
pub mod path;
pub mod recording;
