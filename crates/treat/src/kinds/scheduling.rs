//! `workqueue`, `fair-server` and `cgroup`: where work and groups run, and what ordinary tasks get while real-time
//! tasks are runnable.

use crate::change::{Change, Target};
use crate::kinds::required_file;
use crate::planner::{Impossible, Planned, Planner, Surroundings};
use crate::reading::Reading;
use whylate_core::plan::{CgroupPlan, FairServerPlan, WorkqueuePlan};

/// Where the CPUs of unbound work queues are set.
pub(super) const WORKQUEUES: &str = "/sys/devices/virtual/workqueue/cpumask";
const CGROUPS: &str = "/sys/fs/cgroup";
const FAIR_SERVER: &str = "/sys/kernel/debug/sched/fair_server";
/// Is there where debugfs is mounted.
const DEBUGFS: &str = "/sys/kernel/debug/sched";

impl Planner for WorkqueuePlan {
    fn plan(&self, surroundings: &Surroundings) -> Result<Planned, Impossible> {
        let cpus = surroundings.resolve("cpus", &self.cpus)?;
        required_file(surroundings, WORKQUEUES, "this kernel has no setting for the CPUs of workqueues")?;
        let effect = format!("unbound work items run on CPU {cpus}");
        let target = Target::file_with(WORKQUEUES, Reading::CpuMask);
        Ok(Planned::changes(vec![Change::required(target, cpus.to_string(), effect)]))
    }
}

impl Planner for FairServerPlan {
    fn plan(&self, surroundings: &Surroundings) -> Result<Planned, Impossible> {
        let change = |cpu| {
            let path = format!("{FAIR_SERVER}/cpu{cpu}/runtime");
            let otherwise = match surroundings.root.exists(DEBUGFS) {
                true if surroundings.root.exists(&path) => {
                    "the kernel refuses it (lockdown of debugfs, or whylate runs without root's rights)"
                }
                true => "this kernel has no fair server (Linux 6.12 and later have it)",
                false => "debugfs is not mounted; run `mount -t debugfs none /sys/kernel/debug`",
            };
            required_file(surroundings, &path, otherwise)?;
            let effect = format!("ordinary tasks get {} of each period on CPU {cpu}", self.runtime);
            Ok(Change::required(Target::file(path), self.runtime.0.to_string(), effect))
        };
        let cpus = surroundings.resolve("cpus", &self.cpus)?;
        Ok(Planned::changes(cpus.iter().map(change).collect::<Result<_, Impossible>>()?))
    }
}

impl Planner for CgroupPlan {
    fn plan(&self, surroundings: &Surroundings) -> Result<Planned, Impossible> {
        let cpus = surroundings.resolve("cpus", &self.cpus)?;
        let root = &surroundings.root;
        let group = format!("{CGROUPS}/{}", self.group);
        if !root.exists(&format!("{CGROUPS}/cgroup.controllers")) {
            return Err(Impossible::new(format!("no cgroup v2 is mounted at {CGROUPS}")));
        }
        if !root.exists(&format!("{group}/cgroup.procs")) {
            return Err(Impossible::new(format!("there is no group {group}; `systemd-cgls` lists them")));
        }
        // Each group above has to offer cpusets to those below.
        let parents = self.group.match_indices('/').map(|(end, _)| &self.group[..end]);
        let mut changes = Vec::new();
        for parent in std::iter::once("").chain(parents) {
            let separator = if parent.is_empty() { "" } else { "/" };
            let path = format!("{CGROUPS}{separator}{parent}/cgroup.subtree_control");
            required_file(surroundings, &path, "this is not a group of cgroup v2")?;
            let target = Target::file_with(path, Reading::CpusetController);
            changes.push(Change::required(target, "+cpuset", "child groups may have cpusets"));
        }
        let effect = format!("tasks of {} run on CPU {cpus}", self.group);
        let target = Target::file_with(format!("{group}/cpuset.cpus"), Reading::CpuList);
        changes.push(Change::required(target, cpus.to_string(), effect));
        Ok(Planned::changes(changes))
    }
}
