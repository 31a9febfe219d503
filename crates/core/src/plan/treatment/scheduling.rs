//! Treatments of how threads and groups are scheduled.

use super::{Flag, KeyError, Words};
use crate::cpus::CpuSelector;
use crate::units::Nanos;
use crate::words::words;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Gives threads, also kernel threads, a scheduling policy, a priority or a nice value.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("x-examples" = "\
Examples:
  whylate treat apply priority 'irq/*-eth0' --policy fifo --priority 40
  whylate treat apply priority ksoftirqd/1 --policy fifo --priority 1
  whylate treat apply priority logger --policy other --nice 10
Threads that start later are not changed."))]
pub struct PriorityPlan {
    /// Name of the threads, where `*` stands for any text, or one thread id.
    #[schemars(extend("x-flag" = Flag::positional("thread")))]
    pub thread: String,
    /// Scheduling policy to set.
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

/// Restricts the kernel's unbound workqueues to given CPUs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("x-examples" = "\
Examples:
  whylate treat apply workqueue --cpus 0"))]
pub struct WorkqueuePlan {
    /// CPUs on which unbound work items may run.
    #[serde(default = "CpuSelector::others")]
    pub cpus: CpuSelector,
}

/// Sets the CPU time that ordinary tasks get on a CPU that real-time tasks keep busy (the fair server, since Linux
/// 6.12).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("x-examples" = "\
Examples:
  whylate treat apply fair-server --cpus 1          none: a real-time loop may use all CPU time
  whylate treat apply fair-server 20ms --cpus 1     20 ms of each period (1s by default)"))]
pub struct FairServerPlan {
    /// CPU time in each period.
    #[serde(default)]
    #[schemars(extend("x-flag" = Flag::positional("runtime")))]
    pub runtime: Nanos,
    /// CPUs to change.
    #[serde(default = "CpuSelector::target")]
    #[schemars(extend("x-flag" = Flag::by_default("all")))]
    pub cpus: CpuSelector,
}

/// Moves a control group (cgroup v2) to given CPUs: all its processes, including later ones.
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
    /// CPUs on which the tasks of the group may run.
    #[serde(default = "CpuSelector::others")]
    pub cpus: CpuSelector,
}

/// Limits the CPU time of the ordinary threads of a process: in each 100 ms they are throttled once they have used
/// their quota. Real-time threads are not limited.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("x-examples" = "\
Examples:
  whylate treat apply cpu-quota backup --percent 25
  whylate treat apply cpu-quota 4711 --percent 150     one CPU and a half
The quota applies to the whole service of the process. A process without a service gets a new group;
only one such group can exist at a time. To make a quota permanent, set CPUQuota= in the unit."))]
pub struct CpuQuotaPlan {
    /// PID of the process, or a name; all processes of that name share the quota.
    #[schemars(extend("x-flag" = Flag::positional("process")))]
    pub process: String,
    /// The quota, in percent of one CPU.
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
            (None, _) if is_real_time => {
                wrong("priority", "is missing; `fifo` and `rr` need a priority, 1 to 99")
            }
            (Some(_), _) if !is_real_time => wrong("priority", "only `fifo` and `rr` have a priority"),
            (Some(0 | 100..), _) => wrong("priority", "is out of range; a real-time priority is 1 to 99"),
            (_, Some(_)) if !has_nice => wrong("nice", "only `other` and `batch` have a nice value"),
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
            _ => Err(KeyError::new("percent", "is out of range; give at least 1 (100 is one whole CPU)")),
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
