//! The CPU table: what `whylate cpus` prints.
//!
//! One row for each present CPU: where it is, from what it is shielded, and what runs on it now. Threads and interrupt
//! lines are listed once, with the CPUs that they may use; the rows hold counts. What the machine does not offer is
//! absent, and a warning says what is missing and why. [`build`] makes the table from what was read; it does no I/O.

mod build;

pub use build::{Observed, build};

use crate::cpus::CpuSet;
use crate::record::InterruptRecord;
use crate::units::CpuId;
use crate::warning::Warning;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `format` of [`CpuTable`].
pub const CPUS_FORMAT: &str = "whylate.cpus/1";

/// What `whylate cpus` prints.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CpuTable {
    /// [`CPUS_FORMAT`].
    pub format: String,
    /// The time over which interrupts were counted.
    pub interval_ns: u64,
    /// Every present CPU, ascending.
    pub cpus: Vec<CpuRow>,
    /// Every thread that this process could look at.
    pub threads: Vec<ThreadRow>,
    /// Every numbered interrupt line.
    pub lines: Vec<LineRow>,
    /// What could not be found out.
    pub warnings: Vec<Warning>,
}

/// One CPU.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CpuRow {
    /// Its number.
    pub cpu: CpuId,
    /// Package (socket).
    pub chip: Option<u32>,
    /// Core within the package.
    pub core: Option<u32>,
    /// Number of this hardware thread within its core, from 0; absent if the core has only one.
    pub hardware_thread: Option<u32>,
    /// The other hardware threads of its core.
    #[serde(default, skip_serializing_if = "CpuSet::is_empty")]
    pub siblings: CpuSet,
    /// NUMA node.
    pub node: Option<u32>,
    /// `performance` or `efficiency` on hybrid processors.
    pub kind: Option<String>,
    /// Whether it is switched on.
    pub online: bool,
    /// What is kept away from it.
    pub shielding: Shielding,
    /// Threads that may run on it; absent while it is offline.
    pub threads: Option<ThreadCounts>,
    /// Interrupts that it handled in the interval, the most frequent first; softirqs are left out.
    #[serde(default)]
    pub interrupts: Vec<InterruptRecord>,
    /// Whether the periodic tick was stopped at that moment; absent if the kernel does not show it.
    pub tick_stopped: Option<bool>,
    /// Frequency at that moment, as the kernel states it.
    pub frequency_hz: Option<u64>,
    /// Frequency governor.
    pub governor: Option<String>,
    /// The deepest idle state that it may enter.
    pub idle_limit: Option<IdleLimit>,
    /// Its last-level cache of level 3.
    pub l3: Option<L3Domain>,
}

/// What is kept away from a CPU; absent if it is not known.
#[serde_with::skip_serializing_none]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Shielding {
    /// No thread that may run on unshielded CPUs may run here.
    pub processes: Option<bool>,
    /// No interrupt line that could be moved is allowed here.
    pub interrupts: Option<bool>,
    /// The periodic tick stops while a single task runs (`nohz_full`).
    pub local_timer: Option<bool>,
}

/// How many threads may run on a CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ThreadCounts {
    /// Those that may also run elsewhere, or anywhere: they are here by chance.
    pub movable: u64,
    /// Those whose affinity was set to this CPU, or to shielded ones.
    pub bound: u64,
    /// Those that the kernel pinned to this CPU for good.
    pub pinned: u64,
    /// Workers of the kernel's workqueues that may run on several CPUs: they follow the masks of their queues.
    pub workers: u64,
}

/// What decides which CPUs a thread may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ThreadKind {
    /// Its CPUs can be changed, and it may use unshielded ones.
    Movable,
    /// Its affinity can be changed, and was set to one CPU or to shielded ones.
    Bound,
    /// It has one CPU, and the kernel refuses to change that (`PF_NO_SETAFFINITY`).
    Pinned,
    /// It may use several CPUs, and the kernel refuses to change that thread by thread: a worker of an unbound
    /// workqueue, or the rescuer of one, which runs when memory is short.
    Worker,
}

/// One thread.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ThreadRow {
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// Its name.
    pub name: String,
    /// What decides which CPUs it may use.
    pub kind: ThreadKind,
    /// Whether it is a thread of the kernel.
    pub kernel: bool,
    /// Scheduling policy: `other`, `fifo`, `rr`, `batch`, `idle`, `deadline`.
    pub policy: String,
    /// Real-time priority; absent for the other policies.
    pub priority: Option<u32>,
    /// CPUs that it may use.
    pub cpus: CpuSet,
}

/// One numbered interrupt line.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LineRow {
    /// Its number.
    pub line: u32,
    /// Chip and device, as in /proc/interrupts.
    pub description: String,
    /// CPUs that it may interrupt.
    pub cpus: CpuSet,
    /// CPUs that it is sent to now; absent on kernels that do not say.
    pub effective: Option<CpuSet>,
    /// Whether its CPUs can be changed from user space; managed and per-CPU lines cannot be moved. Kernels before 6.11
    /// do not report it; there it counts as movable unless debugfs shows otherwise.
    pub movable: bool,
}

/// The deepest idle state of a CPU.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct IdleLimit {
    /// Its name.
    pub name: String,
    /// Worst time to leave it.
    pub exit_latency_ns: Option<u64>,
}

/// A cache of level 3.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct L3Domain {
    /// The kernel's number for it, as in resctrl; absent without one.
    pub id: Option<u32>,
    /// CPUs that share it.
    pub cpus: CpuSet,
}

impl CpuTable {
    /// The row of one CPU.
    pub fn row(&self, cpu: CpuId) -> Option<&CpuRow> {
        self.cpus.iter().find(|row| row.cpu == cpu)
    }

    /// Threads of that kind that may run on `cpu`.
    pub fn threads_on(&self, cpu: CpuId, kind: ThreadKind) -> impl Iterator<Item = &ThreadRow> {
        self.threads.iter().filter(move |thread| thread.kind == kind && thread.cpus.contains(cpu))
    }

    /// Interrupt lines that can be moved, or that cannot, and may interrupt `cpu`.
    pub fn lines_on(&self, cpu: CpuId, movable: bool) -> impl Iterator<Item = &LineRow> {
        self.lines.iter().filter(move |line| line.movable == movable && line.reaches(cpu))
    }
}

impl LineRow {
    /// Whether the line may interrupt `cpu`. A line that cannot be moved counts only where it is sent to now: its
    /// mask says what the kernel may choose from.
    pub fn reaches(&self, cpu: CpuId) -> bool {
        match &self.effective {
            Some(effective) if !self.movable => effective.contains(cpu),
            _ => self.cpus.contains(cpu),
        }
    }
}
