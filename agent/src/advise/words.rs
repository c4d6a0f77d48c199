//! Numbers for people.

/// `1 pod`, `3 pods`, `12,345 pods`.
pub fn count_of(count: u64, thing: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{} {thing}{plural}", grouped(count))
}

/// Thousands apart: `12,345`.
pub(super) fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Seconds for reading: `12 ms`, `1.94 s`, `34.1 s`, `3 min 20 s`.
#[expect(clippy::cast_possible_truncation, reason = "minutes of a duration that a rollout takes")]
pub fn duration(seconds: f64) -> String {
    if seconds < 0.9995 {
        format!("{:.0} ms", seconds * 1e3)
    } else if seconds < 9.995 {
        format!("{seconds:.2} s")
    } else if seconds < 119.95 {
        format!("{seconds:.1} s")
    } else {
        let whole = seconds.round() as i64;
        format!("{} min {} s", whole / 60, whole % 60)
    }
}

/// Whole seconds of a pod template, to compare them with measured ones.
#[expect(clippy::cast_precision_loss, reason = "seconds in a pod template")]
pub(super) fn float(seconds: i64) -> f64 {
    seconds as f64
}

/// Names one after the other, and how many more there are.
pub(super) fn list<'a>(names: impl IntoIterator<Item = &'a str>, at_most: usize) -> String {
    let names: Vec<&str> = names.into_iter().collect();
    let mut text = names.iter().take(at_most).copied().collect::<Vec<_>>().join(", ");
    if names.len() > at_most {
        text = format!("{text} and {} more", names.len() - at_most);
    }
    text
}

/// `106 of 7,102 (1.5 %)`.
pub fn share_of(part: u64, whole: u64) -> String {
    let share = percent(part, whole).filter(|_| part > 0);
    let share = share.map_or_else(String::new, |share| format!(" ({share})"));
    format!("{} of {}{share}", grouped(part), grouped(whole))
}

/// A share for reading: `1.5 %`, `0.02 %`, `less than 0.01 %`.
#[expect(clippy::cast_precision_loss, reason = "a share for people")]
fn percent(part: u64, whole: u64) -> Option<String> {
    if whole == 0 {
        return None;
    }
    let share = part as f64 * 100.0 / whole as f64;
    Some(match share {
        0.0 => "0 %".to_owned(),
        share if share < 0.01 => "less than 0.01 %".to_owned(),
        share if share < 1.0 => format!("{share:.2} %"),
        share => format!("{share:.1} %"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!(count_of(1, "pod"), "1 pod");
        assert_eq!(count_of(1_234_567, "SYN"), "1,234,567 SYNs");
        assert_eq!(duration(0.0123), "12 ms");
        assert_eq!(duration(1.937), "1.94 s");
        assert_eq!(duration(200.4), "3 min 20 s");
        assert_eq!(percent(1, 100_000).as_deref(), Some("less than 0.01 %"));
        assert_eq!(percent(106, 7_102).as_deref(), Some("1.5 %"));
        assert_eq!(percent(1, 0), None);
        assert_eq!(list(["a", "b", "c"], 2), "a, b and 1 more");
    }
}
