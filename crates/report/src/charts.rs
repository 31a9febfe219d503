//! The data of the charts: histograms, percentiles and courses over time, thinned to what a picture can show.
//!
//! Nothing here is a figure to quote: the table holds those. Buckets are joined into bins of equal width on the
//! logarithmic axis, and neighbouring intervals are joined by their maximum, so that no outlier disappears.

use crate::section::{Block, Section};
use crate::words::{cell_probe, measured_cpus, series_names};
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use whylate_core::figure::rate_unit;
use whylate_core::record::RateRecord;
use whylate_core::result::{CellResult, CpuResult, RateResult, RunResult, TimelinePoint};
use whylate_core::{CpuId, SeriesName};

/// Bins of a histogram per factor of ten.
const BINS_PER_DECADE: f64 = 40.0;
/// Points of a percentile curve per factor of ten.
const PERCENTILES_PER_DECADE: f64 = 32.0;
/// Bars of one series over time.
const BARS_MAX: usize = 1_500;
/// With more CPUs than this, a probe has one set of charts for all of them together.
const PANEL_CPUS_MAX: usize = 4;

/// A chart: what stands around it, and what the script draws.
#[derive(Debug)]
pub(crate) struct Chart {
    pub(crate) caption: String,
    /// How to read it.
    pub(crate) hint: String,
    /// What it is, for who does not see it.
    pub(crate) label: String,
    /// Whether it takes the whole width of the page.
    pub(crate) is_wide: bool,
    /// Its kind, `span_s` (length of the time axis, from the first interval of the run), the plan's `limit_ns`, and what
    /// the kind needs; each series has the name and the place (colour) of its cell.
    pub(crate) data: Value,
}

/// What a set of charts is of.
#[derive(Clone, Copy, Debug)]
struct PanelKey<'a> {
    probe: &'a str,
    /// Which of its series, where it has several.
    series: Option<&'a str>,
    /// `None`: every measured CPU.
    cpu: Option<CpuId>,
}

/// Adds the charts of a run to the sections that they belong to.
pub(crate) fn add(sections: &mut [Section], run: &RunResult) {
    let charts = |charts: Vec<Chart>| (!charts.is_empty()).then_some(Block::Charts(charts));
    for section in sections {
        match section.id {
            "figures" => {
                for block in &mut section.blocks {
                    let Block::Part(part) = block else { continue };
                    part.blocks.extend(charts(of_probe(run, &part.title)));
                }
            }
            "loads" => section.blocks.extend(charts(of_rates(run))),
            _ => {}
        }
    }
}

/// The charts of a probe, three for each series and CPU, or for all CPUs together.
fn of_probe(run: &RunResult, probe: &str) -> Vec<Chart> {
    let cpus = measured_cpus(run);
    let between_cpus = SeriesName::of(probe).facts().is_some_and(|facts| facts.between_cpus);
    let split = (2..=PANEL_CPUS_MAX).contains(&cpus.len()) && !between_cpus;
    let panels = series_names(run, probe).into_iter().flat_map(|series| {
        let of = move |cpu| PanelKey { probe, series, cpu };
        if split { cpus.iter().map(|cpu| of(Some(cpu))).collect() } else { vec![of(None)] }
    });
    panels.flat_map(|key| panel(run, key)).collect()
}

/// The rates of the loads over time, one chart per unit in the order of appearance.
fn of_rates(run: &RunResult) -> Vec<Chart> {
    let clock = Clock::of(run);
    let mut units: Vec<(&str, Vec<Value>)> = Vec::new();
    for (cell, result) in run.cells.iter().enumerate() {
        for rate in result.rates.iter().filter(|rate| !rate.series.is_empty()) {
            let name = match &rate.load {
                load if *load == result.name => load.clone(),
                load => format!("{load} in {}", result.name),
            };
            let series = json!({ "cell": cell, "name": name, "bars": rate_bars(rate, clock) });
            match units.iter_mut().find(|(unit, _)| *unit == rate.unit) {
                Some((_, all)) => all.push(series),
                None => units.push((&rate.unit, vec![series])),
            }
        }
    }
    let chart = |(unit, series): (&str, _)| {
        let hint = rate_unit(unit);
        let label = format!("Rate of each load over time in {hint}");
        let data = json!({ "kind": "rates", "unit": unit, "series": series });
        Chart { caption: "Rate over time".to_owned(), hint, label, is_wide: true, data: on_axis(run, data) }
    };
    units.into_iter().map(chart).collect()
}

/// With the time axis and the limit of the run.
fn on_axis(run: &RunResult, mut data: Value) -> Value {
    data["span_s"] = json!(Clock::of(run).seconds(time_span(run).1));
    data["limit_ns"] = json!(run.plan.limit.map(|limit| limit.0));
    data
}

/// Turns moments into seconds from the begin of the run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    begin: u64,
}

impl Clock {
    /// The time axis of every chart of a run.
    pub(crate) fn of(run: &RunResult) -> Self {
        Self { begin: time_span(run).0 }
    }

    /// To the millisecond: no picture shows more.
    fn seconds(self, at_ns: u64) -> f64 {
        (at_ns.saturating_sub(self.begin) / 1_000_000) as f64 / 1e3
    }

    /// As the time axis prints it, with milliseconds: `4:18.469`, `1:02:03.004`.
    pub(crate) fn text(self, at_ns: u64) -> String {
        let millis = at_ns.saturating_sub(self.begin) / 1_000_000;
        let (hours, minutes) = (millis / 3_600_000, millis / 60_000 % 60);
        let seconds = format!("{:02}.{:03}", millis / 1_000 % 60, millis % 1_000);
        if hours > 0 { format!("{hours}:{minutes:02}:{seconds}") } else { format!("{minutes}:{seconds}") }
    }
}

/// First and last moment of which anything is drawn.
fn time_span(run: &RunResult) -> (u64, u64) {
    let cpus = run.cells.iter().flat_map(|cell| &cell.probes).flat_map(|probe| &probe.cpus);
    let points = cpus.flat_map(|cpu| &cpu.timeline).map(|point| (point.start_ns, point.end_ns));
    let records = run.cells.iter().flat_map(|cell| &cell.rates).flat_map(|rate| &rate.series);
    let records = records.map(|record| (record.at_ns.saturating_sub(record.interval_ns), record.at_ns));
    let spans = points.chain(records);
    spans.reduce(|all, span| (all.0.min(span.0), all.1.max(span.1))).unwrap_or((0, 0))
}

/// The results of one cell that belong to a panel.
fn panel_cpus<'a>(cell: &'a CellResult, key: PanelKey<'a>) -> impl Iterator<Item = &'a CpuResult> {
    let cpus = cell_probe(cell, key.probe).into_iter().flat_map(|probe| &probe.cpus);
    let of_series = cpus.filter(move |result| result.series.as_deref() == key.series);
    of_series.filter(move |result| key.cpu.is_none_or(|cpu| cpu == result.cpu))
}

/// How often each latency occurred, latency by percentile, and the largest over time.
fn panel(run: &RunResult, key: PanelKey<'_>) -> [Chart; 3] {
    let cells: Vec<PanelCell<'_>> = run
        .cells
        .iter()
        .enumerate()
        .map(|(index, cell)| PanelCell::new(index, &cell.name, panel_cpus(cell, key).collect()))
        .filter(|cell| !cell.buckets.is_empty())
        .collect();
    let of = [key.series.map(str::to_owned), key.cpu.map(|cpu| format!("CPU {cpu}"))];
    let of: String = of.into_iter().flatten().map(|part| format!(", {part}")).collect();
    let chart = |caption: &str, hint: &str, data: Value| Chart {
        caption: format!("{caption}{of}"),
        hint: hint.to_owned(),
        label: format!("{}: {caption}, per cell{of}", key.probe),
        is_wide: data["kind"] == "histogram",
        data: on_axis(run, data),
    };
    let lone = "both axes logarithmic; a point is a lone bin, down to a single sample";
    [
        chart("How often each latency occurred", lone, histogram(&cells)),
        chart("Latency by percentile", "each step to the right is ten times rarer", percentiles(&cells)),
        chart(
            "Largest latency over time",
            "one bar per interval; dashed: a repeat begins",
            timeline(&cells, Clock::of(run)),
        ),
    ]
}

/// One cell of a panel, with the buckets of its CPUs added up.
struct PanelCell<'a> {
    index: usize,
    name: &'a str,
    cpus: Vec<&'a CpuResult>,
    /// Lower edge to count.
    buckets: BTreeMap<u64, u64>,
}

impl<'a> PanelCell<'a> {
    fn new(index: usize, name: &'a str, cpus: Vec<&'a CpuResult>) -> Self {
        let mut buckets = BTreeMap::new();
        for (edge, count) in cpus.iter().flat_map(|cpu| &cpu.histogram).filter(|(_, count)| *count > 0) {
            let sum: &mut u64 = buckets.entry(*edge).or_default();
            *sum = sum.saturating_add(*count);
        }
        Self { index, name, cpus, buckets }
    }

    fn series(&self, name: &str, points: impl Serialize) -> Value {
        json!({ "cell": self.index, "name": self.name, name: points })
    }

    fn samples(&self) -> u64 {
        self.buckets.values().fold(0, |sum, count| sum.saturating_add(*count))
    }
}

/// Samples in bins; `edges` are in ns, one more than there are bins.
fn histogram(cells: &[PanelCell<'_>]) -> Value {
    let lowest = cells.iter().filter_map(|cell| cell.buckets.first_key_value()).map(|(edge, _)| *edge).min();
    let highest = cells.iter().filter_map(|cell| cell.buckets.last_key_value()).map(|(edge, _)| *edge).max();
    let (Some(lowest), Some(highest)) = (lowest, highest) else {
        return json!({ "kind": "histogram", "edges": [], "series": [] });
    };
    let edges = bin_edges(lowest.max(1), highest.max(1));
    let series = cells.iter().map(|cell| {
        let mut counts = vec![None; edges.len().saturating_sub(1)];
        for (edge, count) in &cell.buckets {
            let bin = edges.partition_point(|bin_edge| bin_edge <= edge).saturating_sub(1);
            if let Some(sum) = counts.get_mut(bin) {
                *sum = Some(sum.unwrap_or(0u64).saturating_add(*count));
            }
        }
        // Null instead of 0: a logarithmic axis has no zero.
        cell.series("counts", counts)
    });
    json!({ "kind": "histogram", "series": series.collect::<Vec<_>>(), "edges": edges })
}

/// Edges of equal ratio around both values, rounded up to whole nanoseconds so that each bin can hold a sample.
fn bin_edges(lowest: u64, highest: u64) -> Vec<u64> {
    let position = |value: u64| (value as f64).log10() * BINS_PER_DECADE;
    let (first, last) = (position(lowest).floor() as i32 - 1, position(highest).floor() as i32 + 2);
    let edges: BTreeSet<u64> =
        (first..=last).map(|bin| 10f64.powf(f64::from(bin) / BINS_PER_DECADE).ceil() as u64).collect();
    edges.into_iter().collect()
}

/// `x` is 1 / (1 - quantile), ascending: 10 is the 0.9 quantile.
fn percentiles(cells: &[PanelCell<'_>]) -> Value {
    let most = cells.iter().map(PanelCell::samples).max().unwrap_or(0);
    let mut x: Vec<f64> = (0..)
        .map(|step| 10f64.powf(f64::from(step) / PERCENTILES_PER_DECADE))
        .take_while(|position| *position < most as f64)
        .collect();
    // A curve ends at its largest sample, so each end is a point of the axis.
    x.extend(cells.iter().map(|cell| cell.samples() as f64));
    x.sort_by(f64::total_cmp);
    x.dedup();
    let series = cells.iter().map(|cell| cell.series("values", percentile_curve(cell, &x)));
    json!({ "kind": "percentiles", "series": series.collect::<Vec<_>>(), "x": x })
}

/// The latency below or at which the share 1 - 1/x of the samples is, by the lower edges of the buckets.
fn percentile_curve(cell: &PanelCell<'_>, x: &[f64]) -> Vec<Option<u64>> {
    let total = cell.samples() as f64;
    let mut buckets = cell.buckets.iter();
    let (mut edge, mut seen) = (0, 0u64);
    let at = |position: &f64| {
        if *position > total {
            return None;
        }
        let rank = if *position == total { total } else { (total - total / position).max(1.0) };
        while (seen as f64) < rank {
            let Some((next, count)) = buckets.next() else { break };
            (edge, seen) = (*next, seen.saturating_add(*count));
        }
        Some(edge)
    };
    x.iter().map(at).collect()
}

/// Bars are `[begin, end, largest latency]`, in seconds and ns.
fn timeline(cells: &[PanelCell<'_>], clock: Clock) -> Value {
    let series = cells.iter().map(|cell| {
        let mut points: Vec<TimelinePoint> =
            cell.cpus.iter().flat_map(|cpu| cpu.timeline.iter().copied()).collect();
        points.sort_by_key(|point| point.start_ns);
        cell.series("bars", bars(&points, clock))
    });
    let mut begins: BTreeMap<u32, u64> = BTreeMap::new();
    for point in cells.iter().flat_map(|cell| &cell.cpus).flat_map(|cpu| &cpu.timeline) {
        if let Some(repeat) = point.repeat {
            let begin = begins.entry(repeat).or_insert(point.start_ns);
            *begin = point.start_ns.min(*begin);
        }
    }
    let marks =
        begins.into_iter().map(|(repeat, at_ns)| json!({ "repeat": repeat, "at_s": clock.seconds(at_ns) }));
    json!({ "kind": "timeline", "series": series.collect::<Vec<_>>(), "repeats": marks.collect::<Vec<_>>() })
}

/// Intervals with samples; where there are too many, neighbours of one repeat are joined by their maximum.
fn bars(points: &[TimelinePoint], clock: Clock) -> Vec<(f64, f64, u64)> {
    let joined = points.len().div_ceil(BARS_MAX).max(1);
    let mut bars = Vec::new();
    for repeat in points.chunk_by(|one, next| one.repeat == next.repeat) {
        for chunk in repeat.chunks(joined) {
            let max = chunk.iter().filter_map(|point| point.max_ns).max();
            let end = chunk.iter().map(|point| point.end_ns).max();
            if let (Some(max), Some(first), Some(end)) = (max, chunk.first(), end) {
                bars.push((clock.seconds(first.start_ns), clock.seconds(end), max));
            }
        }
    }
    bars
}

/// Intervals of a load as `[begin, end, rate]`; where there are too many, neighbours are joined by their mean, weighted by length.
fn rate_bars(rate: &RateResult, clock: Clock) -> Vec<(f64, f64, f64)> {
    let joined = rate.series.len().div_ceil(BARS_MAX).max(1);
    let bar = |chunk: &[RateRecord]| {
        let (first, last) = (chunk.first()?, chunk.last()?);
        let length: f64 = chunk.iter().map(|record| record.interval_ns as f64).sum();
        let sum: f64 = chunk.iter().map(|record| record.value * record.interval_ns as f64).sum();
        let begin = first.at_ns.saturating_sub(first.interval_ns);
        let value = if length > 0.0 { sum / length } else { last.value };
        Some((clock.seconds(begin), clock.seconds(last.at_ns), value))
    };
    rate.series.chunks(joined).filter_map(bar).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(buckets: &[(u64, u64)]) -> PanelCell<'static> {
        PanelCell { index: 0, name: "", cpus: Vec::new(), buckets: buckets.iter().copied().collect() }
    }

    #[test]
    fn bins_lose_no_sample() {
        let buckets = [(0, 3), (1, 5), (14, 900), (15, 70), (4_096, 2), (4_128, 1), (7_340_032, 1)];
        let histogram = histogram(&[cell(&buckets)]);
        let counts = histogram["series"][0]["counts"].as_array().unwrap();
        let sum: u64 = counts.iter().filter_map(Value::as_u64).sum();
        let edges: Vec<u64> =
            histogram["edges"].as_array().unwrap().iter().filter_map(Value::as_u64).collect();
        assert_eq!(sum, 982);
        assert!(edges.windows(2).all(|pair| pair[0] < pair[1]));
        assert!(*edges.last().unwrap() > 7_340_032);
    }

    #[test]
    fn percentile_curves_end_at_the_largest_sample() {
        let cells = [cell(&[(10, 98), (20, 1), (5_000, 1)]), cell(&[(12, 7)])];
        let percentiles = percentiles(&cells);
        let curve = |cell: usize, x: f64| {
            let positions = percentiles["x"].as_array().unwrap();
            let index = positions.iter().position(|position| position.as_f64() == Some(x)).unwrap();
            percentiles["series"][cell]["values"][index].as_u64()
        };
        assert_eq!(curve(0, 10.0), Some(10));
        assert_eq!(curve(0, 100.0), Some(5_000));
        assert_eq!(curve(1, 7.0), Some(12));
        assert_eq!(curve(1, 10.0), None);
    }

    #[test]
    fn joined_intervals_keep_their_maximum_and_their_repeat() {
        let point = |index: u64| TimelinePoint {
            start_ns: index * 1_000_000_000,
            end_ns: (index + 1) * 1_000_000_000,
            repeat: Some(1 + (index / 5_000) as u32),
            samples: 1,
            p50_ns: Some(5),
            max_ns: Some(if index == 7_123 { 900 } else { 10 }),
        };
        let points: Vec<TimelinePoint> = (0..10_000).map(point).collect();
        let bars = bars(&points, Clock { begin: 0 });
        assert!(bars.len() <= BARS_MAX + 2);
        assert_eq!(bars.iter().map(|bar| bar.2).max(), Some(900));
        assert!(bars.iter().any(|bar| bar.0 == 5_000.0));
    }

    #[test]
    fn moments_read_as_on_the_axis() {
        let clock = Clock { begin: 1_000_000_000 };
        assert_eq!(clock.text(1_004_000_000), "0:00.004");
        assert_eq!(clock.text(259_469_999_999), "4:18.469");
        assert_eq!(clock.text(3_724_000_000_000), "1:02:03.000");
    }

    #[test]
    fn a_panel_without_samples_is_empty() {
        assert_eq!(histogram(&[])["edges"], json!([]));
        assert_eq!(percentiles(&[])["x"], json!([]));
    }
}
