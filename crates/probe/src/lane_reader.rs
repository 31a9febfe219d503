//! One measuring thread as seen by the reader: differences of its growing counts, and its spikes.

use crate::layout::{CYCLE_BUCKETS, Lane, RingRecord};
use crate::spec::LaneSpec;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use whylate_core::quantity::{GAPS, LOST_NS, OVERRUNS, Quantities};
use whylate_core::record::{Interval, SpikeRecord};
use whylate_core::{CpuId, Cycles, Nanos, TscTime};
use whylate_stats::{Largest, buckets};
use whylate_sys::counter::{Anchor, Calibration};

/// One measuring thread as seen by the reader.
pub(crate) struct LaneReader {
    pub(crate) cpu: CpuId,
    series: Option<String>,
    is_part: bool,
    /// Whether samples have a period, so that some can be missed.
    has_period: bool,
    cycles: Vec<u64>,
    buckets: Vec<u64>,
    sum_ns: u64,
    overruns: u64,
    gaps: u64,
    lost_cycles: u64,
    dropped: u64,
    /// Over all intervals.
    pub(crate) samples: u64,
    pub(crate) max_ns: u64,
    /// Spikes from this latency on are handed out as they come, even if they are not among the largest.
    late_above_ns: Option<u64>,
    /// The largest spikes so far: latency, moment, sample.
    largest: Largest<(u64, u64, u64)>,
    /// Spikes since the last interval.
    fresh: Vec<SpikeRecord>,
    /// How many of them were handed out as they came.
    shown: usize,
    kept: usize,
    /// How many gaps are kept individually.
    gaps_kept: usize,
    /// Gaps that were neither kept one by one nor among the largest, since the last interval.
    left_out: u64,
}

impl LaneReader {
    pub(crate) fn new(lane: LaneSpec, has_period: bool, largest_kept: usize, gaps_kept: usize) -> Self {
        Self {
            late_above_ns: None,
            cpu: lane.cpu,
            is_part: lane.is_part(),
            series: lane.series,
            has_period,
            cycles: vec![0; CYCLE_BUCKETS],
            buckets: vec![0; buckets::BUCKETS],
            sum_ns: 0,
            overruns: 0,
            gaps: 0,
            lost_cycles: 0,
            dropped: 0,
            samples: 0,
            max_ns: 0,
            largest: Largest::new(largest_kept),
            fresh: Vec::new(),
            shown: 0,
            kept: 0,
            gaps_kept,
            left_out: 0,
        }
    }

    pub(crate) fn with_late_above(self, late_above: Option<Nanos>) -> Self {
        Self { late_above_ns: late_above.map(|it| it.0), ..self }
    }

    /// Takes one record; with an anchor it is a gap, in cycles.
    pub(crate) fn take(&mut self, record: RingRecord, anchor: Option<&(Anchor, Calibration)>) {
        let (at_ns, latency_ns) = match anchor {
            None => (record.at, record.value),
            Some((anchor, calibration)) => (
                anchor.monotonic(TscTime(record.at), calibration).0,
                calibration.nanos(Cycles(record.value)).0,
            ),
        };
        let is_large = self.largest.offer((latency_ns, at_ns, record.sample));
        let is_late = self.late_above_ns.is_some_and(|least_ns| latency_ns >= least_ns);
        if is_large || is_late || (anchor.is_some() && self.kept < self.gaps_kept) {
            self.kept += 1;
            let (cpu, series, sample) = (self.cpu, self.series.clone(), record.sample);
            self.fresh.push(SpikeRecord { at_ns, latency_ns, sample, ..SpikeRecord::of(cpu, series) });
        } else if anchor.is_some() {
            self.left_out += 1;
        }
    }

    /// Whether it is a part of a series.
    pub(crate) fn is_part(&self) -> bool {
        self.is_part
    }

    /// Whether a spike of at least that length ended at `from` or later.
    pub(crate) fn has_spike_since(&self, from: u64, length: u64) -> bool {
        self.largest.largest().is_some_and(|(latency, at, _)| *latency >= length && *at >= from)
    }

    pub(crate) fn series(&self) -> Option<&str> {
        self.series.as_deref()
    }

    /// The largest spike so far.
    pub(crate) fn largest_ns(&self) -> Option<u64> {
        self.largest.largest().map(|(latency, ..)| *latency)
    }

    /// The latency from which on a thread (not stall) has to make a record.
    pub(crate) fn floor(&self) -> u64 {
        let floor = self.largest.least().map_or(0, |(latency, ..)| latency + 1);
        self.late_above_ns.map_or(floor, |late_above_ns| floor.min(late_above_ns))
    }

    /// How many spikes there are since the last interval.
    pub(crate) fn pending(&self) -> usize {
        self.fresh.len()
    }

    /// The spikes since the last call, or since the last interval.
    pub(crate) fn spikes_as_they_come(&mut self) -> &[SpikeRecord] {
        let from = std::mem::replace(&mut self.shown, self.fresh.len());
        &self.fresh[from..]
    }

    /// The spikes since the last interval; of all but the stall probe only those that are among the largest by now.
    pub(crate) fn new_spikes(&mut self) -> Vec<SpikeRecord> {
        let mut fresh = std::mem::take(&mut self.fresh);
        self.shown = 0;
        if self.gaps == 0 {
            let largest = &self.largest;
            fresh.retain(|spike| largest.contains(&(spike.latency_ns, spike.at_ns, spike.sample)));
        }
        fresh
    }

    /// What was counted since the last interval.
    pub(crate) fn interval(&mut self, lane: &Lane<'_>, calibration: Option<&Calibration>) -> Interval {
        let mut counts = vec![0u64; buckets::BUCKETS];
        let short = self.short_turns(lane, calibration, &mut counts);
        for (place, count) in take_differences(&mut self.buckets, lane.buckets) {
            counts[place] += count;
        }
        let keeps_min = calibration.is_none();
        let samples = counts.iter().sum();
        let sum_ns = take_difference(&mut self.sum_ns, lane.sum_ns().load(Relaxed)) + short.sum_ns;
        let min_word = lane.interval_min_ns().swap(u64::MAX, Relaxed);
        let max_word = lane.interval_max_ns().swap(0, Relaxed);
        let edge = |place: Option<usize>| place.map(buckets::lower_edge);
        let lowest = edge(counts.iter().position(|count| *count > 0));
        let highest = edge(counts.iter().rposition(|count| *count > 0));
        let min_ns = if keeps_min && min_word != u64::MAX { Some(min_word) } else { short.min_ns.or(lowest) };
        let max_ns = if max_word > 0 { Some(max_word) } else { short.max_ns.or(highest) };
        let dropped = take_difference(&mut self.dropped, lane.ring_dropped().load(Relaxed));
        let gaps = take_difference(&mut self.gaps, lane.gaps().load(Relaxed));
        let lost = take_difference(&mut self.lost_cycles, lane.lost_cycles().load(Relaxed));
        let overruns = take_difference(&mut self.overruns, lane.overruns().load(Relaxed));
        self.samples += samples;
        self.max_ns = self.max_ns.max(max_ns.unwrap_or(0));
        let occupied = counts.iter().enumerate().filter(|(_, count)| **count > 0);
        Interval {
            cpu: self.cpu,
            series: self.series.clone(),
            start_ns: 0,
            end_ns: 0,
            samples,
            sum_ns,
            min_ns: min_ns.filter(|_| samples > 0),
            max_ns: max_ns.filter(|_| samples > 0),
            quantities: Quantities::default()
                .with(OVERRUNS, self.has_period.then_some(overruns))
                .with(GAPS, calibration.map(|_| gaps))
                .with(LOST_NS, calibration.map(|calibration| calibration.nanos(Cycles(lost)).0)),
            spikes_dropped: dropped + std::mem::take(&mut self.left_out),
            histogram: occupied.map(|(place, count)| (buckets::lower_edge(place), *count)).collect(),
        }
    }

    /// The turns counted per cycle, added to `counts` by their length in nanoseconds.
    fn short_turns(
        &mut self,
        lane: &Lane<'_>,
        calibration: Option<&Calibration>,
        counts: &mut [u64],
    ) -> ShortTurns {
        let mut turns = ShortTurns::default();
        let Some(calibration) = calibration else { return turns };
        let mut sum_cycles = 0u64;
        for (cycles, count) in take_differences(&mut self.cycles, lane.cycles) {
            let nanos = calibration.nanos(Cycles(cycles as u64)).0;
            counts[buckets::index_of(nanos)] += count;
            sum_cycles += cycles as u64 * count;
            turns.min_ns.get_or_insert(nanos);
            turns.max_ns = Some(nanos);
        }
        turns.sum_ns = calibration.nanos(Cycles(sum_cycles)).0;
        turns
    }
}

/// The exact figures of turns that were counted per cycle.
#[derive(Default)]
struct ShortTurns {
    sum_ns: u64,
    min_ns: Option<u64>,
    max_ns: Option<u64>,
}

/// How far a growing count moved since it was last looked at.
fn take_difference(before: &mut u64, now: u64) -> u64 {
    now.wrapping_sub(std::mem::replace(before, now))
}

/// As [`take_difference`], for each count that moved.
fn take_differences<'a>(
    before: &'a mut [u64],
    words: &'a [AtomicU64],
) -> impl Iterator<Item = (usize, u64)> + 'a {
    let pairs = before.iter_mut().zip(words).enumerate();
    let differences =
        pairs.map(|(place, (before, word))| (place, take_difference(before, word.load(Relaxed))));
    differences.filter(|(_, count)| *count > 0)
}
