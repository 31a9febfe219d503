//! The results of a probe go into the sink, piece by piece, so that memory stays bounded.

use crate::follow::Watch;
use crate::repeat::Repeat;
use std::sync::Arc;
use std::time::Duration;
use whylate_core::result::RunEnd;
use whylate_core::warning::push_once;
use whylate_core::{Nanos, Warning, WarningCode};
use whylate_probe::{Batch, Outcome, ProbeKind, ProbeSpec, store_after};
use whylate_store::{RowKey, Span, StoreError};

/// How often results are made safe on disk.
const FLUSH_EVERY: Duration = Duration::from_secs(60);
/// How long after the last flush, which was at `elapsed`, the next one is made: earlier at first if tasks are watched.
/// If a probe of our own measures, or a trace has to be stopped in time, the writing would disturb.
pub(crate) fn flush_after(specs: &[ProbeSpec], elapsed: Duration) -> Duration {
    let is_watch = specs.iter().all(|spec| matches!(spec.kind, ProbeKind::Task(_)));
    if is_watch { store_after(elapsed, FLUSH_EVERY) } else { FLUSH_EVERY }
}

/// After this many spikes the size of the sink is checked.
const SPIKES_AT_ONCE: usize = 1_000;

impl Repeat<'_> {
    /// Keeps a batch; intervals come first: a spike without its interval would not count.
    pub(crate) fn keep(
        &mut self,
        key: &Arc<RowKey>,
        spec: &ProbeSpec,
        batch: Batch,
    ) -> Result<(), StoreError> {
        self.causing.count_samples(spec, &batch.intervals);
        let span = Span { start_ns: batch.start_ns, end_ns: batch.end_ns };
        for (cpu, kind, record) in &batch.latency_records {
            let directory = self.sink.directory();
            if let Some(Err(error)) = directory.map(|it| it.add_latency_record(key, *cpu, *kind, record)) {
                let text = format!("the record of a largest latency could not be stored: {error}");
                push_once(self.warnings, Warning::new(WarningCode::LatencyRecordsNotKept, text));
            }
        }
        let rows = self.sink.rows();
        rows.add_intervals(key, batch.intervals);
        rows.add_interrupts(key, span, batch.interrupts);
        rows.add_counters(key, span, batch.counters);
        rows.add_hwlat(key, batch.hwlat);
        rows.add_tasks(key, span, batch.tasks);
        rows.add_audit(key, span, batch.audit);
        rows.add_triggers(key, span, batch.triggers.0, batch.triggers.1);
        rows.add_chains(key, span, batch.chains.0, batch.chains.1);
        rows.add_sources_of_series(key, span, batch.sources);
        rows.add_causes(key, batch.causes);
        for spikes in batch.spikes.chunks(SPIKES_AT_ONCE) {
            let causes = self.causing.take(spikes);
            self.sink.rows().add_causes(key, causes);
            self.sink.rows().add_spikes(key, spikes.iter().cloned());
            self.sink.flush_if_large()?;
        }
        self.sink.flush_if_large()
    }

    pub(crate) fn ended(&mut self, index: usize, outcome: Outcome, watch: &mut Watch<'_>) {
        for warning in outcome.warnings {
            if !self.warnings.iter().any(|known| known.code == warning.code) {
                push_once(self.warnings, warning);
            }
        }
        if let Some(Nanos(latency_ns)) = outcome.broke {
            let break_ns = watch.specs[index].break_above().map(|it| it.0);
            let probe = watch.keys[index].probe.clone();
            watch.end_with(Ok(RunEnd::BrokeAbove { probe, latency_ns, break_ns }));
        }
    }
}
