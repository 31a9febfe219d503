//! How a contrast reads: its sign, word, colour and order all follow from its outcome and its ratio, so that no row
//! contradicts itself.

use crate::section::{Cell, Span, Text, Tone};
use std::cmp::Ordering;
use whylate_core::figure::{between, nanoseconds, probability, value};
use whylate_core::result::{CauseChange, CauseDifference, CellResult, Comparison, Outcome, RunResult};

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

impl Reading {
    /// One machine of many, whose own ratio has no verdict.
    pub(crate) fn of_board(disagrees: bool) -> Self {
        match disagrees {
            true => Self { sign: "!", word: "disagrees", tone: Tone::Warn, rank: 0 },
            false => Self { sign: "", word: "", tone: Tone::Plain, rank: 0 },
        }
    }
}

pub(crate) const SIGNS: &str = "▲ worse, ▼ better, = equivalent, ? cannot tell. Ratios compare repeat by \
    repeat. In brackets: 95 % interval (none with few repeats) or corrected p-value.";

/// The legend for these comparisons: shorter if none has an interval.
pub(crate) fn signs(comparisons: &[Comparison]) -> String {
    let is_bare = |it: &Comparison| it.outcome == Outcome::CannotTell && interval(it) == Some((None, None));
    match comparisons.iter().all(is_bare) {
        true => "? cannot tell. The ratios have no interval: there are too few repeats.".to_owned(),
        false => SIGNS.to_owned(),
    }
}

/// Worst first: worse, cannot tell, better, equivalent; within each the largest effect first.
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
        Some(ends) => format!("{} × ({})", times(ratio), between(ends, times)),
        None => format!("{} × ({})", times(ratio), probability(comparison.p_value)),
    }
}

/// The interval, unless it claims more than the outcome: an effect that differs from none on its own, but not among
/// all comparisons of the plan, or not at the same load.
pub(crate) fn interval(comparison: &Comparison) -> Option<(Option<f64>, Option<f64>)> {
    let (low, high) = (comparison.ratio_low, comparison.ratio_high);
    let is_apart = low.is_some_and(|low| low > 1.0) || high.is_some_and(|high| high < 1.0);
    (!(is_apart && comparison.outcome == Outcome::CannotTell)).then_some((low, high))
}

/// `+12.0 us per s to +31.0 us per s`; empty if it claims more than the verdict: a difference that is significant on
/// its own, but not among all causes and contrasts.
pub(crate) fn interval_of_rates(it: &CauseDifference) -> String {
    let (low, high) = (it.difference_low, it.difference_high);
    let is_apart = low.is_some_and(|low| low > 0.0) || high.is_some_and(|high| high < 0.0);
    if is_apart && it.change == CauseChange::CannotTell {
        return String::new();
    }
    let end = |end: f64| match end {
        end if end.abs() < 1.0 => "0".to_owned(),
        end => format!("{}{} per s", if end < 0.0 { "-" } else { "+" }, nanoseconds(end.abs() as u64)),
    };
    match (low.map(end), high.map(end)) {
        (Some(low), Some(high)) => format!("{low} to {high}"),
        (Some(low), None) => format!("at least {low}"),
        (None, Some(high)) => format!("at most {high}"),
        (None, None) => "too few repeats".to_owned(),
    }
}

/// What the cell has and its baseline lacks.
pub(crate) fn more<'r>(
    run: &'r RunResult,
    (baseline, cell): (&str, &str),
    of: fn(&CellResult) -> &Vec<String>,
) -> Option<Vec<&'r str>> {
    let find = |name: &str| run.cells.iter().find(|cell| cell.name == *name);
    let (baseline, cell) = (find(baseline)?, find(cell)?);
    let more: Vec<&str> =
        of(cell).iter().filter(|name| !of(baseline).contains(name)).map(String::as_str).collect();
    (!more.is_empty()).then_some(more)
}

/// Three digits: `0.00457`, `0.962`, `1.57`, `12.4`, `210`.
pub(crate) fn times(ratio: f64) -> String {
    match ratio {
        ratio if ratio >= 99.95 => format!("{ratio:.0}"),
        ratio if ratio >= 9.995 => format!("{ratio:.1}"),
        ratio if ratio >= 0.9995 => format!("{ratio:.2}"),
        ratio if ratio >= 0.09995 || ratio <= 0.0 => format!("{ratio:.3}"),
        // Three digits after the zeros.
        ratio => format!("{ratio:.0$}", (2.0 - ratio.log10().floor()) as usize),
    }
}

/// `4.10 -> 6.30 us`: the unit only once if both have the same.
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
    let effect = match (comparison.ratio, interval(comparison)) {
        // A table would repeat it in every row.
        (Some(ratio), Some((None, None))) => format!("{} ×", times(ratio)),
        _ => effect(comparison),
    };
    let text = match effect.split_once(" (") {
        Some((ratio, ends)) => whole(&reading, ratio).and_plain(format!(" ({ends}")),
        None => whole(&reading, &effect),
    };
    Cell { tone: reading.tone, ..text.into() }
}

/// The same in a row that shows the figures of both cells. If they contradict the ratio, it gives the reason: other
/// figures are compared, or `by` what the ratio was formed.
pub(crate) fn cell_with_reason(comparison: &Comparison, shown: Option<(f64, f64)>, by: &str) -> Cell {
    let plain = cell(comparison);
    let reason = match shown {
        _ if comparison.contradicts(comparison.baseline_value, comparison.cell_value) => by.to_owned(),
        Some((before, now)) if comparison.contradicts(before, now) => format!(": {}", change(comparison)),
        _ => return plain,
    };
    Cell { text: plain.text.map(|text| text.and_plain(reason)), ..plain }
}

/// A ratio of which only a bound is known: `at least 8.08 ×`.
pub(crate) fn bounded_cell(comparison: &Comparison, bound: &str) -> Cell {
    let reading = Reading::of(comparison.outcome);
    let effect =
        comparison.ratio.map_or_else(|| "unknown".to_owned(), |it| format!("{bound} {} ×", times(it)));
    Cell { tone: reading.tone, ..whole(&reading, &effect).into() }
}

fn whole(reading: &Reading, effect: &str) -> Text {
    Text::default().and(Span::Whole(format!("{} {effect}", reading.sign)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use whylate_core::plan::Statistic;

    fn number(state: &mut u64) -> f64 {
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*state >> 11) as f64 / (1u64 << 53) as f64
    }

    fn random(state: &mut u64) -> Comparison {
        let outcome = Outcome::ALL[(number(state) * 4.0) as usize];
        let ratio = (number(state) * 6.0 - 3.0).exp();
        let width = number(state);
        let end = |end: f64, state: &mut u64| (number(state) > 0.1).then_some(end);
        Comparison {
            baseline: "a".to_owned(),
            cell: "b".to_owned(),
            probe: "timer".to_owned(),
            statistic: Statistic::P999,
            primary: number(state) < 0.5,
            baseline_ns: None,
            cell_ns: None,
            baseline_value: 1e4,
            cell_value: 1e4 * ratio,
            unit: "ns".to_owned(),
            ratio: (number(state) > 0.05).then_some(ratio),
            ratio_of: None,
            ratio_low: end(ratio * (-width).exp(), state),
            ratio_high: end(ratio * width.exp(), state),
            outcome,
            p_value: number(state),
            repeats: 8,
            more_repeats: None,
            refused: None,
        }
    }

    #[test]
    fn a_ratio_has_three_digits_however_small_it_is() {
        let texts = [0.004_567, 0.045_67, 0.456_7, 1.567, 12.44, 210.4, 0.0].map(times);
        assert_eq!(texts, ["0.00457", "0.0457", "0.457", "1.57", "12.4", "210", "0.000"]);
    }

    #[test]
    fn no_row_contradicts_itself() {
        let mut state = 1;
        let mut all: Vec<Comparison> = (0..10_000).map(|_| random(&mut state)).collect();
        all.sort_by(by_severity);
        for it in &all {
            let (reading, drawn) = (Reading::of(it.outcome), cell(it));
            let text = drawn.text.map(|text| text.words()).unwrap_or_default();
            assert!(text.starts_with(reading.sign) && drawn.tone == reading.tone, "{text}");
            let is_decided = matches!(it.outcome, Outcome::Worse | Outcome::Better);
            assert_eq!(is_decided, reading.tone != Tone::Plain, "only decided rows have a colour: {text}");
            if let (Outcome::CannotTell, Some((low, high))) = (it.outcome, interval(it)) {
                let is_apart = low.is_some_and(|low| low > 1.0) || high.is_some_and(|high| high < 1.0);
                assert!(!is_apart, "the interval claims more than the verdict: {text}");
            }
        }
        for pair in all.windows(2) {
            let rank = |it: &Comparison| Reading::of(it.outcome).rank;
            let size = |it: &Comparison| it.ratio.map_or(0.0, |ratio| ratio.ln().abs());
            let is_ordered = rank(&pair[0]) < rank(&pair[1])
                || (rank(&pair[0]) == rank(&pair[1]) && size(&pair[0]) >= size(&pair[1]));
            assert!(is_ordered, "worse, cannot tell, better, equivalent; of each the largest first");
        }
    }
}
