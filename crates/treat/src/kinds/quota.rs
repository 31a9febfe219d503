//! `cpu-quota`: what a process may use of the CPUs in each period.
//!
//! It sets the quota of its service's group, which the quota of a unit would use, too. If the process shares its group
//! with others, it makes a group for it. The kernel limits ordinary threads only. Real-time threads of the process go
//! with the others and are not limited.

use crate::change::{Change, Hierarchy, Target, Task, Undoing};
use crate::kinds::affinity::find;
use crate::kinds::writable;
use crate::planner::{Impossible, Planned, Planner, Surroundings};
use crate::reading::Reading;
use std::collections::BTreeSet;
use whylate_core::plan::CpuQuotaPlan;
use whylate_core::result::ThreadRow;
use whylate_core::{Warning, WarningCode};
use whylate_host::threads::Threads;
use whylate_host::{HostRoot, cgroup, release};

/// Where groups with CPU time are mounted: twice v1, then v2.
pub(crate) const MOUNTS: [&str; 4] =
    ["/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct", "/sys/fs/cgroup", "/sys/fs/cgroup/unified"];
/// Name of the group that is made.
pub(crate) const GROUP: &str = "whylate-quota";
/// The first process that the kernel starts.
const INIT: u32 = 1;
const PERIOD_US: u64 = 100_000;
/// The controller of v1.
const CONTROLLER: &str = "cpu";
/// From this version on, a quota stops a task only on its way out of the kernel ("sched/fair: Task based throttle").
const SAFE_RELEASE: (u32, u32) = (6, 18);

impl Planner for CpuQuotaPlan {
    fn plan(&self, surroundings: &Surroundings) -> Result<Planned, Impossible> {
        let root = &surroundings.root;
        let all = Threads::read(root)?.rows;
        let pids = find(&self.process, surroundings, &all)?;
        let threads: Vec<&ThreadRow> = all.iter().filter(|thread| pids.contains(&thread.pid)).collect();
        let mut planned = Planned { warnings: check(&self.process, &pids, &threads)?, ..Planned::default() };
        if stops_tasks_with_locks(root)? {
            let reason = "on PREEMPT_RT before Linux 6.18, a quota can throttle tasks that hold kernel locks, and this can hang the machine";
            return Err(Impossible::new(reason));
        }
        let groups = Groups::find(root)?;
        let services: BTreeSet<String> =
            pids.iter().filter_map(|pid| groups.of_service(root, *pid)).collect();
        let own = groups.of_service(root, std::process::id());
        if let Some(group) = own.filter(|group| services.contains(group)) {
            return Err(Impossible::new(format!(
                "whylate itself runs in {group}: start whylate in another group"
            )));
        }
        planned.changes = groups.offered(&services);
        for group in &services {
            let change = groups.limit(root, &format!("{}{group}", groups.mount), self.percent)?;
            planned.changes.push(change);
        }
        let alone: Vec<&ThreadRow> =
            threads.into_iter().filter(|it| groups.of_service(root, it.pid).is_none()).collect();
        if !alone.is_empty() {
            planned.changes.extend(groups.made(surroundings, &alone, self.percent)?);
        }
        Ok(planned)
    }
}

/// Refuses what no quota limits; reports what it limits only in part.
fn check(process: &str, pids: &[u32], threads: &[&ThreadRow]) -> Result<Vec<Warning>, Impossible> {
    if pids.contains(&std::process::id()) {
        return Err(Impossible::new("process: whylate itself cannot have a quota; name another process"));
    }
    if pids.contains(&INIT) {
        let reason = format!(
            "`{process}` is process {INIT} (init): with a quota on init, the whole machine may stop \
             responding; name the process that uses the CPU time"
        );
        return Err(Impossible::new(reason));
    }
    if threads.iter().any(|thread| thread.kernel) {
        return Err(Impossible::new(format!(
            "`{process}` is a kernel thread, and quotas do not limit kernel threads"
        )));
    }
    let is_ordinary = |thread: &&&ThreadRow| matches!(thread.policy.as_str(), "other" | "batch" | "idle");
    let others: Vec<&str> =
        threads.iter().filter(|it| !is_ordinary(it)).map(|thread| thread.name.as_str()).collect();
    if others.len() == threads.len() {
        let reason =
            format!("`{process}` has only real-time threads, and quotas do not limit real-time threads");
        return Err(Impossible::new(reason));
    }
    let text = || format!("a quota does not limit real-time threads: {}", others.join(", "));
    Ok((!others.is_empty()).then(|| Warning::new(WarningCode::TaskBound, text())).into_iter().collect())
}

/// Whether threads of the kernel, which count towards the quota on PREEMPT_RT, may wait for ever.
fn stops_tasks_with_locks(root: &HostRoot) -> Result<bool, Impossible> {
    let version = root.read("/proc/sys/kernel/version")?.unwrap_or_default();
    Ok(version.contains("PREEMPT_RT") && !release::is_from(root, SAFE_RELEASE)?)
}

/// The mounted groups that limit CPU time.
struct Groups {
    mount: &'static str,
    is_v2: bool,
}

impl Groups {
    fn find(root: &HostRoot) -> Result<Self, Impossible> {
        let (v1, v2) = MOUNTS.split_at(2);
        if let Some(mount) = v1.iter().find(|mount| root.exists(&format!("{mount}/cpu.cfs_quota_us"))) {
            return Ok(Self { mount, is_v2: false });
        }
        for mount in v2 {
            let controllers = root.read(&format!("{mount}/cgroup.controllers"))?.unwrap_or_default();
            if controllers.split_whitespace().any(|it| it == CONTROLLER) {
                return Ok(Self { mount, is_v2: true });
            }
        }
        let reason = "no control group can limit CPU time: the controller `cpu` of cgroup v1 or v2 is not \
             mounted, or this kernel was built without CONFIG_CFS_BANDWIDTH";
        Err(Impossible::new(reason))
    }

    /// The path of the group of the system's service that the process belongs to, below the mount.
    fn of_service(&self, root: &HostRoot, pid: u32) -> Option<String> {
        let service = cgroup::service_of(root, pid)?;
        let text = root.read(&format!("/proc/{pid}/cgroup")).ok()??;
        let group = cgroup::group_of(&text, (!self.is_v2).then_some(CONTROLLER))?;
        let end = group.find(&format!("/{service}"))? + 1 + service.len();
        Some(group[..end].to_owned())
    }

    /// Groups of v2 have the controller if each group above offers it.
    fn offered(&self, groups: &BTreeSet<String>) -> Vec<Change> {
        let above = groups.iter().flat_map(|group| group.match_indices('/').map(|(end, _)| &group[..end]));
        let all: BTreeSet<&str> = above.filter(|_| self.is_v2).collect();
        all.into_iter().map(|group| self.offering(group)).collect()
    }

    fn offering(&self, group: &str) -> Change {
        let path = format!("{}{group}/cgroup.subtree_control", self.mount);
        let target = Target::file_with(path, Reading::CpuController);
        Change::required(target, "+cpu", "child groups may have quotas")
    }

    /// The quota of an existing group.
    fn limit(&self, root: &HostRoot, group: &str, percent: u32) -> Result<Change, Impossible> {
        let (file, text) = match self.is_v2 {
            true => ("cpu.max", root.read_trimmed(&format!("{group}/cpu.max"))?),
            false => ("cpu.cfs_quota_us", root.read_trimmed(&format!("{group}/cpu.cfs_quota_us"))?),
        };
        let text = text.unwrap_or_default();
        let mut numbers = text.split_whitespace().map(|word| word.parse::<u64>().ok());
        let now_us = numbers.next().flatten();
        let of_v2 = numbers.next().flatten();
        let period_us = match self.is_v2 {
            true => of_v2,
            false => root.read_number(&format!("{group}/cpu.cfs_period_us"))?,
        };
        let period_us = period_us.unwrap_or(PERIOD_US);
        let quota_us = quota_us(period_us, percent);
        if now_us.is_some_and(|now| now <= quota_us) {
            return Err(Impossible::new(format!("{group} already has this quota or a lower one: {text}")));
        }
        Ok(self.quota(format!("{group}/{file}"), quota_us, period_us))
    }

    fn quota(&self, path: String, quota_us: u64, period_us: u64) -> Change {
        let new = if self.is_v2 { format!("{quota_us} {period_us}") } else { quota_us.to_string() };
        let effect = format!("tasks of the group may run for {quota_us} us of each {period_us} us");
        Change::required(Target::file_with(path, Reading::Words), new, effect)
    }

    /// Refuses to take a thread out of a group that limits it, such as a container's: it would get more than before.
    fn keeps_limits(&self, root: &HostRoot, thread: &ThreadRow) -> Result<(), Impossible> {
        let path = format!("/proc/{}/task/{}/cgroup", thread.pid, thread.tid);
        let text = root.read(&path)?.unwrap_or_default();
        let group = cgroup::group_of(&text, (!self.is_v2).then_some(CONTROLLER)).unwrap_or_default();
        let mut above = Some(group.trim_end_matches('/'));
        while let Some(group) = above.filter(|group| !group.is_empty()) {
            for (file, unlimited) in LIMITS {
                let path = format!("{}{group}/{file}", self.mount);
                let text = root.read_trimmed(&path)?.unwrap_or_default();
                if text.split_whitespace().next().is_some_and(|word| word != unlimited) {
                    return Err(Impossible::new(format!(
                        "{} ({}) would lose the limit of its present group ({path} is {text}); change the limit of that group instead",
                        thread.name, thread.tid
                    )));
                }
            }
            above = group.rsplit_once('/').map(|(above, _)| above);
        }
        Ok(())
    }

    /// A group with that quota, made for these threads.
    fn made(
        &self,
        surroundings: &Surroundings,
        threads: &[&ThreadRow],
        percent: u32,
    ) -> Result<Vec<Change>, Impossible> {
        let root = &surroundings.root;
        let group = format!("{}/{GROUP}", self.mount);
        if root.exists(&group) {
            let reason = format!(
                "{group} exists already, with a quota for another program: `whylate treat restore` removes the group"
            );
            return Err(Impossible::new(reason));
        }
        for thread in threads {
            self.keeps_limits(root, thread)?;
        }
        writable(surroundings, &format!("{}/cgroup.procs", self.mount))?;
        let mut changes: Vec<Change> = self.is_v2.then(|| self.offering("")).into_iter().collect();
        let effect = "a group for the process";
        changes.push(Change::required(Target::Directory { path: group.clone() }, Target::PRESENT, effect));
        let file = if self.is_v2 { "cpu.max" } else { "cpu.cfs_quota_us" };
        let quota = self.quota(format!("{group}/{file}"), quota_us(PERIOD_US, percent), PERIOD_US);
        changes.push(quota.undone(Undoing::WithFolder));
        // In v2 a process moves with all its threads.
        let moved = threads.iter().filter(|thread| !self.is_v2 || thread.tid == thread.pid);
        let hierarchy =
            || if self.is_v2 { Hierarchy::CgroupV2 } else { Hierarchy::CgroupV1(CONTROLLER.to_owned()) };
        changes.extend(moved.filter_map(|thread| Task::of(root, thread)).map(|task| {
            let effect = format!("the quota of the group applies to {task}");
            let mount = self.mount.to_owned();
            let target = Target::Membership { task, hierarchy: hierarchy(), mount };
            Change::required(target, format!("/{GROUP}"), effect)
        }));
        Ok(changes)
    }
}

/// The limit of a group: the file, and its first word if it limits nothing.
const LIMITS: [(&str, &str); 4] =
    [("cpu.max", "max"), ("cpu.weight", "100"), ("cpu.cfs_quota_us", "-1"), ("cpu.shares", "1024")];

fn quota_us(period_us: u64, percent: u32) -> u64 {
    (period_us * u64::from(percent) / 100).max(1_000)
}
