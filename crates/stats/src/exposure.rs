//! How long whylate looked for latencies above a limit, and what that says about their rate.
//!
//! No event in a time T shows that they come fewer than 3/T times, at 95 % confidence, if one does not bring the
//! next: latencies within a second therefore count as one event. The bound for k events is the rate at which k or
//! fewer have a probability of 5 % (the exact one of a Poisson process; Garwood, Biometrika 28 (1936)).

use whylate_core::plan::{Judged, MeasuringTask, ProbeFacts, Samples};
use whylate_core::quantity::WATCHED_NS;
use whylate_core::result::{CellResult, CpuResult, Exposure, ProbeResult, Spike};
use whylate_core::{CpuId, Nanos, SeriesName};

/// Latencies above the limit that are less than this apart are one event.
const APART_NS: u64 = 1_000_000_000;
/// The least measured time that a pass needs in each cell,
const WATCHED_MIN_NS: u64 = 1_000_000_000;
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
            let series = spike.probe.as_deref().and_then(|name| SeriesName::of(name).series);
            spike.cpu == self.cpu.cpu && series == self.cpu.series.as_deref() && spike.latency_ns > above
        };
        self.probe.spikes.iter().filter(is_own)
    }

    /// At least this many samples were above the limit.
    fn samples_above(&self, limit: Nanos) -> u64 {
        let above = limit.0.saturating_add(self.own_ns());
        let counts = self.cpu.histogram.iter().filter(|(edge, _)| *edge > above);
        let largest = u64::from(self.cpu.quantiles.is_some_and(|quantiles| quantiles.max_ns > above));
        counts.map(|(_, count)| *count).sum::<u64>().max(largest)
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
    let above: Vec<u64> =
        series.iter().flat_map(|series| series.spikes_above(limit)).map(|spike| spike.at_ns).collect();
    let samples: u64 = series.iter().map(|series| series.samples_above(limit)).sum();
    let events = if samples > above.len() as u64 { samples } else { clusters(above) };
    Some(of_events(watched_ns, cpus.len() as u32, events))
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
    Some(of_events(watched_ns, cpus, exposures().map(|it| it.events).sum()))
}

fn of_events(watched_ns: u64, cpus: u32, events: u64) -> Exposure {
    let hours = watched_ns.max(1) as f64 / NS_PER_HOUR;
    Exposure { watched_ns, cpus, events, events_per_hour_max: poisson_upper_bound(events) / hours }
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

    #[test]
    fn the_bound_is_that_of_the_tables() {
        // Garwood's one-sided 95 % limits.
        for (events, bound) in [(0, 2.9957), (1, 4.7439), (5, 10.5130), (20, 29.0620), (50, 63.2871)] {
            assert!((poisson_upper_bound(events) - bound).abs() < 0.001, "{events}");
        }
        let (summed, limit) = (poisson_upper_bound(SUMMED_MAX), poisson_upper_bound(SUMMED_MAX + 1));
        assert!((1.0..1.1).contains(&(limit - summed)), "{summed} and {limit}");
    }

    #[test]
    fn latencies_within_a_second_are_one_event() {
        let second = 1_000_000_000;
        assert_eq!(clusters(Vec::new()), 0);
        assert_eq!(clusters(vec![5 * second, 0, second / 2, 5 * second + 1, 9 * second]), 3);
    }
}
