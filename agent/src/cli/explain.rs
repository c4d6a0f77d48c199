//! `rollrace explain`

use std::process::ExitCode;

use anyhow::anyhow;
use clap::ValueEnum;

use super::{
    Exit, Failed,
    ask::{From, Within, Zone, block_on, print, require_an_answer, style},
};
use crate::{
    advise::{Case, advise},
    oncall::{
        Asked, Gathered,
        join::{Filter, add_others, by_cause, rollouts},
        query,
        show::{self, ExplainData},
        workload::Wanted,
    },
};

/// How to show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Output {
    /// For reading
    Text,
    /// JSON
    Json,
    /// YAML
    Yaml,
    /// Only the patch of the pod template, for kubectl patch
    Patch,
}

/// Arguments of `explain`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  kubectl rollrace explain deployment/api -n shop
  kubectl rollrace explain deployment/api --revision 7     # not the latest rollout
  kubectl rollrace explain deployment/api -o patch | kubectl patch deployment api --patch-file /dev/stdin
  rollrace explain deployment/api --recording agent.record.jsonl

Exit codes: 0 no connection failed, 1 some did, 2 could not tell (an agent is missing or was not there
for all of it, or nothing is known of the workload), 64 bad usage")]
pub struct Args {
    /// The workload, as deployment/api
    #[arg(value_name = "KIND/NAME")]
    workload: Wanted,
    /// The rollout to this revision (or template hash); without it the latest
    #[arg(long, value_name = "N")]
    revision: Option<String>,
    #[command(flatten)]
    within: Within,
    /// How to show it
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
    #[command(flatten)]
    zone: Zone,
    #[command(flatten)]
    from: From,
}

/// Runs it.
pub fn run(args: &Args) -> Result<ExitCode, Failed> {
    block_on(async {
        // All rollouts, not only those of this workload: a name that is none has near ones.
        let query = query::rollouts(args.within.named(), Some(&args.workload));
        let asked =
            Asked { rollouts: Some(String::new()), failures: Some(query), ..Asked::default() };
        let gathered = args.from.gather(&asked).await?;
        require_an_answer(&gathered)?;
        let filter = Filter {
            namespace: args.within.namespace(&gathered),
            workload: Some(args.workload.clone()),
        };
        let case = find(args, &gathered, &filter)?;
        let advice = advise(&case);
        let yaml = advice.patch.as_ref().map(|patch| serde_saphyr::to_string(&patch.value));
        let yaml = yaml.transpose().map_err(anyhow::Error::from)?;
        let data = ExplainData {
            rollout: (&case).into(),
            advice: &advice,
            patch: yaml.clone(),
            facts: &case,
            notes: &gathered.notes,
        };
        let text = match args.output {
            Output::Json => show::data(&data, show::Format::Json)?,
            Output::Yaml => show::data(&data, show::Format::Yaml)?,
            Output::Patch => yaml.ok_or_else(|| {
                Failed::could_not_tell(anyhow!(
                    "there is nothing to patch in the pod template of {}; explain without -o patch \
                     says why",
                    args.workload
                ))
            })?,
            Output::Text => show::explain(
                &case,
                &advice,
                yaml.as_deref(),
                &gathered.notes,
                &args.zone.times(),
                style(),
            ),
        };
        print(&text)?;
        let exit = if case.failed() > 0 || case.others.iter().any(|other| other.count > 0) {
            Exit::Failures
        } else if case.is_lower_bound() {
            Exit::CouldNotTell
        } else {
            Exit::Clean
        };
        Ok(exit.into())
    })
}

/// The rollout that is asked for.
fn find(args: &Args, gathered: &Gathered, filter: &Filter) -> Result<Case, Failed> {
    let cases = rollouts(gathered, filter);
    let mut namespaces: Vec<&str> = cases.iter().map(|case| &*case.namespace).collect();
    namespaces.sort_unstable();
    namespaces.dedup();
    if namespaces.len() > 1 {
        return Err(Failed::usage(anyhow!(
            "{} is in the namespaces {}: name one with -n",
            args.workload,
            namespaces.join(", ")
        )));
    }
    let wanted = |case: &&Case| {
        let to = &case.to;
        args.revision.as_ref().is_none_or(|wanted| to.name() == wanted || to.hash == *wanted)
    };
    if let Some(case) = cases.iter().find(wanted) {
        let mut case = case.clone();
        add_others(&mut case, gathered);
        return Ok(case);
    }
    Err(Failed::could_not_tell(not_found(args, gathered, filter, &cases)))
}

/// What is known instead.
fn not_found(args: &Args, gathered: &Gathered, filter: &Filter, cases: &[Case]) -> anyhow::Error {
    let workload = &args.workload;
    if let (Some(revision), false) = (&args.revision, cases.is_empty()) {
        let known: Vec<&str> = cases.iter().map(|case| case.to.name()).collect();
        return anyhow!(
            "no rollout of {workload} to revision {revision} is known; known are those to {}",
            known.join(", ")
        );
    }
    let within =
        filter.namespace.as_ref().map_or_else(String::new, |name| format!(" in namespace {name}"));
    let mut text = format!("no rollout of {workload}{within} was observed");
    if let Some(since) = gathered.answered.iter().filter_map(|one| one.status.coverage.since).min()
    {
        text = format!("{text} since {}", args.zone.times().full(since));
    }
    text.push_str(" (agents follow the workloads that their node's clients dial)");
    let failures = gathered.answered.iter().flat_map(|answered| &answered.failures.failures);
    let its = failures.filter(|failure| {
        failure
            .workload
            .as_ref()
            .is_some_and(|known| filter.takes(&failure.namespace, &known.kind, &known.name))
    });
    let by_cause: Vec<String> = by_cause(its)
        .iter()
        .map(|other| format!("{} by cause {}", other.count, other.cause))
        .collect();
    if !by_cause.is_empty() {
        text = format!("{text}; of its connections failed: {}", by_cause.join(", "));
    }
    let all = gathered.answered.iter().flat_map(|answered| &answered.rollouts.rollouts);
    let near = workload.near(all);
    if !near.is_empty() {
        text = format!("{text}; did you mean {}?", near.join(", "));
    }
    anyhow!(text)
}
