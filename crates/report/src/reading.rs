//! How a contrast reads: its sign, word, colour and place in an order all come from its outcome and its ratio, so that
//! no row contradicts itself.

use crate::section::{Cell, Tone};
use std::cmp::Ordering;
use whylate_core::figure::{probability, value};
use whylate_core::result::{Comparison, Outcome};

/// What stands for an outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reading {
    pub(crate) sign: &'static str,
    pub(crate) word: &'static str,
    pub(crate) tone: Tone,
    /// Its place in an order: the lower, the earlier it is shown.
    rank: u8,
}

impl Reading {
    pub(crate) fn of(outcome: Outcome) -> Self {
        let (sign, word, tone, rank) = match outcome {
            Outcome::Worse => ("▲", "worse", Tone::Bad, 0),
            Outcome::CannotTell => ("?", "cannot tell", Tone::Plain, 1),
            Outcome::Better => ("▼", "better", Tone::Good, 2),
            Outcome::Equivalent => ("=", "equivalent", Tone::Plain, 3),
        };
        Self { sign, word, tone, rank }
    }
}

/// What the signs stand for.
pub(crate) const SIGNS: &str = "▲ worse, ▼ better, = equivalent, ? cannot tell; ratio within blocks with its 95 % interval, or with the p-value \
    corrected for all comparisons where that decides.";

/// The worst first: what is worse, then what cannot be told, better, equivalent; of each the largest effect first.
pub(crate) fn by_severity(a: &Comparison, b: &Comparison) -> Ordering {
    let rank = |one: &Comparison| Reading::of(one.outcome).rank;
    let size =
        |one: &Comparison| one.ratio.filter(|ratio| *ratio > 0.0).map_or(0.0, |ratio| ratio.ln().abs());
    rank(a).cmp(&rank(b)).then(size(b).total_cmp(&size(a)))
}

/// `1.57 × (1.46 to 1.70)`; the values where there is no ratio: `0 % -> 0.31 %`.
pub(crate) fn effect(comparison: &Comparison) -> String {
    let Some(ratio) = comparison.ratio else { return change(comparison) };
    match interval(comparison) {
        Some((low, high)) => {
            let end = |end: Option<f64>| end.map_or_else(|| "?".to_owned(), times);
            format!("{} × ({} to {})", times(ratio), end(low), end(high))
        }
        None => format!("{} × ({})", times(ratio), probability(comparison.p_value)),
    }
}

/// The interval, unless it says more than the outcome: an effect that is told apart from none on its own, but not among
/// all comparisons of the plan, or not at the same load.
pub(crate) fn interval(comparison: &Comparison) -> Option<(Option<f64>, Option<f64>)> {
    let (low, high) = (comparison.ratio_low, comparison.ratio_high);
    let is_apart = low.is_some_and(|low| low > 1.0) || high.is_some_and(|high| high < 1.0);
    (!(is_apart && comparison.outcome == Outcome::CannotTell)).then_some((low, high))
}

/// Three digits: `0.962`, `1.57`, `12.4`, `210`.
pub(crate) fn times(ratio: f64) -> String {
    match ratio {
        ratio if ratio >= 99.95 => format!("{ratio:.0}"),
        ratio if ratio >= 9.995 => format!("{ratio:.1}"),
        ratio if ratio >= 0.9995 => format!("{ratio:.2}"),
        ratio => format!("{ratio:.3}"),
    }
}

/// `4.10 -> 6.30 us`: the unit once where both have the same.
pub(crate) fn change(comparison: &Comparison) -> String {
    let [before, after] =
        [comparison.baseline_value, comparison.cell_value].map(|it| value(comparison.statistic, it));
    match (before.split_once(' '), after.split_once(' ')) {
        (Some((number, unit)), Some((_, after_unit))) if unit == after_unit => format!("{number} -> {after}"),
        _ => format!("{before} -> {after}"),
    }
}

/// Sign and effect, as a table has them.
pub(crate) fn cell(comparison: &Comparison) -> Cell {
    let reading = Reading::of(comparison.outcome);
    Cell { tone: reading.tone, ..format!("{} {}", reading.sign, effect(comparison)).into() }
}
