//! What is to be measured.

use whylate_core::CpuSet;
use whylate_core::result::HistogramKind;

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
