//! Treatments of CPUs: who may use them, how fast they run, how deep they sleep.

use super::{Flag, KeyError, Words, all, yes};
use crate::cpus::CpuSelector;
use crate::units::{Hz, Nanos};
use crate::words::words;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Keeps other processes, their timers, and interrupts away from the given CPUs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("x-examples" = "\
Examples:
  whylate treat apply shield --cpus 1             processes, interrupts and timers leave CPU 1
  whylate treat apply shield --cpus 2-3 --from irq,ltmr
  whylate measure timer --cpu 1                   the probe enters the shield by itself
  whylate cpus                                    what still runs on CPU 1
  whylate treat restore

To run another program on the shielded CPUs, write its PID to `cgroup.procs` (cgroup v1: `tasks`) of
the group whylate-shield, then pin the program to these CPUs (taskset)."))]
pub struct ShieldPlan {
    /// Which CPUs are shielded.
    #[serde(default = "CpuSelector::target")]
    pub cpus: CpuSelector,
    /// Keeps away movable tasks, movable kernel threads and unbound work items.
    #[serde(default = "yes")]
    #[schemars(extend("x-flag" = Flag::word("from", "proc")))]
    pub processes: bool,
    /// Keeps away movable interrupts.
    #[serde(default = "yes")]
    #[schemars(extend("x-flag" = Flag::word("from", "irq")))]
    pub interrupts: bool,
    /// Keeps away timers, as far as the running kernel allows.
    #[serde(default = "yes")]
    #[schemars(extend("x-flag" = Flag::word("from", "ltmr")))]
    pub local_timer: bool,
    /// Method of keeping processes away.
    #[serde(default)]
    pub method: ShieldMethod,
}

words! {
    /// How a shield keeps processes away.
    #[derive(Default)]
    pub enum ShieldMethod: "a way to shield" {
        /// A cpuset if the kernel offers one, otherwise the affinity of every thread.
        #[default]
        Auto = "auto",
        /// An isolated partition of cgroup v2, or cpusets of cgroup v1.
        Cpuset = "cpuset",
        /// The affinity of every thread that can be moved; threads that are started later inherit it from their parents.
        Affinity = "affinity",
    }
}

/// Moves interrupts to other CPUs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("x-examples" = "\
Examples:
  whylate treat apply irq-affinity --cpus 0                  every interrupt that can be moved
  whylate treat apply irq-affinity nvme eth0 --cpus 0,2      the interrupts of two devices
  whylate treat apply irq-affinity --cpus 0 --dry-run        what would be written"))]
pub struct IrqAffinityPlan {
    /// Interrupts to move: line numbers, device or driver names, PCI addresses, `graphics`, `msi`, or `all` movable
    /// ones.
    #[serde(default = "all")]
    #[schemars(extend("x-flag" = Flag::positional("interrupt")))]
    pub interrupts: Vec<String>,
    /// CPUs that handle these interrupts from now on.
    #[serde(default = "CpuSelector::others")]
    pub cpus: CpuSelector,
    /// Whether interrupts that are set up later also go to these CPUs (/proc/irq/default_smp_affinity).
    #[serde(default = "yes")]
    #[schemars(extend("x-flag" =
        Flag::off("leave-new", "Does not move interrupts that are set up later")))]
    pub new_interrupts: bool,
}

/// Moves a process with all its threads to given CPUs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("x-examples" = "\
Examples:
  whylate treat apply affinity Xorg --cpus 0
  whylate treat apply affinity 1234 --cpus 0-1"))]
pub struct AffinityPlan {
    /// PID of the process, or a name: all processes with this name, or, if there is none, all threads with it.
    #[schemars(extend("x-flag" = Flag::positional("process")))]
    pub process: String,
    /// CPUs on which the threads of the process may run.
    #[serde(default = "CpuSelector::others")]
    pub cpus: CpuSelector,
}

/// Sets the frequency governor, frequency limits, energy preference and turbo; a key that is absent changes nothing.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("x-examples" = "\
Examples:
  whylate treat apply governor --governor performance
  whylate treat apply governor --min 3GHz --max 3GHz --turbo off --cpus 1"))]
pub struct GovernorPlan {
    /// Frequency governor: `performance`, `powersave`, `schedutil`, …
    pub governor: Option<String>,
    /// Lowest frequency.
    pub min: Option<Hz>,
    /// Highest frequency.
    pub max: Option<Hz>,
    /// Energy preference of Intel and AMD processors that choose the frequency themselves: `performance`,
    /// `balance_performance`, …
    pub energy_preference: Option<String>,
    /// Whether CPUs may run above their nominal frequency (turbo), for the whole machine.
    pub turbo: Option<bool>,
    /// CPUs to change; CPUs that share a clock change together.
    #[serde(default = "CpuSelector::target")]
    #[schemars(extend("x-flag" = Flag::by_default("all")))]
    pub cpus: CpuSelector,
}

/// Takes the SMT siblings of CPUs offline.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("x-examples" = "\
Examples:
  whylate treat apply smt-off               one CPU of every core stays online
  whylate treat apply smt-off --cpus 1      the siblings of CPU 1 go offline"))]
pub struct SmtOffPlan {
    /// CPUs whose SMT siblings are taken offline [default: the first CPU of every core].
    pub cpus: Option<CpuSelector>,
}

/// Disables the deep idle states of CPUs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("x-examples" = "\
Examples:
  whylate treat apply idle --cpus 1                             only polling is left
  whylate treat apply idle --cpus 1 --exit-latency-max 2us      shallow states stay"))]
pub struct IdlePlan {
    /// CPUs to change.
    #[serde(default = "CpuSelector::target")]
    #[schemars(extend("x-flag" = Flag::by_default("all")))]
    pub cpus: CpuSelector,
    /// Longest allowed exit latency: idle states that take longer to leave are disabled; 0s leaves only polling.
    #[serde(default)]
    pub exit_latency_max: Nanos,
}

impl Words for ShieldPlan {}
impl Words for AffinityPlan {}
impl Words for SmtOffPlan {}
impl Words for IdlePlan {}

impl Words for IrqAffinityPlan {
    fn check(&self) -> Result<(), KeyError> {
        let message = "is empty; name interrupts, or leave it out for all";
        if self.interrupts.is_empty() { Err(KeyError::new("interrupts", message)) } else { Ok(()) }
    }
}

impl Words for GovernorPlan {
    fn check(&self) -> Result<(), KeyError> {
        let Self { cpus: _, governor: None, min: None, max: None, energy_preference: None, turbo: None } =
            self
        else {
            return Ok(());
        };
        let message = "sets nothing; give `governor`, `min`, `max`, `energy_preference` or `turbo`";
        Err(KeyError::new("", message))
    }
}
