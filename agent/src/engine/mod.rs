//! The engine: folds inputs into state and says what follows. Pure; time comes as data.
//!
//! `step` is the only way in. Whatever is fed to it can be recorded, and fed again later gives the
//! same outputs to the byte.

mod converge;
mod input;
mod report;
mod state;
mod step;

pub use input::{AttemptCounts, ClusterChange, FreshSyns, Input, Request, What};
pub use report::{
    ConvergenceReport, FailureReport, RevisionReport, RolloutReport, TransportAddress, WorkloadName,
    seconds,
};
pub use state::{Config, FailureLabels, Outputs, State, Watch};
pub use step::step;
