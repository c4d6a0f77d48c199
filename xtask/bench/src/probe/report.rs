//! Median and spread: a table for people, a file for the next time.

use std::{collections::BTreeMap, fs, path::Path};

use anyhow::{Context as _, Result};
use comfy_table::{CellAlignment, Table, presets::UTF8_HORIZONTAL_ONLY};
use serde::{Deserialize, Serialize};

use super::measure::{Class, Samples};

/// A result.
#[derive(Debug, Serialize, Deserialize)]
pub struct Report {
    /// The kernel's release.
    pub kernel: String,
    /// Packets of a batch.
    pub packets: u16,
    /// Batches thrown away for foreign packets among them.
    pub thrown_away: u32,
    /// Whether packets were read by plain loads; else by the helper.
    pub plain_loads: bool,
    /// Costs, in the order of the table.
    pub costs: Vec<Cost>,
}

/// What a class of packets costs at a hook, in nanoseconds a packet.
#[derive(Debug, Serialize, Deserialize)]
pub struct Cost {
    /// The class.
    pub class: String,
    /// The tracepoint.
    pub hook: String,
    /// Above the empty program.
    pub above: Spread,
    /// The empty program itself: mostly the kernel's measuring.
    pub empty: Spread,
    /// One and two bare kernel reads above the empty program, on the same packets.
    pub reads: Option<[Spread; 2]>,
    /// The most that it may be, if there is such a bar.
    pub bar: Option<f64>,
}

/// Of the batches' values.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Spread {
    /// Number of batches.
    pub batches: usize,
    /// Median.
    pub median: f64,
    /// First quartile.
    pub lower: f64,
    /// Third quartile.
    pub upper: f64,
    /// Least.
    pub min: f64,
    /// Most.
    pub max: f64,
}

impl Spread {
    fn new(values: &[f64]) -> Self {
        let mut sorted = values.to_vec();
        sorted.sort_unstable_by(f64::total_cmp);
        let at =
            |part: usize| sorted.get((sorted.len() - 1) * part / 4).copied().unwrap_or(f64::NAN);
        Self {
            batches: sorted.len(),
            median: at(2),
            lower: at(1),
            upper: at(3),
            min: at(0),
            max: at(4),
        }
    }
}

impl Report {
    /// From the samples of a run.
    pub fn new(samples: Samples, packets: u16) -> Self {
        let Samples { above, empty, reads, thrown_away, plain_loads } = samples;
        let bare = |class: &Class, n: usize| {
            let values: Vec<f64> = reads.get(class)?.iter().map(|pair| pair[n]).collect();
            Some(Spread::new(&values))
        };
        let costs = above
            .iter()
            .filter(|((class, _), _)| *class != Class::SynMore)
            .map(|((class, hook), values)| Cost {
                class: class.name().to_owned(),
                hook: (*hook).to_owned(),
                above: Spread::new(values),
                empty: Spread::new(&empty[&(*class, *hook)]),
                reads: (*hook == "net_dev_queue")
                    .then(|| Some([bare(class, 0)?, bare(class, 1)?]))
                    .flatten(),
                bar: class.bar().filter(|_| *hook == "net_dev_queue"),
            })
            .collect();
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Self { kernel: release.trim().to_owned(), packets, thrown_away, plain_loads, costs }
    }

    /// Reads an earlier one.
    ///
    /// # Errors
    /// If the file is not one.
    pub fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
        serde_json::from_str(&text)
            .with_context(|| format!("{} is no result of `bench probe --json`", path.display()))
    }

    /// Writes it for the next time.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write(&self, path: &Path) -> Result<()> {
        let text = serde_json::to_string_pretty(self).context("encode the result")?;
        fs::write(path, text + "\n").with_context(|| format!("write {}", path.display()))
    }

    /// As a table, beside an earlier one.
    pub fn table(&self, earlier: Option<&Self>) -> String {
        let mut table = Table::new();
        table.load_style(UTF8_HORIZONTAL_ONLY);
        let mut head = vec!["packet", "program", "ns above empty", "quartiles", "range"];
        head.extend(["one, two bare reads", "bar"]);
        if earlier.is_some() {
            head.extend(["earlier", "change"]);
        }
        table.set_header(head);
        let known: BTreeMap<(&str, &str), &Cost> = earlier
            .iter()
            .flat_map(|earlier| &earlier.costs)
            .map(|cost| ((cost.class.as_str(), cost.hook.as_str()), cost))
            .collect();
        for cost in &self.costs {
            let Spread { median, lower, upper, min, max, .. } = cost.above;
            let mut row = vec![
                cost.class.clone(),
                cost.hook.clone(),
                format!("{median:.0}"),
                format!("{lower:.0} … {upper:.0}"),
                format!("{min:.0} … {max:.0}"),
                cost.reads.map_or_else(String::new, |[one, two]| {
                    format!("{:.0}, {:.0}", one.median, two.median)
                }),
                cost.bar.map_or_else(String::new, |bar| format!("{bar:.0}")),
            ];
            if earlier.is_some() {
                let before = known.get(&(cost.class.as_str(), cost.hook.as_str()));
                row.extend(before.map_or([String::new(), String::new()], |before| {
                    [
                        format!("{:.0}", before.above.median),
                        format!("{:+.0}", median - before.above.median),
                    ]
                }));
            }
            table.add_row(row);
        }
        for column in table.column_iter_mut().skip(2) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        let least = self.costs.iter().map(|cost| cost.above.batches).min().unwrap_or(0);
        format!(
            "{table}\nKernel {}, packets read by {}; {least} batches of {} packets or more in each class; {} thrown away for foreign packets.",
            self.kernel,
            if self.plain_loads { "plain loads" } else { "the helper" },
            self.packets,
            self.thrown_away
        )
    }

    /// One line for each bar that is missed or not measured.
    pub fn missed(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for class in Class::ALL {
            let Some(bar) = class.bar() else { continue };
            match self.costs.iter().find(|cost| cost.class == class.name() && cost.bar.is_some()) {
                None => {
                    lines.push(format!("not measured: {}: too many foreign packets", class.name()));
                }
                Some(cost) if cost.above.median > bar => lines.push(format!(
                    "missed: {}: {:.1} ns above the empty program, the bar is {bar:.0}",
                    class.name(),
                    cost.above.median
                )),
                Some(_) => {}
            }
        }
        lines
    }
}
