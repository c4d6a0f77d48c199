//! What the programs cost, by the kernel's own measurement.

use std::{os::fd::OwnedFd, time::Duration};

use aya::{
    programs::ProgramInfo,
    sys::{Stats, enable_stats},
};

use super::{
    HOOKS, Probe, ProbeError,
    load::{load_error, program},
};

/// Runs of a program and of the empty one beside it, since both were loaded.
#[derive(Clone, Copy, Debug)]
pub struct Runs {
    /// The tracepoint.
    pub hook: &'static str,
    /// The program's.
    pub own: Run,
    /// The empty program's.
    pub empty: Run,
}

/// Runs of one program.
#[derive(Clone, Copy, Debug, Default)]
pub struct Run {
    /// How many.
    pub count: u64,
    /// How long they took together.
    pub time: Duration,
}

/// Makes the kernel count and time every run of every program, for as long as the descriptor is
/// open: `BPF_ENABLE_STATS`, since 5.8. Unlike `kernel.bpf_stats_enabled` it ends with the process,
/// however that ends.
///
/// # Errors
/// Without `CAP_SYS_ADMIN`.
pub fn time_runs() -> Result<OwnedFd, ProbeError> {
    enable_stats(Stats::RunTime).map_err(|error| load_error("time the runs of programs", error))
}

impl Probe {
    /// Attaches an empty program beside each of the probe's own.
    ///
    /// # Errors
    /// If one cannot be loaded or attached.
    pub fn attach_empty(&mut self) -> Result<(), ProbeError> {
        for hook in HOOKS {
            let program = program(&mut self.ebpf, &empty(hook))?;
            program.load().map_err(|error| load_error("load an empty program", error))?;
            program.attach(hook).map_err(|error| load_error("attach an empty program", error))?;
        }
        Ok(())
    }

    /// Counts and times; they stand still unless [`time_runs`] is in force.
    ///
    /// # Errors
    /// If the kernel does not tell, or [`Probe::attach_empty`] was not called.
    pub fn runs(&self) -> Result<[Runs; HOOKS.len()], ProbeError> {
        let mut all = HOOKS.map(|hook| Runs { hook, own: Run::default(), empty: Run::default() });
        for runs in &mut all {
            runs.own = self.run(runs.hook)?;
            runs.empty = self.run(&empty(runs.hook))?;
        }
        Ok(all)
    }

    fn run(&self, name: &str) -> Result<Run, ProbeError> {
        let found = self.ebpf.program(name).map(aya::programs::Program::info);
        let info: ProgramInfo = found
            .ok_or_else(|| {
                load_error("find a program", anyhow::anyhow!("the object has no {name}"))
            })?
            .map_err(|error| load_error(&format!("ask for the runs of {name}"), error))?;
        Ok(Run { count: info.run_count(), time: info.run_time() })
    }
}

fn empty(hook: &str) -> String {
    format!("empty_{hook}")
}
