//! Follows a run, a probe or a load on the terminal: progress, the hook of the first spike, and the wish to stop.

use crate::hook::Hook;
use crate::output;
use crate::progress::{self, Meter};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use whylate_core::figure;
use whylate_core::record::RateRecord;
use whylate_core::{Nanos, Warning};
use whylate_runner::{Audience, Progress, Stage};

/// Shows how far something is.
pub(crate) struct Screen {
    meter: Meter,
    hook: Hook,
    asked_to_stop: Arc<AtomicBool>,
    /// When it began; `None` for one probe or load, which says itself how long it has run.
    run_began: Option<Instant>,
    /// The newest rate of a load.
    rate: String,
}

impl Screen {
    /// Of a run that takes `total`.
    pub(crate) fn of_run(
        quiet: bool,
        total: Nanos,
        on_threshold: Option<String>,
        stop: Arc<AtomicBool>,
    ) -> Self {
        Self { run_began: Some(Instant::now()), ..Self::of_one(quiet, total, on_threshold, stop) }
    }

    /// Of one probe or load.
    pub(crate) fn of_one(
        quiet: bool,
        total: Nanos,
        on_threshold: Option<String>,
        asked_to_stop: Arc<AtomicBool>,
    ) -> Self {
        let (meter, hook) = (Meter::new(quiet, total), Hook::new(on_threshold));
        Self { meter, hook, asked_to_stop, run_began: None, rate: String::new() }
    }

    /// Removes the progress; the hook's command has ended or is left alone.
    pub(crate) fn finish(&mut self) {
        self.meter.finish();
        self.hook.wait();
    }
}

impl Audience for Screen {
    fn stage(&mut self, stage: &Stage<'_>) {
        if let Some(began) = self.run_began {
            self.meter.label(&format!("{} {}/{} {}", stage.cell, stage.done + 1, stage.total, stage.what));
            self.meter.advance(Nanos(began.elapsed().as_nanos() as u64), "");
        }
    }

    fn progress(&mut self, progress: &Progress) {
        let elapsed = self.run_began.map(|began| Nanos(began.elapsed().as_nanos() as u64));
        let text = if self.rate.is_empty() { progress::describe(progress) } else { self.rate.clone() };
        self.meter.advance(elapsed.unwrap_or(progress.elapsed), &text);
    }

    fn first_spike(&mut self, latency: Nanos) {
        self.hook.fire(latency);
    }

    fn should_stop(&self) -> bool {
        self.asked_to_stop.load(Ordering::Relaxed)
    }

    fn rate(&mut self, unit: &str, rate: &RateRecord) {
        if self.run_began.is_none() {
            self.rate = figure::rate(rate.value, unit);
        }
    }

    fn lost(&mut self, warning: &Warning) {
        output::message(&format!("warning: {}", warning.text));
    }
}
