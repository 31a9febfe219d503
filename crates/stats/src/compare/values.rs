//! One value per run for each statistic: the median over its complete repeats of the worst CPU's value.

use crate::comparisons::values_of;
use crate::contrast::median;
use std::collections::{BTreeMap, BTreeSet};
use whylate_core::SeriesName;
use whylate_core::order::InOrder;
use whylate_core::plan::{SeriesStatistic, Statistic};
use whylate_core::quantity::{EXTREMES, HISTOGRAM_END_NS};
use whylate_core::result::{CpuResult, MeasureResult, RunResult};

/// Prefix of the name that takes the place of a cell for one CPU of another tool's result.
const OF_CPU: &str = "CPU ";

impl ValueKey {
    /// Whether it is the value of one CPU. The value of the worst CPU, which decides, is separate.
    pub(super) fn is_of_cpu(&self) -> bool {
        is_cell_of_cpu(&self.cell)
    }
}

/// Whether that name of a cell stands for one CPU.
pub(super) fn is_cell_of_cpu(cell: &str) -> bool {
    cell.starts_with(OF_CPU)
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
pub struct RunValues {
    known: BTreeMap<ValueKey, f64>,
    /// What is above the end of the histogram of a tool, on some CPU, with the least value that is possible.
    above: BTreeMap<ValueKey, f64>,
    /// Samples above it are counted as spikes.
    pub(super) spike_ns: Option<u64>,
}

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
        Self { known: values, above: BTreeMap::new(), spike_ns: Some(run.plan.spikes_above().0) }
    }

    /// The values of one measurement, such as another tool's result: those of its worst CPU and those of each CPU.
    pub fn of_measure(measure: &MeasureResult) -> Self {
        let mut values = Self::default();
        // A CPU of which a value is not known may be the worst.
        let mut open = BTreeSet::new();
        for cpu in &measure.probe.cpus {
            let series = SeriesName::in_probe(&measure.probe.probe, cpu.series.as_deref()).to_string();
            for (statistic, value) in statistics(cpu) {
                let key = ValueKey { cell: String::new(), series: series.clone(), statistic };
                // In addition to the worst CPU, each CPU: a setting may harm one and spare the others.
                let own = ValueKey { cell: format!("{OF_CPU}{}", cpu.cpu), ..key.clone() };
                for key in
                    [Some(key), Some(own).filter(|_| measure.probe.cpus.len() > 1)].into_iter().flatten()
                {
                    match value {
                        Figure::Known(value) => {
                            let worst = values.known.entry(key).or_insert(value);
                            *worst = worst.max(value);
                        }
                        Figure::Above(least) => {
                            let known = values.above.entry(key).or_insert(least);
                            *known = known.max(least);
                        }
                        Figure::Missing => {
                            open.insert(key);
                        }
                    }
                }
            }
        }
        // The worst CPU is at least as late as the others.
        for (key, least) in &mut values.above {
            *least = values.known.get(key).map_or(*least, |known| known.max(*least));
        }
        values.above.retain(|key, _| !open.contains(key));
        values.known.retain(|key, _| !values.above.contains_key(key) && !open.contains(key));
        values
    }

    /// The value of a cell for a statistic; for a probe with several series, the largest one.
    pub fn of_statistic(&self, cell: &str, statistic: &SeriesStatistic) -> Option<f64> {
        largest(&self.known, cell, statistic)
    }

    /// One value.
    pub fn get(&self, key: &ValueKey) -> Option<f64> {
        self.known.get(key).copied()
    }

    /// As [`Self::of_statistic`], of a value that is only known to be above the end of a tool's histogram: this end.
    pub fn statistic_above(&self, cell: &str, statistic: &SeriesStatistic) -> Option<f64> {
        largest(&self.above, cell, statistic)
    }

    /// The least value that is possible, if it is only known to be above the end of a tool's histogram.
    pub(super) fn above(&self, key: &ValueKey) -> Option<f64> {
        self.above.get(key).copied()
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &ValueKey> {
        self.known.keys().chain(self.above.keys())
    }
}

fn largest(all: &BTreeMap<ValueKey, f64>, cell: &str, statistic: &SeriesStatistic) -> Option<f64> {
    let is_it = |key: &ValueKey| {
        key.cell == cell && key.statistic == statistic.statistic && statistic.is_of(&key.series)
    };
    all.iter().filter(|(key, _)| is_it(key)).map(|(_, value)| *value).max_by(f64::total_cmp)
}

/// What a file says of a statistic of one CPU.
enum Figure {
    Known(f64),
    /// It is above the end of the tool's histogram, which is this.
    Above(f64),
    Missing,
}

/// All statistics of a CPU with samples.
fn statistics(cpu: &CpuResult) -> Vec<(Statistic, Figure)> {
    let extremes = cpu.get(EXTREMES);
    if cpu.samples == 0 && cpu.quantiles.is_none() && extremes.is_none() {
        return Vec::new();
    }
    let quantiles = cpu.judged_quantiles();
    let largest_ns = quantiles.map(|it| it.max_ns).or(extremes.and_then(|it| it.max_ns));
    [
        (Statistic::Median, 0.5, quantiles.map(|it| it.p50_ns)),
        (Statistic::P99, 0.99, quantiles.map(|it| it.p99_ns)),
        (Statistic::P999, 0.999, quantiles.map(|it| it.p999_ns)),
        (Statistic::Max, 1.0, largest_ns),
    ]
    .into_iter()
    .map(|(statistic, part, ns)| {
        let figure = match ns {
            Some(ns) if !cpu.knows_quantile(part) => {
                Figure::Above(cpu.get(HISTOGRAM_END_NS).unwrap_or(ns) as f64)
            }
            Some(ns) => Figure::Known(ns as f64),
            None => Figure::Missing,
        };
        (statistic, figure)
    })
    .collect()
}

pub(super) fn common(first: &[RunValues], second: &[RunValues]) -> BTreeSet<ValueKey> {
    let keys = |runs: &[RunValues]| -> BTreeSet<ValueKey> {
        runs.iter().flat_map(|run| run.keys().cloned()).collect()
    };
    keys(first).intersection(&keys(second)).cloned().collect()
}
