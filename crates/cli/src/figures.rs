//! Collects what a probe hands over, for a result that is printed and not stored.

use crate::hook::Hook;
use crate::output;
use crate::progress::{self, Meter};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use whylate_bpf::{BpfError, CauseFinder};
use whylate_core::record::{CounterRecord, InterruptRecord, IpiRecord, SpikeRecord};
use whylate_core::result::ProbeResult;
use whylate_core::{CpuId, Facts, Nanos};
use whylate_probe::{Batch, Observer, ProbeSpec, Progress};
use whylate_stats::throttling::{self, Circumstances};
use whylate_stats::{ProbeShape, Summary, largest_spikes, number_events};

/// Follows one probe.
pub(crate) struct Figures {
    summaries: Vec<(CpuId, Summary)>,
    interrupts: Vec<InterruptRecord>,
    counters: Vec<CounterRecord>,
    meter: Meter,
    hook: Hook,
    causes: Option<CauseFinder>,
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
        let shape = match spec.period() {
            Some(period) => ProbeShape::Timer { period: Some(period) },
            None => ProbeShape::Stall,
        };
        let summary = |cpu| (cpu, Summary::new(cpu, shape).with_spikes_kept(spikes_kept));
        let summaries = spec.cpus.iter().map(summary).collect();
        Self {
            summaries,
            interrupts: Vec::new(),
            counters: Vec::new(),
            meter,
            hook,
            causes: None,
            asked_to_stop,
        }
    }

    /// Explains the spikes as they come.
    pub(crate) fn with_causes(mut self, causes: Option<CauseFinder>) -> Self {
        self.causes = causes;
        self
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
        let mut cpus = Vec::new();
        let mut spikes = Vec::new();
        for (cpu, summary) in self.summaries {
            let measured = summary.measured();
            let (result, mut found) = summary.finish();
            if let Some(causes) = &self.causes {
                causes.label(&mut found);
            }
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
            cpus.push(result);
            spikes.append(&mut found);
        }
        let mut spikes = largest_spikes(spikes, spikes_kept);
        number_events(&mut spikes);
        let ipis = self.causes.as_mut().and_then(|causes| causes.ipis().ok()).unwrap_or_default();
        let probe = ProbeResult { probe: spec.name().to_owned(), cpus, spikes, rates: Vec::new() };
        Collected { probe, interrupts: self.interrupts, counters: self.counters, ipis }
    }

    /// Causes that cannot be read any more are given up, which is said once.
    fn note_failure(&mut self, outcome: Option<Result<(), BpfError>>) {
        if let Some(Err(error)) = outcome {
            output::message(&format!("warning: causes are no longer found: {error}"));
            self.causes = None;
        }
    }

    fn summary(&mut self, cpu: CpuId) -> Option<&mut Summary> {
        self.summaries.iter_mut().find(|(of, _)| *of == cpu).map(|(_, summary)| summary)
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
}

impl Observer for Figures {
    fn progress(&mut self, progress: &Progress) {
        self.meter.advance(progress.elapsed, &progress::describe(progress));
    }

    fn batch(&mut self, batch: Batch) -> Result<(), String> {
        for interval in &batch.intervals {
            if let Some(summary) = self.summary(interval.cpu) {
                summary.add_interval(interval, None).map_err(|error| error.to_string())?;
            }
        }
        for spike in &batch.spikes {
            if let Some(summary) = self.summary(spike.cpu) {
                summary.add_spike(spike, None).map_err(|error| error.to_string())?;
            }
        }
        batch.interrupts.into_iter().for_each(|record| self.add_interrupts(record));
        batch.counters.iter().for_each(|record| self.add_counters(record));
        Ok(())
    }

    fn armed(&mut self, process: u32) {
        let outcome = self.causes.as_mut().map(|causes| causes.armed(process));
        self.note_failure(outcome);
    }

    fn spikes(&mut self, spikes: &[SpikeRecord]) {
        let outcome = self.causes.as_mut().map(|causes| causes.explain(spikes));
        self.note_failure(outcome);
    }

    fn first_spike(&mut self, latency: Nanos) {
        self.hook.fire(latency);
    }

    fn should_stop(&self) -> bool {
        self.asked_to_stop.load(Ordering::Relaxed)
    }
}
