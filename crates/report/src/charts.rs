//! The data of the charts: distributions, values over time and heat maps, thinned to what a picture can show.
//!
//! No figure here is meant to be quoted: the tables hold those. Buckets are joined into bins of equal width on the
//! logarithmic axis, and neighbouring intervals are joined by their maximum, so that no outlier disappears.

use crate::heat;
use crate::section::Section;
use crate::sections::spikes::{self, anchor};
use crate::words::{cause_and_share, cell_probe, measured_cpus, probe_meaning, probe_names, series_names};
use crate::write::class_of;
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use whylate_core::figure::rate_unit;
use whylate_core::order::InOrder;
use whylate_core::plan::{ProbePlan, Samples, Threshold};
use whylate_core::record::RateRecord;
use whylate_core::result::{CellResult, CpuResult, MeasureResult, RateResult, RunResult, TimelinePoint};
use whylate_core::{CpuId, SeriesName};

/// Bins of a distribution per factor of ten.
const BINS_PER_DECADE: f64 = 40.0;
/// Bars of one series over time.
const BARS_MAX: usize = 1_500;
/// With more CPUs than this, a probe has one set of charts for all of them together, and heat maps.
const PANEL_CPUS_MAX: usize = 4;
/// With more cells than this, each has its own chart with its distribution and that of the first cell.
const CELLS_TOGETHER_MAX: usize = 3;
/// A series with fewer samples in all cells has no picture: its figures show everything.
const SAMPLES_MIN: u64 = 10;
/// The most curves in the picture of one measurement.
const CURVES_MAX: usize = 8;
const SHARE_CAPTION: &str = "Share of samples at least this late";
const GAPS_CAPTION: &str = "How many gaps are at least this long";
/// The most spikes that are drawn as dots: those that have a row in the tables.
const DOTS_MAX: usize = 200;

/// A chart: its captions, and the data that the script draws.
#[derive(Debug)]
pub(crate) struct Chart {
    pub(crate) caption: String,
    pub(crate) hint: String,
    /// Its description, for readers who cannot see it.
    pub(crate) label: String,
    /// Whether it takes the whole width of the page.
    pub(crate) is_wide: bool,
    /// Its kind, `span_s` (length of the time axis, from the first interval of the run), the plan's `limit_ns`, and
    /// the data of the kind; each series has the name and the place (colour) of its cell.
    pub(crate) data: Value,
}

/// What a set of charts shows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PanelKey<'a> {
    pub(crate) probe: &'a str,
    /// Its series, if it has several.
    pub(crate) series: Option<&'a str>,
    /// `None`: every measured CPU.
    cpu: Option<CpuId>,
}

/// Adds the charts of a run below the section that answers its question.
pub(crate) fn add(sections: &mut Vec<Section>, run: &RunResult) {
    let part = |probe: &str| Section::new("", probe).meaning(probe_meaning(probe)).with(of_probe(run, probe));
    let loads = Section::new("", "Loads").with(of_rates(run));
    let pictures =
        Section::new("pictures", "Pictures").with_all(probe_names(run).into_iter().map(part)).with(loads);
    let place = sections.iter().position(|section| section.id == "matrix").map_or(0, |matrix| matrix + 1);
    let is_line = |section: &Section| section.title.is_empty();
    let place = place + sections.iter().skip(place).take_while(|section| is_line(section)).count();
    pictures.unless_empty().into_iter().for_each(|pictures| sections.insert(place, pictures));
}

/// Adds the chart of one measurement below its figures: the distribution of each CPU, or of all together.
pub(crate) fn add_to_measure(sections: &mut Vec<Section>, measure: &MeasureResult) {
    // The same as text.
    sections.retain(|section| section.id != "histograms");
    let (cpus, probe) = (&measure.probe.cpus, &measure.probe.probe);
    let is_split = (2..=CURVES_MAX).contains(&cpus.len());
    let label = |cpu: &CpuResult| {
        let series = cpu.series.iter().map(|series| format!("{series}, ")).collect::<String>();
        format!("{series}CPU {}", cpu.cpu)
    };
    let curves: Vec<(String, Vec<&CpuResult>)> = match is_split {
        true => cpus.iter().map(|cpu| (label(cpu), vec![cpu])).collect(),
        false => vec![(probe.clone(), cpus.iter().collect())],
    };
    let cells = curves.iter().enumerate();
    let cells = cells.map(|(index, (name, cpus))| PanelCell::new(index, name, cpus.clone(), None));
    let cells: Vec<PanelCell<'_>> = cells.filter(|cell| !cell.buckets.is_empty()).collect();
    let samples = cells.iter().flat_map(|cell| cell.buckets.values());
    if samples.fold(0_u64, |sum, count| sum.saturating_add(*count)) < SAMPLES_MIN {
        return;
    }
    let facts = SeriesName::of(probe).facts();
    let is_gap = facts.is_some_and(|facts| facts.samples == Samples::Gap);
    let caption = if is_gap { GAPS_CAPTION } else { SHARE_CAPTION };
    let bins = bins(&cells);
    let series: Vec<Value> = cells.iter().map(|cell| cell.series("counts", counts(cell, &bins))).collect();
    let chart = Chart {
        caption: caption.to_owned(),
        hint: "both axes logarithmic; a curve ends at its largest sample".to_owned(),
        label: format!("{probe}: {caption}"),
        is_wide: true,
        data: json!({ "kind": "distribution", "edges": bins, "series": series, "noise_ns": null, "is_count": is_gap,
            "span_s": 0, "limit_ns": null }),
    };
    let place = sections.len().min(1);
    sections.insert(place, Section::new("pictures", "Pictures").with(vec![chart]));
}

/// The charts of a probe, for each series and CPU, or for all CPUs together.
fn of_probe(run: &RunResult, probe: &str) -> Vec<Chart> {
    let cpus = measured_cpus(run);
    let between_cpus = SeriesName::of(probe).facts().is_some_and(|facts| facts.between_cpus);
    let split = (2..=PANEL_CPUS_MAX).contains(&cpus.len()) && !between_cpus;
    let panels = series_names(run, probe).into_iter().flat_map(|series| {
        let of = move |cpu| PanelKey { probe, series, cpu };
        if split { cpus.iter().map(|cpu| of(Some(cpu))).collect() } else { vec![of(None)] }
    });
    let is_many = cpus.len() > PANEL_CPUS_MAX;
    let heat = |key| if is_many { heat::maps(run, key, Clock::of(run)) } else { Vec::new() };
    panels.flat_map(|key| panel(run, key).into_iter().chain(heat(key))).collect()
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
        Chart {
            caption: "Load rate over time".to_owned(),
            hint,
            label,
            is_wide: true,
            data: on_axis(run, data),
        }
    };
    units.into_iter().map(chart).collect()
}

/// Adds the time axis and the limit of the run.
pub(crate) fn on_axis(run: &RunResult, mut data: Value) -> Value {
    data["span_s"] = json!(Clock::of(run).seconds(time_span(run).1));
    data["limit_ns"] = json!(run.plan.limit.map(|limit| limit.0));
    data
}

/// Turns moments into seconds from the start of the run.
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
    pub(crate) fn seconds(self, at_ns: u64) -> f64 {
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

/// First and last moment that is drawn.
fn time_span(run: &RunResult) -> (u64, u64) {
    let cpus = run.cells.iter().flat_map(|cell| &cell.probes).flat_map(|probe| &probe.cpus);
    let points = cpus.flat_map(|cpu| &cpu.timeline).map(|point| (point.start_ns, point.end_ns));
    let records = run.cells.iter().flat_map(|cell| &cell.rates).flat_map(|rate| &rate.series);
    let records = records.map(|record| (record.at_ns.saturating_sub(record.interval_ns), record.at_ns));
    let spans = points.chain(records);
    spans.reduce(|all, span| (all.0.min(span.0), all.1.max(span.1))).unwrap_or((0, 0))
}

/// The results of one cell that belong to a panel.
pub(crate) fn panel_cpus<'a>(cell: &'a CellResult, key: PanelKey<'a>) -> impl Iterator<Item = &'a CpuResult> {
    let cpus = cell_probe(cell, key.probe).into_iter().flat_map(|probe| &probe.cpus);
    let of_series = cpus.filter(move |result| result.series.as_deref() == key.series);
    of_series.filter(move |result| key.cpu.is_none_or(|cpu| cpu == result.cpu))
}

/// The distribution of each cell, and the largest over time with a dot for each spike.
fn panel(run: &RunResult, key: PanelKey<'_>) -> Vec<Chart> {
    let least = gap_threshold(run, key.probe);
    let cells: Vec<PanelCell<'_>> = run
        .cells
        .iter()
        .enumerate()
        .map(|(index, cell)| PanelCell::new(index, &cell.name, panel_cpus(cell, key).collect(), least))
        .filter(|cell| !cell.buckets.is_empty())
        .collect();
    let samples: u64 = cells.iter().flat_map(|cell| &cell.buckets).map(|(_, count)| count).sum();
    if samples < SAMPLES_MIN {
        return Vec::new();
    }
    let of = [key.series.map(str::to_owned), key.cpu.map(|cpu| format!("CPU {cpu}"))];
    let of: String = of.into_iter().flatten().map(|part| format!(", {part}")).collect();
    let facts = SeriesName::in_probe(key.probe, key.series).facts();
    let is_gap = facts.is_some_and(|facts| facts.samples == Samples::Gap);
    let (what, hint) = match is_gap {
        true => (GAPS_CAPTION, "only gaps of at least the threshold; both axes logarithmic"),
        false => (SHARE_CAPTION, "both axes logarithmic; a curve ends at its largest sample"),
    };
    let chart = |caption: String, hint: &str, is_wide, data: Value| Chart {
        label: format!("{}: {caption}", key.probe),
        caption,
        hint: hint.to_owned(),
        is_wide,
        data: on_axis(run, data),
    };
    let bins = bins(&cells);
    let noise = run.cells.iter().filter_map(|cell| cell.noise_floor.as_ref()?.max_ns).max();
    let distribution = |of_cells: &[&PanelCell<'_>]| {
        let series: Vec<Value> =
            of_cells.iter().map(|cell| cell.series("counts", counts(cell, &bins))).collect();
        json!({ "kind": "distribution", "edges": bins, "series": series, "noise_ns": noise, "is_count": is_gap })
    };
    let together: Vec<&PanelCell<'_>> = cells.iter().collect();
    let mut charts: Vec<Chart> = match together.as_slice() {
        [first, others @ ..] if others.len() >= CELLS_TOGETHER_MAX => others
            .iter()
            .map(|cell| {
                chart(format!("{what}{of}: {}", cell.name), hint, false, distribution(&[*first, *cell]))
            })
            .collect(),
        all => vec![chart(format!("{what}{of}"), hint, true, distribution(all))],
    };
    let hint = "one bar per interval; one dot per spike, in the colour of its cause: click a dot to see the spike; a \
        dashed line marks the start of a repeat";
    let mut over_time = timeline(&cells, Clock::of(run));
    over_time["dots"] = json!(dots(run, key));
    charts.push(chart(format!("Largest sample over time{of}"), hint, true, over_time));
    charts
}

/// Where the chart of a probe that looks for gaps begins: its other samples are turns of a loop.
fn gap_threshold(run: &RunResult, probe: &str) -> Option<u64> {
    let threshold = |plan: &ProbePlan| match plan {
        ProbePlan::Stall(stall) if plan.kind() == probe => match stall.threshold {
            Threshold::Time(time) => Some(time.0),
            Threshold::Cycles(_) => None,
        },
        _ => None,
    };
    run.plan.probe.iter().find_map(threshold)
}

/// The spikes that have a row in the tables: moment, length, class of the first cause, description, and row.
fn dots(run: &RunResult, key: PanelKey<'_>) -> Vec<Value> {
    let name = SeriesName::in_probe(key.probe, key.series).to_string();
    let clock = Clock::of(run);
    let all = spikes::spikes(run);
    let is_of = |spike: &whylate_core::result::Spike| {
        spike.probe.as_deref() == Some(name.as_str()) && key.cpu.is_none_or(|cpu| cpu == spike.cpu)
    };
    let dot = |(rank, (cell, spike)): (usize, &(&CellResult, &whylate_core::result::Spike))| {
        is_of(spike).then(|| {
            let text = format!("{}, CPU {}: {}", cell.name, spike.shown_cpu(), cause_and_share(&spike.cause));
            let class = class_of(spike.cause.kind.class());
            json!([clock.seconds(spike.at_ns), spike.latency_ns, class, text, anchor(rank)])
        })
    };
    all.iter().enumerate().take(DOTS_MAX).filter_map(dot).collect()
}

/// One cell of a panel, with the buckets of its CPUs added up.
struct PanelCell<'a> {
    index: usize,
    name: &'a str,
    cpus: Vec<&'a CpuResult>,
    buckets: BTreeMap<u64, u64>,
}

impl<'a> PanelCell<'a> {
    /// Adds up the buckets from `least` on.
    fn new(index: usize, name: &'a str, cpus: Vec<&'a CpuResult>, least: Option<u64>) -> Self {
        let mut buckets = BTreeMap::new();
        let is_kept = |(edge, count): &&(u64, u64)| *count > 0 && least.is_none_or(|least| *edge >= least);
        for (edge, count) in cpus.iter().flat_map(|cpu| &cpu.histogram).filter(is_kept) {
            let sum: &mut u64 = buckets.entry(*edge).or_default();
            *sum = sum.saturating_add(*count);
        }
        Self { index, name, cpus, buckets }
    }

    fn series(&self, name: &str, points: impl Serialize) -> Value {
        json!({ "cell": self.index, "name": self.name, name: points })
    }
}

/// Edges of the bins in ns, one more than there are bins.
fn bins(cells: &[PanelCell<'_>]) -> Vec<u64> {
    let lowest = cells.iter().filter_map(|cell| cell.buckets.first_key_value()).map(|(edge, _)| *edge).min();
    let highest = cells.iter().filter_map(|cell| cell.buckets.last_key_value()).map(|(edge, _)| *edge).max();
    lowest.zip(highest).map_or_else(Vec::new, |(lowest, highest)| bin_edges(lowest.max(1), highest.max(1)))
}

/// Samples in each bin.
fn counts(cell: &PanelCell<'_>, edges: &[u64]) -> Vec<u64> {
    let mut counts = vec![0u64; edges.len().saturating_sub(1)];
    for (edge, count) in &cell.buckets {
        let bin = edges.partition_point(|bin_edge| bin_edge <= edge).saturating_sub(1);
        if let Some(sum) = counts.get_mut(bin) {
            *sum = sum.saturating_add(*count);
        }
    }
    counts
}

/// Edges of equal ratio that enclose both values, rounded up to whole nanoseconds so that each bin can hold a sample.
pub(crate) fn bin_edges(lowest: u64, highest: u64) -> Vec<u64> {
    let position = |value: u64| (value as f64).log10() * BINS_PER_DECADE;
    let (first, last) = (position(lowest).floor() as i32 - 1, position(highest).floor() as i32 + 2);
    let edges: BTreeSet<u64> =
        (first..=last).map(|bin| 10f64.powf(f64::from(bin) / BINS_PER_DECADE).ceil() as u64).collect();
    edges.into_iter().collect()
}

/// Bars are `[begin, end, largest latency]`, in seconds and ns.
fn timeline(cells: &[PanelCell<'_>], clock: Clock) -> Value {
    let series = cells.iter().map(|cell| {
        let mut points: Vec<TimelinePoint> =
            cell.cpus.iter().flat_map(|cpu| cpu.timeline.iter().copied()).collect();
        points.order_by_key(|point| point.start_ns);
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

/// Intervals with samples; if there are too many, neighbours of one repeat are joined by their maximum.
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

/// Intervals of a load as `[begin, end, rate]`; if there are too many, neighbours are joined by their mean, weighted
/// by length.
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
        let cells = [cell(&buckets)];
        let edges = bins(&cells);
        assert_eq!(counts(&cells[0], &edges).iter().sum::<u64>(), 982);
        assert!(edges.windows(2).all(|pair| pair[0] < pair[1]));
        assert!(*edges.last().unwrap() > 7_340_032);
        assert!(bins(&[]).is_empty());
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
}
