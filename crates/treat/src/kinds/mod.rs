//! The planners: one for each kind of treatment.
//!
//! Each is a function of its parameters and the files of the machine. None of them writes; all work on a fake root.

mod affinity;
pub mod boot;
pub(crate) mod cache;
mod ethtool;
mod files;
mod governor;
mod gpu;
mod idle;
pub mod interrupts;
mod network;
pub mod offline;
mod pci;
mod priority;
pub(crate) mod quota;
pub(crate) mod refused;
mod scheduling;
mod shield;
mod smt;
mod switches;

use crate::planner::{Impossible, Planned, Planner, Surroundings};
use whylate_core::plan::TreatmentKind;

/// The planner of each kind: one line each.
fn planner(kind: &TreatmentKind) -> &dyn Planner {
    match kind {
        TreatmentKind::Shield(plan) => plan,
        TreatmentKind::CachePartition(plan) => plan,
        TreatmentKind::GpuPower(plan) => plan,
        TreatmentKind::Thp(plan) => plan,
        TreatmentKind::Ksm(plan) => plan,
        TreatmentKind::NumaBalancing(plan) => plan,
        TreatmentKind::Watchdog(plan) => plan,
        TreatmentKind::RtThrottling(plan) => plan,
        TreatmentKind::Sysfs(plan) => plan,
        TreatmentKind::Sysctl(plan) => plan,
        TreatmentKind::ModuleParameter(plan) => plan,
        TreatmentKind::IrqAffinity(plan) => plan,
        TreatmentKind::Affinity(plan) => plan,
        TreatmentKind::Cgroup(plan) => plan,
        TreatmentKind::CpuQuota(plan) => plan,
        TreatmentKind::Priority(plan) => plan,
        TreatmentKind::Workqueue(plan) => plan,
        TreatmentKind::FairServer(plan) => plan,
        TreatmentKind::Network(plan) => plan,
        TreatmentKind::Ethtool(plan) => plan,
        TreatmentKind::PciPower(plan) => plan,
        TreatmentKind::Governor(plan) => plan,
        TreatmentKind::SmtOff(plan) => plan,
        TreatmentKind::Idle(plan) => plan,
        TreatmentKind::Boot(plan) => plan,
    }
}

impl Planner for TreatmentKind {
    fn plan(&self, surroundings: &Surroundings) -> Result<Planned, Impossible> {
        planner(self).plan(surroundings)
    }

    fn again(&self, surroundings: &Surroundings) -> Result<Planned, Impossible> {
        planner(self).again(surroundings)
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
pub(crate) fn writable(surroundings: &Surroundings, path: &str) -> Result<(), Impossible> {
    let Err(error) = std::fs::OpenOptions::new().write(true).open(surroundings.root.path(path)) else {
        return Ok(());
    };
    let remedy = match error.kind() {
        std::io::ErrorKind::PermissionDenied => "run as root",
        std::io::ErrorKind::ReadOnlyFilesystem => {
            "its file system is mounted read-only, as in containers: run whylate outside the container, or in a privileged one"
        }
        std::io::ErrorKind::NotFound => "this machine has no such file",
        _ => "the kernel refuses writes to this file",
    };
    Err(Impossible::new(format!("cannot write {path}: {error}; {remedy}")))
}

/// Whether a path is that of any setting of the kernel: below /sys or /proc, but not of a process. Another process may
/// have that number later, and through its links every file can be reached.
pub(crate) fn is_setting(path: &str) -> bool {
    let is_clean = !path.split('/').any(|part| part == "..");
    let of_process = |rest: &str| {
        let first = rest.split('/').find(|part| !part.is_empty()).unwrap_or_default();
        first.contains("self") || first.starts_with(|c: char| c.is_ascii_digit())
    };
    let is_below =
        path.starts_with("/sys/") || path.strip_prefix("/proc/").is_some_and(|rest| !of_process(rest));
    is_clean && is_below
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
        Err(Impossible::new(format!("`{key}` is not a sysctl key; `sysctl -a` lists the keys")))
    }
}
