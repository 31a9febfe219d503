//! What a measuring process is told: a probe with everything resolved for this machine.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use whylate_core::plan::{Policy, TimerMethod};
use whylate_core::{CpuSet, Nanos};

/// One probe on one or several CPUs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProbeSpec {
    /// What measures.
    pub kind: ProbeKind,
    /// The measured CPUs: one thread on each.
    pub cpus: CpuSet,
    /// CPUs for the threads that do not measure; empty when there are none besides the measured ones.
    pub other_cpus: CpuSet,
    /// Scheduling policy of the measuring threads.
    pub policy: Policy,
    /// Priority under SCHED_FIFO and SCHED_RR.
    pub priority: u32,
    /// How long each thread runs before its samples count.
    pub warmup: Nanos,
    /// How long the samples count.
    pub duration: Nanos,
    /// Ends earlier, after that many samples on a CPU (timer only).
    pub samples_max: Option<u64>,
    /// Fail instead of warn when the policy or locked memory is refused.
    pub strict: bool,
    /// Whether memory is locked.
    pub lock_memory: bool,
    /// Whether `/dev/cpu_dma_latency` is held at 0.
    pub hold_cpu_dma_latency: bool,
    /// Folder of the trace buffer in tracefs that a break marks and stops; by default the top-level one.
    #[serde(default)]
    pub trace_folder: Option<PathBuf>,
}

/// What measures, with its own parameters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ProbeKind {
    /// The timer probe.
    Timer {
        /// The period.
        interval: Nanos,
        /// By how much each further CPU begins later.
        distance: Nanos,
        /// What wakes the task.
        method: TimerMethod,
        /// A latency above it stops everything.
        break_above: Option<Nanos>,
    },
    /// The stall probe.
    Stall {
        /// Which counter is read.
        hardware_counter: bool,
        /// Nanoseconds per tick of that counter, times 2^32.
        multiplier: u64,
        /// Gaps at least this long are recorded one by one, in ticks.
        threshold_cycles: u64,
        /// Size of the buffer that each turn also reads a line of; 0 is none.
        working_set_bytes: u64,
    },
}

impl ProbeSpec {
    /// The probe's name in results.
    pub fn name(&self) -> &'static str {
        match self.kind {
            ProbeKind::Timer { .. } => "timer",
            ProbeKind::Stall { .. } => "stall",
        }
    }

    /// The period; `None` for a probe without one.
    pub fn period(&self) -> Option<Nanos> {
        match self.kind {
            ProbeKind::Timer { interval, .. } => Some(interval),
            ProbeKind::Stall { .. } => None,
        }
    }
}
