//! Findings about what this process may do.

use super::Finding;
use whylate_core::Facts;
use whylate_core::cpus::CpuSet;
use whylate_core::units::Bytes;
use whylate_core::warning::Warning;

/// The probes' default priority; a plan may ask for another.
const PRIORITY_DEFAULT: u32 = 95;

/// Enough for the measuring process: its code, its stacks and the preallocated buffers.
const LOCKED_BYTES_ENOUGH: u64 = 64 << 20;

/// limits.conf(5), setcap(8): the ways to the rights without being root.
const FIX_RIGHTS: &str = "run it with sudo; or put `@realtime - rtprio 99` and `@realtime - memlock unlimited` into \
     /etc/security/limits.d/99-realtime.conf, join the group `realtime` and log in again; or `sudo setcap \
     cap_sys_nice,cap_ipc_lock+ep $(command -v whylate)`";

const FIX_RIGHTS_CONTAINER: &str = "start the container with `--cap-add=SYS_NICE --cap-add=IPC_LOCK --ulimit \
     rtprio=99 --ulimit memlock=-1`; in a rootless container only the limits help";

fn fix_rights(facts: &Facts) -> &'static str {
    if facts.environment.container.is_some() { FIX_RIGHTS_CONTAINER } else { FIX_RIGHTS }
}

pub(super) fn realtime_priority(facts: &Facts, _: &CpuSet) -> Option<Warning> {
    match facts.privileges.realtime_priority_max {
        0 => Some(Finding::NoRealtimePriority.warning(
            "this process may not use real-time priorities: probes run as ordinary tasks (SCHED_OTHER), and their \
             latencies include waiting for every other task",
            fix_rights(facts),
        )),
        max if max < PRIORITY_DEFAULT => Some(Finding::RealtimePriorityLimited.warning(
            format!(
                "this process may use real-time priorities up to {max} only: tasks above that priority delay the \
                 probes"
            ),
            fix_rights(facts),
        )),
        _ => None,
    }
}

/// Documentation/scheduler/sched-rt-group.rst: a group without budget cannot hold real-time tasks, not even of root;
/// the check is skipped while `sched_rt_runtime_us` is -1.
pub(super) fn group_budget(facts: &Facts, _: &CpuSet) -> Option<Warning> {
    let budget = facts.privileges.cgroup_rt_runtime_us?;
    let unlimited = facts.settings.rt_runtime_us == Some(-1);
    let period = facts.settings.rt_period_us.unwrap_or(1_000_000);
    let leave = if facts.environment.cgroup_version == Some(1) {
        "move this shell to the root group (`echo $$ | sudo tee /sys/fs/cgroup/cpu/tasks`) and start again from it"
    } else {
        "move this shell to the root group (`echo $$ | sudo tee /sys/fs/cgroup/cgroup.procs`) and start again from it"
    };
    match budget {
        0 if !unlimited => Some(Finding::RtGroupBudget.warning(
            "this kernel gives real-time time by control group (RT_GROUP_SCHED), and this process's group has none: \
             real-time priorities are refused, even to root",
            format!("{leave}; or `sudo sysctl -w kernel.sched_rt_runtime_us=-1`, which lifts the limit everywhere"),
        )),
        1.. if budget < period => Some(Finding::RtGroupBudget.warning(
            format!(
                "the real-time tasks of this process's control group may together use {budget} us of each of their \
                 periods on a CPU (RT_GROUP_SCHED): after that they are stopped until the next one"
            ),
            leave,
        )),
        _ => None,
    }
}

pub(super) fn memory_lock(facts: &Facts, _: &CpuSet) -> Option<Warning> {
    let bytes = facts.privileges.lockable_bytes.filter(|&bytes| bytes < LOCKED_BYTES_ENOUGH)?;
    Some(Finding::NoMemoryLock.warning(
        format!(
            "this process may lock {} of memory only: where that is not enough, the measuring thread can meet page \
             faults, and its latencies include them",
            Bytes(bytes)
        ),
        if facts.environment.container.is_some() {
            FIX_RIGHTS_CONTAINER
        } else {
            "run it with sudo, or put `@realtime - memlock unlimited` into /etc/security/limits.d/99-realtime.conf, join \
             the group `realtime` and log in again"
        },
    ))
}

/// Documentation/power/pm_qos_interface.rst: holding the file open with 0 keeps idle states with an exit latency off.
pub(super) fn latency_request(facts: &Facts, _: &CpuSet) -> Option<Warning> {
    (!facts.privileges.cpu_dma_latency).then(|| {
        Finding::NoCpuDmaLatency.warning(
            "/dev/cpu_dma_latency cannot be written: idle states stay as they are, and latencies include leaving them",
            if facts.environment.container.is_some() {
                "start the container with `--device /dev/cpu_dma_latency`, as a user who may write it"
            } else {
                "run it as root, or give the file to your group with a udev rule"
            },
        )
    })
}

pub(super) fn tracing(facts: &Facts, _: &CpuSet) -> Option<Warning> {
    (!facts.privileges.tracefs).then(|| {
        Finding::NoTracefs.warning(
            "tracefs is not mounted or cannot be written: spikes cannot be marked in a trace, and a trace cannot be \
             stopped at one",
            if facts.privileges.root {
                "mount -t tracefs nodev /sys/kernel/tracing"
            } else {
                "run it as root, with tracefs mounted (`sudo mount -t tracefs nodev /sys/kernel/tracing`)"
            },
        )
    })
}
