//! Brings what the measuring threads of one group see to the one thread that owns the run directory.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use whylate_core::Nanos;
use whylate_core::record::SpikeRecord;
use whylate_probe::{Batch, Observer, Outcome, ProbeError, Progress};

/// What happened in one probe of the group.
pub(crate) enum Event {
    Progress(Progress),
    Batch(usize, Box<Batch>),
    FirstSpike(Nanos),
    /// The measuring process is ready.
    Armed(usize, u32),
    /// Spikes as they come.
    Spikes(Vec<SpikeRecord>),
    Ended(usize, Box<Result<Outcome, ProbeError>>),
}

/// The observer of one probe.
pub(crate) struct Forward<'a> {
    pub(crate) index: usize,
    pub(crate) events: Sender<Event>,
    pub(crate) stop: &'a AtomicBool,
}

impl Forward<'_> {
    fn send(&self, event: Event) {
        // The receiver outlives every probe of its group.
        let _ = self.events.send(event);
    }
}

impl Observer for Forward<'_> {
    fn progress(&mut self, progress: &Progress) {
        self.send(Event::Progress(progress.clone()));
    }
    fn batch(&mut self, batch: Batch) -> Result<(), String> {
        self.send(Event::Batch(self.index, Box::new(batch)));
        Ok(())
    }
    fn first_spike(&mut self, latency: Nanos) {
        self.send(Event::FirstSpike(latency));
    }
    fn armed(&mut self, process: u32) {
        self.send(Event::Armed(self.index, process));
    }
    fn spikes(&mut self, spikes: &[SpikeRecord]) {
        self.send(Event::Spikes(spikes.to_vec()));
    }
    fn should_stop(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}
