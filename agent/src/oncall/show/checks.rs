//! The doctor's checks, a line each, and the remedy below what is not fine.

use super::Style;
use crate::oncall::doctor::{Check, Health};

/// All of them.
pub fn checks(checks: &[Check], style: Style) -> String {
    let width = checks.iter().map(|check| check.what.chars().count()).max().unwrap_or(0);
    let lines = checks.iter().map(|check| {
        let mark = format!("{:<7}", check.health);
        let mark = match check.health {
            Health::Ok => style.good(&mark),
            Health::Warning | Health::Unknown => style.warn(&mark),
            Health::Broken => style.bad(&mark),
        };
        let line = format!("{mark}  {:<width$}  {}\n", check.what, check.found);
        if check.remedy.is_empty() {
            line
        } else {
            format!("{line}         {:<width$}  → {}\n", "", check.remedy)
        }
    });
    lines.collect()
}
