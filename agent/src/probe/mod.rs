//! The kernel side from user space: offsets, loading, reading what it saw, telling it what to watch.
//!
//! # Layout
//! - [`layout`]: struct offsets from the running kernel's BTF, in a short-lived child
//! - [`Probe`] (`load`): loads and attaches; names what is missing
//! - `decode`: the only parser of ring-buffer bytes
//! - `maps`: the watch set, the sweep of unanswered attempts, counts
//! - `kernels`: what differs between versions of the kernel
//! - `whereabouts`: where the agent lives, asked of the kernel
//! - `cost`: what the programs cost, beside empty ones; for the benchmark

mod cost;
mod decode;
mod error;
mod kernels;
pub mod layout;
mod load;
mod maps;
mod whereabouts;

pub use cost::{Run, Runs, time_runs};
pub use decode::{DecodeError, decode};
pub use error::ProbeError;
pub use load::{HOOKS, Options, Probe};
pub use maps::{Losses, Sweep};
