//! Runs against runs: the unit is the run, because runs differ by boot, time and place in memory.
//!
//! With four or more runs on each side, their labels are permuted, as those of repeats are within a run. With fewer,
//! a history of at least five baseline runs shows how much runs differ (Student's t on logarithms). Without either,
//! no difference is claimed, whatever its size.

mod causes;
mod conclusion;
mod values;

pub(crate) use causes::contrasted;
pub use causes::{CauseBasis, CauseUnit, cause_contrasts, cause_differences};
pub use conclusion::conclude;
pub use values::{RunValues, ValueKey};

use crate::contrast::{Observation, SIGNIFICANCE, benjamini_hochberg, holm, median, outcome, student, study};
use crate::moments::{mean, variance};
use std::collections::BTreeSet;
use whylate_core::figure;
use whylate_core::order::InOrder;
use whylate_core::plan::{SeriesStatistic, Statistic};
use whylate_core::result::{Comparison, Outcome, RunContrast};

/// With at least this number of runs on each side labels can be permuted: 70 choices.
pub const RUNS_PERMUTED_MIN: usize = 4;
/// A shorter history does not show how much runs differ.
pub const HISTORY_MIN: usize = 5;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Basis {
    Runs,
    /// A history of that number of runs.
    History(usize),
    TooFew,
}

/// What a comparison of that number of runs rests on.
pub fn basis(baseline: usize, side: usize, history: usize) -> Basis {
    match (baseline.min(side), history) {
        (runs, _) if runs >= RUNS_PERMUTED_MIN => Basis::Runs,
        (_, history) if history >= HISTORY_MIN => Basis::History(history),
        _ => Basis::TooFew,
    }
}

/// The sides to compare, and the rules.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// Name and runs of the baseline.
    pub baseline: (&'a str, &'a [RunValues]),
    /// Name and runs of the other side.
    pub side: (&'a str, &'a [RunValues]),
    /// Earlier runs like those of the baseline.
    pub history: &'a [RunValues],
    pub primary: Option<&'a SeriesStatistic>,
    /// Effects up to this share do not matter.
    pub margin: f64,
}

/// What one statistic shows, before it is corrected for the number of them.
struct Draft {
    contrast: RunContrast,
    effect: f64,
    /// Its 95 % interval.
    interval: (Option<f64>, Option<f64>),
    is_decidable: bool,
}

/// Compares every statistic that both sides have.
pub fn compare(question: &Question<'_>) -> Vec<RunContrast> {
    let keys = values::common(question.baseline.1, question.side.1);
    let drafts = keys.into_iter().filter_map(|key| draft(question, &key));
    let (mut primary, mut others): (Vec<Draft>, Vec<Draft>) =
        drafts.partition(|draft| draft.contrast.comparison.primary);
    decide(&mut primary, holm, question.margin);
    decide(&mut others, benjamini_hochberg, question.margin);
    primary.into_iter().chain(others).map(|draft| draft.contrast).collect()
}

fn decide(drafts: &mut [Draft], correction: fn(&mut [f64]), margin: f64) {
    let mut p_values: Vec<f64> = drafts.iter().map(|draft| draft.contrast.comparison.p_value).collect();
    correction(&mut p_values);
    for (draft, p_value) in drafts.iter_mut().zip(p_values) {
        // Differences of values have no share that does not matter.
        let margin = if draft.contrast.comparison.ratio.is_some() { margin.ln_1p() } else { 0.0 };
        let comparison = &mut draft.contrast.comparison;
        comparison.p_value = p_value;
        let is_decidable = draft.is_decidable && comparison.refused.is_none();
        comparison.outcome = match is_decidable {
            true => outcome(p_value, draft.effect, draft.interval, margin),
            false => Outcome::CannotTell,
        };
    }
}

fn draft(question: &Question<'_>, key: &ValueKey) -> Option<Draft> {
    // A value above the end of a histogram counts with this end.
    let least = |run: &RunValues| run.get(key).or_else(|| run.above(key));
    let of = |runs: &[RunValues]| -> Vec<f64> { runs.iter().filter_map(least).collect() };
    let (first, second) = (of(question.baseline.1), of(question.side.1));
    let history: Vec<f64> = question.history.iter().filter_map(|run| run.get(key)).collect();
    if first.is_empty() || second.is_empty() {
        return None;
    }
    let middle = |values: &[f64]| {
        let mut sorted = values.to_vec();
        sorted.order_by(f64::total_cmp);
        median(&sorted).unwrap_or_default()
    };
    let (before, after) = (middle(&first), middle(&second));
    let in_ns = |value: f64| (key.statistic.unit() == "ns").then_some(value as u64);
    let counts = match basis(first.len(), second.len(), history.len()) {
        Basis::History(_) => &history[..],
        Basis::Runs | Basis::TooFew => &[],
    };
    let is_log = first.iter().chain(&second).chain(counts).all(|value| *value > 0.0);
    let found = effect_of(&first, &second, &history, is_log);
    let above = [question.baseline.1, question.side.1]
        .map(|runs| runs.iter().filter(|run| run.above(key).is_some()).count() as u32);
    let is_one_sided = (above[0] == 0) != (above[1] == 0);
    let is_open = above.iter().all(|above| *above > 0);
    let is_decidable = found.is_some();
    let (effect, p_value, (low, high)) =
        found.map_or((0.0, 1.0, (None, None)), |it| (it.effect, it.p_value, it.interval_95));
    // Values that are larger than they are known to be leave one end open, and may turn one direction round.
    let interval = (low.filter(|_| above[0] == 0), high.filter(|_| above[1] == 0));
    let is_less_sure = is_open || (effect < 0.0 && above[1] > 0) || (effect > 0.0 && above[0] > 0);
    let ratio = is_log.then(|| if is_decidable { effect.exp() } else { after / before });
    let end = |end: Option<f64>| end.filter(|_| is_log).map(f64::exp);
    let comparison = Comparison {
        baseline: question.baseline.0.to_owned(),
        cell: question.side.0.to_owned(),
        probe: key.series.clone(),
        statistic: key.statistic,
        primary: !key.is_of_cpu()
            && question.primary.is_some_and(|it| it.statistic == key.statistic && it.is_of(&key.series)),
        baseline_ns: in_ns(before),
        cell_ns: in_ns(after),
        baseline_value: before,
        cell_value: after,
        unit: key.statistic.unit().to_owned(),
        ratio: ratio.filter(|_| !is_open),
        ratio_of: None,
        ratio_low: end(interval.0),
        ratio_high: end(interval.1),
        outcome: Outcome::CannotTell,
        p_value: if is_less_sure { 1.0 } else { p_value },
        repeats: first.len().min(second.len()) as u32,
        more_repeats: None,
        refused: missing(question, key, is_one_sided).or_else(|| other_limits(question, key)),
    };
    let contrast = RunContrast {
        of_cell: key.cell.clone(),
        comparison: comparison.explained(),
        values: [first, second],
        above_histogram: above,
    };
    Some(Draft { contrast, effect, interval, is_decidable })
}

/// Why results of a side do not count for a statistic; `None` if all have it. Without them, no outcome is certain: one
/// that is missing may be the worst. `is_above_counted`: values above the end of a histogram count with this end.
fn missing(question: &Question<'_>, key: &ValueKey, is_above_counted: bool) -> Option<String> {
    let of_side = |(name, runs): (&str, &[RunValues])| {
        let open = runs.iter().filter(|run| run.get(key).is_none());
        let (mut above, absent): (Vec<&RunValues>, Vec<&RunValues>) =
            open.partition(|run| run.above(key).is_some());
        if is_above_counted {
            above.clear();
        }
        let (all, statistic) = (runs.len(), key.statistic);
        let above = match above.len() {
            0 => None,
            1 if all == 1 => {
                Some(format!("the {statistic} of side {name} is above the end of its histogram"))
            }
            open => Some(format!(
                "the {statistic} of {open} of {all} files on side {name} is above the end of their histogram"
            )),
        };
        let absent = match absent.len() {
            0 => None,
            open => Some(format!(
                "{} {statistic} is missing in {open} of {all} results of side {name}",
                key.series
            )),
        };
        above.into_iter().chain(absent).collect::<Vec<String>>()
    };
    let all = [question.baseline, question.side].into_iter().flat_map(of_side).collect::<Vec<String>>();
    (!all.is_empty()).then(|| all.join("; "))
}

/// Why the statistic that decides is not known of all results, series by series.
pub fn lacking(question: &Question<'_>) -> Vec<String> {
    let Some(primary) = question.primary else { return Vec::new() };
    let is_primary = |key: &&ValueKey| {
        !key.is_of_cpu() && key.statistic == primary.statistic && primary.is_of(&key.series)
    };
    let keys = |runs: &[RunValues]| -> BTreeSet<ValueKey> {
        runs.iter().flat_map(RunValues::keys).filter(is_primary).cloned().collect()
    };
    let (first, second) = (keys(question.baseline.1), keys(question.side.1));
    // A cell or a series that only one side has is not compared.
    let mut all: Vec<String> =
        first.intersection(&second).filter_map(|key| missing(question, key, false)).collect();
    all.dedup();
    all
}

/// Why numbers of spikes are not compared: each side counts what is above its own limit.
fn other_limits(question: &Question<'_>, key: &ValueKey) -> Option<String> {
    let runs = question.baseline.1.iter().chain(question.side.1);
    let limits: BTreeSet<u64> = runs.filter_map(|run| run.spike_ns).collect();
    let is_apart = key.statistic == Statistic::SpikeRate && limits.len() > 1;
    let text = |ns: &u64| figure::nanoseconds(*ns);
    is_apart.then(|| {
        let all: Vec<String> = limits.iter().map(text).collect();
        format!("{} counts samples above the limit, which is {}", key.statistic, all.join(" or "))
    })
}

/// An effect on the scale of logarithms, or of the values if one of them is 0.
struct Effect {
    effect: f64,
    p_value: f64,
    interval_95: (Option<f64>, Option<f64>),
}

fn effect_of(first: &[f64], second: &[f64], history: &[f64], is_log: bool) -> Option<Effect> {
    let logs = |values: &[f64]| -> Vec<f64> {
        values.iter().map(|value| if is_log { value.ln() } else { *value }).collect()
    };
    let (first, second, history) = (logs(first), logs(second), logs(history));
    match basis(first.len(), second.len(), history.len()) {
        Basis::Runs => {
            let observed = |values: &[f64]| -> Vec<Observation> {
                values.iter().map(|value| Observation { block: 0, value: *value }).collect()
            };
            let study = study(&observed(&first), &observed(&second))?;
            Some(Effect { effect: study.effect, p_value: study.p_value, interval_95: study.interval_95 })
        }
        // Values with zeros are not normal.
        Basis::History(_) if is_log => {
            is_like(&first, &history).then(|| by_history(&first, &second, &history))
        }
        Basis::History(_) | Basis::TooFew => None,
    }
}

/// Whether the baseline resembles the runs of the history. Runs from a time when the machine behaved differently do
/// not show how much the baseline's runs differ.
fn is_like(first: &[f64], history: &[f64]) -> bool {
    let share = 1.0 / first.len() as f64 + 1.0 / history.len() as f64;
    let spread = (variance(history) * share).sqrt().max(1e-9);
    student::two_sided((mean(first) - mean(history)) / spread, history.len() - 1) > SIGNIFICANCE
}

/// Assumes that runs differ as much as those of the history do.
fn by_history(first: &[f64], second: &[f64], history: &[f64]) -> Effect {
    let (degrees, variance) = (history.len() - 1, variance(history));
    let spread = (variance * (1.0 / first.len() as f64 + 1.0 / second.len() as f64)).sqrt().max(1e-9);
    let effect = mean(second) - mean(first);
    let half = student::quantile(0.05, degrees) * spread;

    Effect {
        effect,
        p_value: student::two_sided(effect / spread, degrees),
        interval_95: (Some(effect - half), Some(effect + half)),
    }
}

#[cfg(test)]
mod tests;
