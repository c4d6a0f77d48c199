//! The page in headless Chromium, served by the agent's own code from a recorded lab rollout.
//!
//! They are left out of a plain `cargo test`: `cargo xtask test --only page` runs them. Pictures to look
//! at are written to `target/page/`.
//!
//! # Layout
//! - `served`: recordings behind the API
//! - `opened`: a browser in which a view is there to be looked at
//! - `list`, `rollout`: what the two views say, against what the engine says
//! - `looks`: themes, narrow screens
//! - `keyboard`: everything without a pointer
//! - `silence`: what is shown when an agent does not answer
//! - `live`: a rollout while it runs
//! - `many`: several agents as one page

mod keyboard;
mod list;
mod live;
mod looks;
mod many;
mod opened;
mod rollout;
mod served;
mod silence;
