//! Stale conntrack entries: unanswered ones that lead to an endpoint which is no more, although the
//! Service's rules have long led elsewhere. A new connection that reuses such an entry's port follows
//! it to nowhere, until the entry expires.
//!
//! # Layout
//! - `table`: the entries, folded from scans; which of them are kept alive by their clients
//! - `dead`: whether an entry's backend is no more, and whose it was
//! - `evict`: whether an entry may be deleted

mod dead;
mod evict;
mod table;

pub use dead::dead;
pub use evict::{Protected, World, may_evict};
pub use table::{MAX_ENTRIES, Table, Tracked};
