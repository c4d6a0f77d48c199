//! What differs between versions of the kernel, from 6.1 on: one table.
//!
//! Fields that moved are told apart by BTF, never by a version: distributions port things back. The
//! version is what it was first released in.

use super::{ProbeError, layout};
use btf_rs::Btf;

/// A field that has another place, or another name, in older kernels.
pub(super) struct Moved {
    /// Global that takes its offset.
    pub global: &'static str,
    /// Where it is: struct and member.
    pub now: (&'static str, &'static str),
    /// Where it was.
    pub before: (&'static str, &'static str),
}

/// Fields that moved.
pub(super) const MOVED: [Moved; 2] = [
    // Since 6.10 a fragment is a struct of its own; before, `skb_frag_t` was a `bio_vec`.
    Moved { global: "FRAG_PAGE", now: ("skb_frag", "netmem"), before: ("bio_vec", "bv_page") },
    Moved { global: "FRAG_BEGIN", now: ("skb_frag", "offset"), before: ("bio_vec", "bv_offset") },
];

/// A drop reason that the programs know by its number, and the number where the kernel has none.
pub(super) struct Reason {
    /// Global that takes its number.
    pub global: &'static str,
    /// Its name, without the prefix.
    pub name: &'static str,
    /// What stands for it in kernels without; `None`: every kernel has it.
    pub before: Option<u32>,
}

/// Drop reasons that the programs know.
pub(super) const REASONS: [Reason; 2] = [
    // 5.17.
    Reason { global: "REASON_NO_SOCKET", name: "NO_SOCKET", before: None },
    // 6.4 made it a reason; before, the only number below all reasons was `SKB_NOT_DROPPED_YET`.
    Reason { global: "REASON_CONSUMED", name: "CONSUMED", before: Some(0) },
];

/// The offset of a field that moved.
pub(super) fn offset_of(btf: &Btf, moved: &Moved) -> Result<u32, ProbeError> {
    let at = |(container, member)| layout::offset_of(btf, container, member);
    at(moved.now).or_else(|_| at(moved.before))
}
