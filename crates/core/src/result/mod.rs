//! Results: the documents that `whylate measure --json` and `whylate run --json` print.
//!
//! Names end in their unit; what is missing is absent. Moments are CLOCK_MONOTONIC nanoseconds of the measured
//! machine.

mod audit;
mod bisect;
mod cause;
mod chain;
mod check;
mod compare;
mod copy;
mod cpu_table;
mod differences;
mod explain;
mod farm;
mod fix;
mod fix_goal;
mod histograms;
mod late_time;
mod ledger;
mod live;
mod loaded;
mod log;
mod preview;
mod quantiles;
mod recording;
mod run;
mod runs;
mod search;
mod spike;
mod spike_trace;
mod top;
mod tracing;
mod treat;
mod trigger;

pub use audit::{AuditFindings, AuditKind, AuditRecord, audited};
pub use bisect::{BISECT_FORMAT, BisectGroup, BisectOutcome, BisectResult};
pub use cause::{
    Cause, CauseClass, CauseKind, CausePart, CauseSource, CountedWork, OwnCounters, OwnSamples, PartKind,
    SampledCall, SampledFunction, WorkChange,
};
pub use chain::{ChainDoing, ChainPart, ChainPath, ChainRecord, ChainResult};
pub use check::{CHECK_FORMAT, CheckResult, Evidence, Finding, Severity, Theme};
pub use compare::{
    COMPARE_FORMAT, CauseChange, CauseDifference, CompareOutcome, CompareResult, CompareSide, FactDifference,
    RunContrast,
};
pub use copy::{
    BackendFacts, BackendOffer, COPY_FORMAT, CopyBlock, CopyResult, CopyRow, CopyTable, FrameCost,
    MemoryFacts, Plateau,
};
pub use cpu_table::{
    CPUS_FORMAT, CpuRow, CpuTable, IdleLimit, L3Domain, LineRow, Observed, Shielding, ThreadCounts,
    ThreadKind, ThreadRow, build as cpu_table,
};
pub use differences::{Described, differences};
pub use explain::{
    EXPLAIN_FORMAT, EvidenceLine, ExpectedFrom, ExplainAnswer, ExplainResult, ExplainedRun, ExplainedSpike,
    ExplainedTrace, HwlatSample, LateTask, LateWhat, ThresholdFrom, TimelineSegment,
};
pub use farm::{FarmAlarm, FarmBoard, FarmComparison, FarmEffect, FarmRun, FarmSeries};
pub use fix::{
    FIX_FORMAT, FixAnswer, FixArm, FixArmResult, FixCause, FixClaim, FixFile, FixLeftOut, FixMode,
    FixOutcome, FixPhase, FixRegistration, FixRemoval, FixResult, FixStep,
};
pub use fix_goal::FixGoal;
pub use histograms::{
    CpuHistograms, HISTOGRAMS_FORMAT, HistogramKind, HistogramSource, HistogramsResult, KernelHistogram,
    LatencyRecord, WakeupTotals,
};

pub use late_time::{
    LateKind, LateResponses, LateSum, LateTime, NOT_EXPLAINED, WAITED_FOR_CPU, lasting_name, late_kinds,
    late_time, shares,
};
pub use ledger::{Ledger, LedgerRow, OTHERS};
pub use live::{LIVE_SOCKET, LiveCpu, LiveValue};
pub use loaded::{LoadedLatency, LoadedPoint};
pub use log::{LogMessage, RunMessage};
pub use preview::{PREVIEW_FORMAT, PreviewCell, PreviewPower, PreviewResult};
pub use quantiles::{Extremes, Quantiles};
pub use recording::{RECORDING_FORMAT, RecordedTrace, RecordingResult};
pub use run::{
    Answer, AnswerOutcome, CellResult, Comparison, CpuTableAt, Exposure, GpuResult, NoiseFloor, Outcome,
    RateResult, RepeatProbe, RepeatResult, RunEnd, RunResult, RunState, ThrottledGaps, Verdict,
    incomplete_repeats,
};
pub use runs::{RUNS_FORMAT, RUNS_MIN, RunChange, RunFigures, RunPoint, RunSeries, RunSummary, RunsResult};
pub use search::{RunSearch, SearchError};
pub use spike::{Spike, WakeLink};
pub use spike_trace::SpikeTrace;
pub use top::{TOP_FORMAT, TopCpu, TopResult};
pub use tracing::{TRACING_FORMAT, TracingFacility, TracingResult};
pub use treat::{ChangeHolder, ChangeState, TreatChange, TreatResult};
pub use trigger::{TriggerMoment, TriggerRecord, TriggerResult, TriggerSuspect, TriggerThread};

use crate::facts::Facts;
use crate::plan::{ProbeFacts, Samples};
use crate::quantity::{
    ABOVE_HISTOGRAM, CORRECTED, EXTREMES, GAPS, Quantities, Quantity, THROTTLED, UNSEEN_WAITS, Valued,
};
use crate::series::SeriesName;
use crate::units::CpuId;
use crate::warning::Warning;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `format` of [`MeasureResult`].
pub const MEASURE_FORMAT: &str = "whylate.measure/1";
/// `format` of [`RunResult`].
pub const RUN_FORMAT: &str = "whylate.run/1";
/// `format` of [`PlanList`].
pub const PLANS_FORMAT: &str = "whylate.plans/1";
/// `format` of [`TreatResult`].
pub const TREAT_FORMAT: &str = "whylate.treat/1";
/// `format` of [`LoadResult`].
pub const LOAD_FORMAT: &str = "whylate.load/1";

/// What `whylate measure` prints; results of other tools are converted to this form, too.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MeasureResult {
    /// [`MEASURE_FORMAT`].
    pub format: String,
    /// The tool that measured, with its version, if not whylate.
    pub tool: Option<String>,
    /// The tool's command line without the options that name output files; absent if the file does not have it.
    pub tool_command: Option<String>,
    /// The machine; absent if nothing is known about it, as in another tool's result.
    #[serde(default, skip_serializing_if = "Facts::is_unknown")]
    pub facts: Facts,
    /// The probe's figures.
    #[serde(flatten)]
    pub probe: ProbeResult,
    /// Interrupts on the measured CPUs while samples counted.
    #[serde(default)]
    pub interrupts: Vec<crate::record::InterruptRecord>,
    /// Interrupts that other CPUs sent to the measured CPUs, by function and sender; only with causes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ipis: Vec<crate::record::IpiRecord>,
    /// What the kernel counted for each measured CPU and for its measuring thread.
    #[serde(default)]
    pub counters: Vec<crate::record::CounterRecord>,
    /// What was not measured, or measured less well.
    pub warnings: Vec<Warning>,
    /// Whether a sample was above the break threshold, which ended the measurement.
    #[serde(default)]
    pub broke: bool,
    /// Why the measurement failed at its end, although it has figures: another thread starved a measuring thread.
    pub error: Option<String>,
}

/// What one probe measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProbeResult {
    /// The probe's name: `timer`, `stall`, …
    pub probe: String,
    /// One entry for each measured CPU, and for each series if the probe has several (roundtrip: each method).
    pub cpus: Vec<CpuResult>,
    /// The largest spikes, largest first.
    pub spikes: Vec<Spike>,
    /// What each load of the cell achieved while this probe ran, without its time series.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rates: Vec<RateResult>,
    /// The worst of each hour, for a measurement of more than one hour (task only).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hours: Vec<HourResult>,
    /// The late responses of each thread by cause (task with a deadline only).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub late_responses: Vec<LateResponses>,
    /// Triggers that said that the application was late (task only).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub triggers: Vec<TriggerResult>,
    /// Activities over several threads (task only).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub chains: Vec<ChainResult>,
}

/// The worst activations of one hour of a watch.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HourResult {
    /// How long after the start of the watch this hour began.
    pub after_ns: u64,
    /// The longest responses of all threads, longest first.
    pub spikes: Vec<Spike>,
}

impl HourResult {
    /// An hour.
    pub const LENGTH_NS: u64 = 3_600_000_000_000;
    /// How many responses are kept of each hour.
    pub const KEPT: usize = 3;
}

impl ProbeResult {
    /// What the probe measures; `None` for one that this version does not know.
    pub fn facts(&self) -> Option<ProbeFacts> {
        SeriesName::of(&self.probe).facts()
    }

    /// Whether it has a result: a sample, or for a tracer that looks for gaps, that it looked and found none.
    pub fn has_data(&self) -> bool {
        let looked = |cpu: &CpuResult| {
            let facts = SeriesName::in_probe(&self.probe, cpu.series.as_deref()).facts();
            let only_gaps = facts.is_some_and(|facts| facts.samples == Samples::Gap && !facts.counts_turns);
            only_gaps && cpu.get(GAPS).is_some() && (!cpu.timeline.is_empty() || cpu.measured_ns > 0)
        };
        // Other tools print a maximum without its number of samples.
        self.cpus.iter().any(|cpu| cpu.samples > 0 || looked(cpu) || cpu.get(EXTREMES).is_some())
    }
}

/// What one probe measured on one CPU.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
pub struct CpuResult {
    /// The CPU (roundtrip: the sender's).
    pub cpu: CpuId,
    /// The series (roundtrip: the method; dispatch: the source; histograms: the kind; tracer: the name); absent for
    /// probes with one series.
    pub series: Option<String>,
    /// Number of samples (timer, dispatch: periods that ran; stall: loop turns; roundtrip: round trips; tracer: its
    /// lines, for hwlat only windows with a gap).
    pub samples: u64,
    /// Quantiles of the samples; absent without samples.
    #[serde(flatten, deserialize_with = "quantiles::known")]
    pub quantiles: Option<Quantiles>,
    /// What else the probe reports: a row of [`TABLE`](crate::quantity::TABLE) each.
    #[serde(flatten)]
    pub quantities: Quantities,
    /// When the largest sample ended; absent if no spike record has this sample (stall: no gap above the threshold).
    pub max_at_ns: Option<u64>,
    /// How long the probe measured; 0 if this is not known.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub measured_ns: u64,
    /// The parts of a sample, if they can be measured (dispatch: `interrupt`, `wakeup`, `switch`; roundtrip: `there`,
    /// `back`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<PartResult>,
    /// Spike records that did not fit the buffer; the histogram has their values.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub spikes_dropped: u64,
    /// `[lower edge in ns, count]` of every bucket with samples, ascending.
    pub histogram: Vec<(u64, u64)>,
    /// The values over time, oldest first; consecutive repeats follow each other.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub timeline: Vec<TimelinePoint>,
}

impl CpuResult {
    pub fn get<T: Valued + Copy>(&self, quantity: Quantity<T>) -> Option<T> {
        self.quantities.get(quantity)
    }

    /// The largest value in ns, also for a tool that reports extremes alone.
    pub fn largest_ns(&self) -> Option<u64> {
        self.quantiles.map(|it| it.max_ns).or_else(|| self.get(EXTREMES)?.max_ns)
    }

    /// The largest value in ns without the gaps that the scheduler makes.
    pub fn judged_max_ns(&self) -> Option<u64> {
        self.get(THROTTLED).map(|throttled| throttled.other_max_ns).or_else(|| self.largest_ns())
    }

    /// Whether waits for a CPU before the thread ran were not recorded.
    pub fn has_unseen_waits(&self) -> bool {
        self.get(UNSEEN_WAITS) > Some(0)
    }

    /// Whether a quantile is known. It is not if it lies above the end of another tool's histogram.
    pub fn knows_quantile(&self, part: f64) -> bool {
        let above = self.get(ABOVE_HISTOGRAM).unwrap_or(0) as f64;
        part >= 1.0 || above <= (1.0 - part) * self.samples as f64
    }

    /// Corrected for missed periods where that is known, as contrasts are.
    pub fn judged_quantiles(&self) -> Option<&Quantiles> {
        self.quantities.of(CORRECTED).or(self.quantiles.as_ref())
    }
}

/// The time that one source took from a loop that never sleeps.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SourceResult {
    /// The kind of source.
    pub kind: CauseKind,
    /// Who took the time: a thread's name, an interrupt's line and devices, or a softirq vector.
    pub actor: Option<String>,
    /// The kernel function, if it is known.
    pub function: Option<String>,
    /// Gaps in which the source had the CPU.
    pub gaps: u64,
    /// The time that the source had the CPU in all gaps.
    pub total_ns: u64,
    /// Mean of this time over the gaps.
    pub mean_ns: f64,
    /// The longest time that the source had the CPU in one gap.
    pub max_ns: u64,
}

/// Figures in ticks of the time-stamp counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CycleFigures {
    /// Ticks per second.
    pub counter_hz: u64,
    /// Smallest sample.
    pub min: u64,
    /// Median.
    pub p50: u64,
    /// 0.99 quantile.
    pub p99: u64,
    /// Largest sample.
    pub max: u64,
}

/// One part of the samples of a probe.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PartResult {
    /// Its name.
    pub part: String,
    /// Number of samples.
    pub samples: u64,
    /// Quantiles of the samples; absent without samples.
    #[serde(flatten)]
    pub quantiles: Option<Quantiles>,
    /// `[lower edge in ns, count]` of every bucket with samples, ascending.
    pub histogram: Vec<(u64, u64)>,
}

fn is_zero(value: &u64) -> bool {
    *value == 0
}

/// One stored interval of a probe on one CPU.
#[serde_with::skip_serializing_none]
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TimelinePoint {
    /// Start of the interval.
    pub start_ns: u64,
    /// End of the interval.
    pub end_ns: u64,
    /// Number of the interval's repeat, from 1; absent in `measure`.
    pub repeat: Option<u32>,
    /// Samples in the interval.
    pub samples: u64,
    /// Median of the interval; absent without samples.
    pub p50_ns: Option<u64>,
    /// Largest sample of the interval, exact; absent without samples.
    pub max_ns: Option<u64>,
}

/// What `whylate plans` prints.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PlanList {
    /// [`PLANS_FORMAT`].
    pub format: String,
    /// The built-in plans, the default first.
    pub plans: Vec<PlanLine>,
}

/// One built-in plan.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PlanLine {
    /// Its name.
    pub name: String,
    /// The question that the plan answers.
    pub question: Option<String>,
}

/// What `whylate load` prints.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LoadResult {
    /// [`LOAD_FORMAT`].
    pub format: String,
    /// The kind of load: `memory`, `exec`, …
    pub load: String,
    /// CPUs on which the load ran.
    pub cpus: crate::cpus::CpuSet,
    /// CPUs that the load disturbs (tlb and ipi).
    pub victims: Option<crate::cpus::CpuSet>,
    /// How the load works, for people: instruction set, device.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
    /// Size of each buffer of a memory load.
    pub working_set_bytes: Option<u64>,
    /// The achieved rate; absent for a command whose output states no rate.
    pub rate: Option<RateResult>,
    /// How long the load ran.
    pub duration_ns: u64,
    /// What was done differently than requested.
    pub warnings: Vec<Warning>,
}
