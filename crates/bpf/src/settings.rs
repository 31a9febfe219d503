//! What is to be measured, and the interfaces of a search for causes: to who asks it, and to what it searches.

use crate::error::BpfError;
use crate::missed::Missed;
use whylate_core::record::{IpiRecord, SourceRecord, SpikeCauses, SpikeRecord};
use whylate_core::result::HistogramKind;
use whylate_core::{CpuId, CpuSet, Warning};
use whylate_explain::segments::Recording;

/// Which tasks count, by who they are.
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
    /// The process that measures on these CPUs, and the moment from which its samples count; to be told before its first
    /// spike.
    fn armed(&mut self, cpus: &CpuSet, process: u32, start_ns: u64) -> Result<(), BpfError>;
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
    /// The wake-ups of threads that wait for a timer that were seen since the last call; no CPU where they are not counted.
    fn wakeups(&mut self) -> Result<Vec<(CpuId, u64)>, BpfError> {
        Ok(Vec::new())
    }
    /// What was lost up to now.
    fn losses(&self) -> Vec<Warning>;
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
    /// The interrupts that other CPUs sent to the watched ones since the last call; `None` where their senders are not
    /// recorded.
    fn ipis(&mut self) -> Result<Option<Vec<IpiRecord>>, BpfError> {
        Ok(None)
    }
    /// Interrupts from other CPUs that are not in [`Self::ipis`] because there was no room.
    fn ipis_lost(&self) -> u64 {
        0
    }
    /// How many wake-ups of the measured process were seen on that CPU while its samples counted, so far: a count that wraps
    /// around; `None` where they are not counted.
    fn wakeups(&mut self, _cpu: CpuId) -> Result<Option<u32>, BpfError> {
        Ok(None)
    }
}
