//! Progress on standard error: a bar on a terminal, a line now and then elsewhere, nothing when quiet.

use crate::output;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::time::{Duration, Instant};
use whylate_core::figure::nanoseconds;
use whylate_core::{Nanos, text};
use whylate_runner::Progress;

/// How often a line is written where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// Shows how far something is.
pub(crate) enum Meter {
    Bar(ProgressBar),
    Lines { label: String, next: Instant },
    Quiet,
}

impl Meter {
    /// A meter for something that takes `total`.
    pub(crate) fn new(quiet: bool, total: Nanos) -> Self {
        if quiet {
            return Self::Quiet;
        }
        if !std::io::stderr().is_terminal() {
            return Self::Lines { label: String::new(), next: Instant::now() + LINE_EVERY };
        }
        let bar = ProgressBar::new(total.0 / 1_000_000);
        if let Ok(style) = ProgressStyle::with_template("{prefix} [{bar:30}] {msg}") {
            bar.set_style(style.progress_chars("━╸─"));
        }
        Self::Bar(bar)
    }

    /// What is being done now.
    pub(crate) fn label(&mut self, text: &str) {
        match self {
            Self::Bar(bar) => bar.set_prefix(text::line(text)),
            Self::Lines { label, .. } => text.clone_into(label),
            Self::Quiet => {}
        }
    }

    /// How far it is: `done` of the total.
    pub(crate) fn advance(&mut self, done: Nanos, text: &str) {
        match self {
            Self::Bar(bar) => {
                bar.set_position(done.0 / 1_000_000);
                bar.set_message(text::line(text));
            }
            Self::Lines { label, next } => {
                if Instant::now() >= *next {
                    *next = Instant::now() + LINE_EVERY;
                    output::message(format!("{label} {text}").trim());
                }
            }
            Self::Quiet => {}
        }
    }

    /// Removes the bar.
    pub(crate) fn finish(&mut self) {
        if let Self::Bar(bar) = self {
            bar.finish_and_clear();
        }
    }
}

/// The time gone by, and the largest sample of all CPUs once there is one: `3 s, max 12.3 us`.
pub(crate) fn describe(progress: &Progress) -> String {
    let elapsed = format!("{:.0} s", progress.elapsed.as_secs_f64());
    let max = progress.cpus.iter().filter(|(_, samples, _)| *samples > 0).map(|(_, _, max)| *max).max();
    match max {
        Some(max) => format!("{elapsed}, max {}", nanoseconds(max)),
        None => elapsed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use whylate_core::CpuId;

    #[test]
    fn a_maximum_is_named_once_there_is_a_sample() {
        let described = |cpus| {
            let progress = Progress { elapsed: Nanos(3_000_000_000), duration: Nanos(5_000_000_000), cpus };
            describe(&progress)
        };
        assert_eq!(described(vec![(CpuId(0), 0, 0), (CpuId(1), 0, 0)]), "3 s");
        assert_eq!(described(vec![(CpuId(0), 7, 12_300), (CpuId(1), 0, 0)]), "3 s, max 12.3 us");
    }
}
