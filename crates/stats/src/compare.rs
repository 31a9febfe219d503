//! Better, worse or no effect: cells compared by their repeats.
//!
//! The unit is the repeat. Samples within a repeat depend on each other, so that tests over samples find differences
//! that are not there; a repeat gives one value per statistic (its median, its 0.99 quantile, its maximum), and the
//! values of two cells are compared by an exact permutation test of their rank sum. Ranks, because the logarithms
//! that latencies ask for do not change them, one extreme repeat does not decide, and completely separated groups
//! reach the smallest p-value that there is: with a difference of medians five repeats against five could not
//! reach 0.04. Comparing many cells is corrected for (Benjamini and Hochberg 1995).
//!
//! Not estimated: how large an effect is beyond the two medians, or anything about values that no repeat has shown.

use crate::permutation::{choices, rank_sum};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use whylate_core::result::{CellResult, Comparison, Outcome, Quantiles};

/// A difference counts when its (corrected) p-value is at most this.
pub const SIGNIFICANCE: f64 = 0.05;

/// Takes one statistic out of the quantiles.
type Statistic = fn(&Quantiles) -> u64;

/// The statistics that cells are compared by, with their names.
const STATISTICS: [(&str, Statistic); 3] = [
    ("p50", |quantiles| quantiles.p50_ns),
    ("p99", |quantiles| quantiles.p99_ns),
    ("max", |quantiles| quantiles.max_ns),
];

/// Compares one statistic of two cells: one value per repeat each, in nanoseconds.
///
/// Gives the outcome and the two-sided p-value, without correction for several comparisons.
/// [`Outcome::TooFewRepeats`] and `None` when not even completely separated values could reach [`SIGNIFICANCE`] (four
/// repeats each are enough).
pub fn compare(baseline: &[u64], cell: &[u64]) -> (Outcome, Option<f64>) {
    if baseline.is_empty() || cell.is_empty() || 2.0 / choices(baseline.len(), cell.len()) > SIGNIFICANCE {
        return (Outcome::TooFewRepeats, None);
    }
    let result = rank_sum(baseline, cell);
    (outcome_of(result.p_value, result.second), Some(result.p_value))
}

fn outcome_of(p_value: f64, cell: Ordering) -> Outcome {
    match cell {
        Ordering::Less if p_value <= SIGNIFICANCE => Outcome::Better,
        Ordering::Greater if p_value <= SIGNIFICANCE => Outcome::Worse,
        _ => Outcome::NoEffect,
    }
}

/// Replaces p-values by those corrected for their number (Benjamini and Hochberg 1995): among the comparisons with
/// a corrected value of at most `x`, the expected share of false ones is at most `x`.
///
/// Order is kept; corrected values are never smaller than before and never above 1.
pub fn benjamini_hochberg(p_values: &mut [f64]) {
    let count = p_values.len();
    let mut order: Vec<usize> = (0..count).collect();
    order.sort_by(|a, b| p_values[*a].total_cmp(&p_values[*b]));
    let mut smallest = 1.0f64;
    for (position, &index) in order.iter().enumerate().rev() {
        smallest = smallest.min(p_values[index] * (count as f64 / (position + 1) as f64));
        p_values[index] = smallest;
    }
}

/// Compares every later cell with the first one: per probe, the median, the 0.99 quantile and the maximum, where
/// each repeat counts with its worst CPU.
///
/// Only complete repeats count (a shorter one has a smaller maximum). Cells that were skipped, and probes without
/// samples on either side, are left out; with a skipped first cell there is nothing to compare with.
/// p-values are corrected for the number of comparisons that could be made.
pub fn comparisons(cells: &[CellResult]) -> Vec<Comparison> {
    let Some((baseline, others)) = cells.split_first().filter(|(baseline, _)| baseline.skipped.is_none())
    else {
        return Vec::new();
    };
    let baseline_values = values_of(baseline);
    let mut comparisons = Vec::new();
    for cell in others.iter().filter(|cell| cell.skipped.is_none()) {
        let cell_values = values_of(cell);
        for (key, baseline_repeats) in &baseline_values {
            if let Some(cell_repeats) = cell_values.get(key) {
                comparisons.push(comparison(baseline, cell, *key, baseline_repeats, cell_repeats));
            }
        }
    }
    correct(&mut comparisons);
    comparisons
}

/// Probe and position in [`STATISTICS`].
type Key<'a> = (&'a str, usize);

fn comparison(
    baseline: &CellResult,
    cell: &CellResult,
    (probe, statistic): Key,
    baseline_values: &[u64],
    cell_values: &[u64],
) -> Comparison {
    let (outcome, p_value) = compare(baseline_values, cell_values);
    Comparison {
        baseline: baseline.name.clone(),
        cell: cell.name.clone(),
        probe: probe.to_owned(),
        statistic: STATISTICS[statistic].0.to_owned(),
        baseline_ns: median(baseline_values),
        cell_ns: median(cell_values),
        outcome,
        p_value,
    }
}

/// Replaces p-values by corrected ones. They only grow, so that a difference may cease to count, and none appears.
fn correct(comparisons: &mut [Comparison]) {
    let mut p_values: Vec<f64> = comparisons.iter().filter_map(|comparison| comparison.p_value).collect();
    benjamini_hochberg(&mut p_values);
    let with_p = comparisons.iter_mut().filter(|comparison| comparison.p_value.is_some());
    for (comparison, p_value) in with_p.zip(p_values) {
        comparison.p_value = Some(p_value);
        if p_value > SIGNIFICANCE {
            comparison.outcome = Outcome::NoEffect;
        }
    }
}

/// For each probe and statistic the values of the complete repeats, each that of its worst CPU.
fn values_of(cell: &CellResult) -> BTreeMap<Key<'_>, Vec<u64>> {
    let mut values: BTreeMap<Key<'_>, Vec<u64>> = BTreeMap::new();
    for repeat in cell.repeats.iter().filter(|repeat| repeat.error.is_none()) {
        let mut worst: BTreeMap<Key<'_>, u64> = BTreeMap::new();
        for probe in &repeat.probes {
            let Some(quantiles) = &probe.quantiles else { continue };
            for (position, (_, value_of)) in STATISTICS.iter().enumerate() {
                let entry = worst.entry((probe.probe.as_str(), position)).or_default();
                *entry = (*entry).max(value_of(quantiles));
            }
        }
        for (key, value) in worst {
            values.entry(key).or_default().push(value);
        }
    }
    values
}

/// The middle value, or the mean of the two middle ones; 0 for none.
fn median(values: &[u64]) -> u64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    match (sorted.get(sorted.len().wrapping_sub(1) / 2), sorted.get(sorted.len() / 2)) {
        (Some(low), Some(high)) => low.midpoint(*high),
        _ => 0,
    }
}

#[cfg(test)]
mod tests;
