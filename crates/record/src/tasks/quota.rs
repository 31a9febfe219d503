//! The control group whose quota an activation had used up.

use super::neighbours::group_of;
use std::time::Duration;
use whylate_core::figure::nanoseconds;
use whylate_core::recording::Activation;
use whylate_host::HostRoot;

/// Where cgroup v2 is mounted, alone or together with v1.
const MOUNTS: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];

/// The control group and its quota, if one was used up: `/plc (20.0 ms of each 100 ms)`; of nested groups the one that
/// has the least left.
pub(super) fn of(host: &HostRoot, activation: &Activation) -> Option<String> {
    if activation.quota_ns() == 0 {
        return None;
    }
    of_thread(host, activation.thread.pid)
}

/// The same, whether it was used up or not.
pub(super) fn of_thread(host: &HostRoot, thread: u32) -> Option<String> {
    let text = host.read(&format!("/proc/{thread}/cgroup")).ok().flatten()?;
    let group = group_of(&text)?;
    let limits = std::path::Path::new(&group).ancestors().filter_map(|group| {
        let group = group.to_str()?.trim_end_matches('/');
        let (quota_us, period_us) =
            MOUNTS.iter().find_map(|mount| limit(host, &format!("{mount}{group}")))?;
        Some((quota_us as f64 / period_us as f64, group.to_owned(), quota_us, period_us))
    });
    let (_, group, quota_us, period_us) = limits.min_by(|one, other| one.0.total_cmp(&other.0))?;
    let time = |us| nanoseconds(Duration::from_micros(us).as_nanos() as u64);
    Some(format!("{group} ({} of each {})", time(quota_us), time(period_us)))
}

/// Quota and period in microseconds; `None` without a quota.
fn limit(host: &HostRoot, folder: &str) -> Option<(u64, u64)> {
    let text = host.read_trimmed(&format!("{folder}/cpu.max")).ok().flatten()?;
    let (quota, period) = text.split_once(' ')?;
    Some((quota.parse().ok()?, period.parse().ok().filter(|period| *period > 0)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use whylate_core::CpuId;
    use whylate_core::recording::{Budget, Doing, Stage, Thread};

    #[test]
    fn of_nested_groups_the_one_with_the_least_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("proc/7/cgroup", "0::/plc/control\n");
        write("sys/fs/cgroup/plc/cpu.max", "20000 100000\n");
        write("sys/fs/cgroup/plc/control/cpu.max", "max 100000\n");
        let preempted = |budget| {
            let what = Doing::Preempted { by: Thread::default(), budget };
            let stages = vec![Stage { from_ns: 0, to_ns: 9, cpu: CpuId(0), what }];
            let mut activation = Activation { stages, ..Activation::default() };
            activation.thread.pid = 7;
            of(&HostRoot::at(folder.path()), &activation)
        };
        assert_eq!(preempted(Budget::Left), None);
        assert!(of_thread(&HostRoot::at(folder.path()), 7).is_some());
        assert_eq!(preempted(Budget::Quota).as_deref(), Some("/plc (20.0 ms of each 100 ms)"));
        write("sys/fs/cgroup/plc/control/cpu.max", "5000 50000\n");
        assert_eq!(preempted(Budget::Quota).as_deref(), Some("/plc/control (5.00 ms of each 50.0 ms)"));
    }
}
