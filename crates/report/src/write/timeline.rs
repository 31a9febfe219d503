//! A timeline as text: a bar for each CPU, proportional to the time, and the meaning of its letters.

use super::table::Line;
use crate::section::Timeline;
use std::cmp::Reverse;
use whylate_core::CpuId;
use whylate_core::figure::{nanoseconds, share};
use whylate_core::result::{CauseClass, CauseKind, TimelineSegment};

/// The widest bar.
const WIDTH_MAX: usize = 100;
const LEGEND_MAX: usize = 12;

struct Key<'a> {
    letter: char,
    segment: &'a TimelineSegment,
    time: u64,
}

impl Key<'_> {
    fn painted(&self) -> (String, &'static str) {
        (self.letter.to_string(), codes(self.segment.kind))
    }
}

/// The bars, their axis, and a legend.
pub(super) fn lines(timeline: &Timeline, width: usize) -> Vec<Line> {
    let mut keys = keys(timeline);
    let width = width.min(WIDTH_MAX).saturating_sub(12).max(20);
    let mut lines: Vec<Line> = timeline
        .cpus()
        .into_iter()
        .map(|cpu| {
            let label = (format!("  {:>7} ", format!("CPU {cpu}")), "");
            std::iter::once(label).chain(bar(timeline, cpu, &keys, width)).collect()
        })
        .collect();
    let end = format!("+{}", nanoseconds(timeline.length_ns));
    let gap = width.saturating_sub(8 + end.len());
    lines.push(vec![(format!("  {:>7} expected{}{end}", "", " ".repeat(gap)), "2")]);
    keys.sort_by_key(|key| (Reverse(key.time), key.segment.from_ns));
    lines.extend(keys.iter().take(LEGEND_MAX).map(|key| legend(key, timeline)));
    if keys.len() > LEGEND_MAX {
        lines.push(vec![(format!("          and {} shorter segments", keys.len() - LEGEND_MAX), "2")]);
    }
    lines
}

fn keys(timeline: &Timeline) -> Vec<Key<'_>> {
    const LETTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    let mut keys: Vec<Key<'_>> = Vec::new();
    for segment in &timeline.segments {
        let time = segment.to_ns - segment.from_ns;
        match keys.iter_mut().find(|key| key.segment.what == segment.what) {
            Some(key) => {
                if time > key.segment.to_ns - key.segment.from_ns {
                    key.segment = segment;
                }
                key.time += time;
            }
            None => {
                let letter = LETTERS.get(keys.len()).map_or('#', |letter| char::from(*letter));
                keys.push(Key { letter, segment, time });
            }
        }
    }
    keys
}

fn legend(key: &Key<'_>, timeline: &Timeline) -> Line {
    let function = key.segment.function.as_ref().map(|function| format!(", {function}")).unwrap_or_default();
    let text: String = format!("{}{function}", key.segment.what).chars().take(WIDTH_MAX - 40).collect();
    let figures = format!(" {:>8} {:>7}  {text}", nanoseconds(key.time), share(timeline.share(key.time)));
    vec![("        ".to_owned(), ""), key.painted(), (figures, "")]
}

/// Each column shows the part with most of its time on that CPU.
fn bar(timeline: &Timeline, cpu: CpuId, keys: &[Key<'_>], width: usize) -> Line {
    let length = u128::from(timeline.length_ns.max(1));
    let edge = |column: usize| (length * column as u128 / width as u128) as u64;
    let column = |column: usize| {
        let (from, to) = (edge(column), edge(column + 1).max(edge(column) + 1));
        let overlap =
            |segment: &TimelineSegment| segment.to_ns.min(to).saturating_sub(segment.from_ns.max(from));
        let here = timeline.segments.iter().filter(|segment| segment.cpu == cpu && overlap(segment) > 0);
        let most = here.max_by_key(|segment| overlap(segment));
        let key = most.and_then(|segment| keys.iter().find(|key| key.segment.what == segment.what));
        key.map_or(("·".to_owned(), ""), Key::painted)
    };
    (0..width).map(column).collect()
}

fn codes(kind: Option<CauseKind>) -> &'static str {
    match kind.map(CauseKind::class) {
        Some(CauseClass::Section) => "1;31",
        Some(CauseClass::Interrupt) => "33",
        Some(CauseClass::Thread) => "35",
        Some(CauseClass::Idle) => "36",
        Some(CauseClass::Machine | CauseClass::Scheduler | CauseClass::Unknown) => "1;33",
        None => "2",
    }
}
