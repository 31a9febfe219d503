//! The machine that this process runs on, and the CPUs of the command line on it.

use crate::exit::Refused;
use anyhow::{Context, Result};
use whylate_core::{CpuSelector, CpuSet, Facts};
use whylate_host::environment::folder_variable;
use whylate_host::{Host, HostRoot};
use whylate_runner::RealMachine;

/// Environment variable with a folder that replaces `/` when settings are read or changed: for tests.
const ROOT_VARIABLE: &str = "WHYLATE_HOST_ROOT";

const NO_RESERVE: Refused = Refused(
    "cannot reserve 32 MiB of memory, which is needed to stop cleanly when memory runs out; raise the limit \
     (`ulimit -v`)",
);

/// The running machine, with the root of its settings.
pub(crate) fn host(running: HostRoot) -> Host {
    let folder = folder_variable(ROOT_VARIABLE);
    Host { settings: folder.map_or_else(|| running.clone(), HostRoot::at), running }
}

/// The machine to measure and to load, with memory set aside for an orderly end.
pub(crate) fn real(host: &Host) -> Result<RealMachine> {
    if !whylate_runner::hold_reserve() {
        return Err(NO_RESERVE.into());
    }
    RealMachine::new(host.clone()).context("cannot find the path of this program (is /proc mounted?)")
}

/// The CPUs that a flag names.
pub(crate) fn cpus(flag: &str, selector: &CpuSelector, facts: &Facts) -> Result<CpuSet> {
    selector.resolve(&facts.cpu_context(), None).with_context(|| format!("{flag} {selector}"))
}
