//! Two servers: one for Prometheus and the kubelet, one for people and the CLI.
//!
//! - `--listen`: `/metrics`, `/livez`, `/readyz`
//! - `--api-listen`: the page at `/`, and `/api/v1/status`, `/api/v1/rollouts`, `/api/v1/failures`,
//!   `/api/v1/lanes`, `/api/v1/explain`
//!
//! # Layout
//! - `answer`: what is asked and answered
//! - `serve`: the routes
//! - `explain`: why connections failed in a rollout
//! - `many`: the same addresses for many agents
//! - `page`: the page's files, in the binary
//! - `playback`: a recording in the engine's place

mod answer;
mod explain;
mod many;
mod page;
mod playback;
mod serve;
mod wanted;

pub use answer::{
    Answer, Encode, FailuresAnswer, HistoryStatus, LanesAnswer, PlaybackReport, Query,
    RolloutsAnswer, ScanStatus, StatusAnswer,
};
#[cfg(feature = "probe")]
pub(crate) use answer::{failures, lanes, rollouts};
pub use many::{Many, many};
pub(crate) use page::page;
pub use playback::Playback;
pub use serve::{api, operations, serve};
pub use wanted::Wanted;
