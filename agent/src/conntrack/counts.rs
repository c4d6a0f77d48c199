//! How full the table is, and what the kernel dropped for it: of the reader's own namespace.

use std::{fs, io};

/// The table's counts. Entries and limit are sysctls; the rest is summed over all CPUs
/// (`/proc/net/stat/nf_conntrack`), since the namespace began or, by [`TableCounts::since`], since an
/// earlier look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableCounts {
    /// `net.netfilter.nf_conntrack_count`.
    pub entries: Option<u64>,
    /// `net.netfilter.nf_conntrack_max`.
    pub limit: Option<u64>,
    /// Packets dropped because the table was full, or for want of memory; a lower bound. The kernel's
    /// `drop` has those whose entry could not be inserted as well (`nf_ct_resolve_clash`), which are
    /// taken off.
    pub dropped: Option<u64>,
    /// Entries dropped early to make room in a full table.
    pub dropped_early: Option<u64>,
    /// Entries that could not be inserted: another had taken the tuple (port exhaustion shows here).
    pub insert_failed: Option<u64>,
}

impl TableCounts {
    /// Reads them; what the kernel does not tell is `None`.
    pub fn read() -> Self {
        let number = |name: &str| {
            let text = fs::read_to_string(format!("/proc/sys/net/netfilter/{name}"))?;
            text.trim().parse::<u64>().map_err(io::Error::other)
        };
        let statistics = fs::read_to_string("/proc/thread-self/net/stat/nf_conntrack");
        let statistics = statistics.unwrap_or_default();
        let column = |name: &str| sum(&statistics, name);
        Self {
            entries: number("nf_conntrack_count").ok(),
            limit: number("nf_conntrack_max").ok(),
            dropped: for_want_of_room(column("drop"), column("insert_failed")),
            dropped_early: column("early_drop"),
            insert_failed: column("insert_failed"),
        }
    }

    /// What was counted since `earlier`; entries and limit are as they are now.
    #[must_use]
    pub fn since(self, earlier: &Self) -> Self {
        let grown = |now: Option<u64>, then: Option<u64>| {
            now.map(|now| now.saturating_sub(then.unwrap_or(0)))
        };
        Self {
            dropped: grown(self.dropped, earlier.dropped),
            dropped_early: grown(self.dropped_early, earlier.dropped_early),
            insert_failed: grown(self.insert_failed, earlier.insert_failed),
            ..self
        }
    }
}

fn for_want_of_room(dropped: Option<u64>, insert_failed: Option<u64>) -> Option<u64> {
    dropped.map(|dropped| dropped.saturating_sub(insert_failed.unwrap_or(0)))
}

/// The sum of a column: names in the first line, a line of hexadecimal numbers a CPU.
fn sum(text: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines();
    let index = lines.next()?.split_whitespace().position(|column| column == name)?;
    let values = lines.map(|line| {
        line.split_whitespace().nth(index).and_then(|value| u64::from_str_radix(value, 16).ok())
    });
    values.sum()
}

#[cfg(test)]
mod tests {
    use super::{TableCounts, for_want_of_room, sum};

    #[test]
    fn a_packet_without_a_source_port_was_not_dropped_for_want_of_room() {
        assert_eq!(for_want_of_room(Some(7), Some(4)), Some(3));
        // An insertion over netlink that fails is no packet.
        assert_eq!(for_want_of_room(Some(2), Some(4)), Some(0));
        assert_eq!(for_want_of_room(None, Some(4)), None);
    }

    #[test]
    fn what_was_dropped_before_an_earlier_look_is_left_out() {
        let then = TableCounts { entries: Some(9), dropped: Some(5), ..TableCounts::default() };
        let now = TableCounts {
            entries: Some(3),
            dropped: Some(7),
            insert_failed: Some(1),
            ..TableCounts::default()
        };
        let since = now.since(&then);
        assert_eq!((since.entries, since.dropped), (Some(3), Some(2)));
        assert_eq!((since.insert_failed, since.dropped_early), (Some(1), None));
    }

    #[test]
    fn a_column_is_summed_over_the_cpus() {
        let text = "entries  found insert_failed drop early_drop\n\
                    00000010  00000000 0000000a 00000001 00000000\n\
                    00000010  00000000 00000001 00000002 00000000\n";
        assert_eq!(sum(text, "insert_failed"), Some(11));
        assert_eq!(sum(text, "drop"), Some(3));
        assert_eq!(sum(text, "search_restart"), None);
        assert_eq!(sum("", "drop"), None);
    }
}
