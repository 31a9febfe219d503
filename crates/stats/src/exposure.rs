//! How long whylate looked for latencies above a limit, and what that says about their rate.
//!
//! No event in a time T shows that they come fewer than 3/T times, at 95 % confidence, if one does not bring the
//! next: latencies within a second therefore count as one event. The bound for k events is the rate at which k or
//! fewer have a probability of 5 % (the exact one of a Poisson process; Garwood, Biometrika 28 (1936)).

use crate::buckets::{index_of, last_value};
use crate::summary::SPIKES_KEPT;
use whylate_core::plan::{Judged, MeasuringTask, ProbeFacts, Samples};
use whylate_core::quantity::WATCHED_NS;
use whylate_core::result::{CellResult, CpuResult, Exposure, ProbeResult, Spike};
use whylate_core::{CpuId, Nanos, SeriesName};

/// Latencies above the limit that are less than this apart are one event.
const APART_NS: u64 = 1_000_000_000;
/// The least measured time that a pass needs in each cell,
pub const WATCHED_MIN_NS: u64 = 1_000_000_000;
/// and the least samples of a probe that has a task of its own.
const SAMPLES_MIN: u64 = 100;
const NS_PER_HOUR: f64 = 3.6e12;

/// One series on one CPU that a limit judges.
#[derive(Clone, Copy)]
pub(crate) struct JudgedSeries<'a> {
    pub(crate) probe: &'a ProbeResult,
    pub(crate) cpu: &'a CpuResult,
    pub(crate) facts: ProbeFacts,
}

impl JudgedSeries<'_> {
    /// The value that the limit judges; `None` if nothing was recorded.
    pub(crate) fn value_ns(&self) -> Option<u64> {
        self.cpu.quantiles.map(|quantiles| quantiles.max_ns.saturating_sub(self.own_ns()))
    }

    /// The cost of the method itself, which is no latency.
    pub(crate) fn own_ns(&self) -> u64 {
        let median = self.cpu.quantiles.map_or(0, |quantiles| quantiles.p50_ns);
        if self.facts.judged == Judged::ExcessOverMedian { median } else { 0 }
    }

    fn watched_ns(&self) -> u64 {
        self.cpu.get(WATCHED_NS).unwrap_or(self.cpu.measured_ns)
    }

    fn spikes_above(&self, limit: Nanos) -> impl Iterator<Item = &Spike> {
        let above = limit.0.saturating_add(self.own_ns());
        let is_own = move |spike: &&Spike| {
            let name = spike.probe.as_deref().map(SeriesName::of);
            // A part of a sample is in the whole sample.
            let is_whole = name.is_none_or(|name| name.part.is_none());
            let series = name.and_then(|name| name.series);
            is_whole
                && spike.cpu == self.cpu.cpu
                && series == self.cpu.series.as_deref()
                && spike.latency_ns > above
        };
        self.probe.spikes.iter().filter(is_own)
    }

    /// At least and at most this many samples were above the limit: one bucket may have samples on both sides.
    fn samples_above(&self, limit: Nanos) -> (u64, u64) {
        let above = limit.0.saturating_add(self.own_ns());
        if self.cpu.quantiles.is_none_or(|quantiles| quantiles.max_ns <= above) {
            return (0, 0);
        }
        let (mut least, mut most) = (0u64, 0u64);
        for (edge, count) in &self.cpu.histogram {
            least += if *edge > above { *count } else { 0 };
            most += if last_value(index_of(*edge)) > above { *count } else { 0 };
        }
        // The largest is exact.
        (least.max(1), most.max(1))
    }

    /// What is known of its latencies above the limit.
    fn above(&self, limit: Nanos) -> SeriesAbove {
        let moments: Vec<u64> = self.spikes_above(limit).map(|spike| spike.at_ns).collect();
        let known = moments.len() as u64;
        let (least, most) = self.samples_above(limit);
        let is_room_left = self.probe.spikes.len() < SPIKES_KEPT && self.cpu.spikes_dropped == 0;
        if known >= most || (known >= least && is_room_left) {
            let spans = Some(moments.iter().map(|at_ns| (*at_ns, *at_ns)).collect());
            return SeriesAbove { latencies: known, most: known, spans, is_whole: true };
        }
        let above = limit.0.saturating_add(self.own_ns());
        // A latency belongs to the interval in which it began or ended.
        let late = self.cpu.timeline.iter().filter_map(|point| {
            let max_ns = point.max_ns.filter(|max_ns| *max_ns > above)?;
            Some((point.start_ns, point.end_ns.saturating_add(max_ns)))
        });
        let spans: Vec<(u64, u64)> = late.collect();
        let spans = (!spans.is_empty()).then_some(spans);
        SeriesAbove { latencies: least.max(known), most, spans, is_whole: false }
    }

    /// Why the measurement is too short for a pass.
    pub(crate) fn too_little(&self) -> Option<String> {
        let has_task = self.facts.task == MeasuringTask::Own && !self.facts.companion;
        if has_task && self.facts.samples != Samples::Gap && self.cpu.samples < SAMPLES_MIN {
            return Some(format!("{} samples, and a pass needs {SAMPLES_MIN}", self.cpu.samples));
        }
        (self.watched_ns() < WATCHED_MIN_NS).then(|| {
            let watched = whylate_core::figure::nanoseconds(self.watched_ns());
            format!("{watched}, and a pass needs {}", whylate_core::figure::nanoseconds(WATCHED_MIN_NS))
        })
    }
}

/// The series of a cell that a limit judges.
pub(crate) fn judged(cell: &CellResult) -> impl Iterator<Item = JudgedSeries<'_>> {
    let series = cell.probes.iter().flat_map(|probe| probe.cpus.iter().map(move |cpu| (probe, cpu)));
    series.filter_map(|(probe, cpu)| {
        let facts = SeriesName::in_probe(&probe.probe, cpu.series.as_deref()).facts()?;
        (facts.judged != Judged::Nothing).then_some(JudgedSeries { probe, cpu, facts })
    })
}

/// How long a cell was measured, and what was above the limit; `None` if no probe measured.
pub(crate) fn exposure(cell: &CellResult, limit: Nanos) -> Option<Exposure> {
    let series: Vec<JudgedSeries<'_>> = judged(cell).collect();
    let watched_ns = watched_ns(cell)?;
    let mut cpus: Vec<CpuId> = series.iter().map(|series| series.cpu.cpu).collect();
    cpus.sort_unstable();
    cpus.dedup();
    let cpus = cpus.len() as u32;
    Some(match worst_probe(&series, limit) {
        Some((_, above, watched_ns)) => of_above(watched_ns, cpus, above),
        None => of_above(watched_ns, cpus, Above::default()),
    })
}

/// The probe with the most events, what was above the limit there, and how long it measured; `None` if nothing was.
/// Probes on the same CPU measure one after another, so the events of several do not belong to the time of one.
fn worst_probe<'c>(series: &[JudgedSeries<'c>], limit: Nanos) -> Option<(&'c str, Above, u64)> {
    let of_one = |same: &[JudgedSeries<'c>]| {
        let watched_ns = same.iter().map(JudgedSeries::watched_ns).min()?;
        Some((same.first()?.probe.probe.as_str(), above(same, limit), watched_ns))
    };
    let all = series.chunk_by(|a, b| a.probe.probe == b.probe.probe).filter_map(of_one);
    all.filter(|(_, above, _)| above.events > 0).max_by_key(|(_, above, _)| (above.events, above.latencies))
}

/// The probes with the most events of each cell, if cells have several probes.
pub(crate) fn worst_probes(cells: &[CellResult], limit: Nanos) -> Vec<&str> {
    let of_cell = |cell| {
        let series: Vec<JudgedSeries<'_>> = judged(cell).collect();
        let is_one = series.windows(2).all(|pair| pair[0].probe.probe == pair[1].probe.probe);
        worst_probe(&series, limit).filter(|_| !is_one).map(|(name, ..)| name)
    };
    let mut names: Vec<&str> = cells.iter().filter_map(of_cell).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// How long a cell was measured, with or without a limit; `None` if no probe measured.
pub fn watched_ns(cell: &CellResult) -> Option<u64> {
    judged(cell).map(|series| series.watched_ns()).min()
}

/// The exposure of all cells together.
pub(crate) fn total(cells: &[CellResult]) -> Option<Exposure> {
    let exposures = || cells.iter().filter_map(|cell| cell.exposure);
    let cpus = exposures().map(|it| it.cpus).max()?;
    let watched_ns = exposures().fold(0u64, |sum, it| sum.saturating_add(it.watched_ns));
    let above = Above {
        latencies: exposures().map(|it| it.latencies).sum(),
        events: exposures().map(|it| it.events).sum(),
        records_missing: exposures().any(|it| it.records_missing),
    };
    Some(of_above(watched_ns, cpus, above))
}

fn of_above(watched_ns: u64, cpus: u32, above: Above) -> Exposure {
    let Above { latencies, events, records_missing } = above;
    let hours = watched_ns.max(1) as f64 / NS_PER_HOUR;
    let events_per_hour_max = poisson_upper_bound(events) / hours;
    Exposure { watched_ns, cpus, latencies, events, records_missing, events_per_hour_max }
}

/// Latencies above the limit, and their events.
#[derive(Clone, Copy, Default)]
struct Above {
    /// If moments are missing, the fewest.
    latencies: u64,
    /// If moments are missing, the most.
    events: u64,
    records_missing: bool,
}

/// Latencies of one series above the limit.
struct SeriesAbove {
    latencies: u64,
    /// At most this many.
    most: u64,
    /// Times in which all of them were; `None` if that is not known.
    spans: Option<Vec<(u64, u64)>>,
    /// Whether each has a record, so that each span is one moment.
    is_whole: bool,
}

fn above(series: &[JudgedSeries<'_>], limit: Nanos) -> Above {
    let all: Vec<SeriesAbove> = series.iter().map(|series| series.above(limit)).collect();
    let latencies = all.iter().map(|it| it.latencies).sum();
    let most: u64 = all.iter().map(|it| it.most).sum();
    let records_missing = all.iter().any(|it| !it.is_whole);
    let spans: Option<Vec<Vec<(u64, u64)>>> = all.into_iter().map(|it| it.spans).collect();
    let events = match spans.map(|spans| spans.concat()) {
        None => most,
        Some(moments) if !records_missing => clusters(moments.into_iter().map(|(at_ns, _)| at_ns).collect()),
        Some(spans) => most_events(spans).min(most),
    };
    Above { latencies, events, records_missing }
}

/// How long to watch for a bound of `per_hour` with no event.
pub(crate) fn needed_ns(per_hour: f64) -> u64 {
    (poisson_upper_bound(0) / per_hour * NS_PER_HOUR) as u64
}

/// Moments less than [`APART_NS`] after the one before belong to the same event.
fn clusters(mut moments: Vec<u64>) -> u64 {
    moments.sort_unstable();
    let begins = moments.windows(2).filter(|pair| pair[1] - pair[0] >= APART_NS).count();
    begins as u64 + u64::from(!moments.is_empty())
}

/// The most events that are possible if every latency was within these spans: events begin [`APART_NS`] apart or more.
fn most_events(mut spans: Vec<(u64, u64)>) -> u64 {
    spans.sort_unstable();
    let (mut events, mut next_ns) = (0u64, 0u64);
    for (from_ns, to_ns) in spans {
        let first_ns = from_ns.max(next_ns);
        if let Some(length_ns) = to_ns.checked_sub(first_ns) {
            let fitting = length_ns / APART_NS + 1;
            events += fitting;
            next_ns = first_ns.saturating_add(fitting.saturating_mul(APART_NS));
        }
    }
    events
}

/// Up to this many events the probabilities are added up; above it the limit formula is exact to six digits.
const SUMMED_MAX: u64 = 1_000;

/// The mean at which `events` or fewer have a probability of 5 %.
fn poisson_upper_bound(events: u64) -> f64 {
    const CONFIDENCE: f64 = 0.95;
    if events > SUMMED_MAX {
        // Wilson and Hilferty 1931: the cube root of such a bound is nearly normal.
        const QUANTILE: f64 = 1.644_853_626_951;
        let next = events as f64 + 1.0;
        return next * (1.0 - 1.0 / (9.0 * next) + QUANTILE / (3.0 * next.sqrt())).powi(3);
    }
    let probability = |mean: f64| {
        let mut term = -mean;
        let mut sum = term.exp();
        for event in 1..=events {
            term += (mean / event as f64).ln();
            sum += term.exp();
        }
        sum
    };
    let (mut low, mut high) = (0.0, 10.0 + 2.0 * events as f64);
    // Halving fifty times leaves less than the last digit of the sum.
    for _ in 0..50 {
        let middle = f64::midpoint(low, high);
        if probability(middle) > 1.0 - CONFIDENCE { low = middle } else { high = middle }
    }
    high
}

#[cfg(test)]
mod tests {
    use super::*;
    use whylate_core::result::{Quantiles, TimelinePoint};

    #[test]
    fn the_bound_is_that_of_the_tables() {
        // Garwood's one-sided 95 % limits.
        for (events, bound) in [(0, 2.9957), (1, 4.7439), (5, 10.5130), (20, 29.0620), (50, 63.2871)] {
            assert!((poisson_upper_bound(events) - bound).abs() < 0.001, "{events}");
        }
        let (summed, limit) = (poisson_upper_bound(SUMMED_MAX), poisson_upper_bound(SUMMED_MAX + 1));
        assert!((1.0..1.1).contains(&(limit - summed)), "{summed} and {limit}");
    }

    /// A timer with a latency every 100 ms in its first and its fourth second, of which the largest are kept.
    fn late_often(latencies: u64, kept: usize) -> CellResult {
        let second = 1_000_000_000;
        let at_ns = |number: u64| (number % 2) * 3 * second + number / 2 * second / 10 + 500;
        let spike = |number| Spike {
            probe: Some("timer".to_owned()),
            ..Spike::unexplained(CpuId(3), at_ns(number), 200_000)
        };
        let point = |number: u64| TimelinePoint {
            start_ns: number * second,
            end_ns: (number + 1) * second,
            samples: 1_000,
            max_ns: Some(if number.is_multiple_of(3) { 200_000 } else { 9_000 }),
            ..TimelinePoint::default()
        };
        let cpu = CpuResult {
            cpu: CpuId(3),
            samples: 6_000,
            measured_ns: 6 * second,
            quantiles: Some(Quantiles { max_ns: 200_000, ..Quantiles::default() }),
            histogram: vec![(8_960, 6_000 - latencies), (199_680, latencies)],
            timeline: (0..6).map(point).collect(),
            ..CpuResult::default()
        };
        let spikes = (0..latencies).map(spike).take(kept).collect();
        let probe =
            ProbeResult { probe: "timer".to_owned(), cpus: vec![cpu], spikes, ..ProbeResult::default() };
        CellResult { probes: vec![probe], ..CellResult::default() }
    }

    #[test]
    fn events_have_one_meaning_whether_or_not_each_latency_has_a_record() {
        let of = |cell: &CellResult| exposure(cell, Nanos::from_micros(100)).unwrap();
        let all = of(&late_often(20, 20));
        assert_eq!((all.latencies, all.events, all.records_missing), (20, 2, false));
        assert_eq!(all.above().unwrap(), "20 latencies in 2 events at least 1 s apart");
        // The kept records are those of the first second: the fourth one is late, too.
        let mut cut = late_often(20, 20);
        cut.probes[0].spikes.retain(|spike| spike.at_ns < 1_000_000_000);
        let cut = of(&cut);
        assert!(cut.records_missing && (2..20).contains(&cut.events), "{cut:?}");
        assert_eq!(cut.latencies, 20);
        assert_eq!(
            cut.above().unwrap(),
            format!("at least 20 latencies in at most {} events at least 1 s apart", cut.events)
        );
        assert!(cut.events_per_hour_max >= all.events_per_hour_max);
        // Nothing says when they were.
        let mut unknown = late_often(20, 0);
        unknown.probes[0].cpus[0].timeline.clear();
        let unknown = of(&unknown);
        assert_eq!((unknown.events, unknown.above().unwrap().as_str()), (20, "at least 20 latencies"));
        // Samples in the bucket of the limit may be above it or not.
        let limit = Nanos(199_900);
        assert_eq!(exposure(&late_often(20, 20), limit).unwrap().latencies, 20);
        let least = exposure(&late_often(20, 0), limit).unwrap();
        assert!(least.records_missing && least.latencies == 1 && least.events > 1, "{least:?}");
    }

    #[test]
    fn events_are_those_of_the_time_of_one_probe() {
        let limit = Nanos::from_micros(100);
        let mut cell = late_often(20, 20);
        let mut other = late_often(6, 6).probes.remove(0);
        other.probe = "stall".to_owned();
        cell.probes.push(other);
        let both = exposure(&cell, limit).unwrap();
        assert_eq!((both.latencies, both.events, both.watched_ns), (20, 2, 6_000_000_000));
        assert_eq!(worst_probes(&[cell], limit), ["timer"]);
        assert_eq!(worst_probes(&[late_often(20, 20)], limit), [""; 0], "there is only one");
    }

    #[test]
    fn no_more_events_are_possible_than_fit() {
        let second = 1_000_000_000;
        assert_eq!(most_events(Vec::new()), 0);
        assert_eq!(most_events(vec![(5, 5), (6, 6)]), 1);
        assert_eq!(most_events(vec![(0, second - 1), (second / 2, second / 2 + 9)]), 1);
        assert_eq!(most_events(vec![(0, second + 9), (second, 2 * second + 9), (9 * second, 9 * second)]), 4);
    }

    #[test]
    fn latencies_within_a_second_are_one_event() {
        let second = 1_000_000_000;
        assert_eq!(clusters(Vec::new()), 0);
        assert_eq!(clusters(vec![5 * second, 0, second / 2, 5 * second + 1, 9 * second]), 3);
    }
}
