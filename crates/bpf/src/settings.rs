//! What is to be measured, and the interface of a search for causes.

use crate::error::BpfError;
use whylate_core::record::{IpiRecord, SourceRecord, SpikeCauses, SpikeRecord};
use whylate_core::result::HistogramKind;
use whylate_core::{CpuId, CpuSet, Warning};

/// Which tasks count, by who they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskFilter {
    /// A thread, or all threads of a process.
    Pid(u32),
    /// Threads of that name; the kernel keeps 15 bytes of it.
    Command(String),
}

/// What is measured.
#[derive(Clone, Debug)]
pub struct HistogramsConfig {
    /// The CPUs on which latencies count.
    pub cpus: CpuSet,
    /// The histograms that are on from the start.
    pub kinds: Vec<HistogramKind>,
    /// Lowest priority that counts, as in [`LatencyRecord`](whylate_core::result::LatencyRecord).
    pub priority_min: i32,
    /// Highest priority that counts, as in [`LatencyRecord`](whylate_core::result::LatencyRecord).
    pub priority_max: i32,
    /// Which of these tasks; all when absent.
    pub task: Option<TaskFilter>,
}

impl HistogramsConfig {
    /// All histograms of all real-time and deadline tasks on these CPUs.
    pub fn new(cpus: CpuSet) -> Self {
        Self { cpus, kinds: HistogramKind::ALL.to_vec(), priority_min: 1, priority_max: 100, task: None }
    }
}

/// What can be done to histograms while they run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HistogramsChange {
    /// Switches them on, on those CPUs that are measured; those that this machine cannot do stay off.
    Enable,
    /// Switches them off; what they hold stays.
    Disable,
    /// Empties them, with their record of the largest latency.
    Reset,
}

/// The probe whose spikes are to be explained.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Measured {
    /// The measured CPUs.
    pub cpus: CpuSet,
    /// Whether it waits for a timer, or is running all the time.
    pub is_timer: bool,
    /// Priority of its threads, as tools print it; -21 for an ordinary one.
    pub priority: i32,
    /// How many of the largest spikes of a CPU it keeps.
    pub spikes_kept: usize,
}

/// A search for the causes of spikes; a trait so that tests need no kernel. Each error says why causes cannot be found any
/// more.
#[allow(clippy::missing_errors_doc, reason = "one sentence for all of them is above")]
pub trait FindsCauses {
    /// What is not recorded.
    fn warnings(&self) -> &[Warning];
    /// These probes are about to measure; what was found until now is forgotten. Several probes of one CPU measure one
    /// after another, each announced by a call of this.
    fn begin(&mut self, probes: &[Measured]) -> Result<(), BpfError>;
    /// The process that measures on these CPUs; to be told before its first spike.
    fn armed(&mut self, cpus: &CpuSet, process: u32) -> Result<(), BpfError>;
    /// Explains spikes; call it soon after they happened.
    fn explain(&mut self, spikes: &[SpikeRecord]) -> Result<(), BpfError>;
    /// What was found of the spike that ended then; `None` when it was not explained.
    fn causes_of(&self, cpu: CpuId, at_ns: u64) -> Option<SpikeCauses>;
    /// Forgets what was found of the spike that ended then.
    fn forget(&mut self, cpu: CpuId, at_ns: u64);
    /// The interrupts that other CPUs sent to the measured ones since the last call. Where the kernel does not tell who
    /// sent them, they are counted by their kind alone.
    fn ipis(&mut self) -> Result<Vec<IpiRecord>, BpfError>;
    /// What took the time of loops that never sleep since the last call, as far as it is known.
    fn sources(&mut self) -> Vec<SourceRecord>;
    /// What was lost up to now.
    fn losses(&self) -> Vec<Warning>;
}
