//! The machine that this process runs on, and the CPUs of the command line on it.

use anyhow::{Context, Result};
use whylate_core::{CpuSelector, CpuSet, Facts, Warning};
use whylate_host::HostRoot;
use whylate_host::facts;
use whylate_sys::process::Launcher;

/// Environment variable with a folder that stands for `/` when settings are looked at or changed: for tests.
const ROOT_VARIABLE: &str = "WHYLATE_HOST_ROOT";

/// The machine whose settings are looked at or changed.
pub(crate) fn root() -> HostRoot {
    std::env::var_os(ROOT_VARIABLE).filter(|path| !path.is_empty()).map_or_else(HostRoot::real, HostRoot::at)
}

/// What is known of this machine, with what could not be found out.
pub(crate) fn facts() -> (Facts, Vec<Warning>) {
    facts::collect(&HostRoot::real())
}

/// This binary, to start measuring and loading processes.
pub(crate) fn launcher() -> Result<Launcher> {
    Launcher::current().context("cannot find the path of this program (is /proc mounted?)")
}

/// The CPUs that a flag names.
pub(crate) fn cpus(flag: &str, selector: &CpuSelector, facts: &Facts) -> Result<CpuSet> {
    selector.resolve(&facts.cpu_context(), None).with_context(|| format!("{flag} {selector}"))
}
