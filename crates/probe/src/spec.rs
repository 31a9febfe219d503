//! The input of a measuring process: a probe with everything resolved for this machine.

use crate::kinds::ProbeKind;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use whylate_core::plan::Policy;
use whylate_core::{CpuId, CpuSet, Nanos, SeriesName};

/// One probe on one or several CPUs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProbeSpec {
    pub kind: ProbeKind,
    /// The measured CPUs: one thread on each.
    pub cpus: CpuSet,
    /// CPUs for the threads that do not measure; empty when there are none besides the measured ones.
    pub other_cpus: CpuSet,
    /// Scheduling policy of the measuring threads.
    pub policy: Policy,
    pub priority: u32,
    /// How long each thread runs before its samples count.
    pub warmup: Nanos,
    pub duration: Nanos,
    /// Ends earlier, after that many samples of a series on a CPU (not stall).
    pub samples_max: Option<u64>,
    /// Fail instead of warn when the policy or locked memory is refused.
    pub strict: bool,
    pub lock_memory: bool,
    /// How many of the largest spikes of each CPU are kept.
    pub spikes_kept: usize,
    /// Latencies from this value on are reported as they come, even if they are not among the largest; absent if not needed.
    #[serde(default)]
    pub late_above: Option<Nanos>,
    /// Whether `/dev/cpu_dma_latency` is set to 0.
    pub hold_cpu_dma_latency: bool,
    /// Folder of the trace buffer in tracefs that a break marks and stops; without one no trace is touched.
    #[serde(default)]
    pub trace_folder: Option<PathBuf>,
}

/// What one lane of the shared memory holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneSpec {
    pub cpu: CpuId,
    /// As [`whylate_core::record::Interval::series`].
    pub series: Option<String>,
}

impl LaneSpec {
    /// Whether it is a part of a series (`timerfd/wakeup`).
    pub fn is_part(&self) -> bool {
        self.series.as_ref().is_some_and(|series| series.contains('/'))
    }
}

impl ProbeSpec {
    pub fn name(&self) -> &'static str {
        self.kind.as_kind().name()
    }

    /// Whether it runs in parallel with every other probe of a cell, and ends with them.
    pub fn is_companion(&self) -> bool {
        SeriesName::of(self.name()).facts().is_some_and(|facts| facts.companion)
    }

    /// The period; `None` for a probe without one.
    pub fn period(&self) -> Option<Nanos> {
        self.kind.as_kind().period()
    }

    /// The latency above which it stops everything.
    pub fn break_above(&self) -> Option<Nanos> {
        self.kind.as_kind().break_above()
    }

    /// What each lane holds, in order: each CPU's series, each followed by its parts. With two CPUs, the asking one takes the
    /// times.
    pub fn lanes(&self) -> Vec<LaneSpec> {
        let series = self.kind.as_kind().series();
        let of_cpu = |cpu| series.iter().map(move |series| LaneSpec { cpu, series: series.clone() });
        match self.kind.as_kind().pair() {
            Some(pair) => of_cpu(pair.from).collect(),
            None => self.cpus.iter().flat_map(of_cpu).collect(),
        }
    }

    /// How many lanes each measuring thread has; those of two CPUs share theirs.
    pub(crate) fn lanes_of_thread(&self) -> usize {
        self.kind.as_kind().series().len()
    }

    /// The CPUs of the measuring threads, in order.
    pub(crate) fn threads(&self) -> Vec<CpuId> {
        let pair = self.kind.as_kind().pair();
        pair.map_or_else(|| self.cpus.iter().collect(), |pair| vec![pair.from, pair.to])
    }

    /// The CPU that answers a round trip; `None` for other probes.
    pub fn peer_cpu(&self) -> Option<CpuId> {
        self.kind.as_kind().pair().map(|pair| pair.to)
    }
}
