//! Treatments of how threads and groups are scheduled.

use super::{Flag, KeyError, Words};
use crate::cpus::CpuSelector;
use crate::units::Nanos;
use crate::words::words;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Gives threads a scheduling policy, a priority or a nice value; also threads of the kernel.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("x-examples" = "\
Examples:
  whylate treat apply priority 'irq/*-eth0' --policy fifo --priority 40
  whylate treat apply priority ksoftirqd/1 --policy fifo --priority 1
  whylate treat apply priority logger --policy other --nice 10
A thread that is started later is not changed."))]
pub struct PriorityPlan {
    /// Name of the threads, where `*` stands for any text, or the number of one.
    #[schemars(extend("x-flag" = Flag::positional("thread")))]
    pub thread: String,
    /// Their policy.
    pub policy: ThreadPolicy,
    /// Real-time priority, 1 to 99 (`fifo` and `rr`).
    pub priority: Option<u32>,
    /// Nice value, -20 to 19 (`other` and `batch`).
    #[schemars(extend("x-flag" = Flag::default().hyphens()))]
    pub nice: Option<i32>,
}

words! {
    /// Policies that a thread can be given.
    pub enum ThreadPolicy: "a scheduling policy" {
        /// SCHED_FIFO.
        Fifo = "fifo",
        /// SCHED_RR.
        Rr = "rr",
        /// SCHED_OTHER.
        Other = "other",
        /// SCHED_BATCH.
        Batch = "batch",
        /// SCHED_IDLE.
        Idle = "idle",
    }
}

/// Keeps the work queues of the kernel that are not bound to a CPU on certain CPUs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("x-examples" = "\
Examples:
  whylate treat apply workqueue --cpus 0"))]
pub struct WorkqueuePlan {
    /// CPUs to do the work.
    #[serde(default = "CpuSelector::others")]
    pub cpus: CpuSelector,
}

/// Sets what ordinary tasks are given of a CPU that real-time tasks keep busy (the fair server, since Linux 6.12).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("x-examples" = "\
Examples:
  whylate treat apply fair-server --cpus 1          nothing: a real-time loop may take all of it
  whylate treat apply fair-server 20ms --cpus 1     of each period (1s, unless it was changed)"))]
pub struct FairServerPlan {
    /// Time in each period.
    #[serde(default)]
    #[schemars(extend("x-flag" = Flag::positional("runtime")))]
    pub runtime: Nanos,
    /// On which CPUs.
    #[serde(default = "CpuSelector::target")]
    #[schemars(extend("x-flag" = Flag::by_default("all")))]
    pub cpus: CpuSelector,
}

/// Moves a group of processes (cgroup v2) with all that starts in it later to certain CPUs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("x-examples" = "\
Examples:
  whylate treat apply cgroup system.slice --cpus 0
  whylate treat apply cgroup user.slice/user-1000.slice --cpus 0-1"))]
pub struct CgroupPlan {
    /// Path of the group below /sys/fs/cgroup.
    #[schemars(extend("x-flag" = Flag::positional("group")))]
    pub group: String,
    /// CPUs for its tasks.
    #[serde(default = "CpuSelector::others")]
    pub cpus: CpuSelector,
}

/// Limits what the ordinary threads of a process may use of the CPUs: they stop for the rest of each tenth of a second once they
/// have used their part of it. Real-time threads are not limited.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("x-examples" = "\
Examples:
  whylate treat apply cpu-quota backup --percent 25
  whylate treat apply cpu-quota 4711 --percent 150     one CPU and a half
The group of its service gets the quota, or a group that is made for it, of which there is one at a
time. Permanent: CPUQuota= of its unit."))]
pub struct CpuQuotaPlan {
    /// The process by its number or name; all of that name share the quota.
    #[schemars(extend("x-flag" = Flag::positional("process")))]
    pub process: String,
    /// What they may use, in percent of one CPU.
    pub percent: u32,
}

impl Words for WorkqueuePlan {}
impl Words for FairServerPlan {}

impl Words for PriorityPlan {
    fn check(&self) -> Result<(), KeyError> {
        let wrong = |key, message: &str| Err(KeyError::new(key, message));
        let is_real_time = matches!(self.policy, ThreadPolicy::Fifo | ThreadPolicy::Rr);
        let has_nice = matches!(self.policy, ThreadPolicy::Other | ThreadPolicy::Batch);
        match (self.priority, self.nice) {
            _ if self.thread.trim_matches('*').is_empty() => wrong("thread", "names no thread"),
            (None, _) if is_real_time => wrong("priority", "is missing; `fifo` and `rr` have one, 1 to 99"),
            (Some(_), _) if !is_real_time => wrong("priority", "only `fifo` and `rr` have one"),
            (Some(0 | 100..), _) => wrong("priority", "is out of range; a real-time priority is 1 to 99"),
            (_, Some(_)) if !has_nice => wrong("nice", "only `other` and `batch` have one"),
            (_, Some(nice)) if !(-20..=19).contains(&nice) => wrong("nice", "is out of range: -20 to 19"),
            _ => Ok(()),
        }
    }
}

impl Words for CpuQuotaPlan {
    fn check(&self) -> Result<(), KeyError> {
        // The kernel takes no less than a millisecond of each tenth of a second.
        match self.percent {
            1..=100_000 => Ok(()),
            _ => Err(KeyError::new("percent", "is out of range; 100 is one CPU, 1 the least")),
        }
    }
}

impl Words for CgroupPlan {
    fn check(&self) -> Result<(), KeyError> {
        let is_path = self.group.split('/').all(|part| !part.is_empty() && part != "." && part != "..");
        let message = "is not a path below /sys/fs/cgroup; name a group: system.slice";
        if is_path { Ok(()) } else { Err(KeyError::new("group", message)) }
    }
}
