//! What this process may do: real-time priorities, locking memory, latency requests, tracing.

use super::environment::{Cgroups, Controller};
use super::kernel::is_locked_down;
use super::{FactReader, kernel_options, value_of};
use whylate_core::facts::{KernelFacts, PrivilegeFacts};

/// Bits of `CapEff` (include/uapi/linux/capability.h).
const CAP_IPC_LOCK: u32 = 14;
const CAP_SYS_ADMIN: u32 = 21;
const CAP_SYS_NICE: u32 = 23;

/// The highest SCHED_FIFO priority (sched(7)).
const PRIORITY_MAX: u64 = 99;

pub(super) fn privileges(reader: &FactReader, kernel: &KernelFacts) -> PrivilegeFacts {
    let status = reader.raw("/proc/self/status").unwrap_or_default();
    let limits = reader.raw("/proc/self/limits").unwrap_or_default();
    let user = value_of(&status, "Uid").and_then(|ids| ids.split_whitespace().nth(1)?.parse::<u32>().ok());
    let initial = in_initial_user_namespace(reader);
    let has = |capability| initial && has_capability(&status, capability);
    let lockable = soft_limit(&limits, "Max locked memory").unwrap_or(Limit::Unlimited);
    PrivilegeFacts {
        root: user == Some(0),
        realtime_priority_max: match soft_limit(&limits, "Max realtime priority") {
            _ if has(CAP_SYS_NICE) => PRIORITY_MAX as u32,
            Some(Limit::Unlimited) => PRIORITY_MAX as u32,
            Some(Limit::Value(priority)) => priority.min(PRIORITY_MAX) as u32,
            None => 0,
        },
        lockable_bytes: match lockable {
            Limit::Value(bytes) if !has(CAP_IPC_LOCK) => Some(bytes),
            _ => None,
        },
        cpu_dma_latency: reader.root.is_writable("/dev/cpu_dma_latency"),
        tracefs: tracefs(reader, has(CAP_SYS_ADMIN)),
        cgroup_rt_runtime_us: cgroup_budget(reader, kernel),
    }
}

/// Whether tracefs can be written: at its mount point, otherwise where a run would mount it.
fn tracefs(reader: &FactReader, may_mount: bool) -> bool {
    let switches = ["/sys/kernel/tracing/tracing_on", "/sys/kernel/debug/tracing/tracing_on"];
    if switches.iter().any(|switch| reader.root.exists(switch)) {
        return switches.iter().any(|switch| reader.root.is_writable(switch));
    }
    let known = reader.raw("/proc/filesystems").unwrap_or_default();
    may_mount && !is_locked_down(reader) && known.split_whitespace().any(|name| name == "tracefs")
}

/// The kernel asks for CAP_SYS_NICE and CAP_IPC_LOCK in the initial user namespace (`capable()`); root of a
/// rootless container holds them only in its own. The initial namespace is the one that maps every user id to
/// itself.
fn in_initial_user_namespace(reader: &FactReader) -> bool {
    let map = reader.text("/proc/self/uid_map");
    map.is_none_or(|map| map.split_whitespace().eq(["0", "0", "4294967295"]))
}

fn has_capability(status: &str, capability: u32) -> bool {
    let bits = value_of(status, "CapEff").and_then(|bits| u64::from_str_radix(bits, 16).ok());
    bits.is_some_and(|bits| bits >> capability & 1 == 1)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Limit {
    Unlimited,
    Value(u64),
}

/// The soft limit of a line of /proc/PID/limits, the one that the kernel enforces.
fn soft_limit(limits: &str, name: &str) -> Option<Limit> {
    let line = limits.lines().find_map(|line| line.strip_prefix(name))?;
    match line.split_whitespace().next()? {
        "unlimited" => Some(Limit::Unlimited),
        value => value.parse().ok().map(Limit::Value),
    }
}

/// The real-time budget of this process's group, when the kernel was built with RT_GROUP_SCHED.
///
/// cgroup v1 states it in `cpu.rt_runtime_us`. cgroup v2 has no file for it, and every group below the root with the
/// cpu controller has none (Documentation/admin-guide/cgroup-v2.rst, "CPU"): 0.
fn cgroup_budget(reader: &FactReader, kernel: &KernelFacts) -> Option<i64> {
    match Cgroups::read(reader).controller(reader, "cpu")? {
        Controller { is_root_group: true, .. } => None,
        Controller { version: 1, folder, .. } => reader.number(&format!("{folder}/cpu.rt_runtime_us")),
        Controller { folder, .. } => {
            let controlled = reader.root.exists(&format!("{folder}/cpu.weight"));
            (controlled && groups_realtime_tasks(reader, kernel)).then_some(0)
        }
    }
}

/// Whether the kernel schedules real-time tasks by group, from the configuration that distributions install in `/boot`
/// and the `rt_group_sched=` option (since Linux 6.16).
fn groups_realtime_tasks(reader: &FactReader, kernel: &KernelFacts) -> bool {
    let config = reader.raw(&format!("/boot/config-{}", kernel.release)).unwrap_or_default();
    let built_with = |option: &str| config.lines().any(|line| line == option);
    let option =
        kernel_options(&kernel.command_line).rev().find_map(|word| word.strip_prefix("rt_group_sched="));
    let enabled = match option {
        Some(value) => !matches!(value, "0" | "n" | "N" | "off" | "no"),
        None => !built_with("CONFIG_RT_GROUP_SCHED_DEFAULT_DISABLED=y"),
    };
    built_with("CONFIG_RT_GROUP_SCHED=y") && enabled
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn limits_and_capabilities() {
        let limits = "Max locked memory         8388608              unlimited            bytes     \n\
                      Max realtime priority     unlimited            0                    \n";
        assert_eq!(soft_limit(limits, "Max locked memory"), Some(Limit::Value(8 << 20)));
        assert_eq!(soft_limit(limits, "Max realtime priority"), Some(Limit::Unlimited));
        assert_eq!(soft_limit(limits, "Max nice priority"), None);
        assert!(has_capability("CapEff:\t0000000000804000\n", CAP_SYS_NICE));
        assert!(has_capability("CapEff:\t0000000000804000\n", CAP_IPC_LOCK));
        assert!(!has_capability("CapEff:\t0000000000004000\n", CAP_SYS_NICE));
    }

    proptest! {
        #[test]
        fn no_text_panics(limits in "Max locked memory\\PC{0,9}\n", status in "CapEff:[0-9a-f]{0,20}\\PC{0,3}\n") {
            let _ = soft_limit(&limits, "Max locked memory");
            let _ = has_capability(&status, CAP_SYS_NICE);
        }
    }
}
