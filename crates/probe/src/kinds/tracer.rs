//! The tracer probe: a measuring tracer of the kernel, driven from here, brought into the form of the other probes.
//!
//! In: the lines that the tracer prints. Out: intervals with histograms, and the largest samples of each as spikes. The
//! moment of a sample is that of its line: for hwlat and osnoise the end of its window.

use super::{Kind, Place, Resolve, with_parts};
use crate::error::ProbeError;
use crate::measure::{Batch, Elsewhere, Measuring, Observer, Outcome, Progress};
use crate::spec::{LaneSpec, ProbeSpec};
use std::cmp::Reverse;
use std::time::Duration;
use whylate_core::plan::{Tracer, TracerPlan};
use whylate_core::quantity::{GAPS, LOST_NS, Quantities};
use whylate_core::record::{HwlatRecord, Interval, SpikeRecord};
use whylate_core::warning::not_restored;
use whylate_core::{Nanos, Warning, WarningCode};
use whylate_record::{RecordError, Sample, TracerSession};
use whylate_stats::{Histogram, Largest};
use whylate_sys::clock;

/// How often the tracer's lines are read.
const POLL: Duration = Duration::from_millis(50);

/// Measures with a tracer, to its end.
///
/// The part of a timerlat sample until the timer's interrupt.
const INTERRUPT: &str = "interrupt";

impl Resolve<TracerPlan> for TracerPlan {
    fn resolve(plan: &Self, _: &mut Place<'_>) -> Result<Self, ProbeError> {
        Ok(plan.clone())
    }
}

impl Kind for TracerPlan {
    fn name(&self) -> &'static str {
        "tracer"
    }

    fn series(&self) -> Vec<Option<String>> {
        let parts: &[&str] = if self.tracer == Tracer::Timerlat { &[INTERRUPT] } else { &[] };
        with_parts(self.tracer.name(), parts).collect()
    }

    fn measure(&self, of: &Measuring<'_>, observer: &mut dyn Observer) -> Result<Outcome, ProbeError> {
        measure(self, of, observer)
    }
}

/// # Errors
/// [`ProbeError`] when the kernel refuses the tracer, or its lines cannot be read.
fn measure(
    plan: &TracerPlan,
    of: &Measuring<'_>,
    observer: &mut dyn Observer,
) -> Result<Outcome, ProbeError> {
    let Measuring { host, spec, stored, .. } = *of;
    let _elsewhere = Elsewhere::move_to(&host.running, &spec.other_cpus);
    let (mut session, mut warnings) =
        TracerSession::start(&host.settings, plan, &spec.cpus).map_err(failed)?;
    let start_ns = clock::now().0.saturating_add(spec.warmup.0);
    let mut collector = Collector::new(spec, plan, start_ns);
    let end_ns = start_ns.saturating_add(spec.duration.0);
    let mut next_ns = start_ns.saturating_add(stored.0);
    let (mut stopped, mut outcome) = (false, Ok(()));
    while outcome.is_ok() && !stopped && clock::now().0 < end_ns {
        std::thread::sleep(POLL);
        outcome = collector.poll(&mut session, end_ns, observer);
        let now = clock::now().0;
        let elapsed = Nanos(now.saturating_sub(start_ns));
        observer.progress(&Progress { elapsed, duration: spec.duration, cpus: collector.so_far() });
        if outcome.is_ok() && now >= next_ns && now < end_ns {
            next_ns = now.saturating_add(stored.0);
            outcome = observer.batch(collector.take(now)).map_err(ProbeError::Observer);
        }
        stopped = observer.should_stop();
    }
    let last = collector.take(clock::now().0.min(end_ns));
    let outcome = outcome.and_then(|()| observer.batch(last).map_err(ProbeError::Observer));
    if session.lost() > 0 {
        let text = format!(
            "{} lines of the {} tracer were lost and are missing in its figures",
            session.lost(),
            plan.tracer
        );
        warnings.push(Warning::new(WarningCode::TracerLinesLost, text));
    }
    if let Err(error) = session.finish() {
        warnings.push(not_restored(error));
    }
    outcome.map(|()| Outcome { warnings, broke: None, stopped })
}

fn failed(error: RecordError) -> ProbeError {
    match error {
        RecordError::Unavailable(reason) => ProbeError::Unavailable(reason),
        error => ProbeError::Failed(error.to_string()),
    }
}

/// The samples of one series on one CPU since the last stored interval.
struct Lane {
    spec: LaneSpec,
    histogram: Histogram,
    gaps: u64,
    lost_ns: u64,
    /// Value, moment and number of the largest samples; the first one among equals.
    largest: Largest<(u64, Reverse<u64>, Reverse<u64>)>,
    /// Over all of the measurement.
    samples: u64,
    max_ns: u64,
}

/// Sorts the samples by CPU and series.
struct Collector {
    lanes: Vec<Lane>,
    /// Since the last stored interval, with their details.
    hwlat: Vec<HwlatRecord>,
    looks_for_gaps: bool,
    /// Whether the moment of a sample is exact enough to look for its cause.
    has_moments: bool,
    /// How many of the largest samples of a stored interval are spikes, on each CPU.
    spikes_kept: usize,
    start_ns: u64,
    interval_start_ns: u64,
}

impl Collector {
    fn new(spec: &ProbeSpec, plan: &TracerPlan, start_ns: u64) -> Self {
        let lane = |lane: LaneSpec| Lane {
            spec: lane,
            histogram: Histogram::new(),
            gaps: 0,
            lost_ns: 0,
            largest: Largest::new(spec.spikes_kept),
            samples: 0,
            max_ns: 0,
        };
        Self {
            lanes: spec.lanes().into_iter().map(lane).collect(),
            hwlat: Vec::new(),
            looks_for_gaps: plan.tracer != Tracer::Timerlat,
            has_moments: plan.tracer != Tracer::Osnoise,
            spikes_kept: spec.spikes_kept,
            start_ns,
            interval_start_ns: start_ns,
        }
    }

    /// Takes the new lines, and reports their spikes.
    fn poll(
        &mut self,
        session: &mut TracerSession,
        end_ns: u64,
        observer: &mut dyn Observer,
    ) -> Result<(), ProbeError> {
        let samples = session.poll().map_err(failed)?;
        let counted = self.start_ns..=end_ns;
        let counts = samples.iter().filter(|sample| counted.contains(&sample.at_ns));
        let spikes: Vec<SpikeRecord> = counts.filter_map(|sample| self.add(sample)).collect();
        if !spikes.is_empty() {
            observer.spikes(&spikes);
        }
        Ok(())
    }

    /// Counts a sample; returns it as a spike if it is among the largest. A part of another sample is not a spike.
    fn add(&mut self, sample: &Sample) -> Option<SpikeRecord> {
        let is_its =
            |lane: &&mut Lane| lane.spec.cpu == sample.cpu && lane.spec.is_part() == sample.in_interrupt;
        let lane = self.lanes.iter_mut().find(is_its)?;
        let Sample { cpu, at_ns, hwlat, .. } = *sample;
        self.hwlat.extend(hwlat.map(|sample| HwlatRecord { cpu, at_ns, sample }));
        lane.histogram.record(sample.value_ns);
        lane.gaps += sample.gaps;
        lane.lost_ns = lane.lost_ns.saturating_add(sample.lost_ns);
        lane.samples += 1;
        lane.max_ns = lane.max_ns.max(sample.value_ns);
        if lane.spec.is_part() || !self.has_moments {
            return None;
        }
        let number = lane.samples - 1;
        let is_kept = lane.largest.offer((sample.value_ns, Reverse(sample.at_ns), Reverse(number)));
        is_kept.then(|| lane.spike(sample.value_ns, sample.at_ns, number))
    }

    /// Per CPU: samples and the largest one so far.
    fn so_far(&self) -> Vec<(whylate_core::CpuId, u64, u64)> {
        let whole = self.lanes.iter().filter(|lane| !lane.spec.is_part());
        whole.map(|lane| (lane.spec.cpu, lane.samples, lane.max_ns)).collect()
    }

    fn take(&mut self, end_ns: u64) -> Batch {
        let start_ns = std::mem::replace(&mut self.interval_start_ns, end_ns);
        let hwlat = std::mem::take(&mut self.hwlat);
        let mut batch = Batch { start_ns, end_ns, hwlat, ..Batch::default() };
        for lane in &mut self.lanes {
            let histogram = std::mem::take(&mut lane.histogram);
            let gaps = self.looks_for_gaps.then(|| std::mem::take(&mut lane.gaps));
            let lost_ns = self.looks_for_gaps.then(|| std::mem::take(&mut lane.lost_ns));
            batch.intervals.push(Interval {
                cpu: lane.spec.cpu,
                start_ns,
                end_ns,
                series: lane.spec.series.clone(),
                samples: histogram.count(),
                sum_ns: u64::try_from(histogram.sum()).unwrap_or(u64::MAX),
                min_ns: histogram.min(),
                max_ns: histogram.max(),
                quantities: Quantities::default().with(GAPS, gaps).with(LOST_NS, lost_ns),
                histogram: histogram.buckets().collect(),
                ..Interval::default()
            });
            batch.spikes.append(&mut lane.take_spikes(self.spikes_kept));
        }
        batch
    }
}

impl Lane {
    fn spike(&self, latency_ns: u64, at_ns: u64, sample: u64) -> SpikeRecord {
        SpikeRecord { at_ns, latency_ns, sample, ..SpikeRecord::of(self.spec.cpu, self.spec.series.clone()) }
    }

    /// Ends the interval and returns its largest samples, largest first. The number to keep in the next one is given.
    fn take_spikes(&mut self, kept_max: usize) -> Vec<SpikeRecord> {
        let largest = std::mem::replace(&mut self.largest, Largest::new(kept_max));
        let spike = |(latency_ns, Reverse(at_ns), Reverse(sample))| self.spike(latency_ns, at_ns, sample);
        largest.into_descending().map(spike).collect()
    }
}

#[cfg(test)]
mod tests;
