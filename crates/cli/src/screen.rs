//! Follows a run, a probe or a load on the terminal: progress, the hook of the first spike, and the request to stop.

use crate::hook::Hook;
use crate::output;
use crate::progress::{self, Meter, Pace};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use whylate_core::figure;
use whylate_core::record::RateRecord;
use whylate_core::{Nanos, Warning};
use whylate_runner::{Audience, Progress, Stage};

pub(crate) struct Screen {
    meter: Meter,
    hook: Hook,
    asked_to_stop: Arc<AtomicBool>,
    /// The pace of a run; `None` for one probe or load, which reports its own elapsed time.
    pace: Option<Pace>,
    /// The duration of one probe or load.
    total: Nanos,
    /// The newest rate of a load.
    rate: String,
}

impl Screen {
    /// For a run whose repeats take `repeat` each.
    pub(crate) fn of_run(
        quiet: bool,
        repeat: Nanos,
        on_threshold: Option<String>,
        stop: Arc<AtomicBool>,
    ) -> Self {
        let pace = Some(Pace::new(repeat, Instant::now()));
        Self { pace, ..Self::of_one(quiet, repeat, on_threshold, stop) }
    }

    /// For one probe or load.
    pub(crate) fn of_one(
        quiet: bool,
        total: Nanos,
        on_threshold: Option<String>,
        asked_to_stop: Arc<AtomicBool>,
    ) -> Self {
        let (meter, hook) = (Meter::new(quiet), Hook::new(on_threshold));
        Self { meter, hook, asked_to_stop, pace: None, total, rate: String::new() }
    }

    /// Removes the progress; the hook's command has ended or is left running.
    pub(crate) fn finish(&mut self) {
        self.meter.finish();
        self.hook.wait();
    }
}

impl Audience for Screen {
    fn stage(&mut self, stage: &Stage<'_>) {
        if let Some(pace) = &mut self.pace {
            let now = Instant::now();
            pace.reach(stage.done, stage.total, now);
            self.meter.label(&format!("{}/{} {} {}", stage.done + 1, stage.total, stage.cell, stage.what));
            self.meter.advance(pace.fraction(now), "", pace.left(now).as_deref());
        }
    }

    fn progress(&mut self, progress: &Progress) {
        let text = if self.rate.is_empty() { progress::describe(progress) } else { self.rate.clone() };
        match &self.pace {
            Some(pace) => {
                let now = Instant::now();
                self.meter.advance(pace.fraction(now), &text, pace.left(now).as_deref());
            }
            None => self.meter.advance(progress::fraction(progress.elapsed, self.total), &text, None),
        }
    }

    fn first_spike(&mut self, latency: Nanos) {
        self.hook.fire(latency);
    }

    fn should_stop(&self) -> bool {
        self.asked_to_stop.load(Ordering::Relaxed)
    }

    fn said(&mut self, line: &str) {
        if let (Some(pace), false) = (&mut self.pace, matches!(self.meter, Meter::Quiet)) {
            // Each part of a search has its own number of repeats.
            pace.begin_again();
            output::message(line);
        }
    }

    fn rate(&mut self, unit: &str, rate: &RateRecord) {
        if self.pace.is_none() {
            self.rate = figure::rate(rate.value, unit);
        }
    }

    fn lost(&mut self, warning: &Warning) {
        output::message(&format!("warning: {}", warning.text));
    }
}
