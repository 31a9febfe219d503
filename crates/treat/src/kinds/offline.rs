//! CPUs switched off, and everything that the kernel would not restore by itself when they are switched on again.
//!
//! Taking a CPU offline also removes it from cpusets of cgroup v1 for good, moves tasks and interrupts that are bound
//! to it alone elsewhere, and widens the affinity of such tasks. The treatment changes all of that itself first, so
//! that it is in the journal and undone after the CPU is back.

use crate::change::{Change, Target, Task};
use crate::kinds::interrupts::{affinity_of, interrupts};
use crate::kinds::required_file;
use crate::planner::{Impossible, Surroundings};
use crate::reading::Reading;
use std::collections::BTreeMap;
use whylate_core::result::{ThreadKind, ThreadRow};
use whylate_core::{CpuId, CpuSet};
use whylate_host::cgroup::group_of;
use whylate_host::threads::Threads;
use whylate_host::{HostError, HostRoot};

/// The file that switches a CPU on and off.
pub fn online_path(cpu: CpuId) -> String {
    format!("/sys/devices/system/cpu/cpu{cpu}/online")
}

/// The CPUs that a change switches off.
pub fn switched_off(changes: &[Change]) -> CpuSet {
    let number = |path: &str| {
        let rest = path.strip_prefix("/sys/devices/system/cpu/cpu")?;
        rest.strip_suffix("/online")?.parse().ok().map(CpuId)
    };
    let off = changes.iter().filter(|change| change.new == "0");
    off.filter_map(|change| match &change.target {
        Target::File { path, .. } => number(path),
        _ => None,
    })
    .collect()
}

/// Refuses to switch off CPUs that have to stay: CPU 0 on some machines, target CPUs, the last housekeeping CPU.
pub fn check(surroundings: &Surroundings, off: &CpuSet) -> Result<(), Impossible> {
    if let Some(target) = &surroundings.target
        && let Some(cpu) = target.intersection(off).first()
    {
        return Err(Impossible::new(format!("CPU {cpu} is measured, so it stays on; choose other `cpus`")));
    }
    for cpu in off.iter() {
        let hint = match cpu.0 {
            0 => "this kernel cannot switch CPU 0 off",
            _ => {
                "this CPU cannot be switched off (kernel without CONFIG_HOTPLUG_CPU, or the machine forbids it)"
            }
        };
        required_file(surroundings, &online_path(cpu), hint)?;
    }
    let left = surroundings.cpus.online.difference(off);
    if left.is_empty() {
        return Err(Impossible::new(format!("no CPU would be left online without CPU {off}")));
    }
    if left.difference(&surroundings.cpus.isolated).is_empty() {
        let reason = format!(
            "CPU {off} includes the last housekeeping CPU: only isolated CPUs ({left}) would be left"
        );
        return Err(Impossible::new(reason));
    }
    Ok(())
}

/// What has to be moved before the CPUs of `off` go offline, so that it comes back afterwards.
///
/// # Errors
/// [`Impossible`] when a cpuset has no other CPU, or a file of the machine cannot be understood.
pub fn preparation(surroundings: &Surroundings, off: &CpuSet) -> Result<Vec<Change>, Impossible> {
    let root = &surroundings.root;
    let left = surroundings.cpus.online.difference(off);
    let cpusets = cpusets_v1(root)?;
    let mut changes = task_changes(root, off, &left, &cpusets)?;
    // The deepest first: a group has at least the CPUs of those in it.
    for (path, cpus) in cpusets.iter().rev().filter(|(_, cpus)| !cpus.intersection(off).is_empty()) {
        let remaining = cpus.difference(off);
        if remaining.is_empty() {
            let reason = format!("{path} has only CPU {cpus}: its tasks would have no CPU left");
            return Err(Impossible::new(reason));
        }
        let target = Target::file_with(path, Reading::CpuList);
        let effect = format!("a cpuset excludes CPU {off} while that CPU is off");
        changes.push(Change::required(target, remaining.to_string(), effect));
    }
    for interrupt in interrupts(root)? {
        let is_bound = !interrupt.cpus.is_empty() && interrupt.cpus.difference(off).is_empty();
        if is_bound && !interrupt.is_fixed {
            let target = affinity_of(interrupt.number);
            let effect =
                format!("interrupt {} is handled on other CPUs while CPU {off} is off", interrupt.name());
            changes.push(Change::optional(target, left.to_string(), effect));
        }
    }
    Ok(changes)
}

/// Tasks that would lose their affinity: those bound to `off` alone, and those with an affinity of their own whose
/// cpuset is changed.
fn task_changes(
    root: &HostRoot,
    off: &CpuSet,
    left: &CpuSet,
    cpusets: &BTreeMap<String, CpuSet>,
) -> Result<Vec<Change>, HostError> {
    let mut changes = Vec::new();
    for thread in Threads::read(root)?.rows {
        // A thread of the kernel that is bound to its CPU waits there for its return.
        if thread.cpus.intersection(off).is_empty() || thread.kind == ThreadKind::Pinned {
            continue;
        }
        let remaining = thread.cpus.difference(off);
        let has_none = remaining.intersection(left).is_empty();
        let is_own = || cpuset_of(&thread, root, cpusets).is_some_and(|of_group| *of_group != thread.cpus);
        if (has_none || is_own())
            && let Some(task) = Task::of(root, &thread)
        {
            let new = if has_none { left } else { &remaining };
            let effect = format!("{task} runs on other CPUs while CPU {off} is off");
            changes.push(Change::optional(Target::Affinity { task }, new.to_string(), effect));
        }
    }
    Ok(changes)
}

/// The CPUs of a thread's cpuset, if it is in `cpusets`.
fn cpuset_of<'a>(
    thread: &ThreadRow,
    root: &HostRoot,
    cpusets: &'a BTreeMap<String, CpuSet>,
) -> Option<&'a CpuSet> {
    if cpusets.is_empty() {
        return None;
    }
    let mount = mount_of_cpusets_v1(root).ok()??;
    let groups = root.read(&format!("/proc/{}/task/{}/cgroup", thread.pid, thread.tid)).ok()??;
    cpusets.get(&format!("{mount}{}/cpuset.cpus", group_of(&groups, Some("cpuset"))?))
}

/// Where the cpuset controller of cgroup v1 is mounted.
pub(crate) fn mount_of_cpusets_v1(root: &HostRoot) -> Result<Option<String>, HostError> {
    let mounts = root.read("/proc/mounts")?.unwrap_or_default();
    let mount = mounts.lines().find_map(|line| {
        let mut fields = line.split(' ').skip(1);
        let (path, kind, options) = (fields.next()?, fields.next()?, fields.next()?);
        let is_cpuset = kind == "cpuset" || (kind == "cgroup" && options.split(',').any(|it| it == "cpuset"));
        is_cpuset.then(|| path.to_owned())
    });
    Ok(mount)
}

/// `cpuset.cpus` of every group of cgroup v1 but the root, which the kernel keeps itself; parents before children.
fn cpusets_v1(root: &HostRoot) -> Result<BTreeMap<String, CpuSet>, HostError> {
    let Some(mount) = mount_of_cpusets_v1(root)? else { return Ok(BTreeMap::new()) };
    let mut found = BTreeMap::new();
    let mut folders = vec![mount.clone()];
    while let Some(folder) = folders.pop() {
        for name in root.list(&folder)? {
            let below = format!("{folder}/{name}");
            if root.path(&below).is_dir() && !root.path(&below).is_symlink() {
                folders.push(below);
            }
        }
        let path = format!("{folder}/cpuset.cpus");
        if folder != mount
            && let Some(cpus) = root.read_cpus(&path)?
        {
            found.insert(path, cpus);
        }
    }
    Ok(found)
}
