//! How full the table is, and what the kernel dropped for it: of the reader's own namespace.

use std::{fs, io};

/// The table's counts. Entries and limit are sysctls; the rest is summed over all CPUs since the
/// namespace began (`/proc/net/stat/nf_conntrack`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableCounts {
    /// `net.netfilter.nf_conntrack_count`.
    pub entries: Option<u64>,
    /// `net.netfilter.nf_conntrack_max`.
    pub limit: Option<u64>,
    /// Packets dropped because the table was full, or for want of memory.
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
            dropped: column("drop"),
            dropped_early: column("early_drop"),
            insert_failed: column("insert_failed"),
        }
    }
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
    use super::sum;

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
