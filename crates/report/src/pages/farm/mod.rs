//! A lake on a web server: the wall of its boards, one board, two groups of runs.

mod board;
mod compare;
mod wall;

pub use board::board;
pub use compare::{FarmGroups, farm_compare, farm_groups};
pub use wall::wall;

use crate::section::{Page, Tone};
use whylate_core::figure::nanoseconds_f64;
use whylate_core::result::{FarmAlarm, FarmRun, Verdict};

/// The remark on quantiles of recorded samples.
const LEFT_OUT: &str = "missed periods left out";

/// Texts of a lake may have any length.
const TEXT_MAX: usize = 200;

/// The source and age of answers.
#[derive(Clone, Debug, Default)]
pub struct FarmAnswer {
    pub lake: String,
    /// When the lake was asked: `asked 3 min ago`.
    pub asked: String,
    /// Seconds since 1970, for the age of runs.
    pub now_s: u64,
    /// The objects that it lacks, one line each.
    pub damaged: Vec<String>,
}

impl FarmAnswer {
    fn page(&self, title: impl Into<String>) -> Page {
        Page {
            origin: format!("farm in {}", self.lake),
            title: title.into(),
            about: vec![vec![self.asked.clone()]],
            failures: self.damaged.clone(),
            ..Page::default()
        }
    }
}

/// A page that says why it has no other contents.
pub fn notice(title: &str, lines: Vec<String>) -> Page {
    Page { origin: "whylate serve".to_owned(), title: title.to_owned(), failures: lines, ..Page::default() }
}

/// Sign, word and tone of a verdict.
fn state(verdict: Option<Verdict>) -> (&'static str, &'static str, Tone) {
    match verdict {
        Some(Verdict::Pass) => ("✓", "pass", Tone::Good),
        Some(Verdict::Fail) => ("✗", "fail", Tone::Bad),
        Some(Verdict::Incomplete) => ("!", "incomplete", Tone::Warn),
        Some(Verdict::NoLimit) => ("–", "no limit", Tone::Plain),
        None => ("–", "no verdict", Tone::Plain),
    }
}

/// `3 days ago`.
fn age(run: &FarmRun, now_s: u64) -> String {
    let counted = |count: u64, one: &str| format!("{} ago", crate::words::counted(count, one));
    match now_s.saturating_sub(run.started_s) {
        0..120 => "just now".to_owned(),
        seconds @ 120..7_200 => counted(seconds / 60, "minute"),
        seconds @ 7_200..172_800 => counted(seconds / 3_600, "hour"),
        seconds => counted(seconds / 86_400, "day"),
    }
}

/// Kernel and labels of a run.
fn about(run: &FarmRun) -> Vec<String> {
    let parts = [&run.kernel].into_iter().chain(&run.labels).map(|text| shortened(text));
    parts.filter(|text| !text.is_empty()).collect()
}

fn sentence(alarm: &FarmAlarm) -> String {
    let figures = alarm.measured.zip(alarm.allowed);
    let what = shortened(&alarm.what);
    match (alarm.kind.as_str(), figures) {
        ("level", Some((measured, allowed))) => format!(
            "{what}: p99.9 is {}; the board's other runs suggest {} at most",
            nanoseconds_f64(measured),
            nanoseconds_f64(allowed)
        ),
        ("silent", Some((measured, allowed))) => {
            format!("silent: no run for {}; the usual pause is at most {}", days(measured), days(allowed))
        }
        ("limit", _) => format!("the newest run failed: {what}"),
        ("regression", Some((factor, _))) => {
            format!("{what}: p99.9 of the newest 5 runs is {factor:.2} times p99.9 before a lasting change")
        }
        ("incomplete", _) => format!("the newest run is incomplete: {what}"),
        ("probe", _) => format!("{what} is not in the newest run"),
        ("exposure", Some((measured, allowed))) => format!(
            "the newest 5 runs measured for {} together; {} is expected",
            nanoseconds_f64(measured * 3.6e12),
            nanoseconds_f64(allowed * 3.6e12)
        ),
        (kind, _) => format!("{kind}: {what}"),
    }
}

fn days(days: f64) -> String {
    if days < 2.0 { format!("{:.1} hours", 24.0 * days) } else { format!("{days:.1} days") }
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(TEXT_MAX) {
        Some((end, _)) => format!("{} …", &text[..end]),
        None => text.to_owned(),
    }
}
