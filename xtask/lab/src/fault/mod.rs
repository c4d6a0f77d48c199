//! Faults of the API server in the middle of a rollout. Only the agents' way to it is touched: the
//! cluster goes on. Clients and agents must agree in the end as in any run, and what the agents say
//! of themselves meanwhile must be true.
//!
//! # Layout
//! - [`args`]: the command line, [`catalogue`]: the faults and their dials
//! - `befall`: what each fault does, and what the agents said of themselves
//! - `judge`: what they should have said; pure

mod args;
mod befall;
mod catalogue;
mod judge;

pub use args::FaultArgs;
pub use befall::{Door, Observed, Plan};
pub use catalogue::Fault;
pub use judge::objections;

use std::process::ExitCode;

use anyhow::Result;

use crate::isolate::{self, Outside};
use crate::run;

/// Lists the faults, or starts a lab in namespaces of its own.
pub fn outside(args: &FaultArgs) -> Result<ExitCode> {
    let fault = match args.name {
        Some(fault) if !args.list => fault,
        _ => {
            print!("{}", catalogue::table());
            return Ok(ExitCode::SUCCESS);
        }
    };
    let agent = Some(args.run_args()?.agent_binary()?);
    isolate::run(&Outside { name: fault.name(), out: args.lab.out.as_deref(), agent })
}

/// Runs the lab as the first process of its own namespaces.
pub fn inside(args: &FaultArgs) -> Result<ExitCode> {
    let (fault, dials) = args.fault()?;
    let mut run_args = args.run_args()?;
    run_args.json = args.lab.json;
    run::inside(&run_args, Some(&Plan { fault, dials }))
}
