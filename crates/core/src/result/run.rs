//! What `whylate run --json` prints.

use super::{Cause, LedgerRow, ProbeResult, Quantiles, Spike, SpikeTrace};
use crate::facts::Facts;
use crate::figure::counted;
use crate::plan::{Plan, Statistic};
use crate::record::{InterruptRecord, IpiRecord, RateRecord};
use crate::units::CpuId;
use crate::warning::{Warning, WarningCode};
use crate::words::words;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What `whylate run` measured.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunResult {
    /// [`RUN_FORMAT`](super::RUN_FORMAT).
    pub format: String,
    /// The run directory.
    pub run: String,
    /// When the run began: RFC 3339, UTC.
    pub started_at: String,
    /// `complete`, `interrupted` (stopped by the user or by an error) or `killed` (no end was recorded).
    pub state: RunState,
    /// Why the run did not complete.
    pub error: Option<String>,
    /// The verdict against the plan's limit.
    pub verdict: Verdict,
    /// What the verdict is based on, in one sentence.
    pub verdict_reason: String,
    /// The plan, with every default filled in.
    pub plan: Plan,
    /// The machine, before the first cell; absent if nothing is known about it.
    #[serde(default, skip_serializing_if = "Facts::is_unknown")]
    pub facts: Facts,
    /// The cells, in the plan's order.
    pub cells: Vec<CellResult>,
    /// Answers to the plan's questions; without questions, answers about the compared pairs of cells.
    #[serde(default)]
    pub answers: Vec<Answer>,
    /// Comparisons of cells that differ in one load or treatment.
    pub comparisons: Vec<Comparison>,
    /// The late time of each cause, in cells that differ in one load or treatment.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cause_contrasts: Vec<super::CauseDifference>,
    /// Latency as a function of a load's rate, if cells have the load at several rates.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub loaded_latency: Vec<super::LoadedLatency>,
    /// The table of copies, if the plan asks for one.
    pub copies: Option<super::CopyTable>,
    /// The search for treatments (`whylate fix`); absent for an experiment.
    pub fix: Option<super::FixResult>,
    /// The CPU tables of a run with a shield: before the run, in the first cell with a shield, and after the run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cpu_tables: Vec<CpuTableAt>,
    /// Messages about latency in the kernel's log during the run, in the order of time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kernel_log: Vec<super::RunMessage>,
    /// How long the probes looked for latencies above the limit, over all cells; absent without a limit.
    pub exposure: Option<Exposure>,
    /// Whether every setting that the run changed was restored; absent if the run ended earlier. With treatments,
    /// also whether the machine's settings are the same after the run as before the run.
    pub restored: Option<bool>,
    /// What was not measured, or measured less well.
    pub warnings: Vec<Warning>,
}

/// The rows of the CPU table at one moment of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CpuTableAt {
    /// `before`, `after`, or the name of a cell, whose treatments were in force.
    pub at: String,
    /// Every present CPU.
    pub cpus: Vec<super::CpuRow>,
}

/// A document with more results of CPUs than this is kept small.
const WHOLE_MAX: usize = 32;

impl RunResult {
    /// Leaves the histograms and the values over time out if many CPUs would make them megabytes, and says so.
    pub fn shorten(&mut self) {
        let probes = || self.cells.iter().flat_map(|cell| &cell.probes);
        if probes().map(|probe| probe.cpus.len()).sum::<usize>() <= WHOLE_MAX {
            return;
        }
        for cell in &mut self.cells {
            for cpu in cell.probes.iter_mut().flat_map(|probe| &mut probe.cpus) {
                cpu.histogram.clear();
                cpu.timeline.clear();
                cpu.parts.iter_mut().for_each(|part| part.histogram.clear());
            }
            cell.rates.iter_mut().for_each(|rate| rate.series.clear());
        }
        let text = "histograms and time series are left out, because the run has many CPUs";
        self.warnings.push(Warning::new(WarningCode::HistogramsLeftOut, text));
    }
}

words! {
    /// How far the run came.
    pub enum RunState: "a state" {
        /// Still running, or killed: no end was recorded.
        Running = "running",
        /// Every cell ran.
        Complete = "complete",
        /// Stopped by the user or by an error; finished repeats are kept.
        Interrupted = "interrupted",
    }
}

/// How a run, or one of its repeats, ended.
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
    /// Repeats of cells failed, or the run could not continue.
    Failed {
        /// What happened.
        reason: String,
    },
}

words! {
    /// Pass or fail.
    pub enum Verdict: "a verdict" {
        /// No latency above the limit in any cell.
        Pass = "pass",
        /// A latency above the limit.
        Fail = "fail",
        /// The plan has no limit.
        NoLimit = "no_limit",
        /// Nothing above the limit so far, but not every cell ran.
        Incomplete = "incomplete",
    }
}

/// One cell: a combination of loads and treatments.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CellResult {
    /// The cell's name: by default its loads and treatments joined by `+`, or `idle`.
    pub name: String,
    /// Names of the cell's loads.
    pub loads: Vec<String>,
    /// Names of the cell's treatments.
    pub treatments: Vec<String>,
    /// Each repeat on its own: the unit of every comparison.
    pub repeats: Vec<RepeatResult>,
    /// The probes' figures over all repeats.
    pub probes: Vec<ProbeResult>,
    /// The achieved rate of each load, over all repeats.
    pub rates: Vec<RateResult>,
    /// What graphics devices did during the probes, over all repeats.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<GpuResult>,
    /// Interrupts on the target CPUs while the probes ran, over all repeats.
    pub interrupts: Vec<InterruptRecord>,
    /// Interrupts that other CPUs sent to the measured CPUs while the probes ran, over all repeats, by function,
    /// caller and sender; only with causes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ipis: Vec<IpiRecord>,
    /// Largest spikes of all probes and repeats, largest first.
    pub spikes: Vec<Spike>,
    /// The late time of each cause in all complete repeats; empty if the run did not look for causes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ledger: Vec<LedgerRow>,
    /// The kept traces of spikes, largest spike first; only with `trace` in the plan.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub traces: Vec<SpikeTrace>,
    /// Why the cell did not run; null if it ran.
    #[serialize_always]
    pub skipped: Option<String>,
    /// Steal time on the target CPUs while the probes ran; absent if it is not counted.
    pub steal_ns: Option<u64>,
    /// System-management interrupts on the target CPUs; absent if no counter can be read.
    pub smis: Option<u64>,
    /// The stall checks without load before the repeats of the cell.
    pub noise_floor: Option<NoiseFloor>,
    /// How long the probes looked for latencies above the limit; absent without a limit.
    pub exposure: Option<Exposure>,
}

/// How long the probes looked for latencies above the limit, and how often these can come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Exposure {
    /// How long the probes looked for latencies above the limit: the shortest time of a probe on a CPU. After events, the
    /// time of the probe with the most events of each cell, whose events are counted.
    pub watched_ns: u64,
    /// Measured CPUs.
    pub cpus: u32,
    /// Latencies above the limit; with `records_missing`, at least this many.
    #[serde(default)]
    pub latencies: u64,
    /// Events: latencies above the limit that are less than 1 s apart count as one; with `records_missing`, at most
    /// this many.
    pub events: u64,
    /// Whether the moments of some latencies above the limit are not known.
    #[serde(default)]
    pub records_missing: bool,
    /// Upper limit for the rate of these events under the run's conditions, at 95 % confidence (exact Poisson bound).
    pub events_per_hour_max: f64,
}

impl Exposure {
    /// `28 latencies in 2 events at least 1 s apart`; `None` if nothing was above the limit.
    pub fn above(&self) -> Option<String> {
        let (least, most) = if self.records_missing { ("at least ", "at most ") } else { ("", "") };
        let apart = if self.events > 1 { " at least 1 s apart" } else { "" };
        let events = || format!("{most}{}{apart}", counted(self.events, "event"));
        let latencies = match self.latencies {
            1 => format!("{least}1 latency"),
            number => format!("{least}{number} latencies"),
        };
        match (self.latencies, self.events) {
            (0, 0) => None,
            // Results of earlier versions.
            (0, _) => Some(events()),
            // That each latency is an event of its own says nothing new.
            (number, events) if number <= events => Some(latencies),
            _ => Some(format!("{latencies} in {}", events())),
        }
    }
}

/// One repeat of a cell.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RepeatResult {
    /// Number of the repeat, from 1.
    pub repeat: u32,
    /// The block in which the repeat ran; within each block the order of the cells is random.
    #[serde(default)]
    pub block: u32,
    /// Why the repeat is not complete; absent if it is complete.
    pub error: Option<String>,
    /// Figures for each probe and CPU, without histograms.
    pub probes: Vec<RepeatProbe>,
    /// The late time of each cause; empty if the run did not look for causes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ledger: Vec<LedgerRow>,
}

/// The repeats of cells that are not complete, one sentence for each reason: many repeats may fail for the same one.
pub fn incomplete_repeats(cells: &[CellResult]) -> Vec<String> {
    let mut reasons: Vec<(&str, Vec<(&str, u32)>)> = Vec::new();
    for cell in cells {
        for repeat in &cell.repeats {
            let Some(error) = repeat.error.as_deref() else { continue };
            let of = (cell.name.as_str(), repeat.repeat);
            match reasons.iter_mut().find(|(other, _)| *other == error) {
                Some((_, repeats)) => repeats.push(of),
                None => reasons.push((error, vec![of])),
            }
        }
    }
    let sentence = |(error, repeats): (&str, Vec<(&str, u32)>)| {
        if let [(cell, repeat)] = repeats[..] {
            return format!("repeat {repeat} of cell `{cell}` is not complete: {error}");
        }
        let mut cells: Vec<String> = repeats.iter().map(|(cell, _)| format!("`{cell}`")).collect();
        cells.dedup();
        let (count, noun) = (repeats.len(), if cells.len() == 1 { "cell" } else { "cells" });
        format!("{count} repeats of {noun} {} are not complete: {error}", cells.join(", "))
    };
    reasons.into_iter().map(sentence).collect()
}

/// One probe on one CPU in one repeat.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RepeatProbe {
    /// The probe; if it has several series, `PROBE/SERIES`.
    pub probe: String,
    /// The CPU.
    pub cpu: CpuId,
    /// Number of samples.
    pub samples: u64,
    /// Quantiles of the samples; absent without samples.
    #[serde(flatten)]
    pub quantiles: Option<Quantiles>,
    /// Quantiles with missed periods counted, as in [`CpuResult`](super::CpuResult).
    pub corrected: Option<Quantiles>,
    /// The machine's own latency, as in [`CpuResult`](super::CpuResult).
    pub own: Option<Quantiles>,
    /// Gaps above the threshold per second.
    pub gaps_per_s: Option<f64>,
    /// Gaps above the threshold as a share of the time.
    pub lost_share: Option<f64>,
    /// Gaps that the scheduler makes on purpose; absent if no such gap is known.
    pub throttled: Option<ThrottledGaps>,
    /// Samples above the limit per hour; above 100 us if the plan has no limit.
    pub spikes_per_h: Option<f64>,
    /// Triggers of the watch per hour, the same for each of its threads; absent without a trigger.
    pub triggers_per_h: Option<f64>,
    /// How long the probe measured; 0 if this is not known.
    #[serde(default, skip_serializing_if = "super::is_zero")]
    pub measured_ns: u64,
}

/// Gaps that the scheduler makes on purpose: real-time throttling, or the fair server. They are not a latency of the
/// machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ThrottledGaps {
    /// Number of these gaps.
    pub gaps: u64,
    /// Sum of these gaps.
    pub lost_ns: u64,
    /// The largest other gap; 0 without one above the threshold.
    pub other_max_ns: u64,
}

/// The achieved rate of a load.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RateResult {
    /// The load's name in the plan.
    pub load: String,
    /// Mean while the probes ran, each interval weighted by its length.
    pub mean: f64,
    /// `bytes_per_s`, or what the plan calls the rate of a command.
    pub unit: String,
    /// The time series.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub series: Vec<RateRecord>,
}

/// One figure of a graphics device while a cell was measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GpuResult {
    /// `card0`, or the PCI address of a device without a card.
    pub device: String,
    /// Name of the figure, with its unit: `memory_bytes`, `busy_percent/render` (for one kind of engine), ….
    pub quantity: String,
    /// Mean of the values.
    pub mean: f64,
    /// Largest value.
    pub max: f64,
    /// The time series.
    pub series: Vec<RateRecord>,
}

/// What disturbs the target CPUs without any load; a spike of this size shows nothing about a load.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NoiseFloor {
    /// Length of the checks, as a sum over repeats.
    pub duration_ns: u64,
    /// Gaps above the threshold.
    pub gaps: u64,
    /// Threshold of the check.
    pub threshold_ns: u64,
    /// Largest gap; absent without a gap.
    pub max_ns: Option<u64>,
    /// Steal time during the checks; absent if it is not counted.
    pub steal_ns: Option<u64>,
    /// The main cause of the largest gap; absent if it is not known.
    pub cause: Option<Cause>,
}

/// One statistic of one probe, in two cells that differ in one load or treatment.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Comparison {
    /// The cell that `cell` is compared with.
    pub baseline: String,
    /// The cell.
    pub cell: String,
    /// The probe; if it has several series, `PROBE/SERIES`.
    pub probe: String,
    /// The statistic: one value for each repeat, from its worst CPU.
    pub statistic: Statistic,
    /// Whether this comparison decides. The others are exploratory: they show where to look, and prove nothing.
    pub primary: bool,
    /// Median over repeats in the baseline, if the statistic is a time.
    pub baseline_ns: Option<u64>,
    /// Median over repeats in the cell.
    pub cell_ns: Option<u64>,
    /// Median over repeats in the baseline, in `unit`.
    pub baseline_value: f64,
    /// Median over repeats in the cell.
    pub cell_value: f64,
    /// Unit of the values: `ns`, `share`, `per_s` or `per_h`.
    pub unit: String,
    /// The cell's values divided by the baseline's, the middle of the ratios within blocks of repeats; absent if values are 0.
    pub ratio: Option<f64>,
    /// `within_blocks` if `ratio` is more than 10 % from `cell_value / baseline_value`.
    pub ratio_of: Option<String>,
    /// Lower end of the ratio's 95 % interval; absent if the repeats give no bound.
    pub ratio_low: Option<f64>,
    /// Upper end of the ratio's 95 % interval; absent if the repeats give no bound.
    pub ratio_high: Option<f64>,
    /// The result of the comparison.
    pub outcome: Outcome,
    /// Two-sided p-value of no difference, corrected for the number of comparisons: primary comparisons by Holm,
    /// exploratory comparisons by Benjamini and Hochberg.
    pub p_value: f64,
    /// Repeats of the smaller side.
    pub repeats: u32,
    /// About how many more repeats like these would decide the comparison; only if the result is open.
    pub more_repeats: Option<u32>,
    /// Why an outcome is refused: a load achieved less than in the baseline (no `better`), or results lack the statistic.
    pub refused: Option<String>,
}

/// From this factor on, two figures contradict the ratio beside them.
const CONTRADICTS: f64 = 1.1;

impl Comparison {
    /// With the reason why its values and its ratio differ, if they do.
    #[must_use]
    pub fn explained(self) -> Self {
        let differs = self.contradicts(self.baseline_value, self.cell_value);
        Self { ratio_of: differs.then(|| "within_blocks".to_owned()), ..self }
    }

    /// Whether the ratio of two figures is more than 10 % from its own.
    pub fn contradicts(&self, before: f64, now: f64) -> bool {
        let apart = self.ratio.filter(|ratio| *ratio > 0.0).map(|ratio| (now / before / ratio).ln().abs());
        apart.is_some_and(|apart| apart.is_nan() || apart > CONTRADICTS.ln())
    }
}

words! {
    /// The result of a comparison.
    pub enum Outcome: "an outcome" {
        /// Lower than in the baseline, by more than the margin.
        Better = "better",
        /// Higher than in the baseline, by more than the margin.
        Worse = "worse",
        /// Any difference is within the margin.
        Equivalent = "equivalent",
        /// The repeats show none of the other outcomes.
        CannotTell = "cannot_tell",
    }
}

/// The answer to a question of the plan.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Answer {
    /// The question.
    pub question: String,
    /// Yes, no, or why neither.
    pub outcome: AnswerOutcome,
    /// The answer in one sentence.
    pub sentence: String,
    /// The comparison that the answer is based on; absent if a cell was not measured.
    pub comparison: Option<Comparison>,
    /// The causes that the second cell adds or removes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<super::CauseDifference>,
}

words! {
    /// How a question is answered.
    pub enum AnswerOutcome: "an answer" {
        /// The effect is as expected, and at least as large as what matters.
        Yes = "yes",
        /// The effect is smaller than what matters, or has the other direction.
        No = "no",
        /// The repeats are not enough to tell.
        CannotTell = "cannot_tell",
        /// A cell or the probe was not measured.
        NotMeasured = "not_measured",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeats_that_fail_for_one_reason_are_one_sentence() {
        let repeat = |repeat: u32, error: Option<&str>| RepeatResult {
            repeat,
            error: error.map(str::to_owned),
            ..RepeatResult::default()
        };
        let cell = |name: &str, repeats: Vec<RepeatResult>| CellResult {
            name: name.to_owned(),
            repeats,
            ..CellResult::default()
        };
        let cells = [
            cell("idle", vec![repeat(1, Some("refused")), repeat(2, Some("refused")), repeat(3, None)]),
            cell("l3", vec![repeat(1, Some("refused")), repeat(2, Some("stopped"))]),
        ];
        assert_eq!(
            incomplete_repeats(&cells),
            [
                "3 repeats of cells `idle`, `l3` are not complete: refused",
                "repeat 2 of cell `l3` is not complete: stopped"
            ]
        );
    }
}
