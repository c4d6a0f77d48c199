//! Two servers: one for Prometheus and the kubelet, one for people and the CLI.
//!
//! - `--listen`: `/metrics`, `/livez`, `/readyz`
//! - `--api-listen`: `/api/v1/status`, `/api/v1/rollouts`, `/api/v1/failures`

mod answer;
mod serve;

pub use answer::{Answer, FailuresAnswer, Query, RolloutsAnswer, ScanStatus, StatusAnswer};
pub use serve::{api, operations, serve};
