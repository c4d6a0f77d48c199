//! One rollout as text: what happened, why, what to change, what does not help, what nobody knows.

use jiff::Timestamp;

use super::{Style, Times, report::images, times::between};
use crate::{
    advise::{
        Advice, Case, Finding, Rule, Weight, count_of, duration, facts::Pod, patch::Patch, share_of,
    },
    oncall::workload::path,
};

/// Lines are broken here, on a terminal.
pub const WIDTH: usize = 100;
/// More pods than this are told by the first and the last ones.
const PODS: usize = 8;

/// The whole text, for a terminal.
pub fn explain(
    case: &Case,
    advice: &Advice,
    patch_yaml: Option<&str>,
    notes: &[String],
    times: &Times,
    style: Style,
) -> String {
    written(
        case,
        advice,
        patch_yaml,
        notes,
        times,
        Page { text: String::new(), style, width: WIDTH },
    )
}

/// The same without colours, and with lines that whoever shows them breaks.
pub fn explain_plainly(
    case: &Case,
    advice: &Advice,
    patch_yaml: Option<&str>,
    notes: &[String],
    times: &Times,
) -> String {
    let page = Page { text: String::new(), style: Style::PLAIN, width: usize::MAX };
    written(case, advice, patch_yaml, notes, times, page)
}

fn written(
    case: &Case,
    advice: &Advice,
    patch_yaml: Option<&str>,
    notes: &[String],
    times: &Times,
    mut page: Page,
) -> String {
    heading(&mut page, case, times);
    timeline(&mut page, case, times);
    page.section("WHY");
    for finding in &advice.findings {
        page.finding(finding);
    }
    change(&mut page, case, advice, patch_yaml);
    if !advice.does_not_help.is_empty() {
        page.section("WHAT DOES NOT HELP");
        for help in &advice.does_not_help {
            page.item("-", &format!("{}: {}", help.what, help.why));
        }
    }
    if !advice.unknown.is_empty() || !notes.is_empty() {
        page.section("NOT KNOWN");
        for unknown in advice.unknown.iter().chain(notes) {
            page.item("?", unknown);
        }
    }
    page.text
}

fn heading(page: &mut Page, case: &Case, times: &Times) {
    let style = page.style;
    let from = case.from.as_ref().map_or("?", |from| from.name());
    let mut title = format!(
        "{} {}",
        style.bold(&format!("{}/{}", case.namespace, path(&case.kind, &case.name))),
        style.bold(&format!("revision {from} → {}", case.to.name())),
    );
    let images = images(case);
    if !images.is_empty() {
        title = format!("{title}  ({images})");
    }
    page.line(&title);
    let complete = match case.completed {
        Some(at) => format!(", complete after {}", between(case.started, at)),
        None if case.superseded => ", superseded before it was complete".to_owned(),
        None => ", under way".to_owned(),
    };
    let mut when = format!("began {}{complete}", times.full(case.started));
    if let Some(gone) = case.last_old_pod_gone {
        when = format!("{when}, last old pod gone after {}", between(case.started, gone));
    }
    page.line(&when);
    let failed = case.failed();
    let bound = if case.is_lower_bound() { "at least " } else { "" };
    let share = format!("{bound}{} new connections failed", share_of(failed, case.attempts()));
    if failed == 0 {
        page.line(&style.good(&share));
    } else {
        let classes: Vec<String> =
            case.failures().iter().map(|(class, count)| format!("{count} {class}")).collect();
        let mut line = format!("{}: {}", style.bad(&share), classes.join(", "));
        if case.after() > 0 {
            line = format!("{line}; {} of them began after it was complete", case.after());
        }
        page.line(&line);
        let nodes: Vec<String> = case
            .figures()
            .filter(|(_, figures)| figures.failed() > 0)
            .map(|(node, figures)| format!("{node} ({})", figures.failed()))
            .collect();
        let clients: Vec<String> = case
            .clients()
            .iter()
            .take(5)
            .map(|(name, count)| format!("{name} ({count})"))
            .collect();
        let clients = if clients.is_empty() {
            String::new()
        } else {
            format!("; clients: {}", clients.join(", "))
        };
        page.line(&format!("seen on {}{clients}", nodes.join(", ")));
    }
}

fn timeline(page: &mut Page, case: &Case, times: &Times) {
    page.section("WHAT HAPPENED");
    let mut events: Vec<(Timestamp, String)> =
        vec![(case.started, "the rollout begins".to_owned())];
    let pods = case.pods();
    let dated: Vec<&Pod> = pods.iter().filter(|pod| pod.deleted.is_some()).collect();
    for (at, pod) in dated.iter().enumerate() {
        let Some(deleted) = pod.deleted else { continue };
        if dated.len() > PODS && (PODS - 1..dated.len() - 1).contains(&at) {
            if at == PODS - 1 {
                events.push((deleted, format!("… {} further pods", dated.len() - PODS)));
            }
            continue;
        }
        events.push((deleted, pod_words(pod, case)));
    }
    if let Some(at) = case.completed {
        events.push((at, "complete: kubectl rollout status returns".to_owned()));
    }
    if let Some(at) = case.last_old_pod_gone {
        events.push((at, "the last old pod is gone".to_owned()));
    }
    if let Some((first, last)) = case.failed_between() {
        events.push((first, "the first connection that fails".to_owned()));
        if last > first {
            events.push((last, "the last one".to_owned()));
        }
    }
    if let Some(at) = case.stale().filter(|stale| stale.entries > 0).and_then(|stale| stale.expires)
    {
        events.push((at, "the last stale conntrack entry expires".to_owned()));
    }
    events.sort_by_key(|(at, _)| *at);
    for (at, what) in events {
        let after = at.duration_since(case.started).as_secs_f64();
        let time = format!("{}  {after:>+7.1} s  ", times.clock(at));
        page.wrapped(&page.style.dim(&time), time.chars().count(), &what);
    }
}

fn pod_words(pod: &Pod, case: &Case) -> String {
    let mut words = format!("{} is deleted", pod.name);
    let hook = case.old_template().and_then(|template| template.serving(case.port()));
    if let Some(seconds) = hook.and_then(|container| container.pre_stop.as_ref()?.seconds) {
        words = format!("{words} (preStop {seconds} s)");
    }
    let mut parts = Vec::new();
    if let Some(gap) = pod.listener_gap {
        parts.push(format!("listener closed after {}", duration(gap)));
    }
    if let Some((seconds, node)) = &pod.told {
        parts.push(format!("last node told after {} ({node})", duration(*seconds)));
    }
    match &pod.converged {
        Some((seconds, node)) => {
            parts.push(format!("last new connection after {} ({node})", duration(*seconds)));
        }
        None => parts.push("no new connection after that".to_owned()),
    }
    if let Some(gone) = pod.gone {
        parts.push(format!("gone after {}", duration(gone)));
    }
    let codes: Vec<String> = pod.exit_codes.values().map(i32::to_string).collect();
    if !codes.is_empty() {
        parts.push(format!("exit {}", codes.join(", ")));
    }
    format!("{words}: {}", parts.join(", "))
}

fn change(page: &mut Page, case: &Case, advice: &Advice, patch_yaml: Option<&str>) {
    let changes: Vec<&Finding> =
        advice.findings.iter().filter(|finding| finding.change.is_some()).collect();
    let figure = prestop_words(advice);
    if changes.is_empty() && patch_yaml.is_none() && figure.is_none() {
        return;
    }
    page.section("WHAT TO CHANGE");
    for finding in changes {
        if let Some(what) = &finding.change {
            let what = if finding.rule == Rule::KeepaliveCut {
                format!("in the application: {what}")
            } else {
                what.clone()
            };
            page.item("•", &what);
        }
    }
    if let Some(figure) = figure {
        page.item("•", &figure);
    }
    if let (Some(patch), Some(yaml)) = (&advice.patch, patch_yaml) {
        patch_words(page, case, patch, yaml);
    } else if let Some(template) = case.new_template()
        && let Some(hook) = template.serving(case.port()).and_then(|one| one.pre_stop.as_ref())
        && advice
            .findings
            .iter()
            .any(|one| one.rule == Rule::NoPreStop && one.weight == Weight::Fault)
    {
        let slept = hook.seconds.map_or_else(String::new, |seconds| format!(" of {seconds} s"));
        page.item(
            "✓",
            &format!(
                "revision {} has a preStop{slept} already: the next rollout profits",
                case.to.name()
            ),
        );
    }
}

/// What preStop must be, and on what that rests.
fn prestop_words(advice: &Advice) -> Option<String> {
    let prestop = &advice.prestop;
    let is_about = |finding: &Finding| {
        matches!(
            finding.rule,
            Rule::NoPreStop | Rule::ShortPreStop | Rule::StaleTail | Rule::KeepaliveCut
        )
    };
    if !advice.findings.iter().any(is_about) {
        return None;
    }
    let (measured, seconds) = (prestop.measured_seconds?, prestop.seconds?);
    let node = prestop.node.as_deref().unwrap_or("?");
    Some(format!(
        "preStop: {seconds} s = {} measured (on {node}; at least {} to {} on {}) + {} margin, rounded up",
        duration(measured),
        count_of(prestop.samples, "new connection"),
        count_of(u64::try_from(prestop.measured_pods).unwrap_or(u64::MAX), "leaving pod"),
        count_of(u64::try_from(prestop.measured_nodes).unwrap_or(u64::MAX), "node"),
        duration(prestop.margin_seconds),
    ))
}

fn patch_words(page: &mut Page, case: &Case, patch: &Patch, yaml: &str) {
    page.text.push('\n');
    for line in yaml.lines() {
        page.line(&format!("    {}", page.style.bold(line)));
    }
    page.text.push('\n');
    if let Some(command) = &patch.command {
        page.line(&format!(
            "    kubectl rollrace explain {} -n {} -o patch |",
            path(&case.kind, &case.name),
            case.namespace
        ));
        page.line(&format!("      {command}"));
        page.text.push('\n');
    }
    for note in &patch.notes {
        page.item("!", note);
    }
}

/// Text under way.
struct Page {
    text: String,
    style: Style,
    /// Lines are broken here.
    width: usize,
}

impl Page {
    fn line(&mut self, line: &str) {
        self.text.push_str(line.trim_end());
        self.text.push('\n');
    }

    fn section(&mut self, title: &str) {
        self.text.push('\n');
        let title = self.style.bold(title);
        self.line(&title);
    }

    fn finding(&mut self, finding: &Finding) {
        let style = self.style;
        let mark = match finding.weight {
            Weight::Fault => style.bad("✗"),
            Weight::Risk => style.warn("!"),
            Weight::Note if finding.rule == Rule::NothingWrong => style.good("✓"),
            Weight::Note => style.dim("·"),
        };
        self.wrapped(&format!("{mark} "), 2, &format!("{} [{}]", finding.title, finding.rule));
        for why in &finding.because {
            self.wrapped("    ", 4, why);
        }
    }

    fn item(&mut self, mark: &str, what: &str) {
        self.wrapped(&format!("{mark} "), mark.chars().count() + 1, what);
    }

    /// A text behind its first words, broken into lines that begin below it. `indent` is how wide those
    /// words are.
    fn wrapped(&mut self, first: &str, indent: usize, what: &str) {
        let mut line = first.to_owned();
        let mut width = indent;
        for (at, word) in what.split(' ').enumerate() {
            let length = word.chars().count();
            if at > 0 && width + 1 + length > self.width {
                self.line(&line);
                line = " ".repeat(indent);
                width = indent;
            } else if at > 0 {
                line.push(' ');
                width += 1;
            }
            line.push_str(word);
            width += length;
        }
        self.line(&line);
    }
}
