//! Settings that are not changed: they run programs, act instead of holding a value, or cannot be restored.

/// Why the setting at `path` is not set to `value`, as the end of a sentence; `None` if it may be set.
pub(crate) fn refusal(path: &str, value: &str) -> Option<&'static str> {
    let name = path.rsplit('/').next().unwrap_or_default();
    let is_below = |folders: &[&str]| folders.iter().any(|folder| path.starts_with(folder));
    if PROGRAMS.contains(&path) || is_below(&PROGRAM_FOLDERS) || name == "release_agent" {
        return Some("it sets which program the kernel runs as root");
    }
    if path.starts_with("/proc/") && !is_below(&["/proc/sys/", "/proc/irq/"]) {
        return Some("in /proc, only settings below /proc/sys and /proc/irq have a value to restore");
    }
    if ACTS.contains(&name)
        || ACT_ENDS.iter().any(|end| name.ends_with(end))
        || name == "tasks" && is_below(&["/sys/fs/"])
        // A count: each write adds to it.
        || name == "enable" && is_below(&["/sys/devices/pci", "/sys/bus/pci/"])
        || path.starts_with("/sys/power/") && POWER.contains(&name)
        // It takes a CPU down in steps, and its interrupts go elsewhere.
        || path.ends_with("/hotplug/target")
        || path.ends_with("/hotplug/fail")
    {
        return Some("a write triggers an action at once, and there is no value to restore");
    }
    let is_final =
        |(known, last): &(&str, Option<&str>)| *known == path && last.is_none_or(|it| it == value.trim());
    if ONE_WAY.iter().any(is_final) || is_below(&["/sys/kernel/security/"]) {
        return Some("it cannot be changed back before a reboot");
    }
    // Without discards the disk has no granularity of them, and takes no other value.
    if path.ends_with("/queue/discard_max_bytes") && value.trim() == "0" {
        return Some("it cannot be changed back before a reboot");
    }
    if path.starts_with("/sys/fs/cgroup/") && ["cpu.idle", "cpu.weight.nice"].contains(&name) {
        return Some("this change also changes `cpu.weight`, whose value would be lost");
    }
    if path.starts_with("/proc/sys/net/") && LOSES.contains(&name) {
        return Some("this change deletes network addresses or keys, which whylate cannot restore");
    }
    if is_volatile(path) {
        return Some("it changes by itself, so its former value means nothing");
    }
    None
}

/// Whether the kernel changes the value of a setting by itself.
fn is_volatile(path: &str) -> bool {
    VOLATILE.contains(&path)
        || path.starts_with("/proc/sys/kernel/random/")
        || VOLATILE_NAMES.contains(&path.rsplit('/').next().unwrap_or_default())
        // Computed from the free memory and a ratio, which is the setting.
        || path.contains("/bdi/") && path.ends_with("_bytes")
}

const PROGRAMS: [&str; 7] = [
    "/proc/sys/kernel/core_pattern",
    "/proc/sys/kernel/modprobe",
    "/proc/sys/kernel/hotplug",
    "/proc/sys/kernel/poweroff_cmd",
    "/proc/sys/kernel/cad_pid",
    "/sys/kernel/uevent_helper",
    "/sys/module/firmware_class/parameters/path",
];
const PROGRAM_FOLDERS: [&str; 2] = ["/proc/sys/kernel/usermodehelper/", "/proc/sys/fs/binfmt_misc/"];

/// Names of files that act, in any folder.
const ACTS: &[&str] = &[
    "uevent",
    "bind",
    "unbind",
    "new_id",
    "remove_id",
    "remove",
    "rescan",
    "dev_rescan",
    "reset",
    "delete",
    "drivers_probe",
    "driver_override",
    "drivers_autoprobe",
    "probe",
    "flush",
    "drop_caches",
    "compact_memory",
    "compact",
    "stat_refresh",
    "sysrq-trigger",
    "eject",
    "create",
    "destroy",
    "register",
    "unregister",
    "add",
    "new_device",
    "delete_device",
    "sriov_numvfs",
    "soft_offline_page",
    "hard_offline_page",
    "reclaim",
    "memory.reclaim",
    "cgroup.kill",
    "cgroup.procs",
    "cgroup.threads",
    "loading",
    "data",
    "disksize",
    "hot_add",
    "hot_remove",
    "online_store",
    "shm_rmid_forced",
    "make-it-fail",
    "kdb",
];
const ACT_ENDS: [&str; 4] = ["_clear", "_reset", "_flush", "_rescan"];
/// Files of `/sys/power` that put the machine to sleep or read otherwise than they are written.
const POWER: [&str; 6] = ["state", "autosleep", "wakeup_count", "resume", "resume_offset", "disk"];

/// Switches that go one way; with a value if only that one is final.
const ONE_WAY: [(&str, Option<&str>); 15] = [
    ("/proc/sys/net/netfilter/nf_hooks_lwtunnel", None),
    ("/sys/module/apparmor/parameters/lock_policy", None),
    ("/sys/module/module/parameters/sig_enforce", None),
    // It can become smaller, never larger.
    ("/sys/kernel/kexec_crash_size", None),
    // Any value switches it on.
    ("/sys/kernel/profiling", None),
    ("/proc/sys/kernel/unprivileged_bpf_disabled", None),
    ("/proc/sys/kernel/kexec_load_disabled", None),
    ("/proc/sys/kernel/kexec_load_limit_panic", None),
    ("/proc/sys/kernel/kexec_load_limit_reboot", None),
    ("/proc/sys/kernel/modules_disabled", None),
    ("/proc/sys/kernel/tainted", None),
    ("/proc/sys/kernel/loadpin/enabled", None),
    ("/proc/sys/kernel/loadpin/enforce", None),
    ("/proc/sys/kernel/yama/ptrace_scope", Some("3")),
    ("/proc/sys/vm/memfd_noexec", None),
];

/// Below /proc/sys/net: the first one removes all addresses of an interface, the others hold secrets.
const LOSES: [&str; 3] = ["disable_ipv6", "stable_secret", "tcp_fastopen_key"];

const VOLATILE: [&str; 6] = [
    "/proc/sys/kernel/ns_last_pid",
    "/proc/sys/fs/dentry-state",
    "/proc/sys/fs/inode-nr",
    "/proc/sys/fs/inode-state",
    "/proc/sys/fs/file-nr",
    "/proc/sys/kernel/tainted",
];
const VOLATILE_NAMES: [&str; 3] = ["nf_conntrack_count", "aio-nr", "pty_nr"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_acts_and_one_way_switches_are_refused() {
        for (path, value) in [
            ("/proc/sys/kernel/core_pattern", "core"),
            ("/proc/sys/kernel/modprobe", "/bin/true"),
            ("/sys/kernel/uevent_helper", ""),
            ("/sys/fs/cgroup/cpu/release_agent", "/x"),
            ("/proc/sys/kernel/usermodehelper/bset", "0 0"),
            ("/proc/sys/fs/binfmt_misc/register", "x"),
            ("/proc/sysrq-trigger", "b"),
            ("/proc/acpi/wakeup", "LID"),
            ("/sys/power/state", "mem"),
            ("/proc/sys/vm/drop_caches", "3"),
            ("/sys/devices/system/cpu/cpu0/hotplug/target", "0"),
            ("/proc/sys/net/ipv4/route/flush", "1"),
            ("/sys/bus/pci/rescan", "1"),
            ("/sys/devices/pci0000:00/0000:00:01.0/remove", "1"),
            ("/sys/class/net/eth0/uevent", "add"),
            ("/sys/fs/cgroup/a/cgroup.procs", "1"),
            ("/sys/fs/resctrl/a/tasks", "1"),
            ("/sys/fs/cgroup/a/cpu.idle", "1"),
            ("/sys/bus/pci/devices/0000:00:03.0/enable", "0"),
            ("/proc/sys/kernel/unprivileged_bpf_disabled", "1"),
            ("/proc/sys/kernel/modules_disabled", "1"),
            ("/sys/kernel/profiling", "0"),
            ("/proc/sys/net/netfilter/nf_hooks_lwtunnel", "1"),
            ("/sys/module/apparmor/parameters/lock_policy", "Y"),
            ("/proc/sys/kernel/yama/ptrace_scope", "3"),
            ("/proc/sys/net/ipv6/conf/eth0/disable_ipv6", "1"),
            ("/proc/sys/kernel/ns_last_pid", "7"),
            ("/sys/devices/x/block/vda/queue/discard_max_bytes", "0"),
            ("/sys/devices/virtual/bdi/254:0/max_bytes", "4096"),
        ] {
            assert!(refusal(path, value).is_some(), "{path}");
        }
    }

    #[test]
    fn what_holds_a_value_is_not() {
        for (path, value) in [
            ("/proc/sys/vm/swappiness", "1"),
            ("/proc/sys/vm/dirty_bytes", "1000000"),
            ("/proc/sys/kernel/yama/ptrace_scope", "1"),
            ("/proc/irq/3/smp_affinity_list", "0"),
            ("/sys/kernel/mm/transparent_hugepage/enabled", "never"),
            ("/sys/power/pm_async", "0"),
            ("/sys/devices/x/block/vda/queue/discard_max_bytes", "4096"),
            ("/sys/fs/cgroup/a/cpu.weight", "7"),
            ("/sys/block/sda/queue/scheduler", "none"),
        ] {
            assert_eq!(refusal(path, value), None, "{path}");
        }
    }
}
