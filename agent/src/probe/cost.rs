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
    /// Of programs that read kernel memory once and twice and do no more; only at `net_dev_queue`.
    pub reads: Option<[Run; 2]>,
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
    /// Attaches an empty program beside each of the probe's own, and beside that of `net_dev_queue`
    /// those that only read.
    ///
    /// # Errors
    /// If one cannot be loaded or attached.
    pub fn attach_empty(&mut self) -> Result<(), ProbeError> {
        let empties = HOOKS.map(|hook| (empty(hook), hook));
        let reads = READS.map(|name| (name.to_owned(), "net_dev_queue"));
        for (name, hook) in empties.into_iter().chain(reads) {
            let program = program(&mut self.ebpf, &name)?;
            program.load().map_err(|error| load_error(&format!("load {name}"), error))?;
            program.attach(hook).map_err(|error| load_error(&format!("attach {name}"), error))?;
        }
        Ok(())
    }

    /// Counts and times; they stand still unless [`time_runs`] is in force.
    ///
    /// # Errors
    /// If the kernel does not tell, or [`Probe::attach_empty`] was not called.
    pub fn runs(&self) -> Result<[Runs; HOOKS.len()], ProbeError> {
        let none = Run::default();
        let mut all = HOOKS.map(|hook| Runs { hook, own: none, empty: none, reads: None });
        for runs in &mut all {
            runs.own = self.run(runs.hook)?;
            runs.empty = self.run(&empty(runs.hook))?;
            if runs.hook == "net_dev_queue" {
                runs.reads = Some([self.run(READS[0])?, self.run(READS[1])?]);
            }
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

/// Programs that only read.
const READS: [&str; 2] = ["one_read_net_dev_queue", "two_reads_net_dev_queue"];

fn empty(hook: &str) -> String {
    format!("empty_{hook}")
}
