//! From stored intervals and spike records to the figures of one probe on one CPU.
//!
//! `measure`, `run` and reports of killed runs all use this path. Intervals are added one by one and not kept: memory
//! depends neither on the length of the run nor on the number of samples.

mod spikes;
mod timeline;

pub use spikes::{keep_first, largest_of_each, largest_spikes};

use crate::{Histogram, StatsError, corrected};
use spikes::SpikeKeeper;
use timeline::Timeline;
use whylate_core::plan::{ProbeFacts, Samples};
use whylate_core::quantity::{
    ACCESS_NS, ACCESSES, CORRECTED, COUNTER_HZ, CYCLES, GAPS, LOOP_NS, LOST_NS, LOST_SHARE, OWN, OWN_MAX_NS,
    OWN_P99_NS, Quantities, THROTTLED, WATCHED_NS,
};
use whylate_core::record::{Interval, OwnRecord, SpikeRecord};
use whylate_core::result::{CpuResult, CycleFigures, PartResult, Quantiles, RepeatProbe, Spike};
use whylate_core::{CpuId, Nanos, SeriesName};

/// How many spikes are kept unless asked otherwise.
pub const SPIKES_KEPT: usize = 32;
/// How many timeline points are kept at most unless asked otherwise.
pub const TIMELINE_POINTS_MAX: usize = 2000;

/// What the samples of a series on a CPU mean, and the facts of the plan that are needed to read them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SampleShape {
    /// Facts about all samples of the series.
    pub facts: ProbeFacts,
    /// The period; `None` if there is none or it is unknown: nothing is corrected then.
    pub period: Option<Nanos>,
    /// The part of the time in which gaps are looked for, in (0, 1].
    pub watched_share: f64,
}

impl SampleShape {
    /// Without a period; watches all the time.
    pub fn of(facts: ProbeFacts) -> Self {
        Self { facts, period: None, watched_share: 1.0 }
    }
}

/// Collects one probe's data of one CPU.
#[derive(Clone, Debug)]
pub struct Summary {
    cpu: CpuId,
    shape: SampleShape,
    /// The probe's name, with its series if it has several.
    name: String,
    histogram: Histogram,
    samples: u64,
    measured_ns: u64,
    quantities: Quantities,
    spikes_dropped: u64,
    timeline: Timeline,
    spikes: SpikeKeeper,
    own: Option<Vec<OwnRecord>>,
}

impl Summary {
    /// Without data yet.
    pub fn new(cpu: CpuId, shape: SampleShape) -> Self {
        Self {
            cpu,
            shape,
            name: shape.facts.name.to_owned(),
            histogram: Histogram::new(),
            samples: 0,
            measured_ns: 0,
            quantities: Quantities::default(),
            spikes_dropped: 0,
            timeline: Timeline::new(TIMELINE_POINTS_MAX),
            spikes: SpikeKeeper::new(SPIKES_KEPT),
            own: None,
        }
    }

    /// Names the series that it summarises (`roundtrip/futex`); a part (`roundtrip/futex/there`) counts as one too.
    #[must_use]
    pub fn of_series(mut self, name: SeriesName<'_>) -> Self {
        self.name = name.to_string();
        self
    }

    /// Keeps that many of the largest spikes instead of [`SPIKES_KEPT`]; before anything is added.
    #[must_use]
    pub fn with_spikes_kept(mut self, spikes_kept: usize) -> Self {
        self.spikes = SpikeKeeper::new(spikes_kept);
        self
    }

    /// Keeps at most that many timeline points instead of [`TIMELINE_POINTS_MAX`]; before anything is added.
    #[must_use]
    pub fn with_timeline_points_max(mut self, points_max: usize) -> Self {
        self.timeline = Timeline::new(points_max);
        self
    }

    /// Sets what the hypervisor and the firmware took of its samples; `None` if that was not recorded for all of
    /// them.
    #[must_use]
    pub fn with_own(mut self, own: Option<Vec<OwnRecord>>) -> Self {
        self.own = own;
        self
    }

    /// Adds one stored interval; `repeat` is the number of the repeat that it belongs to, from 1.
    ///
    /// Intervals are added in the order of time.
    ///
    /// # Errors
    /// [`StatsError`] when the interval is of another CPU or its histogram of another layout; nothing is added then.
    pub fn add_interval(&mut self, interval: &Interval, repeat: Option<u32>) -> Result<(), StatsError> {
        self.check_cpu(interval.cpu)?;
        let histogram = Histogram::from_interval(interval)?;
        self.timeline.push(interval, &histogram, repeat);
        self.histogram.merge(&histogram);
        self.samples = self.samples.saturating_add(interval.samples);
        self.measured_ns = self.measured_ns.saturating_add(interval.end_ns.saturating_sub(interval.start_ns));
        self.quantities.merge(&interval.quantities);
        self.spikes_dropped = self.spikes_dropped.saturating_add(interval.spikes_dropped);
        Ok(())
    }

    /// Adds one spike record; the largest are kept.
    ///
    /// # Errors
    /// [`StatsError::ForeignCpu`] when it is of another CPU; nothing is added then.
    pub fn add_spike(&mut self, spike: &SpikeRecord, repeat: Option<u32>) -> Result<(), StatsError> {
        self.check_cpu(spike.cpu)?;
        self.spikes.add(spike, repeat);
        Ok(())
    }

    /// Total length of all intervals added so far.
    pub fn measured(&self) -> Nanos {
        Nanos(self.measured_ns)
    }

    /// The figures, and the largest spikes, largest first, each without a cause yet.
    pub fn finish(self) -> (CpuResult, Vec<Spike>) {
        let max_at_ns = self.histogram.max().and_then(|max| self.spikes.moment_of(max));
        let SampleShape { facts, period, watched_share } = self.shape;
        let quantiles = self.histogram.quantiles();
        let counter_hz = self.quantities.get(COUNTER_HZ);
        let mut quantities = self.quantities.of_result(&facts);
        if facts.misses_periods {
            let period = period.filter(|period| period.0 > 0);
            let undone = period.and_then(|period| corrected(&self.histogram, period).quantiles());
            quantities.set(CORRECTED, undone);
            let own = self.own.and_then(|own| self.histogram.moved(&own));
            let own = own.map(|own| period.map_or_else(|| own.clone(), |period| corrected(&own, period)));
            let own = own.and_then(|own| own.quantiles());
            quantities.set(OWN_P99_NS, own.map(|own| own.p99_ns));
            quantities.set(OWN_MAX_NS, own.map(|own| own.max_ns));
            quantities.set(OWN, own);
        }
        if facts.counts_turns {
            quantities.set(LOOP_NS, self.histogram.median_interpolated());
        }
        if facts.samples == Samples::Gap {
            let watched_ns = self.measured_ns as f64 * watched_share;
            quantities.set(WATCHED_NS, (watched_share < 1.0).then_some(watched_ns as u64));
            let lost_ns = quantities.get(LOST_NS).unwrap_or(0);
            // A gap that lasts beyond the end of its interval is counted whole where it ended.
            quantities.set(LOST_SHARE, (watched_ns > 0.0).then(|| (lost_ns as f64 / watched_ns).min(1.0)));
        }
        let pass = quantities.get(ACCESSES).zip(self.histogram.median_interpolated());
        quantities.set(ACCESS_NS, pass.map(|(count, pass)| pass / count as f64));
        quantities.set(CYCLES, counter_hz.zip(quantiles).map(|(hz, figures)| cycles(hz, &figures)));
        let result = CpuResult {
            cpu: self.cpu,
            series: SeriesName::of(&self.name).series.map(str::to_owned),
            samples: self.samples,
            measured_ns: self.measured_ns,
            quantiles,
            quantities,
            max_at_ns,
            spikes_dropped: self.spikes_dropped,
            histogram: self.histogram.buckets().collect(),
            timeline: self.timeline.into_points(),
            ..CpuResult::default()
        };
        (result, self.spikes.into_spikes(&self.name))
    }

    fn check_cpu(&self, found: CpuId) -> Result<(), StatsError> {
        if found == self.cpu { Ok(()) } else { Err(StatsError::ForeignCpu { expected: self.cpu, found }) }
    }
}

/// The figures in ticks of a counter.
fn cycles(counter_hz: u64, figures: &Quantiles) -> CycleFigures {
    let ticks = |ns: u64| {
        let rounded = u128::from(ns) * u128::from(counter_hz) + 500_000_000;
        u64::try_from(rounded / 1_000_000_000).unwrap_or(u64::MAX)
    };
    CycleFigures {
        counter_hz,
        min: ticks(figures.min_ns),
        p50: ticks(figures.p50_ns),
        p99: ticks(figures.p99_ns),
        max: ticks(figures.max_ns),
    }
}

/// Puts parts (`roundtrip/futex/there`) into their series, which come before them; the rest stays unchanged.
pub fn join_parts(results: impl IntoIterator<Item = (String, CpuResult)>) -> Vec<CpuResult> {
    let mut joined: Vec<CpuResult> = Vec::new();
    for (name, result) in results {
        let name = SeriesName::of(&name);
        let Some(part) = name.part else {
            joined.push(result);
            continue;
        };
        let whole = |of: &&mut CpuResult| of.cpu == result.cpu && of.series.as_deref() == name.series;
        // A part without its series, or without samples, is left out.
        if let (Some(whole), true) = (joined.iter_mut().find(whole), result.samples > 0) {
            let CpuResult { samples, quantiles, histogram, .. } = result;
            whole.parts.push(PartResult { part: part.to_owned(), samples, quantiles, histogram });
        }
    }
    joined
}

/// The figures of one CPU that a repeat keeps, by which cells are compared. Samples above `spike` count as spikes.
pub fn repeat_probe(name: SeriesName<'_>, result: &CpuResult, spike: Nanos) -> RepeatProbe {
    // An activation of a watched task is late above its deadline.
    let is_latency =
        name.facts().is_some_and(|facts| facts.samples == Samples::Lateness || facts.misses_periods);
    let spikes = result.histogram.iter().filter(|(edge, _)| *edge > spike.0).map(|(_, count)| *count);
    let hours = result.measured_ns as f64 / 3.6e12;
    RepeatProbe {
        throttled: result.get(THROTTLED),
        spikes_per_h: (is_latency && hours > 0.0).then(|| spikes.sum::<u64>() as f64 / hours),
        triggers_per_h: None,
        measured_ns: result.measured_ns,
        probe: name.to_string(),
        cpu: result.cpu,
        samples: result.samples,
        quantiles: result.quantiles,
        corrected: result.get(CORRECTED),
        own: result.get(OWN),
        gaps_per_s: result
            .get(GAPS)
            .filter(|_| result.measured_ns > 0)
            .map(|gaps| gaps as f64 * 1e9 / result.measured_ns as f64),
        lost_share: result.get(LOST_SHARE),
    }
}

#[cfg(test)]
mod tests;
