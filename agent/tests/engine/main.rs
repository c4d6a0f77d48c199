//! The engine as a whole: what is told to it, and the verdicts it gives.
//!
//! # Layout
//! - `world`: a small cluster to tell of
//! - `bounds`: what happens at each bound
//! - `clock`: the civil clock is stepped
//! - `coverage`: what an agent says that was not there for all of it
//! - `departures`: why an endpoint left
//! - `ended`: answered connections that their endpoint ended
//! - `faults`: a lost node, a restart, a bad replica
//! - `history`: what one agent leaves to the next
//! - `serving`: failures on endpoints that did not leave
//! - `identity`: whose address it was, and which Service
//! - `stale`: stale conntrack entries as a figure
//! - `eviction`: which entries are deleted, and what protects the others
//! - `waiting`: evidence that comes late, and what no verdict is given on
//! - `misdelivered`: an old entry led to a pod of another workload
//! - `outage`: the API server was away, or went back in time
//! - `rollouts`: how rollouts are observed
//! - `lanes`: each pod's life in a rollout, for the page
//! - `properties`: what holds for any input
//! - `recordings`: inputs written down and read back

mod bounds;
mod clock;
mod coverage;
mod departures;
mod ended;
mod events;
mod eviction;
mod faults;
mod history;
mod identity;
mod lanes;
mod misdelivered;
mod outage;
mod properties;
mod recordings;
mod rollouts;
mod serving;
mod stale;
mod waiting;
mod world;
