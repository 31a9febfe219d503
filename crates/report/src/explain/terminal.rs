//! The explanation as text: never wider than the terminal, or 100 columns.

use super::{count, expected, moment, sentence, trace_of, traces};
use crate::figure::{nanoseconds, share};
use crate::terminal::Style;
use crate::terminal::page::{Colour, Page, clean};
use crate::words;
use whylate_core::CpuId;
use whylate_core::result::{CauseClass, CauseKind, ExplainResult, ExplainedSpike, TimelineSegment};

/// Wider lines are not drawn.
const WIDTH_MAX: usize = 100;
/// Spikes that are drawn in full; the others have a line.
const DRAWN_MAX: usize = 3;
/// Rows of a legend.
const LEGEND_MAX: usize = 12;

/// The explanation for a terminal.
pub fn terminal(result: &ExplainResult, style: Style) -> String {
    let style = Style { width: style.width.min(WIDTH_MAX), ..style };
    let mut page = Page::new(style);
    match result.spikes.first() {
        Some(spike) => {
            let colour =
                if spike.cause.kind == CauseKind::Unattributed { Colour::Yellow } else { Colour::Red };
            page.coloured(&sentence::finding(spike), colour);
        }
        None => page.coloured(&count(result), Colour::Green),
    }
    page.blank();
    for line in traces(result) {
        page.dim(&line);
    }
    if !result.spikes.is_empty() {
        page.dim(&count(result));
    }
    measured(&mut page, result);
    for spike in result.spikes.iter().take(DRAWN_MAX) {
        draw(&mut page, spike, result, style);
    }
    if result.spikes.len() > DRAWN_MAX {
        page.heading("The others");
        for spike in &result.spikes[DRAWN_MAX..] {
            page.item(&format!("{} s: {}", moment(spike.expected_ns), sentence::finding(spike)), None);
        }
    }
    page.warnings(&result.warnings);
    page.finish()
}

/// What the probes of the run saw themselves.
fn measured(page: &mut Page, result: &ExplainResult) {
    if result.measured.is_empty() {
        return;
    }
    page.heading("Spikes that the run measured");
    for spike in &result.measured {
        let probe = spike.probe.as_deref().unwrap_or("probe");
        let cause = words::cause(&spike.cause);
        page.item(&format!("{} {probe} on CPU {}: {cause}", nanoseconds(spike.latency_ns), spike.cpu), None);
    }
}

fn draw(page: &mut Page, spike: &ExplainedSpike, result: &ExplainResult, style: Style) {
    let task = if spike.task.is_empty() { "hardware".to_owned() } else { spike.task.clone() };
    let pid = spike.pid.map(|pid| format!("-{pid}")).unwrap_or_default();
    let heading = format!("{task}{pid} on CPU {}: {} late", spike.cpu, nanoseconds(spike.latency_ns));
    page.heading(&clean(&heading));
    let (expected_at, actual_at) = (moment(spike.expected_ns), moment(spike.actual_ns));
    page.item(&format!("expected {expected_at} s ({}), ran {actual_at} s", expected(spike)), None);
    page.item(&format!("{}.", spike.cause.sentence()), None);
    for line in sentence::chain(&spike.cause).iter().chain(&sentence::confidence(&spike.cause)) {
        page.item(line, None);
    }
    for cause in &spike.also {
        page.item(&format!("also {}", sentence::contributor(cause, spike)), None);
    }
    page.blank();
    timeline(page, spike, style);
    if !spike.evidence.is_empty() {
        let file = trace_of(result, spike).map_or("", |trace| trace.path.as_str());
        page.blank();
        page.item(&format!("records of {file}:"), None);
    }
    for line in &spike.evidence {
        page.item(&format!("  byte {}, {}:", line.offset, line.meaning), None);
        let room = style.width.saturating_sub(6);
        let text = shortened(&clean(&line.text), room);
        page.line(&format!("      {text}"), "2");
    }
}

/// At most `room` characters; what is left out shows.
fn shortened(text: &str, room: usize) -> String {
    if text.chars().count() <= room {
        return text.to_owned();
    }
    text.chars().take(room.saturating_sub(1)).chain(['…']).collect()
}

/// What a letter stands for.
struct Key<'a> {
    letter: char,
    segment: &'a TimelineSegment,
    time: u64,
}

/// A bar for each CPU, proportional to the time, and what its letters mean.
fn timeline(page: &mut Page, spike: &ExplainedSpike, style: Style) {
    let mut keys: Vec<Key<'_>> = Vec::new();
    for segment in &spike.timeline {
        let time = segment.to_ns - segment.from_ns;
        match keys.iter_mut().find(|key| key.segment.what == segment.what) {
            Some(key) => {
                if time > key.segment.to_ns - key.segment.from_ns {
                    key.segment = segment;
                }
                key.time += time;
            }
            None => keys.push(Key { letter: letter(keys.len()), segment, time }),
        }
    }
    let mut cpus: Vec<CpuId> = spike.timeline.iter().map(|segment| segment.cpu).collect();
    cpus.sort_unstable();
    cpus.dedup();
    let width = style.width.saturating_sub(12).max(20);
    for cpu in cpus {
        let bar = bar(page, spike, cpu, &keys, width);
        page.line(&format!("  {:>7} {bar}", format!("CPU {cpu}")), "");
    }
    let end = format!("+{}", nanoseconds(spike.latency_ns));
    let gap = width.saturating_sub(8 + end.chars().count());
    page.line(&format!("  {:>7} expected{}{end}", "", " ".repeat(gap)), "2");
    keys.sort_by_key(|key| (std::cmp::Reverse(key.time), key.segment.from_ns));
    for key in keys.iter().take(LEGEND_MAX) {
        legend(page, key, spike);
    }
    if keys.len() > LEGEND_MAX {
        page.dim(&format!("          and {} shorter ones", keys.len() - LEGEND_MAX));
    }
}

fn legend(page: &mut Page, key: &Key<'_>, spike: &ExplainedSpike) {
    let part = key.time as f64 / spike.latency_ns.max(1) as f64;
    let function = key.segment.function.as_ref().map(|function| format!(", {function}")).unwrap_or_default();
    let letter = page.paint(&key.letter.to_string(), colour(key.segment.kind));
    let text = clean(&format!("{}{function}", key.segment.what));
    let text: String = text.chars().take(WIDTH_MAX - 40).collect();
    page.line(&format!("        {letter} {:>8} {:>7}  {text}", nanoseconds(key.time), share(part)), "");
}

/// Each column shows what took most of its time on that CPU.
fn bar(page: &Page, spike: &ExplainedSpike, cpu: CpuId, keys: &[Key<'_>], width: usize) -> String {
    let latency = u128::from(spike.latency_ns.max(1));
    let edge = |column: usize| spike.expected_ns + (latency * column as u128 / width as u128) as u64;
    let mut text = String::new();
    for column in 0..width {
        let (from, to) = (edge(column), edge(column + 1).max(edge(column) + 1));
        let overlap =
            |segment: &TimelineSegment| segment.to_ns.min(to).saturating_sub(segment.from_ns.max(from));
        let here = spike.timeline.iter().filter(|segment| segment.cpu == cpu && overlap(segment) > 0);
        let most = here.max_by_key(|segment| overlap(segment));
        let key = most.and_then(|segment| keys.iter().find(|key| key.segment.what == segment.what));
        match key {
            Some(key) => text.push_str(&page.paint(&key.letter.to_string(), colour(key.segment.kind))),
            None => text.push('·'),
        }
    }
    text
}

fn letter(index: usize) -> char {
    const LETTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    LETTERS.get(index).map_or('#', |letter| char::from(*letter))
}

fn colour(kind: Option<CauseKind>) -> &'static str {
    match kind.map(CauseKind::class) {
        Some(CauseClass::Section) => "1;31",
        Some(CauseClass::Interrupt) => "33",
        Some(CauseClass::Thread) => "35",
        Some(CauseClass::Idle) => "36",
        Some(CauseClass::Machine | CauseClass::Unknown) => "1;33",
        None => "2",
    }
}
