//! Collects what a probe hands over, for a result that is printed and not stored.

use crate::hook::Hook;
use crate::output;
use crate::progress::{self, Meter};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use whylate_core::record::{CounterRecord, InterruptRecord, IpiRecord, SpikeRecord};
use whylate_core::result::ProbeResult;
use whylate_core::{CpuId, CpuSet, Facts, Nanos, SeriesName, Warning};
use whylate_probe::{Batch, LaneSpec, Observer, ProbeSpec, Progress};
use whylate_runner::CauseSearch;
use whylate_stats::throttling::{self, Circumstances};
use whylate_stats::{SampleShape, Summary, join_parts, largest_spikes, number_events};

/// One series of the probe on one CPU.
struct Series {
    lane: LaneSpec,
    /// As results name it.
    name: String,
    summary: Summary,
}

impl Series {
    fn new(spec: &ProbeSpec, lane: LaneSpec, spikes_kept: usize) -> Self {
        let name = SeriesName::in_probe(spec.name(), lane.series.as_deref());
        let facts = name.facts().expect("a probe that can be resolved is in the table of probes");
        let shape = SampleShape { period: spec.period(), ..SampleShape::of(facts) };
        let summary = Summary::new(lane.cpu, shape).of_series(name).with_spikes_kept(spikes_kept);
        Self { name: name.to_string(), lane, summary }
    }
}

/// Follows one probe.
pub(crate) struct Figures {
    summaries: Vec<Series>,
    interrupts: Vec<InterruptRecord>,
    counters: Vec<CounterRecord>,
    meter: Meter,
    hook: Hook,
    causes: CauseSearch,
    /// What is missing of the causes.
    losses: Vec<Warning>,
    cpus: CpuSet,
    asked_to_stop: Arc<AtomicBool>,
}

impl Figures {
    pub(crate) fn new(
        spec: &ProbeSpec,
        spikes_kept: usize,
        meter: Meter,
        hook: Hook,
        asked_to_stop: Arc<AtomicBool>,
    ) -> Self {
        let summaries = spec.lanes().into_iter().map(|lane| Series::new(spec, lane, spikes_kept)).collect();
        Self {
            summaries,
            interrupts: Vec::new(),
            counters: Vec::new(),
            meter,
            hook,
            causes: CauseSearch::default(),
            losses: Vec::new(),
            cpus: spec.cpus.clone(),
            asked_to_stop,
        }
    }

    /// Explains the spikes as they come.
    pub(crate) fn with_causes(mut self, causes: CauseSearch) -> Self {
        self.causes = causes;
        self
    }

    /// Lets the search for causes do something; where that fails, the terminal is told at once.
    fn search(&mut self, act: impl FnOnce(&mut CauseSearch, &mut Vec<Warning>)) {
        let told = self.losses.len();
        act(&mut self.causes, &mut self.losses);
        for warning in &self.losses[told..] {
            output::message(&format!("warning: {}", warning.text));
        }
    }

    /// The figures; the hook's command has ended or is left alone.
    pub(crate) fn finish(
        mut self,
        spec: &ProbeSpec,
        facts: &Facts,
        is_realtime: bool,
        spikes_kept: usize,
    ) -> Collected {
        self.meter.finish();
        self.hook.wait();
        let mut results = Vec::new();
        let mut spikes = Vec::new();
        for Series { lane: LaneSpec { cpu, .. }, name, summary } in self.summaries {
            let measured = summary.measured();
            let (result, mut found) = summary.finish();
            self.causes.label(&mut found);
            let counters = self.counters.iter().find(|counters| counters.cpu == cpu);
            throttling::label(
                &mut found,
                &Circumstances {
                    rt_runtime_us: facts.settings.rt_runtime_us,
                    rt_period_us: facts.settings.rt_period_us,
                    fair_server: throttling::fair_server_in(&facts.kernel.release),
                    measured,
                    realtime: is_realtime,
                    involuntary_switches: counters.and_then(|counters| counters.involuntary_switches),
                },
            );
            results.push((name, result));
            spikes.append(&mut found);
        }
        let mut spikes = largest_spikes(spikes, spikes_kept);
        number_events(&mut spikes);
        let ipis = self.causes.ipis(&mut self.losses);
        self.losses.extend(self.causes.losses());
        let (probe, cpus) = (spec.name().to_owned(), join_parts(results));
        let probe = ProbeResult { probe, cpus, spikes, rates: Vec::new() };
        Collected { probe, interrupts: self.interrupts, counters: self.counters, ipis, losses: self.losses }
    }

    fn summary(&mut self, cpu: CpuId, series: Option<&str>) -> Option<&mut Summary> {
        let is_it = |known: &&mut Series| known.lane.cpu == cpu && known.lane.series.as_deref() == series;
        self.summaries.iter_mut().find(is_it).map(|known| &mut known.summary)
    }
}

impl Figures {
    fn add_interrupts(&mut self, record: InterruptRecord) {
        let known =
            self.interrupts.iter_mut().find(|known| known.cpu == record.cpu && known.line == record.line);
        match known {
            Some(known) => known.count += record.count,
            None => self.interrupts.push(record),
        }
    }

    fn add_counters(&mut self, record: &CounterRecord) {
        let Some(known) = self.counters.iter_mut().find(|known| known.cpu == record.cpu) else {
            self.counters.push(record.clone());
            return;
        };
        add(&mut known.steal_ns, record.steal_ns);
        add(&mut known.smis, record.smis);
        add(&mut known.involuntary_switches, record.involuntary_switches);
        add(&mut known.page_faults, record.page_faults);
    }
}

/// Adds a count; one that is never there stays absent.
fn add(total: &mut Option<u64>, count: Option<u64>) {
    *total = total.map_or(count, |total| Some(total + count.unwrap_or(0)));
}

/// What was collected.
pub(crate) struct Collected {
    pub(crate) probe: ProbeResult,
    pub(crate) interrupts: Vec<InterruptRecord>,
    pub(crate) counters: Vec<CounterRecord>,
    pub(crate) ipis: Vec<IpiRecord>,
    /// What is missing of the causes.
    pub(crate) losses: Vec<Warning>,
}

impl Observer for Figures {
    fn progress(&mut self, progress: &Progress) {
        self.meter.advance(progress.elapsed, &progress::describe(progress));
    }

    fn batch(&mut self, batch: Batch) -> Result<(), String> {
        for interval in &batch.intervals {
            if let Some(summary) = self.summary(interval.cpu, interval.series.as_deref()) {
                summary.add_interval(interval, None).map_err(|error| error.to_string())?;
            }
        }
        for spike in &batch.spikes {
            if let Some(summary) = self.summary(spike.cpu, spike.series.as_deref()) {
                summary.add_spike(spike, None).map_err(|error| error.to_string())?;
            }
        }
        batch.interrupts.into_iter().for_each(|record| self.add_interrupts(record));
        batch.counters.iter().for_each(|record| self.add_counters(record));
        Ok(())
    }

    fn armed(&mut self, process: u32) {
        let cpus = self.cpus.clone();
        self.search(|causes, losses| causes.armed(&cpus, process, losses));
    }

    fn spikes(&mut self, spikes: &[SpikeRecord]) {
        self.search(|causes, losses| causes.explain(spikes, losses));
    }

    fn first_spike(&mut self, latency: Nanos) {
        self.hook.fire(latency);
    }

    fn should_stop(&self) -> bool {
        self.asked_to_stop.load(Ordering::Relaxed)
    }
}
