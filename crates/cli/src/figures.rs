//! Collects what a probe hands over, for a result that is printed and not stored.

use crate::hook::Hook;
use crate::progress::{self, Meter};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use whylate_core::result::ProbeResult;
use whylate_core::{CpuId, Facts, Nanos};
use whylate_probe::{Batch, Observer, ProbeSpec, Progress};
use whylate_stats::throttling::{self, Circumstances};
use whylate_stats::{ProbeShape, Summary, largest_spikes};

/// Follows one probe.
pub(crate) struct Figures {
    summaries: Vec<(CpuId, Summary)>,
    involuntary_switches: Vec<(CpuId, u64)>,
    meter: Meter,
    hook: Hook,
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
        Self { summaries, involuntary_switches: Vec::new(), meter, hook, asked_to_stop }
    }

    /// The figures; the hook's command has ended or is left alone.
    pub(crate) fn finish(
        mut self,
        spec: &ProbeSpec,
        facts: &Facts,
        is_realtime: bool,
        spikes_kept: usize,
    ) -> ProbeResult {
        self.meter.finish();
        self.hook.wait();
        let mut cpus = Vec::new();
        let mut spikes = Vec::new();
        for (cpu, summary) in self.summaries {
            let measured = summary.measured();
            let (result, mut found) = summary.finish();
            let switches =
                self.involuntary_switches.iter().find(|(of, _)| *of == cpu).map(|(_, count)| *count);
            throttling::label(
                &mut found,
                &Circumstances {
                    rt_runtime_us: facts.settings.rt_runtime_us,
                    rt_period_us: facts.settings.rt_period_us,
                    fair_server: throttling::fair_server_in(&facts.kernel.release),
                    measured,
                    realtime: is_realtime,
                    involuntary_switches: switches,
                },
            );
            cpus.push(result);
            spikes.append(&mut found);
        }
        let spikes = largest_spikes(spikes, spikes_kept);
        ProbeResult { probe: spec.name().to_owned(), cpus, spikes, rates: Vec::new() }
    }

    fn summary(&mut self, cpu: CpuId) -> Option<&mut Summary> {
        self.summaries.iter_mut().find(|(of, _)| *of == cpu).map(|(_, summary)| summary)
    }
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
        let switches = batch.counters.iter().filter_map(|it| Some((it.cpu, it.involuntary_switches?)));
        self.involuntary_switches.extend(switches);
        Ok(())
    }

    fn first_spike(&mut self, latency: Nanos) {
        self.hook.fire(latency);
    }

    fn should_stop(&self) -> bool {
        self.asked_to_stop.load(Ordering::Relaxed)
    }
}
