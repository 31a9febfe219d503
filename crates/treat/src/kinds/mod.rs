//! The planners: one for each kind of treatment.
//!
//! Each is a function of its parameters and the files of the machine. None of them writes; all can be tried on a fake
//! root.

mod affinity;
mod cache;
mod files;
mod governor;
mod gpu;
mod idle;
pub mod interrupts;
pub mod offline;
mod shield;
mod smt;
mod switches;

use crate::planner::{Impossible, Planned, Planner, Surroundings};
use whylate_core::plan::TreatmentKind;

impl Planner for TreatmentKind {
    fn plan(&self, surroundings: &Surroundings) -> Result<Planned, Impossible> {
        match self {
            Self::Shield(plan) => plan.plan(surroundings),
            Self::CachePartition(plan) => plan.plan(surroundings),
            Self::GpuPower(plan) => plan.plan(surroundings),
            Self::Thp(plan) => plan.plan(surroundings),
            Self::Ksm(plan) => plan.plan(surroundings),
            Self::NumaBalancing(plan) => switches::numa_balancing(plan.enabled, surroundings),
            Self::Watchdog(plan) => switches::watchdog(plan.enabled, surroundings),
            Self::RtThrottling(plan) => plan.plan(surroundings),
            Self::Sysfs(plan) => plan.plan(surroundings),
            Self::Sysctl(plan) => plan.plan(surroundings),
            Self::ModuleParameter(plan) => plan.plan(surroundings),
            Self::IrqAffinity(plan) => plan.plan(surroundings),
            Self::Affinity(plan) => plan.plan(surroundings),
            Self::Governor(plan) => plan.plan(surroundings),
            Self::SmtOff(plan) => plan.plan(surroundings),
            Self::Idle(plan) => plan.plan(surroundings),
        }
    }

    fn again(&self, surroundings: &Surroundings) -> Result<Planned, Impossible> {
        match self {
            Self::Shield(plan) => plan.again(surroundings),
            Self::CachePartition(plan) => plan.again(surroundings),
            Self::GpuPower(_)
            | Self::Thp(_)
            | Self::Ksm(_)
            | Self::NumaBalancing(_)
            | Self::Watchdog(_)
            | Self::RtThrottling(_)
            | Self::Sysfs(_)
            | Self::Sysctl(_)
            | Self::ModuleParameter(_)
            | Self::IrqAffinity(_)
            | Self::Affinity(_)
            | Self::Governor(_)
            | Self::SmtOff(_)
            | Self::Idle(_) => Ok(Planned::default()),
        }
    }
}

/// The text of a file that a treatment needs.
///
/// # Errors
/// [`Impossible`] with `otherwise` when it is not there or cannot be read, and when this process may not write it.
pub(crate) fn required_file(
    surroundings: &Surroundings,
    path: &str,
    otherwise: &str,
) -> Result<String, Impossible> {
    let Some(text) = surroundings.root.read(path)? else {
        let reason = format!("cannot read {path}: {otherwise}");
        return Err(Impossible::new(reason));
    };
    writable(surroundings, path)?;
    Ok(text)
}

/// Refuses a file that this process cannot open for writing.
///
/// # Errors
/// [`Impossible`] that says what to do.
pub(crate) fn writable(surroundings: &Surroundings, path: &str) -> Result<(), Impossible> {
    let Err(error) = std::fs::OpenOptions::new().write(true).open(surroundings.root.path(path)) else {
        return Ok(());
    };
    let remedy = match error.kind() {
        std::io::ErrorKind::PermissionDenied => "run as root",
        std::io::ErrorKind::ReadOnlyFilesystem => {
            "it is mounted read-only, as in containers: run outside, or in a privileged container"
        }
        std::io::ErrorKind::NotFound => "this machine does not have it",
        _ => "this kernel refuses it",
    };
    Err(Impossible::new(format!("cannot write {path}: {error}; {remedy}")))
}

/// `vm.swappiness` as a path below /proc/sys; slashes and dots may be exchanged, as sysctl(8) allows.
pub(crate) fn sysctl_path(key: &str) -> Result<String, Impossible> {
    let is_path = key.find('/').is_some_and(|slash| key.find('.').is_none_or(|dot| slash < dot));
    // `net.ipv4.conf.eth0/100.forwarding`: a slash stands for a dot of the name.
    let exchange = |c| {
        if c == '.' {
            '/'
        } else if c == '/' {
            '.'
        } else {
            c
        }
    };
    let path: String = if is_path { key.to_owned() } else { key.chars().map(exchange).collect() };
    let is_clean = !path.is_empty() && path.split('/').all(|part| !part.is_empty() && part != "..");
    if is_clean {
        Ok(format!("/proc/sys/{path}"))
    } else {
        Err(Impossible::new(format!("`{key}` is not a sysctl")))
    }
}
