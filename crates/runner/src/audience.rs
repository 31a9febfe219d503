//! The observer of a run, or of a probe or load alone: a terminal, or a test.

use whylate_core::record::{RateRecord, SpikeRecord};
use whylate_core::{Nanos, Warning};
use whylate_probe::{Happened, Progress, TaskLine, TriggerLine};

pub trait Audience {
    /// A new stage has begun; `done` of `total` repeats are complete.
    fn stage(&mut self, stage: &Stage<'_>);
    /// Called often while a probe measures, or a load runs without one.
    fn progress(&mut self, progress: &Progress);
    /// A probe saw its first latency above its break or threshold; called once per run.
    fn first_spike(&mut self, latency: Nanos);
    /// Called often: whether the user wants the run to end and keep what is done.
    fn should_stop(&self) -> bool;
    /// Whether only the user ends the run, so that this does not cut it short.
    fn decides_end(&self) -> bool {
        false
    }
    /// The state of watched tasks, up to 20 times a second.
    fn tasks(&mut self, _tasks: &[TaskLine]) {}
    /// The state of the triggers of a watch, before that of its tasks.
    fn triggers(&mut self, _triggers: &TriggerLine) {}
    /// A watched thread was late, or a trigger came.
    fn happened(&mut self, _happened: Happened) {}
    /// Spikes of a probe as they come.
    fn spikes(&mut self, _spikes: &[SpikeRecord]) {}
    /// What a search does next, and why.
    fn said(&mut self, _line: &str) {}
    /// What a load achieved in one interval.
    fn rate(&mut self, _unit: &str, _rate: &RateRecord) {}
    /// Something that was asked for cannot be done from here on.
    fn lost(&mut self, _warning: &Warning) {}
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stage<'a> {
    pub cell: &'a str,
    /// The repeat, from 1.
    pub repeat: u32,
    /// `noise floor`, `loads`, or the names of the probes.
    pub what: &'a str,
    /// Repeats of cells that are done.
    pub done: u32,
    /// Repeats of cells in all.
    pub total: u32,
}
