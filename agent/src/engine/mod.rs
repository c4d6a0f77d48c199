//! The engine: folds inputs into state and says what follows. Pure; time comes as data.

mod input;

pub use input::{AttemptCounts, ClusterChange, FreshSyns, Input, Request, What};
