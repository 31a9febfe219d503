//! Progress on standard error: a bar on a terminal, an occasional line elsewhere, nothing when quiet.

use crate::output;
use indicatif::{ProgressBar, ProgressStyle};
use ratatui::crossterm::terminal::size;
use ratatui::text::Line;
use std::io::IsTerminal;
use std::time::{Duration, Instant};
use whylate_core::figure::nanoseconds;
use whylate_core::{Nanos, text};
use whylate_runner::Progress;

/// How often a line is written without a terminal.
const LINE_EVERY: Duration = Duration::from_secs(10);
const STEPS: u64 = 1_000;
/// The widest bar, and the narrowest that shows anything.
const BAR_WIDTHS: (usize, usize) = (30, 8);
/// The width of the text around a bar; a line that fills the terminal would wrap.
const AROUND_BAR: usize = 4;
const EDGE: usize = 2;
/// The least width of a label and of a text in a narrow line.
const LABEL_LEAST: usize = 12;
const TEXT_LEAST: usize = 9;
/// A part that takes longer than expected is not complete before its end.
const NEARLY: f64 = 0.97;

pub(crate) enum Meter {
    Bar { bar: ProgressBar, label: String, width: usize },
    Lines { label: String, next: Instant },
    Quiet,
}

impl Meter {
    pub(crate) fn new(quiet: bool) -> Self {
        if quiet {
            return Self::Quiet;
        }
        if !std::io::stderr().is_terminal() {
            return Self::Lines { label: String::new(), next: Instant::now() + LINE_EVERY };
        }
        Self::Bar { bar: ProgressBar::new(STEPS), label: String::new(), width: usize::MAX }
    }

    pub(crate) fn label(&mut self, text: &str) {
        match self {
            Self::Bar { label, .. } => *label = text::line(text),
            Self::Lines { label, .. } => text.clone_into(label),
            Self::Quiet => {}
        }
    }

    /// Updates the progress: the part that is done, in [0, 1], and the time left, which no width cuts off.
    pub(crate) fn advance(&mut self, done: f64, text: &str, left: Option<&str>) {
        match self {
            Self::Bar { bar, label, width } => {
                let terminal = size().map_or(usize::MAX, |(columns, _)| usize::from(columns));
                let line = MeterLine::fit(label, &text::line(text), left, terminal);
                if line.bar != *width {
                    *width = line.bar;
                    set_width(bar, line.bar);
                }
                bar.set_position((done * STEPS as f64) as u64);
                bar.set_prefix(line.label);
                bar.set_message(line.text);
            }
            Self::Lines { label, next } => {
                if Instant::now() >= *next {
                    *next = Instant::now() + LINE_EVERY;
                    output::message(format!("{label} {}", beside(text, left)).trim());
                }
            }
            Self::Quiet => {}
        }
    }

    pub(crate) fn finish(&mut self) {
        if let Self::Bar { bar, .. } = self {
            bar.finish_and_clear();
        }
    }
}

/// A bar of that width, or none.
fn set_width(bar: &ProgressBar, width: usize) {
    let template = match width {
        0 => "{prefix} {msg}".to_owned(),
        width => format!("{{prefix}} [{{bar:{width}}}] {{msg}}"),
    };
    if let Ok(style) = ProgressStyle::with_template(&template) {
        bar.set_style(style.progress_chars("━╸─"));
    }
}

fn beside(text: &str, left: Option<&str>) -> String {
    let parts = [Some(text).filter(|text| !text.is_empty()), left];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// A line of progress that fits a terminal. What a narrow one lacks room for, in this order: the bar, the end of the label, the
/// end of the text, the text.
#[derive(Debug, PartialEq, Eq)]
struct MeterLine {
    label: String,
    /// Its width; 0 for none.
    bar: usize,
    text: String,
}

impl MeterLine {
    fn fit(label: &str, text: &str, left: Option<&str>, width: usize) -> Self {
        let wide = |text: &str| Line::raw(text).width();
        let room = width.saturating_sub(EDGE);
        let of_left = left.map_or(0, |left| wide(left) + 2);
        let of_text = room.saturating_sub(wide(label).min(LABEL_LEAST) + 1 + of_left);
        let text = if of_text < TEXT_LEAST.min(wide(text)) { String::new() } else { cut(text, of_text) };
        let text = beside(&text, left);
        let label = match room.saturating_sub(wide(&text) + 1) {
            0 | 1 => String::new(),
            room => cut(label, room),
        };
        let bar = room.saturating_sub(wide(&label) + AROUND_BAR + wide(&text)).min(BAR_WIDTHS.0);
        Self { label, bar: if bar < BAR_WIDTHS.1 { 0 } else { bar }, text }
    }
}

/// As much of a line as fits; ends in `…` if it is cut.
fn cut(text: &str, width: usize) -> String {
    if Line::raw(text).width() <= width {
        return text.to_owned();
    }
    let mut fits = text.to_owned();
    while fits.pop().is_some() && Line::raw(fits.as_str()).width() >= width {}
    format!("{fits}…")
}

/// The progress of a run: by the repeats that are done, and by their duration.
#[derive(Debug)]
pub(crate) struct Pace {
    /// The planned duration of a repeat.
    planned: Duration,
    /// Repeats: done at the start, done now, and planned.
    first: u32,
    done: u32,
    total: u32,
    began: Instant,
    repeat_began: Instant,
}

impl Pace {
    pub(crate) fn new(planned: Nanos, now: Instant) -> Self {
        let planned = Duration::from_nanos(planned.0.max(1));
        Self { planned, first: 0, done: 0, total: 0, began: now, repeat_began: now }
    }

    /// Counts from 0 again.
    pub(crate) fn begin_again(&mut self) {
        self.total = 0;
    }

    pub(crate) fn reach(&mut self, done: u32, total: u32, now: Instant) {
        if self.total == 0 {
            (self.first, self.done, self.began, self.repeat_began) = (done, done, now, now);
        }
        if done > self.done {
            (self.done, self.repeat_began) = (done, now);
        }
        self.total = total;
    }

    /// The duration of a repeat: as measured so far, before that as planned.
    fn repeat(&self) -> Duration {
        match self.done - self.first {
            0 => self.planned,
            done => (self.repeat_began - self.began) / done,
        }
    }

    /// The part that is done; less than 1 until the last repeat is.
    pub(crate) fn fraction(&self, now: Instant) -> f64 {
        let in_repeat = (now - self.repeat_began).as_secs_f64() / self.repeat().as_secs_f64().max(1e-9);
        (f64::from(self.done) + in_repeat.min(NEARLY)) / f64::from(self.total.max(1))
    }

    /// `about 40 s left`; by the plan until a repeat is done.
    pub(crate) fn left(&self, now: Instant) -> Option<String> {
        let all = self.repeat() * self.total.saturating_sub(self.done);
        let left = all.saturating_sub(now - self.repeat_began).as_secs_f64().ceil();
        (self.total > 0).then(|| match left {
            ..1.0 => "nearly done".to_owned(),
            1.0..100.0 => format!("about {left} s left"),
            _ => format!("about {} left", nanoseconds((left * 1e9) as u64)),
        })
    }
}

/// The progress of something with a requested duration.
pub(crate) fn fraction(elapsed: Nanos, total: Nanos) -> f64 {
    (elapsed.0 as f64 / total.0.max(1) as f64).min(NEARLY)
}

/// The elapsed time, and the largest sample of all CPUs once there is one: `3 s, max 12.3 us`.
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
    use whylate_testing::says;

    #[test]
    fn a_run_is_not_done_before_its_end_and_its_estimate_follows_its_pace() {
        let begin = Instant::now();
        let at = |seconds: u64| begin + Duration::from_secs(seconds);
        // Planned: 10 repeats of 1 s. Each takes 2 s.
        let mut pace = Pace::new(Nanos(1_000_000_000), begin);
        assert!(pace.left(at(1)).is_none());
        pace.reach(0, 10, at(0));
        assert_eq!(pace.left(at(1)), Some("about 9 s left".to_owned()));
        assert!(pace.fraction(at(20)) < 0.1);
        for done in 1..10 {
            pace.reach(done, 10, at(2 * u64::from(done)));
            let half = at(2 * u64::from(done) + 1);
            assert!((pace.fraction(half) - (f64::from(done) + 0.5) / 10.0).abs() < 1e-9);
            let left = 2 * (10 - u64::from(done)) - 1;
            assert_eq!(pace.left(half), Some(format!("about {left} s left")));
        }
        assert!(pace.fraction(at(1_000)) < 1.0);
        assert!(fraction(Nanos(7), Nanos(5)) < 1.0);
    }

    #[test]
    fn a_text_that_is_cut_says_so() {
        assert_eq!(cut("3 threads", 9), "3 threads");
        assert_eq!(cut("3 threads, worst 4.10 ms", 9), "3 thread…");
        assert_eq!(cut("3 threads", 0), "…");
    }

    #[test]
    fn a_narrow_line_keeps_the_time_that_is_left() {
        let label = "3/24 cyclictest-like + memory: timer";
        let at = |width| MeterLine::fit(label, "3 s, max 12.3 us", Some("about 4.00 min left"), width);
        let wide = at(120);
        assert_eq!((wide.label.as_str(), wide.bar), (label, BAR_WIDTHS.0));
        for width in [20, 30, 40, 60, 80, 100, 120] {
            let line = at(width);
            let bar = if line.bar > 0 { line.bar + AROUND_BAR } else { 1 };
            let all = line.label.chars().count() + bar + line.text.chars().count();
            assert!(line.text.ends_with("about 4.00 min left") && all < width.max(22), "{width}: {line:?}");
            assert!(width < 60 || line.text.contains("max 12.3 us"), "{width}: {line:?}");
            assert!(width < 40 || line.label.starts_with("3/24 "), "{width}: {line:?}");
        }
        let none = MeterLine::fit("", "3 s", None, 80);
        assert_eq!((none.label.as_str(), none.bar, none.text.as_str()), ("", BAR_WIDTHS.0, "3 s"));
    }

    #[test]
    fn a_maximum_is_named_once_there_is_a_sample() {
        let described = |cpus| {
            let progress = Progress { elapsed: Nanos(3_000_000_000), duration: Nanos(5_000_000_000), cpus };
            describe(&progress)
        };
        assert_eq!(described(vec![(CpuId(0), 0, 0), (CpuId(1), 0, 0)]), "3 s");
        assert!(says("s-max-us", described(vec![(CpuId(0), 7, 12_300), (CpuId(1), 0, 0)])));
    }
}
