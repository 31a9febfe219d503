//! What is to be measured, and the interface of a recording in which causes are searched.

use crate::error::BpfError;
use crate::missed::Missed;
use whylate_core::record::IpiRecord;
use whylate_core::recording::Recording;
use whylate_core::result::HistogramKind;
use whylate_core::{CpuId, CpuSet};

/// The tasks that count, by their identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskFilter {
    /// A thread, or all threads of a process.
    Pid(u32),
    /// Threads of that name; the kernel keeps 15 bytes of it.
    Command(String),
}

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
    /// Switches them on, on the measured CPUs; those that this machine does not support stay off.
    Enable,
    /// Switches them off; what they hold stays.
    Disable,
    /// Empties them, with their record of the largest latency.
    Reset,
}

/// A recording of what takes the watched CPUs, in which a search looks for causes: by BPF programs, or in a trace buffer.
/// Each error says why it cannot go on.
#[allow(clippy::missing_errors_doc, reason = "one sentence for all of them is above")]
pub trait Activities {
    /// What took a CPU since `from_ns` and has ended by now. Call it soon: what is old is overwritten.
    fn since(&mut self, cpu: CpuId, from_ns: u64) -> Result<Recording, BpfError>;
    /// The process that measures on these CPUs from now on, and the moment from which its samples count.
    fn watch_process(&mut self, cpus: &CpuSet, process: u32, start_ns: u64) -> Result<(), BpfError>;
    /// The latency above which a stack is recorded on each of these CPUs; 0: never. Some recordings have no stacks.
    fn keep_stacks(&mut self, _from_ns: &[(CpuId, u64)]) -> Result<(), BpfError> {
        Ok(())
    }
    /// The events at which programs could not run so far.
    fn missed(&self) -> Missed {
        Missed::default()
    }
    /// The interrupts that other CPUs sent to the watched ones since the last call; `None` if their senders are not
    /// recorded.
    fn ipis(&mut self) -> Result<Option<Vec<IpiRecord>>, BpfError> {
        Ok(None)
    }
    /// Interrupts from other CPUs that are not in [`Self::ipis`] because there was no room.
    fn ipis_lost(&self) -> u64 {
        0
    }
    /// How many wake-ups of the measured process were seen on that CPU so far while its samples counted. The count wraps
    /// around; `None` if wake-ups are not counted.
    fn wakeups(&mut self, _cpu: CpuId) -> Result<Option<u32>, BpfError> {
        Ok(None)
    }
}
