//! What `whylate run --json` prints.

use super::{ProbeResult, Quantiles, Spike, SpikeTrace};
use crate::facts::Facts;
use crate::plan::Plan;
use crate::record::{InterruptRecord, IpiRecord, RateRecord};
use crate::units::CpuId;
use crate::warning::Warning;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What `whylate run` measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunResult {
    /// [`RUN_FORMAT`](super::RUN_FORMAT).
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

/// How a run, or one repeat of it, ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "how", rename_all = "snake_case")]
pub enum RunEnd {
    /// Everything ran to its end.
    Completed,
    /// The user stopped it.
    Interrupted,
    /// A latency above the `break` of a probe stopped it.
    BrokeAbove {
        /// The probe.
        probe: String,
        /// The latency.
        latency_ns: u64,
        /// The probe's `break`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        break_ns: Option<u64>,
    },
    /// Repeats of cells failed, or the run could not go on.
    Failed {
        /// What happened.
        reason: String,
    },
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
    pub interrupts: Vec<InterruptRecord>,
    /// Interrupts that other CPUs sent to the measured ones while the probes ran, over all repeats, by function, caller
    /// and sender; only with causes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ipis: Vec<IpiRecord>,
    /// Largest spikes of all probes and repeats, largest first.
    pub spikes: Vec<Spike>,
    /// The traces that were kept of spikes, largest first; only with `trace` in the plan.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub traces: Vec<SpikeTrace>,
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
    /// The probe, joined to its series with a `/` if it has several.
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
    /// The probe, joined to its series with a `/` if it has several.
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
