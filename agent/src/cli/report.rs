//! `rollrace report`

use std::process::ExitCode;

use super::{
    Exit, Failed,
    ask::{From, Within, Zone, block_on, print, require_an_answer, style},
};
use crate::{
    advise::Case,
    oncall::{
        Asked, Gathered,
        join::{Filter, rollouts},
        query,
        show::{self, Format, ReportData},
        workload::Wanted,
    },
};

/// Arguments of `report`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  kubectl rollrace report                              # the context's namespace
  kubectl rollrace report -A -o wide                   # every namespace, more columns
  kubectl rollrace report deployment/api -n shop
  rollrace report --agent http://10.0.0.1:9466         # without a cluster
  rollrace report --recording agent.record.jsonl -o json | jq '.rollouts[0]'

Exit codes: 0 no connection failed, 1 some did, 2 could not tell (an agent is missing, or was not there
for all of it), 64 bad usage")]
pub struct Args {
    /// Only this workload, as deployment/api
    #[arg(value_name = "KIND/NAME")]
    workload: Option<Wanted>,
    #[command(flatten)]
    within: Within,
    /// How to show it
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    output: Format,
    #[command(flatten)]
    zone: Zone,
    #[command(flatten)]
    from: From,
}

/// Runs it.
pub fn run(args: &Args) -> Result<ExitCode, Failed> {
    block_on(async {
        let query = query::rollouts(args.within.named(), args.workload.as_ref());
        let asked = Asked { rollouts: Some(query), ..Asked::default() };
        let gathered = args.from.gather(&asked).await?;
        require_an_answer(&gathered)?;
        let filter =
            Filter { namespace: args.within.namespace(&gathered), workload: args.workload.clone() };
        let cases = rollouts(&gathered, &filter);
        let text = match args.output {
            Format::Json | Format::Yaml => {
                show::data(&ReportData::new(&gathered, &cases), args.output)?
            }
            Format::Table | Format::Wide => {
                let wide = args.output == Format::Wide;
                show::report(&gathered, &cases, wide, &args.zone.times(), style())
            }
        };
        print(&text)?;
        Ok(exit(&gathered, &cases).into())
    })
}

/// 0, 1 or 2.
fn exit(gathered: &Gathered, cases: &[Case]) -> Exit {
    if cases.iter().any(|case| case.failed() > 0) {
        Exit::Failures
    } else if !gathered.missing.is_empty() || cases.iter().any(Case::is_lower_bound) {
        Exit::CouldNotTell
    } else {
        Exit::Clean
    }
}
