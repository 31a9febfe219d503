//! Findings about what this process may do.

use super::{FindingCode, Inquiry};
use whylate_core::Facts;
use whylate_core::result::Finding;
use whylate_core::units::Bytes;

/// The probes' default priority; a plan may ask for another.
const PRIORITY_DEFAULT: u32 = 95;

/// Enough for the measuring process: its code, its stacks and the preallocated buffers.
const LOCKED_BYTES_ENOUGH: u64 = 64 << 20;

const LIMITS: &str = "/proc/self/limits";

/// limits.conf(5), setcap(8): the ways to the rights without being root.
const FIX_RIGHTS: &str = "run whylate with sudo; or put `@realtime - rtprio 99` and `@realtime - memlock unlimited` into \
     /etc/security/limits.d/99-realtime.conf, run `sudo groupadd -rf realtime` and `sudo usermod -aG realtime $USER`, and log in \
     again (JACK's packages set the same limits for the group `audio`); or `sudo setcap cap_sys_nice,cap_ipc_lock+ep $(command -v \
     whylate)`";

const FIX_RIGHTS_CONTAINER: &str = "start the container with `--cap-add=SYS_NICE --cap-add=IPC_LOCK --ulimit rtprio=99 \
     --ulimit memlock=-1`; in a rootless container, only the two limits have an effect";

fn fix_rights(facts: &Facts) -> &'static str {
    if facts.environment.container.is_some() { FIX_RIGHTS_CONTAINER } else { FIX_RIGHTS }
}

pub(super) fn realtime_priority(inquiry: &Inquiry, code: FindingCode) -> Option<Finding> {
    let max = inquiry.facts.privileges.realtime_priority_max;
    let finding = match max {
        0 => code.serious("this process may not use real-time priorities").effect(
            "probes run as ordinary tasks (SCHED_OTHER), and their latencies include waiting for every other task",
        ),
        max if max < PRIORITY_DEFAULT => FindingCode::RealtimePriorityLimited
            .advice(format!("this process may use real-time priorities only up to {max}"))
            .effect("tasks of a higher priority delay the probes"),
        _ => code.fine(format!("real-time priorities up to {max} may be used")),
    };
    let finding = finding.seen(LIMITS, format!("highest real-time priority {max}"));
    Some(if max < PRIORITY_DEFAULT { finding.now(fix_rights(inquiry.facts)) } else { finding })
}

/// Documentation/scheduler/sched-rt-group.rst: a group without budget cannot hold real-time tasks, not even of root;
/// the check is skipped while `sched_rt_runtime_us` is -1.
pub(super) fn group_budget(inquiry: &Inquiry, code: FindingCode) -> Option<Finding> {
    let facts = inquiry.facts;
    let budget = facts.privileges.cgroup_rt_runtime_us?;
    let unlimited = facts.settings.rt_runtime_us == Some(-1);
    let period = facts.settings.rt_period_us.unwrap_or(1_000_000);
    let leave = if facts.environment.cgroup_version == Some(1) {
        "move this shell to the root group (`echo $$ | sudo tee /sys/fs/cgroup/cpu/tasks`) and start whylate from this shell"
    } else {
        "move this shell to the root group (`echo $$ | sudo tee /sys/fs/cgroup/cgroup.procs`) and start whylate from this shell"
    };
    let finding = match budget {
        0 if !unlimited => code
            .serious(
                "this kernel assigns real-time runtime to control groups (RT_GROUP_SCHED), and this process's group has none",
            )
            .effect("real-time priorities are refused, even to root")
            .now(format!(
                "{leave}; or `sudo sysctl -w kernel.sched_rt_runtime_us=-1`, which lifts the limit for all groups"
            )),
        1.. if budget < period => code
            .advice(format!(
                "on each CPU, the real-time tasks of this process's control group may together use {budget} us of each \
                 period (RT_GROUP_SCHED)"
            ))
            .effect("when this time is used up, the group's real-time tasks wait for the next period")
            .now(leave),
        _ => code.fine("the control group of this process does not limit real-time tasks"),
    };
    Some(finding.seen("cpu.rt_runtime_us of this process's group", budget.to_string()))
}

pub(super) fn memory_lock(inquiry: &Inquiry, code: FindingCode) -> Option<Finding> {
    let facts = inquiry.facts;
    let Some(bytes) = facts.privileges.lockable_bytes.filter(|&bytes| bytes < LOCKED_BYTES_ENOUGH) else {
        let known = !facts.kernel.version.is_empty();
        return known.then(|| code.fine("memory may be locked").seen(LIMITS, "enough"));
    };
    let fix = if facts.environment.container.is_some() {
        FIX_RIGHTS_CONTAINER
    } else {
        "run whylate with sudo, or put `@realtime - memlock unlimited` into /etc/security/limits.d/99-realtime.conf, \
         run `sudo groupadd -rf realtime` and `sudo usermod -aG realtime $USER`, and log in again"
    };
    code.advice(format!("this process may lock only {} of memory", Bytes(bytes)))
        .effect("if the measuring thread needs more memory, the latencies include its page faults")
        .seen(LIMITS, format!("locked memory {bytes}"))
        .now(fix)
        .into()
}

/// Documentation/power/pm_qos_interface.rst: holding the file open with 0 keeps idle states with an exit latency off.
pub(super) fn latency_request(inquiry: &Inquiry, code: FindingCode) -> Option<Finding> {
    const PATH: &str = "/dev/cpu_dma_latency";
    let facts = inquiry.facts;
    if facts.privileges.cpu_dma_latency {
        return code.well("deep idle states can be avoided during a measurement", PATH, "can be written");
    }
    let fix = if facts.environment.container.is_some() {
        "start the container with `--device /dev/cpu_dma_latency`, as a user who may write to the device"
    } else {
        "run whylate as root, or give your group write access to the file with a udev rule"
    };
    code.advice("/dev/cpu_dma_latency cannot be written")
        .effect("deep idle states cannot be avoided, and latencies include the time to leave them")
        .seen(PATH, "refused")
        .now(fix)
        .into()
}

pub(super) fn tracing(inquiry: &Inquiry, code: FindingCode) -> Option<Finding> {
    const PATH: &str = "/sys/kernel/tracing/tracing_on";
    let privileges = &inquiry.facts.privileges;
    if privileges.tracefs {
        return code.well("spikes can be traced", PATH, "can be written");
    }
    let fix = if privileges.root {
        "run whylate where tracefs may be mounted (CAP_SYS_ADMIN; a container needs /sys/kernel/tracing of the host)"
    } else {
        "run whylate as root"
    };
    code.info("this process may neither write nor mount tracefs")
        .effect("spikes cannot be marked in a trace, and a spike cannot stop the trace")
        .seen(PATH, "refused")
        .now(fix)
        .into()
}
