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
    /// Every thread that this process could see.
    pub threads: Vec<ThreadRow>,
    /// Every numbered interrupt line.
    pub lines: Vec<LineRow>,
    /// What could not be read, and why.
    pub warnings: Vec<Warning>,
}

/// One CPU.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CpuRow {
    /// The CPU's number.
    pub cpu: CpuId,
    /// Package (socket).
    pub chip: Option<u32>,
    /// Core within the package.
    pub core: Option<u32>,
    /// Number of this hardware thread within its core, from 0; absent if the core has only one.
    pub hardware_thread: Option<u32>,
    /// The other hardware threads of the CPU's core.
    #[serde(default, skip_serializing_if = "CpuSet::is_empty")]
    pub siblings: CpuSet,
    /// NUMA node.
    pub node: Option<u32>,
    /// `performance` or `efficiency` on hybrid processors.
    pub kind: Option<String>,
    /// Whether the CPU is online.
    pub online: bool,
    /// What is kept away from the CPU.
    pub shielding: Shielding,
    /// Threads that may run on the CPU; absent while the CPU is offline.
    pub threads: Option<ThreadCounts>,
    /// Interrupts that the CPU handled in the interval, the most frequent first; softirqs are left out.
    #[serde(default)]
    pub interrupts: Vec<InterruptRecord>,
    /// Whether the periodic tick was stopped when the table was made; absent if the kernel does not show this.
    pub tick_stopped: Option<bool>,
    /// Frequency when the table was made, as the kernel states it.
    pub frequency_hz: Option<u64>,
    /// Frequency governor.
    pub governor: Option<String>,
    /// The deepest idle state that the CPU may enter.
    pub idle_limit: Option<IdleLimit>,
    /// The CPU's level-3 cache.
    pub l3: Option<L3Domain>,
}

/// What is kept away from a CPU; absent if it is not known.
#[serde_with::skip_serializing_none]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Shielding {
    /// Whether no thread that may run on unshielded CPUs may run on this CPU.
    pub processes: Option<bool>,
    /// Whether no movable interrupt line may interrupt this CPU.
    pub interrupts: Option<bool>,
    /// Whether the periodic tick stops while a single task runs (`nohz_full`).
    pub local_timer: Option<bool>,
}

/// How many threads may run on a CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ThreadCounts {
    /// Threads that may also run on unshielded CPUs.
    pub movable: u64,
    /// Threads whose affinity was set to this CPU or to shielded CPUs.
    pub bound: u64,
    /// Threads that the kernel pinned to this CPU permanently.
    pub pinned: u64,
    /// Workers of workqueues that may run on several CPUs, as the masks of their queues allow.
    pub workers: u64,
}

/// What decides which CPUs a thread may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ThreadKind {
    /// The thread's CPUs can be changed, and it may use unshielded CPUs.
    Movable,
    /// The thread's affinity can be changed, and was set to one CPU or to shielded CPUs.
    Bound,
    /// The thread has one CPU, and the kernel refuses to change this (`PF_NO_SETAFFINITY`).
    Pinned,
    /// The thread may use several CPUs, and the kernel refuses to change them for one thread: a worker of an unbound
    /// workqueue, or the queue's rescuer, which runs when memory is short.
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
    /// What decides which CPUs the thread may use.
    pub kind: ThreadKind,
    /// Whether this is a kernel thread.
    pub kernel: bool,
    /// Scheduling policy: `other`, `fifo`, `rr`, `batch`, `idle`, `deadline`.
    pub policy: String,
    /// Real-time priority; absent for the other policies.
    pub priority: Option<u32>,
    /// CPUs that the thread may use.
    pub cpus: CpuSet,
}

/// One numbered interrupt line.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LineRow {
    /// The line's number.
    pub line: u32,
    /// Chip and device, as in /proc/interrupts.
    pub description: String,
    /// CPUs that the line may interrupt.
    pub cpus: CpuSet,
    /// CPUs that the line interrupts now; absent if the kernel does not report this.
    pub effective: Option<CpuSet>,
    /// Whether the line's CPUs can be changed from user space; managed and per-CPU lines cannot be moved. Kernels
    /// before 6.11 do not report this: on them a line counts as movable unless debugfs shows otherwise.
    pub movable: bool,
}

/// The deepest idle state of a CPU.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct IdleLimit {
    /// Its name.
    pub name: String,
    /// Longest time to leave the state, as the kernel states it.
    pub exit_latency_ns: Option<u64>,
}

/// A cache of level 3.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct L3Domain {
    /// The kernel's number of the cache, as in resctrl; absent without a number.
    pub id: Option<u32>,
    /// CPUs that share the cache.
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
