//! What a treatment of whylate can change at all: kinds, paths and values.
//!
//! It is checked before a change is made, and again for every line of a journal before it is undone. A journal that
//! another user could have written is not read, and a forged line cannot make root write any other file.

use crate::change::{Change, Hierarchy, Target, Undoing};
use crate::ethernet;
use crate::kinds::refused::refusal;
use crate::kinds::{cache, interrupts, is_setting, offline, quota};
use crate::nvidia::UNLOCKED;
use crate::priority;
use crate::reading::Reading;
use whylate_core::CpuSet;
use whylate_host::HostRoot;
use whylate_host::shield::{GROUP, MARK, MOUNTS, OTHERS_GROUP};

/// The folders of trace buffers, and the mount of their file system.
const TRACEFS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
const LENGTH_MAX: usize = 1 << 20;

/// Whether a treatment, or a recording, can make this change from `old`.
///
/// # Errors
/// What is wrong with it, as the end of a sentence.
pub(crate) fn check(change: &Change, old: &str, root: &HostRoot) -> Result<(), &'static str> {
    let Change { target, new, undoing, .. } = change;
    if !is_text(new) || !is_text(old) {
        return Err("its value has control characters");
    }
    if new.len().max(old.len()) > LENGTH_MAX {
        return Err("its value is too long");
    }
    // It goes away with its folder, and nothing is written.
    let old = if *undoing == Undoing::WithFolder { new } else { old };
    let either = |first: &str, second: &str| [new, old].iter().all(|it| *it == first || *it == second);
    let both = |is_one: &dyn Fn(&str) -> bool| is_one(new) && is_one(old);
    let (is_place, is_value) = match target {
        Target::File { path, reading } => {
            (is_file(path, *reading, root), both(&|value| is_reading(*reading, value)))
        }
        Target::Directory { path } => (is_group(path, root), either(Target::PRESENT, Target::ABSENT)),
        Target::Mount { path, filesystem, options } => {
            let known = [(cache::MOUNT, "resctrl"), (TRACEFS[0], "tracefs")];
            let is_known = known.contains(&(path.as_str(), filesystem.as_str())) && options.is_empty();
            (is_known, either(Target::PRESENT, Target::ABSENT))
        }
        Target::GpuClock { address } => {
            let is_address = address.chars().all(|c| c.is_ascii_hexdigit() || matches!(c, ':' | '.'));
            (is_address, both(&is_clock))
        }
        Target::Ethernet { interface, setting } => {
            let is_name = |c: char| c.is_ascii_graphic() && c != '/';
            (interface.chars().all(is_name), both(&|value| ethernet::is_value(*setting, value)))
        }
        Target::Affinity { .. } => (true, both(&is_cpus)),
        Target::Scheduling { .. } => (true, both(&|value| priority::parse(value).is_some())),
        Target::Membership { hierarchy, mount, .. } => {
            let is_mount = match hierarchy {
                Hierarchy::Resctrl => mount == cache::MOUNT,
                Hierarchy::CgroupV1(_) | Hierarchy::CgroupV2 => {
                    quota::MOUNTS.contains(&mount.as_str()) || mounts(root).contains(mount)
                }
            };
            (is_mount, both(&|group| group.starts_with('/') && is_clean(group)))
        }
        Target::Stopped { task } => {
            (task.name == interrupts::BALANCER, either(Target::STOPPED, Target::RUNNING))
        }
    };
    let refused = match target {
        Target::File { path, .. } => refusal(path, new),
        _ => None,
    };
    match (is_place, is_value) {
        (true, true) => refused.map_or(Ok(()), Err),
        (false, _) => Err("no treatment may change it"),
        (true, false) => Err("the setting cannot have this value"),
    }
}

/// Whether a value has no control characters but those of lists and tables.
pub(crate) fn is_text(value: &str) -> bool {
    value.chars().all(|c| !c.is_control() || matches!(c, '\n' | '\t' | '\0'))
}

/// A path without steps back, and without characters that a terminal or a tool could misread.
fn is_clean(path: &str) -> bool {
    !path.split('/').any(|part| part == "..") && !path.chars().any(char::is_control)
}

fn is_file(path: &str, reading: Reading, root: &HostRoot) -> bool {
    if reading == Reading::Text {
        return path == MARK;
    }
    let name = path.rsplit('/').next().unwrap_or_default();
    let is_cpuset = name.starts_with("cpuset.") && mounts(root).iter().any(|mount| is_below(path, mount));
    is_clean(path) && (is_setting(path) || is_cpuset)
}

fn is_below(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'))
}

/// Groups that whylate makes: of cpusets, of CPU time, of resctrl, and trace buffers.
fn is_group(path: &str, root: &HostRoot) -> bool {
    let Some((around, name)) = path.rsplit_once('/') else { return false };
    let is_buffer = TRACEFS.iter().any(|tracefs| around.strip_prefix(tracefs) == Some("/instances"));
    let is_named = |first: &str| name.strip_prefix(first).is_some_and(|rest| !rest.is_empty());
    (around == cache::MOUNT && name == cache::GROUP)
        || (quota::MOUNTS.contains(&around) && name == quota::GROUP)
        || (is_buffer && is_named("whylate-"))
        || (mounts(root).iter().any(|mount| mount == around) && [GROUP, OTHERS_GROUP].contains(&name))
}

/// Where groups with cpusets are mounted, or may be.
fn mounts(root: &HostRoot) -> Vec<String> {
    let found = offline::mount_of_cpusets_v1(root).ok().flatten();
    MOUNTS.into_iter().map(str::to_owned).chain(found).collect()
}

/// A CPU list, which may be empty.
fn is_cpus(value: &str) -> bool {
    value.trim().parse::<CpuSet>().is_ok()
}

fn is_clock(value: &str) -> bool {
    let is_number = |text: &str| text.parse::<u32>().is_ok();
    value == UNLOCKED || value.split_once(',').is_some_and(|(min, max)| is_number(min) && is_number(max))
}

/// Whether a file of that form can hold the text, as it is read or as it is compared.
fn is_reading(reading: Reading, text: &str) -> bool {
    let normal = reading.normal(text);
    match reading {
        Reading::CpuList | Reading::CpuMask => is_cpus(&normal),
        Reading::Text => normal == Target::ABSENT || is_cpus(&normal),
        Reading::Switch => matches!(normal.as_str(), "0" | "1"),
        Reading::Rounded => normal.parse::<u64>().is_ok(),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change::Task;

    fn says(target: Target, old: &str, new: &str) -> Result<(), &'static str> {
        check(&Change::required(target, new, "tries"), old, &HostRoot::at("/nowhere"))
    }

    fn task(name: &str) -> Task {
        Task { pid: 1, tid: 1, start_ticks: 1, name: name.to_owned() }
    }

    #[test]
    fn what_treatments_change_is_claimed() {
        for (target, old, new) in [
            (Target::file("/proc/sys/vm/swappiness"), "60\n", "1"),
            (Target::file_with("/proc/irq/3/smp_affinity_list", Reading::CpuList), "0-1\n", "0"),
            (Target::file_with("/sys/devices/virtual/workqueue/cpumask", Reading::CpuMask), "3\n", "0"),
            (Target::file_with("/dev/cpuset/rt/cpuset.cpus", Reading::CpuList), "1\n", ""),
            (Target::file_with(MARK, Reading::Text), Target::ABSENT, "1"),
            (Target::Directory { path: "/sys/fs/cgroup/whylate-shield".to_owned() }, "absent", "present"),
            (Target::Directory { path: "/sys/fs/cgroup/cpu/whylate-quota".to_owned() }, "absent", "present"),
            (
                Target::Directory { path: "/sys/kernel/tracing/instances/whylate-trace-7".to_owned() },
                "absent",
                "present",
            ),
            (Target::Affinity { task: task("x") }, "0-1", "1"),
            (Target::Scheduling { task: task("x") }, "other 0", "fifo 50 reset-on-fork"),
            (Target::Stopped { task: task("irqbalance") }, "running", "stopped"),
            (Target::GpuClock { address: "0000:01:00.0".to_owned() }, "unlocked", "900,900"),
        ] {
            assert_eq!(says(target.clone(), old, new), Ok(()), "{target}");
        }
    }

    #[test]
    fn nothing_else_is() {
        let directory = |path: &str| Target::Directory { path: path.to_owned() };
        let mount = |path: &str, filesystem: &str| Target::Mount {
            path: path.to_owned(),
            filesystem: filesystem.to_owned(),
            options: String::new(),
        };
        let (place, value) = (Err("no treatment may change it"), Err("the setting cannot have this value"));
        for (target, old, new, expected) in [
            (Target::file("/etc/passwd"), "", "root::0:0:::", place),
            (Target::file("/sys/../etc/passwd"), "", "x", place),
            (Target::file("/proc/self/root/etc/passwd"), "", "x", place),
            (Target::file("/proc/1/root/etc/passwd"), "", "x", place),
            (Target::file("/proc/thread-self/mem"), "", "x", place),
            (Target::file_with("/etc/cron.d/x", Reading::Text), "absent", "* * * * * root x", place),
            (Target::file_with(MARK, Reading::Text), "absent", "not a list", value),
            (Target::file("/dev/cpuset/notify_on_release"), "0", "1", place),
            (Target::file("/dev/sda"), "0", "1", place),
            (directory("/etc/whylate"), "absent", "present", place),
            (directory("/sys/fs/cgroup/system.slice"), "absent", "present", place),
            (directory("/sys/kernel/tracing/instances/other"), "absent", "present", place),
            (directory("/sys/fs/cgroup/system.slice/whylate-quota"), "absent", "present", place),
            (mount("/etc", "tmpfs"), "absent", "present", place),
            (mount("/etc", "tracefs"), "absent", "present", place),
            (Target::Stopped { task: task("sshd") }, "running", "stopped", place),
            (Target::Affinity { task: task("x") }, "all", "1", value),
            (Target::Scheduling { task: task("x") }, "other 0", "fifo 100", value),
            (Target::Scheduling { task: task("x") }, "deadline 1", "other 0", value),
            (Target::GpuClock { address: "../../x".to_owned() }, "unlocked", "unlocked", place),
            (Target::GpuClock { address: "0".to_owned() }, "unlocked", "--reset", value),
        ] {
            assert_eq!(says(target.clone(), old, new), expected, "{target}");
        }
        assert!(says(Target::file("/sys/a"), "1\u{1b}[2J", "1").is_err());
        let link = |interface: &str| Target::Ethernet {
            interface: interface.to_owned(),
            setting: crate::change::EthernetSetting::LinkSleep,
        };
        assert_eq!(says(link("eth0"), "on", "off"), Ok(()));
        assert_eq!(says(link("../x"), "on", "off"), place);
        assert_eq!(says(link("eth0"), "on", "maybe"), value);
        let hierarchy = Hierarchy::CgroupV2;
        let member = |mount: &str| Target::Membership {
            task: task("x"),
            hierarchy: hierarchy.clone(),
            mount: mount.to_owned(),
        };
        assert_eq!(says(member("/sys/fs/cgroup"), "/", "/whylate-shield"), Ok(()));
        assert_eq!(says(member("/tmp"), "/", "/x"), place);
        assert_eq!(says(member("/sys/fs/cgroup"), "/../../../etc", "/x"), value);
    }
}
