//! One value per run for each statistic: the median over its complete repeats of the worst CPU's value.

use crate::comparisons::values_of;
use crate::contrast::median;
use std::collections::{BTreeMap, BTreeSet};
use whylate_core::SeriesName;
use whylate_core::order::InOrder;
use whylate_core::plan::{SeriesStatistic, Statistic};
use whylate_core::quantity::{ABOVE_HISTOGRAM, CORRECTED, EXTREMES};
use whylate_core::result::{CpuResult, MeasureResult, RunResult};

/// Prefix of the name that takes the place of a cell for one CPU of another tool's result.
const OF_CPU: &str = "CPU ";

impl ValueKey {
    /// Whether it is the value of one CPU. The value of the worst CPU, which decides, is separate.
    pub(super) fn is_of_cpu(&self) -> bool {
        self.cell.starts_with(OF_CPU)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ValueKey {
    /// The cell; empty where each side has one.
    pub cell: String,
    pub series: String,
    pub statistic: Statistic,
}

/// The values of one run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunValues(BTreeMap<ValueKey, f64>);

impl RunValues {
    /// The values of all cells of a run, or of one cell, which is then compared with a cell of another name.
    /// `primary` is kept even if it is none of the usual statistics.
    pub fn of_run(run: &RunResult, cell: Option<&str>, primary: Option<&SeriesStatistic>) -> Self {
        let is_primary = |series: &str, statistic: Statistic| {
            primary.is_some_and(|primary| primary.statistic == statistic && primary.is_of(series))
        };
        let mut values = BTreeMap::new();
        let cells =
            run.cells.iter().filter(|it| it.skipped.is_none() && cell.is_none_or(|cell| it.name == cell));
        for result in cells {
            for ((series, statistic), observed) in values_of(result, &is_primary) {
                let mut of_repeats: Vec<f64> = observed.iter().map(|one| one.value).collect();
                of_repeats.order_by(f64::total_cmp);
                let name = if cell.is_some() { String::new() } else { result.name.clone() };
                let key = ValueKey { cell: name, series: series.to_owned(), statistic };
                values.extend(median(&of_repeats).map(|value| (key, value)));
            }
        }
        Self(values)
    }

    /// The values of one measurement, such as another tool's result: those of its worst CPU and those of each CPU.
    pub fn of_measure(measure: &MeasureResult) -> Self {
        let mut values = BTreeMap::new();
        for cpu in &measure.probe.cpus {
            let series = SeriesName::in_probe(&measure.probe.probe, cpu.series.as_deref()).to_string();
            for (statistic, value) in statistics(cpu) {
                let key = ValueKey { cell: String::new(), series: series.clone(), statistic };
                // In addition to the worst CPU, each CPU: a setting may harm one and spare the others.
                let own = ValueKey { cell: format!("{OF_CPU}{}", cpu.cpu), ..key.clone() };
                for key in
                    [Some(key), Some(own).filter(|_| measure.probe.cpus.len() > 1)].into_iter().flatten()
                {
                    let worst = values.entry(key).or_insert(value);
                    *worst = worst.max(value);
                }
            }
        }
        Self(values)
    }

    /// The value of a cell for a statistic; for a probe with several series, the largest one.
    pub fn of_statistic(&self, cell: &str, statistic: &SeriesStatistic) -> Option<f64> {
        let is_it = |key: &ValueKey| {
            key.cell == cell && key.statistic == statistic.statistic && statistic.is_of(&key.series)
        };
        self.0.iter().filter(|(key, _)| is_it(key)).map(|(_, value)| *value).max_by(f64::total_cmp)
    }

    /// One value.
    pub fn get(&self, key: &ValueKey) -> Option<f64> {
        self.0.get(key).copied()
    }
}

fn statistics(cpu: &CpuResult) -> Vec<(Statistic, f64)> {
    let quantiles = cpu.quantities.of(CORRECTED).or(cpu.quantiles.as_ref());
    let of_quantiles = quantiles.map(|it| {
        let values = [
            (Statistic::Median, 0.5, it.p50_ns),
            (Statistic::P99, 0.99, it.p99_ns),
            (Statistic::P999, 0.999, it.p999_ns),
            (Statistic::Max, 1.0, it.max_ns),
        ];
        let known = values.into_iter().filter(|(_, part, _)| is_in_histogram(cpu, *part));
        known.map(|(statistic, _, ns)| (statistic, ns as f64)).collect()
    });
    let largest = || cpu.get(EXTREMES).and_then(|it| it.max_ns).map(|ns| (Statistic::Max, ns as f64));
    of_quantiles.unwrap_or_else(|| largest().into_iter().collect())
}

/// Whether the quantile of that part of the samples is known, and not only that it is above the histogram of the tool.
fn is_in_histogram(cpu: &CpuResult, part: f64) -> bool {
    let above = cpu.get(ABOVE_HISTOGRAM).unwrap_or(0) as f64;
    part >= 1.0 || above <= (1.0 - part) * cpu.samples as f64
}

pub(super) fn common(first: &[RunValues], second: &[RunValues]) -> BTreeSet<ValueKey> {
    let keys = |runs: &[RunValues]| -> BTreeSet<ValueKey> {
        runs.iter().flat_map(|run| run.0.keys().cloned()).collect()
    };
    keys(first).intersection(&keys(second)).cloned().collect()
}
