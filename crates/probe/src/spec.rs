//! What a measuring process is told: a probe with everything resolved for this machine.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use whylate_core::plan::{
    CpuPair, DispatchSource, HistogramsPlan, Policy, RoundtripMethod, TimerMethod, Tracer, TracerPlan,
};
use whylate_core::{CpuId, CpuSet, Nanos, SeriesName};

/// The part of a round trip from the asking CPU to the answering one, and the way back.
pub(crate) const THERE: &str = "there";
pub(crate) const BACK: &str = "back";

/// The parts of a dispatch: to the handler's entry, to the wake-up, to the process.
pub(crate) const DISPATCH_PARTS: [&str; 3] = ["interrupt", "wakeup", "switch"];

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
    /// Ends earlier, after that many samples of a series on a CPU (not stall).
    pub samples_max: Option<u64>,
    /// Fail instead of warn when the policy or locked memory is refused.
    pub strict: bool,
    /// Whether memory is locked.
    pub lock_memory: bool,
    /// How many of the largest spikes of each CPU are kept.
    pub spikes_kept: usize,
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
    /// The dispatch probe.
    Dispatch {
        /// What interrupts.
        source: DispatchSource,
        /// Time between two interrupts.
        interval: Nanos,
        /// A latency above it stops everything.
        break_above: Option<Nanos>,
        /// Whether each latency is divided into its parts, where the kernel lets its programs run.
        parts: bool,
    },
    /// The round-trip probe.
    Roundtrip {
        /// The asking CPU and the answering one.
        pair: CpuPair,
        /// How messages travel, one method after another.
        methods: Vec<RoundtripMethod>,
        /// Whether spinning is done as an ordinary task, since it would take the last housekeeping CPU otherwise.
        spin_ordinary: bool,
        /// Which counter is read.
        hardware_counter: bool,
        /// Nanoseconds per tick of that counter, times 2^32.
        multiplier: u64,
        /// Whether the counters of both CPUs agree, so that each way has a time of its own.
        halves: bool,
    },
    /// The kernel's histograms: its caller reads them, there is no measuring process.
    Histograms {
        /// Which ones, of which tasks.
        plan: HistogramsPlan,
    },
    /// A measuring tracer of the kernel: its caller drives it, there is no measuring process.
    Tracer {
        /// Which one, and its settings.
        plan: TracerPlan,
    },
}

/// The part of a timerlat sample until the timer's interrupt.
const INTERRUPT: &str = "interrupt";

/// What one lane of the shared memory holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneSpec {
    /// The measured CPU.
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
    /// The probe's name in results.
    pub fn name(&self) -> &'static str {
        match self.kind {
            ProbeKind::Timer { .. } => "timer",
            ProbeKind::Stall { .. } => "stall",
            ProbeKind::Dispatch { .. } => "dispatch",
            ProbeKind::Roundtrip { .. } => "roundtrip",
            ProbeKind::Histograms { .. } => "histograms",
            ProbeKind::Tracer { .. } => "tracer",
        }
    }

    /// Whether it runs beside every other probe of a cell, and ends with them.
    pub fn is_companion(&self) -> bool {
        SeriesName::of(self.name()).facts().is_some_and(|facts| facts.companion)
    }

    /// The period; `None` for a probe without one.
    pub fn period(&self) -> Option<Nanos> {
        match self.kind {
            ProbeKind::Timer { interval, .. } | ProbeKind::Dispatch { interval, .. } => Some(interval),
            ProbeKind::Stall { .. }
            | ProbeKind::Roundtrip { .. }
            | ProbeKind::Histograms { .. }
            | ProbeKind::Tracer { .. } => None,
        }
    }

    /// The latency above which it stops everything.
    pub fn break_above(&self) -> Option<Nanos> {
        match self.kind {
            ProbeKind::Timer { break_above, .. } | ProbeKind::Dispatch { break_above, .. } => break_above,
            _ => None,
        }
    }

    /// What each lane holds, in order: one for each CPU, with parts followed by theirs; for the round-trip probe one for
    /// each method, followed by those of its two ways if they are measured; for the timerlat tracer each CPU's samples,
    /// and their part until the interrupt.
    pub fn lanes(&self) -> Vec<LaneSpec> {
        let series: Vec<Option<String>> = match &self.kind {
            ProbeKind::Roundtrip { methods, halves, .. } => {
                let parts: &[&str] = if *halves { &[THERE, BACK] } else { &[] };
                methods.iter().flat_map(|method| with_parts(method.name(), parts)).collect()
            }
            ProbeKind::Dispatch { source, parts, .. } => {
                let parts: &[&str] = if *parts { &DISPATCH_PARTS } else { &[] };
                with_parts(&source.to_string(), parts).collect()
            }
            ProbeKind::Tracer { plan } => {
                let parts: &[&str] = if plan.tracer == Tracer::Timerlat { &[INTERRUPT] } else { &[] };
                with_parts(plan.tracer.name(), parts).collect()
            }
            ProbeKind::Histograms { plan } => {
                plan.kinds.iter().map(|kind| Some(kind.name().to_owned())).collect()
            }
            ProbeKind::Timer { .. } | ProbeKind::Stall { .. } => vec![None],
        };
        let of_cpu = |cpu| series.iter().map(move |series| LaneSpec { cpu, series: series.clone() });
        match &self.kind {
            // One of its two CPUs takes the times.
            ProbeKind::Roundtrip { pair, .. } => of_cpu(pair.from).collect(),
            _ => self.cpus.iter().flat_map(of_cpu).collect(),
        }
    }

    /// How many lanes each measuring thread has.
    pub(crate) fn lanes_of_thread(&self) -> usize {
        match self.kind {
            ProbeKind::Dispatch { parts: true, .. } => 1 + DISPATCH_PARTS.len(),
            _ => 1,
        }
    }

    /// The CPU that answers a round trip; `None` for other probes.
    pub fn peer_cpu(&self) -> Option<CpuId> {
        match self.kind {
            ProbeKind::Roundtrip { pair, .. } => Some(pair.to),
            _ => None,
        }
    }
}

/// A series and those of its parts.
fn with_parts<'p>(name: &str, parts: &'p [&str]) -> impl Iterator<Item = Option<String>> + use<'p> {
    let whole = name.to_owned();
    let parts_of = whole.clone();
    std::iter::once(Some(whole)).chain(parts.iter().map(move |part| Some(format!("{parts_of}/{part}"))))
}
