//! The kernel's own work: unbound work items, RCU callbacks, statistics, watchdogs, timers, the tick.

use super::Sides;
use crate::change::{Change, Target};
use crate::kinds::scheduling::WORKQUEUES;
use crate::planner::{Impossible, Planned, Surroundings};
use crate::reading::Reading;
use whylate_core::{CpuSet, Warning, WarningCode};
use whylate_host::{HostError, HostRoot};

const WATCHED: &str = "/proc/sys/kernel/watchdog_cpumask";

/// How often memory statistics (vmstat) are updated on each CPU while a shield is up, in seconds; the default is 1.
const STAT_INTERVAL_S: u64 = 120;

/// Unbound work items, and RCU callbacks.
pub(super) fn work(sides: &Sides, surroundings: &Surroundings) -> Result<Planned, Impossible> {
    let root = &surroundings.root;
    let mut planned = Planned::default();
    // The mask bounds those of all unbound workqueues, so the masks of single ones can stay as they are.
    let cpus = root.read_trimmed(WORKQUEUES)?.as_deref().and_then(CpuSet::from_mask);
    let target = Target::file_with(WORKQUEUES, Reading::CpuMask);
    let effect = |left: &CpuSet| format!("unbound work items run on CPU {left}");
    planned.changes.extend(narrowed(target, cpus, sides, effect));
    let kept = sides.shielded.difference(&offloaded(root)?);
    if !kept.is_empty() {
        let text = format!(
            "CPU {kept} still runs its own RCU callbacks: only the kernel command line can move them"
        );
        planned.warnings.push(Warning::with_fix(
            WarningCode::RcuCallbacksStay,
            text,
            format!("boot with `rcu_nocbs={kept}`"),
        ));
    }
    Ok(planned)
}

/// Takes the shielded CPUs out of a set; if nothing is left, all others take their place.
fn narrowed(
    target: Target,
    cpus: Option<CpuSet>,
    sides: &Sides,
    effect: impl Fn(&CpuSet) -> String,
) -> Option<Change> {
    let cpus = cpus?;
    let left = cpus.difference(&sides.shielded);
    let left = if left.is_empty() && !cpus.is_empty() { sides.others.clone() } else { left };
    (left != cpus).then(|| Change::optional(target, left.to_string(), effect(&left)))
}

/// CPUs whose RCU callbacks are run by threads that can be moved.
fn offloaded(root: &HostRoot) -> Result<CpuSet, HostError> {
    let line = root.read_trimmed("/proc/cmdline")?.unwrap_or_default();
    let present = root.read_cpus("/sys/devices/system/cpu/present")?.unwrap_or_default();
    let lists = line.split_whitespace().filter_map(|word| word.strip_prefix("rcu_nocbs="));
    let named =
        lists.map(|list| if list == "all" { present.clone() } else { list.parse().unwrap_or_default() });
    Ok(named.fold(tickless(root)?, |all, cpus| all.union(&cpus)))
}

fn tickless(root: &HostRoot) -> Result<CpuSet, HostError> {
    Ok(root.read_cpus("/sys/devices/system/cpu/nohz_full")?.unwrap_or_default())
}

/// Timers that interrupt every CPU, as far as the running kernel allows.
pub(super) fn timers(sides: &Sides, surroundings: &Surroundings) -> Result<Planned, Impossible> {
    let root = &surroundings.root;
    let mut planned = Planned::default();
    let target = Target::file_with(WATCHED, Reading::CpuList);
    let effect = |left: &CpuSet| format!("lockup detectors watch CPU {left} only");
    planned.changes.extend(narrowed(target, root.read_cpus(WATCHED)?, sides, effect));
    let interval = "/proc/sys/vm/stat_interval";
    if root.read_number::<u64>(interval)?.is_some_and(|seconds| seconds < STAT_INTERVAL_S) {
        let effect = "memory statistics (vmstat) are updated on each CPU every two minutes";
        planned.changes.push(Change::optional(Target::file(interval), STAT_INTERVAL_S.to_string(), effect));
    }
    let migration = "/proc/sys/kernel/timer_migration";
    if root.read_trimmed(migration)?.as_deref() == Some("1") {
        let effect = "timers stay on the CPU that armed them, instead of moving to a CPU that is awake";
        planned.changes.push(Change::optional(Target::file(migration), "0", effect));
    }
    let ticking = sides.shielded.difference(&tickless(root)?);
    if !ticking.is_empty() {
        let text = format!(
            "CPU {ticking} still has the tick while busy: only the kernel command line can stop the tick"
        );
        let fix = format!("boot with `nohz_full={ticking}` on a kernel with CONFIG_NO_HZ_FULL");
        planned.warnings.push(Warning::with_fix(WarningCode::LocalTimerStays, text, fix));
    }
    Ok(planned)
}
