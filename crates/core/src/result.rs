//! Results: the documents that `whylate measure --json` and `whylate run --json` print.
//!
//! Names end in their unit; what is missing is absent. Moments are CLOCK_MONOTONIC nanoseconds of the measured
//! machine.

use crate::facts::Facts;
use crate::plan::Plan;
use crate::record::RateRecord;
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
/// `format` of [`LoadResult`].
pub const LOAD_FORMAT: &str = "whylate.load/1";

/// What `whylate measure` prints.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MeasureResult {
    /// [`MEASURE_FORMAT`].
    pub format: String,
    /// The machine.
    pub facts: Facts,
    /// The probe's figures.
    #[serde(flatten)]
    pub probe: ProbeResult,
    /// Interrupts on the measured CPUs while samples counted.
    #[serde(default)]
    pub interrupts: Vec<crate::record::InterruptRecord>,
    /// What the kernel counted on each measured CPU, and for the measuring thread there.
    #[serde(default)]
    pub counters: Vec<crate::record::CounterRecord>,
    /// What was not measured, or less well.
    pub warnings: Vec<Warning>,
    /// Whether a sample was above the break threshold, which ended the measurement.
    #[serde(default)]
    pub broke: bool,
}

/// What one probe measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProbeResult {
    /// `timer` or `stall`.
    pub probe: String,
    /// One entry per measured CPU.
    pub cpus: Vec<CpuResult>,
    /// The largest spikes, largest first.
    pub spikes: Vec<Spike>,
    /// What each load of the cell achieved while this probe ran, without its time series.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rates: Vec<RateResult>,
}

/// Quantiles of a latency distribution. Clamped to [min, max]; relative error at most 1/256 (exact below 256 ns).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Quantiles {
    /// Smallest sample, exact.
    pub min_ns: u64,
    /// Mean, exact.
    pub mean_ns: f64,
    /// Median.
    pub p50_ns: u64,
    /// 0.99 quantile.
    pub p99_ns: u64,
    /// 0.999 quantile.
    pub p999_ns: u64,
    /// 0.9999 quantile.
    pub p9999_ns: u64,
    /// Largest sample, exact.
    pub max_ns: u64,
}

/// What one probe measured on one CPU.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CpuResult {
    /// The CPU.
    pub cpu: CpuId,
    /// Number of samples (timer: periods that ran; stall: loop turns).
    pub samples: u64,
    /// Absent without samples.
    #[serde(flatten)]
    pub quantiles: Option<Quantiles>,
    /// When the largest sample ended; absent when no spike record holds it (stall: nothing above the threshold).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_at_ns: Option<u64>,
    /// Periods that the task missed because it was still late from an earlier one (timer only).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overruns: Option<u64>,
    /// The same quantiles with each missed period counted as late as it would have been: coordinated omission
    /// undone (timer only).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub corrected: Option<Quantiles>,
    /// Median time of one loop turn (stall only).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loop_ns: Option<f64>,
    /// Gaps above the threshold (stall only).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gaps: Option<u64>,
    /// Sum of those gaps (stall only).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost_ns: Option<u64>,
    /// That sum as a share of the measured time, in [0, 1] (stall only).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost_share: Option<f64>,
    /// Spike records that did not fit the buffer; their values are in the histogram all the same.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub spikes_dropped: u64,
    /// `[lower edge in ns, count]` of every bucket with samples, ascending.
    pub histogram: Vec<(u64, u64)>,
    /// The course over time, oldest first; consecutive repeats follow each other.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub timeline: Vec<TimelinePoint>,
}

fn is_zero(value: &u64) -> bool {
    *value == 0
}

/// One stored interval of a probe on one CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TimelinePoint {
    /// Begin of the interval.
    pub start_ns: u64,
    /// End of the interval.
    pub end_ns: u64,
    /// Number of the repeat that it belongs to, from 1; absent in `measure`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repeat: Option<u32>,
    /// Samples in the interval.
    pub samples: u64,
    /// Median of the interval; absent without samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p50_ns: Option<u64>,
    /// Largest sample of the interval, exact; absent without samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_ns: Option<u64>,
}

/// One moment above the threshold.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Spike {
    /// The measured CPU.
    pub cpu: CpuId,
    /// When the task ran again.
    pub at_ns: u64,
    /// How late it was, or how long the gap was.
    pub latency_ns: u64,
    /// Number of the sample (timer: period, missed ones included; stall: gap), from 0.
    pub sample: u64,
    /// The probe that saw it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probe: Option<String>,
    /// The repeat that it belongs to, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repeat: Option<u32>,
    /// Who did it.
    pub cause: Cause,
}

/// Who took the time, with the evidence.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Cause {
    /// What kind of thing it was.
    pub kind: CauseKind,
    /// What speaks for it; empty for `unattributed`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<String>,
}

impl Cause {
    /// Nothing explains it.
    pub fn unattributed() -> Self {
        Self { kind: CauseKind::Unattributed, evidence: Vec::new() }
    }
}

/// Kinds of causes. A kind is claimed only on evidence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CauseKind {
    /// Real-time throttling stopped the task for the rest of its period.
    Throttled,
    /// Nothing explains it.
    Unattributed,
}

/// What `whylate run` measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunResult {
    /// [`RUN_FORMAT`].
    pub format: String,
    /// The run directory.
    pub run: String,
    /// When it began: RFC 3339, UTC.
    pub started_at: String,
    /// `complete`, `interrupted` (stopped by the user or by an error) or `killed` (no end was recorded).
    pub state: RunState,
    /// Why it did not complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The plan, with every default filled in.
    pub plan: Plan,
    /// The machine, before the first cell.
    pub facts: Facts,
    /// The cells, in the plan's order.
    pub cells: Vec<CellResult>,
    /// Comparisons between cells.
    pub comparisons: Vec<Comparison>,
    /// Against the plan's limit.
    pub verdict: Verdict,
    /// What the verdict rests on, in one sentence.
    pub verdict_reason: String,
    /// Whether the machine's settings after the run are those before it; absent when the run did not get there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restored: Option<bool>,
    /// What was not measured, or less well.
    pub warnings: Vec<Warning>,
}

/// How far a run came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RunState {
    /// Still going on, or killed: nothing recorded its end.
    Running,
    /// Every cell ran.
    Complete,
    /// Stopped by the user or by an error; what was done is kept.
    Interrupted,
}

/// Pass or fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// No latency above the limit in any cell.
    Pass,
    /// A latency above the limit.
    Fail,
    /// The plan has no limit.
    NoLimit,
    /// Nothing above the limit so far, but not every cell ran.
    Incomplete,
}

/// One cell of the matrix.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CellResult {
    /// Its name: the loads joined by `+`, or `idle`.
    pub name: String,
    /// Names of its loads.
    pub loads: Vec<String>,
    /// Names of its treatments.
    pub treatments: Vec<String>,
    /// Each repeat on its own: the unit of every comparison.
    pub repeats: Vec<RepeatResult>,
    /// The probes over all repeats.
    pub probes: Vec<ProbeResult>,
    /// What each load achieved, over all repeats.
    pub rates: Vec<RateResult>,
    /// Interrupts on the target CPUs while the probes ran, over all repeats.
    pub interrupts: Vec<crate::record::InterruptRecord>,
    /// Largest spikes of all probes and repeats, largest first.
    pub spikes: Vec<Spike>,
    /// Why it did not run; null when it did.
    pub skipped: Option<String>,
    /// Hypervisor steal on the target CPUs while the probes ran; absent where it is not counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steal_ns: Option<u64>,
    /// System-management interrupts on the target CPUs; absent where no counter can be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub smis: Option<u64>,
    /// The stall check without load beside the cell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub noise_floor: Option<NoiseFloor>,
}

/// One repeat of a cell.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RepeatResult {
    /// Its number, from 1.
    pub repeat: u32,
    /// Why it is not complete; absent when it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Per probe and CPU, without histograms.
    pub probes: Vec<RepeatProbe>,
}

/// One probe on one CPU in one repeat.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RepeatProbe {
    /// The probe.
    pub probe: String,
    /// The CPU.
    pub cpu: CpuId,
    /// Number of samples.
    pub samples: u64,
    /// Absent without samples.
    #[serde(flatten)]
    pub quantiles: Option<Quantiles>,
}

/// What a load achieved.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RateResult {
    /// Its name in the plan.
    pub load: String,
    /// Mean over the time the probes ran, each interval weighted by its length.
    pub mean: f64,
    /// `bytes_per_s`, or what the plan calls the rate of a command.
    pub unit: String,
    /// The time series.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub series: Vec<RateRecord>,
}

/// What disturbs the target CPUs without any load: a spike of this size says nothing about a load.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NoiseFloor {
    /// How long was looked, in sum over repeats.
    pub duration_ns: u64,
    /// Gaps above the threshold.
    pub gaps: u64,
    /// Threshold of the check.
    pub threshold_ns: u64,
    /// Largest gap; absent when there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_ns: Option<u64>,
    /// Steal in that time; absent where it is not counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steal_ns: Option<u64>,
}

/// One statistic of one probe in one cell against the first cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Comparison {
    /// The cell compared with.
    pub baseline: String,
    /// The cell.
    pub cell: String,
    /// The probe.
    pub probe: String,
    /// `p50`, `p99` or `max`.
    pub statistic: String,
    /// Median over repeats in the baseline.
    pub baseline_ns: u64,
    /// Median over repeats in the cell.
    pub cell_ns: u64,
    /// `better`, `worse`, `no_effect`, or `too_few_repeats` to tell.
    pub outcome: Outcome,
    /// Probability of a difference this large if there were none (exact permutation test over repeats,
    /// corrected for the number of comparisons); absent with too few repeats.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p_value: Option<f64>,
}

/// What a comparison says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Lower latency than the baseline.
    Better,
    /// Higher latency than the baseline.
    Worse,
    /// The repeats do not tell them apart.
    NoEffect,
    /// Too few repeats for any difference to be shown.
    TooFewRepeats,
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PlanLine {
    /// Its name.
    pub name: String,
    /// What it answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub question: Option<String>,
}

/// What `whylate load` prints.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LoadResult {
    /// [`LOAD_FORMAT`].
    pub format: String,
    /// `memory` or `exec`.
    pub load: String,
    /// CPUs that it ran on.
    pub cpus: crate::cpus::CpuSet,
    /// What was in each buffer, when it is a memory load.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub working_set_bytes: Option<u64>,
    /// The achieved rate; absent for a command whose output gives none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<RateResult>,
    /// How long it ran.
    pub duration_ns: u64,
    /// What went differently than asked.
    pub warnings: Vec<Warning>,
}
