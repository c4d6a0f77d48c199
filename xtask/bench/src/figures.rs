//! Figures with their bars: a table, a file, a comparison with an earlier file.

use std::{fs, path::Path, path::PathBuf, process::ExitCode};

use anyhow::{Context as _, Result};
use comfy_table::{Table, presets::UTF8_HORIZONTAL_ONLY};
use serde::{Deserialize, Serialize};

/// Where the result goes.
#[derive(Clone, Debug, clap::Args)]
pub struct Output {
    /// Write the result to a file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Compare with an earlier result
    #[arg(long, value_name = "FILE")]
    against: Option<PathBuf>,
}

/// What a figure must be.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bar {
    /// This or more.
    AtLeast(f64),
    /// This or less.
    AtMost(f64),
}

/// One figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// What was measured.
    pub name: String,
    /// How much.
    pub value: f64,
    /// Its 95 % confidence interval, where it is one of several rounds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<(f64, f64)>,
    /// In what.
    pub unit: String,
    /// What it must be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bar: Option<Bar>,
}

impl Figure {
    fn is_missed(&self) -> bool {
        match self.bar {
            Some(Bar::AtLeast(bar)) => self.value < bar,
            Some(Bar::AtMost(bar)) => self.value > bar,
            None => false,
        }
    }
}

/// A benchmark's figures, in the order in which they are shown.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures(Vec<Figure>);

impl Figures {
    /// Adds one without a bar.
    pub fn add(&mut self, name: impl Into<String>, value: f64, unit: &str) {
        let (name, unit) = (name.into(), unit.to_owned());
        self.0.push(Figure { name, value, interval: None, unit, bar: None });
    }

    /// Adds one.
    pub fn barred(&mut self, name: impl Into<String>, value: f64, unit: &str, bar: Bar) {
        self.add(name, value, unit);
        if let Some(last) = self.0.last_mut() {
            last.bar = Some(bar);
        }
    }

    /// Adds one of several rounds.
    pub fn push(&mut self, figure: Figure) {
        self.0.push(figure);
    }

    /// Prints the table, writes the file; 1 if a bar is missed.
    ///
    /// # Errors
    /// If a file cannot be read or written.
    pub fn finish(&self, output: &Output) -> Result<ExitCode> {
        let earlier = output.against.as_deref().map(Self::read).transpose()?;
        println!("{}", self.table(earlier.as_ref()));
        if let Some(path) = &output.json {
            let text = serde_json::to_string_pretty(self).context("encode the result")?;
            fs::write(path, text + "\n").with_context(|| format!("write {}", path.display()))?;
        }
        let missed: Vec<&Figure> = self.0.iter().filter(|figure| figure.is_missed()).collect();
        for figure in &missed {
            println!("missed: {} is {} {}", figure.name, shown(figure.value), figure.unit);
        }
        Ok(if missed.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(1) })
    }

    fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
        serde_json::from_str(&text)
            .with_context(|| format!("{} is no result of this benchmark", path.display()))
    }

    fn table(&self, earlier: Option<&Self>) -> Table {
        let mut table = Table::new();
        table.load_style(UTF8_HORIZONTAL_ONLY);
        let mut head = vec!["", "measured", "", "bar"];
        if earlier.is_some() {
            head.push("against");
        }
        table.set_header(head);
        for figure in &self.0 {
            let mut value = shown(figure.value);
            if let Some((from, to)) = figure.interval {
                value = format!("{value} ({} to {})", shown(from), shown(to));
            }
            let bar = match figure.bar {
                Some(Bar::AtLeast(bar)) => format!("≥ {}", shown(bar)),
                Some(Bar::AtMost(bar)) => format!("≤ {}", shown(bar)),
                None => String::new(),
            };
            let mut row = vec![figure.name.clone(), value, figure.unit.clone(), bar];
            if let Some(earlier) = earlier {
                let before = earlier.0.iter().find(|before| before.name == figure.name);
                row.push(before.map_or_else(
                    || "not measured".to_owned(),
                    |before| {
                        let change = (figure.value / before.value - 1.0) * 100.0;
                        format!("{} ({change:+.1} %)", shown(before.value))
                    },
                ));
            }
            table.add_row(row);
        }
        table
    }
}

/// Three digits that count, and no more.
fn shown(value: f64) -> String {
    match value.abs() {
        size if size >= 1_000.0 => format!("{value:.0}"),
        size if size >= 100.0 => format!("{value:.1}"),
        size if size >= 10.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_on_the_wrong_side_of_its_bar_is_missed_and_an_earlier_one_stands_beside_it() {
        let mut figures = Figures::default();
        figures.barred("events", 1_200_000.0, "1/s", Bar::AtLeast(1_000_000.0));
        figures.barred("memory", 41.0, "MiB", Bar::AtMost(40.0));
        figures.add("start", 0.5, "s");
        let missed: Vec<bool> = figures.0.iter().map(Figure::is_missed).collect();
        assert_eq!(missed, [false, true, false]);
        let mut earlier = Figures::default();
        earlier.add("start", 1.0, "s");
        let table = figures.table(Some(&earlier)).to_string();
        assert!(table.contains("-50.0 %") && table.contains("not measured"), "{table}");
    }
}
