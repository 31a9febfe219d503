//! Progress on standard error: a bar on a terminal, a line now and then elsewhere, nothing when quiet.

use crate::output;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::time::{Duration, Instant};
use whylate_core::Nanos;
use whylate_probe::Progress;
use whylate_stats::format_ns;

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
            Self::Bar(bar) => bar.set_prefix(text.to_owned()),
            Self::Lines { label, .. } => text.clone_into(label),
            Self::Quiet => {}
        }
    }

    /// How far it is: `done` of the total.
    pub(crate) fn advance(&mut self, done: Nanos, text: &str) {
        match self {
            Self::Bar(bar) => {
                bar.set_position(done.0 / 1_000_000);
                bar.set_message(text.to_owned());
            }
            Self::Lines { label, next } => {
                if Instant::now() >= *next {
                    *next = Instant::now() + LINE_EVERY;
                    output::message(&format!("{label} {text}"));
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

/// `max 12.3 us` over all CPUs, with the time gone by.
pub(crate) fn describe(progress: &Progress) -> String {
    let max = progress.cpus.iter().map(|(_, _, max)| *max).max().unwrap_or(0);
    format!("{:.0} s, max {}", progress.elapsed.as_secs_f64(), format_ns(max))
}
