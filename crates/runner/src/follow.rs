//! Brings what the measuring threads of one group see to the one thread that owns the run directory.
//!
//! That thread also looks for causes and writes to the disk, and may be slow. What waits for it is bounded, so that
//! the threads that read the measuring processes' memory go on reading it. Spikes that find no room are not passed on;
//! they are stored nevertheless, without a cause.

use crate::error::RepeatError;
use crate::gpus::GpuWatch;
use std::cmp::Reverse;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, SyncSender};
use std::time::Instant;
use whylate_core::Nanos;
use whylate_core::order::InOrder;
use whylate_core::record::SpikeRecord;
use whylate_core::result::RunEnd;
use whylate_probe::{
    Batch, Happened, Observer, Outcome, ProbeError, ProbeKind, ProbeSpec, Progress, TaskLine, TriggerLine,
};
use whylate_store::RowKey;

pub(crate) const EVENTS_MAX: usize = 64;
/// The most spikes of 50 ms that are passed on, the largest first: far more than are explained for one CPU.
const PASSED_MAX: usize = 4_096;

/// What happened in one probe of the group.
pub(crate) enum ProbeEvent {
    Progress(Progress),
    Batch(usize, Box<Batch>),
    FirstSpike(Nanos),
    Spikes(usize, Vec<SpikeRecord>),
    Tasks(Vec<TaskLine>),
    Triggers(TriggerLine),
    Happened(Happened),
    Armed { index: usize, process: u32, start_ns: u64 },
    Ended(usize, Box<Result<Outcome, ProbeError>>),
}

/// The observer of one probe.
pub(crate) struct Forward<'a> {
    pub(crate) index: usize,
    pub(crate) events: SyncSender<ProbeEvent>,
    pub(crate) stop: &'a AtomicBool,
    /// How many probes that are not companions have not ended; `None` if this probe does not end with them.
    pub(crate) others: Option<&'a AtomicUsize>,
    /// Dropped when a companion is ready.
    pub(crate) ready: Option<Sender<()>>,
    /// Spikes that were not passed on.
    pub(crate) untold: &'a AtomicU64,
}

impl Forward<'_> {
    fn send(&self, event: ProbeEvent) {
        // The receiver outlives every probe of its group.
        let _ = self.events.send(event);
    }
}

impl Observer for Forward<'_> {
    fn progress(&mut self, progress: &Progress) {
        // The next one says the same.
        let _ = self.events.try_send(ProbeEvent::Progress(progress.clone()));
    }
    fn batch(&mut self, batch: Batch) -> Result<(), String> {
        self.send(ProbeEvent::Batch(self.index, Box::new(batch)));
        Ok(())
    }
    fn armed(&mut self, process: u32, start_ns: u64) {
        match self.ready.take() {
            // A companion has no process that measures. Dropping the sender ends the wait for it.
            Some(ready) => drop(ready),
            // Before anything else can end: its first spike needs it.
            None => self.send(ProbeEvent::Armed { index: self.index, process, start_ns }),
        }
    }
    fn first_spike(&mut self, latency: Nanos) {
        self.send(ProbeEvent::FirstSpike(latency));
    }
    fn spikes(&mut self, spikes: &[SpikeRecord]) {
        let mut passed = spikes.to_vec();
        if passed.len() > PASSED_MAX {
            passed.order_by_key(|spike| Reverse(spike.latency_ns));
            passed.truncate(PASSED_MAX);
        }
        if self.events.try_send(ProbeEvent::Spikes(self.index, passed)).is_err() {
            self.untold.fetch_add(spikes.len() as u64, Ordering::Relaxed);
        }
    }
    fn tasks(&mut self, tasks: &[TaskLine]) {
        // The next one says the same, and more.
        let _ = self.events.try_send(ProbeEvent::Tasks(tasks.to_vec()));
    }
    fn triggers(&mut self, triggers: &TriggerLine) {
        // The next one says the same, and more.
        let _ = self.events.try_send(ProbeEvent::Triggers(triggers.clone()));
    }
    fn happened(&mut self, happened: Happened) {
        // The thread that reads the records never waits; an audience that is this slow has no time for actions.
        let _ = self.events.try_send(ProbeEvent::Happened(happened));
    }
    fn should_stop(&self) -> bool {
        let others_ended = self.others.is_some_and(|others| others.load(Ordering::Relaxed) == 0);
        others_ended || self.stop.load(Ordering::Relaxed)
    }
}

/// The state of watching a group.
pub(crate) struct Watch<'a> {
    pub(crate) keys: &'a [Arc<RowKey>],
    pub(crate) specs: &'a [ProbeSpec],
    pub(crate) stop: &'a AtomicBool,
    pub(crate) deadline: Instant,
    /// Why the group ends early; the first reason counts.
    pub(crate) end: Option<Result<RunEnd, RepeatError>>,
    pub(crate) begun: Instant,
    pub(crate) flushed: Instant,
    /// When the treatments were last found to hold.
    pub(crate) held: Instant,
    pub(crate) gpus: Option<GpuWatch>,
}

impl Watch<'_> {
    /// Whether a probe finds the causes of its spikes itself, like that of watched tasks.
    pub(crate) fn explains_itself(&self, index: usize) -> bool {
        matches!(self.specs[index].kind, ProbeKind::Task(_))
    }

    /// Whether it is such a probe, and others measure at the same time.
    pub(crate) fn is_alongside(&self, index: usize) -> bool {
        self.specs.len() > 1 && self.explains_itself(index)
    }

    pub(crate) fn end_with(&mut self, end: Result<RunEnd, RepeatError>) {
        self.stop.store(true, Ordering::Relaxed);
        self.end.get_or_insert(end);
    }
}
