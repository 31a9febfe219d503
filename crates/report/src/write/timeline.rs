//! A timeline as text: a bar for each CPU, proportional to the time, and the meaning of its letters.

use super::table::Line;
use super::wrap;
use crate::section::Timeline;
use std::cmp::Reverse;
use whylate_core::CpuId;
use whylate_core::figure::{nanoseconds, share};
use whylate_core::order::InOrder;
use whylate_core::result::{CauseClass, CauseKind, TimelineSegment};

/// The widest bar.
const WIDTH_MAX: usize = 100;
const LEGEND_MAX: usize = 12;
/// The column at which the text of the legend begins.
const TEXT_AT: usize = 28;

/// Parts of the bars that have one letter.
struct Key<'a> {
    letter: char,
    segment: &'a TimelineSegment,
    /// The function of all of them.
    function: Option<&'a str>,
    /// Their functions are distinguished.
    by_function: bool,
    time: u64,
}

impl Key<'_> {
    fn painted(&self) -> (String, &'static str) {
        (self.letter.to_string(), codes(self.segment.kind))
    }

    fn covers(&self, segment: &TimelineSegment) -> bool {
        self.segment.what == segment.what && (!self.by_function || self.segment.function == segment.function)
    }
}

/// The bars, their axis, and a legend.
pub(super) fn lines(timeline: &Timeline, width: usize) -> Vec<Line> {
    let mut keys = Some(keys(timeline, true))
        .filter(|keys| keys.len() <= LEGEND_MAX)
        .unwrap_or_else(|| keys(timeline, false));
    let room = width.min(WIDTH_MAX).saturating_sub(TEXT_AT).max(20);
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
    keys.order_by_key(|key| (Reverse(key.time), key.segment.from_ns));
    lines.extend(keys.iter().take(LEGEND_MAX).flat_map(|key| legend(key, timeline, room)));
    if keys.len() > LEGEND_MAX {
        lines.push(vec![(format!("          and {} shorter segments", keys.len() - LEGEND_MAX), "2")]);
    }
    lines
}

fn keys(timeline: &Timeline, by_function: bool) -> Vec<Key<'_>> {
    const LETTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    let mut keys: Vec<Key<'_>> = Vec::new();
    for segment in &timeline.segments {
        let time = segment.to_ns - segment.from_ns;
        let function = segment.function.as_deref();
        match keys.iter_mut().find(|key| key.covers(segment)) {
            Some(key) => {
                key.function = key.function.filter(|known| Some(*known) == function);
                if time > key.segment.to_ns - key.segment.from_ns {
                    key.segment = segment;
                }
                key.time += time;
            }
            None => {
                let letter = LETTERS.get(keys.len()).map_or('#', |letter| char::from(*letter));
                keys.push(Key { letter, segment, function, by_function, time });
            }
        }
    }
    keys
}

fn legend(key: &Key<'_>, timeline: &Timeline, room: usize) -> Vec<Line> {
    let function = key.function.map(|function| format!(", {function}")).unwrap_or_default();
    let text = wrap(&format!("{}{function}", key.segment.what), room);
    let figures = format!(" {:>8} {:>7}  ", nanoseconds(key.time), share(timeline.share(key.time)));
    let line = |(index, text): (usize, String)| match index {
        0 => vec![("        ".to_owned(), ""), key.painted(), (format!("{figures}{text}"), "")],
        _ => vec![(format!("{:TEXT_AT$}{text}", ""), "")],
    };
    text.into_iter().enumerate().map(line).collect()
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
        let key = most.and_then(|segment| keys.iter().find(|key| key.covers(segment)));
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

#[cfg(test)]
mod tests {
    use super::*;

    fn legend_of(segments: &[(u64, u64, &str, Option<&str>)], width: usize) -> Vec<String> {
        let segment = |&(from_ns, to_ns, what, function): &(u64, u64, &str, Option<&str>)| TimelineSegment {
            from_ns,
            to_ns,
            cpu: CpuId(1),
            what: what.to_owned(),
            kind: Some(CauseKind::IrqsOff),
            function: function.map(str::to_owned),
        };
        let segments: Vec<TimelineSegment> = segments.iter().map(segment).collect();
        let length_ns = segments.last().map_or(0, |segment| segment.to_ns);
        let text = |line: Line| line.into_iter().map(|(text, _)| text).collect::<String>();
        lines(&Timeline { length_ns, segments }, width).into_iter().skip(2).map(text).collect()
    }

    #[test]
    fn a_function_has_its_own_time_only() {
        let off = "ls: interrupts off";
        let lines = legend_of(
            &[(0, 350_000, off, Some("read_regs")), (350_000, 670_000, off, Some("write_regs"))],
            100,
        );
        assert!(lines[0].contains("350 us") && lines[0].ends_with("read_regs"), "{lines:?}");
        assert!(lines[1].contains("320 us") && lines[1].ends_with("write_regs"), "{lines:?}");
        // Too many functions are one, which has no name.
        let names: Vec<String> = (0..40).map(|nth| format!("f{nth}")).collect();
        let many: Vec<_> =
            (0..40).map(|nth| (nth * 10, nth * 10 + 10, off, Some(names[nth as usize].as_str()))).collect();
        let lines = legend_of(&many, 100);
        assert!(lines.len() == 1 && lines[0].ends_with(off), "{lines:?}");
    }

    #[test]
    fn a_long_text_is_not_cut() {
        let what = "the largest noise in 1000 ms; number of noises in that time: hardware 1008, NMI 0, irq 1030, softirq 20, thread 34";
        for width in [60, 100] {
            let lines = legend_of(&[(0, 1_000, what, None)], width);
            assert!(lines.len() > 1 && lines.iter().all(|line| line.chars().count() <= width), "{lines:?}");
            let all: Vec<&str> = lines.iter().flat_map(|line| line.split_whitespace()).collect();
            assert!(all.join(" ").ends_with(what), "{lines:?}");
        }
    }
}
