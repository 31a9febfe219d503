//! What said that an application was late, and why it was.

use crate::charts::Clock;
use crate::section::{Block, Cell, Column, Depth, Row, Section, Table, sentences};
use whylate_core::figure::{count, nanoseconds};
use whylate_core::result::{
    ProbeResult, RunResult, TriggerMoment, TriggerResult, TriggerSuspect, TriggerThread,
};

/// The most moments of a trigger that the details list.
const MOMENTS_MAX: usize = 20;

pub(super) fn of_run(run: &RunResult) -> Vec<Section> {
    let many = run.cells.len() > 1;
    let probes = run.cells.iter().flat_map(|cell| cell.probes.iter().map(move |probe| (cell, probe)));
    let clock = Clock::of(run);
    let when = |at_ns: u64| clock.text(at_ns);
    probes.flat_map(|(cell, probe)| section(probe, many.then_some(cell.name.as_str()), &when)).collect()
}

/// The section of one measurement; none without triggers.
pub(crate) fn of_result(probe: &ProbeResult) -> Vec<Section> {
    section(probe, None, &nanoseconds)
}

/// `when`: a moment as a text.
fn section(probe: &ProbeResult, cell: Option<&str>, when: &dyn Fn(u64) -> String) -> Vec<Section> {
    if probe.triggers.is_empty() {
        return Vec::new();
    }
    let columns = vec![
        Column::text("trigger"),
        Column::number("times"),
        Column::number("per hour"),
        Column::number("explained"),
        Column::text("why").wraps(),
    ];
    let rows = probe.triggers.iter().flat_map(rows).collect();
    let title = cell.map_or_else(|| "Triggers".to_owned(), |cell| format!("Triggers of {cell}"));
    let meaning =
        "how often the application reported being late, and which watched thread was late just before";
    let section = Section { id: "triggers", title, meaning, ..Section::default() };
    let moments = probe.triggers.iter().flat_map(|it| it.moments.iter().rev().take(MOMENTS_MAX));
    let moments = sentences(moments.map(|moment| described(moment, when)));
    let moments = Section::new("moments", "Moments of triggers").depth(Depth::Detail).with(moments);
    let section =
        section.with(Table::new(columns, rows)).with_all(notes(&probe.triggers).into_iter().map(Block::note));
    [section].into_iter().chain(moments.unless_empty()).collect()
}

/// A row for each reason; the first one has the trigger.
fn rows(trigger: &TriggerResult) -> Vec<Row> {
    let all: u64 = trigger.suspects.iter().map(|it| it.moments).sum();
    let explained: u64 = trigger.suspects.iter().filter(|it| !it.cannot_tell).map(|it| it.moments).sum();
    let row = |nth: usize, why: String| {
        let figures = [
            trigger.record.trigger.clone(),
            count(trigger.record.count),
            format!("{:.1}", trigger.per_hour),
            count(explained),
        ];
        let figures =
            figures.map(|figure| if nth == 0 { Cell::from(figure) } else { Cell::from(String::new()) });
        Row::of::<Cell>(figures.into_iter().chain([Cell::from(why)]))
    };
    if trigger.suspects.is_empty() {
        let why = match trigger.record.count {
            0 if is_marker(trigger) => "no watched thread wrote it",
            0 => "did not occur",
            _ => "not explained",
        };
        return vec![row(0, why.to_owned())];
    }
    let is_partial = is_partial(trigger);
    trigger.suspects.iter().enumerate().map(|(nth, it)| row(nth, why(it, all, is_partial))).collect()
}

/// Whether waits for locks were not seen.
fn is_partial(trigger: &TriggerResult) -> bool {
    trigger.moments.iter().any(TriggerMoment::is_partial)
}

/// Whether the trigger is a text in `trace_marker`: those of other threads do not count.
pub(crate) fn is_marker(trigger: &TriggerResult) -> bool {
    trigger.record.trigger.starts_with("marker:")
}

/// `in 11 of 14, control was late, up to 4.10 ms: preempted by thief`.
fn why(suspect: &TriggerSuspect, all: u64, is_partial: bool) -> String {
    let of = format!("in {} of {}", count(suspect.moments), count(all));
    let Some(thread) = &suspect.thread else {
        return format!("{of}, {}", suspect.none_late());
    };
    let or_lock = if is_partial { ", or it waited for a lock before" } else { "" };
    let cause = suspect.cause.as_ref().map(|it| format!(": {}{or_lock}", it.sentence())).unwrap_or_default();
    let was = if suspect.wait_max_ns.is_some() { "may have been" } else { "was" };
    let at_most = if suspect.wait_max_ns.is_some() { "at most " } else { "" };
    let but = if is_partial { ", without waits for locks" } else { "" };
    format!(
        "{of}, {thread} {was} late (longest response {at_most}{}{but}){cause}",
        nanoseconds(suspect.longest_ns)
    )
}

/// One moment with its threads.
fn described(moment: &TriggerMoment, when: &dyn Fn(u64) -> String) -> String {
    let text = moment.text.as_ref().map(|text| format!(" \"{text}\"")).unwrap_or_default();
    let more = if moment.count > 1 {
        format!(", with {} just after", triggers(moment.count - 1, " more"))
    } else {
        String::new()
    };
    let late: Vec<String> = moment.threads.iter().filter(|it| it.late).map(TriggerThread::sentence).collect();
    let why = match late.is_empty() {
        true => moment.none_late(),
        false => late.join("; "),
    };
    format!("{}{text} at {}{more}: {why}.", moment.trigger, when(moment.at_ns))
}

/// `1 trigger`, `1,000 more triggers`.
fn triggers(number: u64, more: &str) -> String {
    format!("{}{more} trigger{}", count(number), if number == 1 { "" } else { "s" })
}

fn notes(all: &[TriggerResult]) -> Vec<String> {
    let sum = |of: fn(&TriggerResult) -> u64| all.iter().map(of).sum::<u64>();
    let (shared, unexplained) = (sum(|it| it.record.shared), sum(|it| it.record.unexplained));
    let mut notes = Vec::new();
    if shared > 0 {
        notes.push(format!(
            "{} came just after an earlier trigger and got the same explanation.",
            triggers(shared, "")
        ));
    }
    if unexplained > 0 {
        notes.push(format!(
            "In a storm of triggers, whylate explains only the first trigger of each second. {} got no explanation.",
            triggers(unexplained, "")
        ));
    }
    if all.iter().any(is_partial) {
        notes.push("Without rights, whylate sees neither waits for locks nor who ended a sleep. Possible waits for a CPU are compared with \
             such waits.".to_owned());
    }
    notes.push(format!(
        "A thread was late if its longest response before the trigger exceeded {} times its median. A line \
         may come later than its event because the program buffers its output.",
        TriggerThread::LATE
    ));
    notes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::section::Page;
    use crate::write::Style;
    use whylate_core::result::{Cause, CauseKind, TriggerRecord};

    fn text(triggers: Vec<TriggerResult>) -> String {
        let probe = ProbeResult { probe: "task".to_owned(), triggers, ..ProbeResult::default() };
        Page { sections: section(&probe, None, &nanoseconds), ..Default::default() }
            .detailed(true)
            .terminal(Style::default())
    }

    #[test]
    fn a_trigger_has_its_number_its_rate_and_its_reasons() {
        let cause = Cause { actor: Some("thief".to_owned()), ..Cause::new(CauseKind::Thread) };
        let suspect = |thread: Option<&str>, moments| TriggerSuspect {
            thread: thread.map(str::to_owned),
            cause: thread.map(|_| cause.clone()),
            moments,
            longest_ns: 4_100_000,
            ..TriggerSuspect::default()
        };
        let thread = TriggerThread {
            thread: "control".to_owned(),
            response_ns: 4_100_000,
            typical_ns: Some(1_000_000),
            late: true,
            causes: vec![cause.clone()],
            ..TriggerThread::default()
        };
        let moment = TriggerMoment {
            at_ns: 5_000_000_000,
            trigger: "output:Late".to_owned(),
            text: Some("Late by 4 ms".to_owned()),
            count: 2,
            threads: vec![thread],
            ..TriggerMoment::default()
        };
        let record = |trigger: &str, count, unexplained| {
            let trigger = trigger.to_owned();
            TriggerRecord { trigger, count, shared: count.min(1), unexplained }
        };
        let late = TriggerResult {
            record: record("output:Late", 1_015, 1_000),
            per_hour: 28.0,
            suspects: vec![suspect(Some("control"), 11), suspect(None, 3)],
            moments: vec![moment],
        };
        let never = |trigger| TriggerResult { record: record(trigger, 0, 0), ..TriggerResult::default() };
        let text = text(vec![late, never("socket"), never("marker:late")]);
        for expected in [
            "output:Late",
            "1,015",
            "28.0",
            "in 11 of 14, control was late (longest response 4.10 ms): ",
            "in 3 of 14, no watched thread was late",
            "did not occur",
            "no watched thread wrote it",
            "\"Late by 4 ms\"",
            "with 1 more trigger just after",
            "1,000 triggers",
            "instead of 1.00 ms",
        ] {
            assert!(text.contains(expected), "{expected}: {text}");
        }
    }

    #[test]
    fn a_moment_without_an_answer_is_not_explained() {
        let suspect = TriggerSuspect {
            moments: 7,
            longest_ns: 300_000_000,
            cannot_tell: true,
            without_median: Some("control".to_owned()),
            ..TriggerSuspect::default()
        };
        let record =
            TriggerRecord { trigger: "output:Late".to_owned(), count: 7, ..TriggerRecord::default() };
        let text = text(vec![TriggerResult { record, suspects: vec![suspect], ..TriggerResult::default() }]);
        let line = text.lines().find(|line| line.contains("output:Late")).unwrap_or_default();
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(words[..4], ["output:Late", "7", "0.0", "0"], "{text}");
        assert!(line.contains("in 7 of 7, cannot tell: control has no median"), "{text}");
    }

    #[test]
    fn a_watch_without_triggers_has_no_section() {
        assert!(section(&ProbeResult::default(), None, &nanoseconds).is_empty());
    }
}
