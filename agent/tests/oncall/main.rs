//! The on-call commands as a user runs them: the binary, against a made-up cluster of agents.

mod cluster;
mod commands;
mod golden;
mod rules;
mod scale;
