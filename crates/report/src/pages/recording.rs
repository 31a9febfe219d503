//! The report of `whylate trace record`: the probe's figures, the traces that were kept, and what made the task late.

use super::{explain, require_samples};
use crate::ReportError;
use crate::section::{Block, Item, Page, Section, Tone};
use crate::sections::{figures, triggers, warnings};
use crate::words::counted;
use whylate_core::Nanos;
use whylate_core::figure::nanoseconds;
use whylate_core::result::{ExplainResult, RecordedTrace, RecordingResult};

/// The report; `until` was the limit.
pub fn recording(recording: &RecordingResult, until: Option<Nanos>) -> Result<Page, ReportError> {
    if recording.traces.is_empty() && recording.probe.triggers.is_empty() && recording.cannot_tell.is_none() {
        require_samples(&recording.probe, &recording.warnings)?;
    }
    let mut kept = Section::new("traces", "");
    for trace in &recording.traces {
        kept = kept.with(Block::Text(line(trace).into(), Tone::Bad));
    }
    if recording.traces.is_empty() {
        let (line, tone) = without_trace(recording, until);
        kept = kept.with(Block::Text(line.into(), tone));
    }
    if recording.missed > 0 {
        let spikes = counted(recording.missed, "more late moment");
        let line = format!("{spikes} came while a trace was being saved and got no trace");
        kept = kept.with(vec![Item::from(line)]);
    }
    let mut sections = vec![kept];
    if !recording.explained.traces.is_empty() {
        let found = explain(&ExplainResult { warnings: Vec::new(), ..recording.explained.clone() });
        let line = Block::Text(found.title.into(), found.title_tone);
        let about = found.about.into_iter().flatten().map(Block::note);
        sections.push(Section::new("finding", "").with(line).with_all(about));
        sections.extend(found.sections);
    }
    sections.extend(figures::of_result(&recording.probe));
    sections.extend(triggers::of_result(&recording.probe));
    sections.extend(warnings::in_a_line(&[&recording.warnings[..], &recording.explained.warnings].concat()));
    Ok(Page { origin: "whylate trace record".to_owned(), sections, ..Page::default() })
}

/// Why there is no trace.
fn without_trace(recording: &RecordingResult, until: Option<Nanos>) -> (String, Tone) {
    let all = &recording.probe.triggers;
    let has_triggers = !all.is_empty();
    let none = match has_triggers && all.iter().all(triggers::is_marker) {
        true => "no watched thread wrote the trigger's text",
        false => "no trigger came",
    };
    let Some(until) = until else {
        return (format!("{none}, so no trace was kept"), Tone::Good);
    };
    match &recording.cannot_tell {
        Some(why) if has_triggers => {
            (format!("{none}; cannot tell whether a latency exceeded {until}: {why}"), Tone::Warn)
        }
        Some(why) => (format!("cannot tell whether a latency exceeded {until}: {why}"), Tone::Warn),
        None if has_triggers => {
            (format!("no latency exceeded {until}, and {none}, so no trace was kept"), Tone::Good)
        }
        None => (format!("no latency exceeded {until}, so no trace was kept"), Tone::Good),
    }
}

/// What was late, why as far as that is known, and the file.
fn line(trace: &RecordedTrace) -> String {
    let latency = trace.latency_ns.map(nanoseconds).unwrap_or_default();
    let late = match (trace.cpu, &trace.thread, &trace.trigger) {
        (_, _, Some(trigger)) => trace.why.clone().unwrap_or_else(|| format!("{trigger}: not explained")),
        (_, Some(thread), None) => {
            let why = trace.why.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
            let (at_least, until) = match trace.unended {
                true => ("at least ", " and had not ended when the recording did"),
                false => ("", ""),
            };
            format!("{thread} took {at_least}{latency}{until}{why}")
        }
        (Some(cpu), None, None) => format!("CPU {cpu}: the task was {latency} late"),
        (None, None, None) => format!("the task was {latency} late"),
    };
    let path = &trace.path;
    let thread = trace.thread.as_ref().filter(|thread| {
        thread.chars().all(|letter| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_' | '.'))
    });
    let shown =
        thread.map(|thread| format!(" (`whylate explain {path} --task {thread}`)")).unwrap_or_default();
    format!("{late}; its trace is {path}{shown}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Style;
    use whylate_core::result::{CpuResult, ProbeResult, RECORDING_FORMAT};
    use whylate_core::{Facts, Warning, WarningCode};

    fn text(traces: Vec<RecordedTrace>, cannot_tell: Option<&str>) -> String {
        let cpu = CpuResult { samples: 10, series: Some("control".to_owned()), ..CpuResult::default() };
        let recording = RecordingResult {
            format: RECORDING_FORMAT.to_owned(),
            facts: Facts::default(),
            probe: ProbeResult { probe: "task".to_owned(), cpus: vec![cpu], ..ProbeResult::default() },
            traces,
            explained: ExplainResult::default(),
            cannot_tell: cannot_tell.map(str::to_owned),
            missed: 0,
            warnings: vec![Warning::new(WarningCode::EventsMissing, "an event is missing")],
        };
        let page = super::recording(&recording, Some(Nanos::from_millis(1))).unwrap();
        page.terminal(Style { color: false, width: 160 })
    }

    #[test]
    fn the_answer_comes_first_and_warnings_in_a_line_last() {
        let text = text(Vec::new(), None);
        let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        assert!(lines[0].contains("no latency exceeded 1ms"), "{text}");
        assert!(lines[lines.len() - 1].contains("Warnings (1): events-missing"), "{text}");
    }

    #[test]
    fn what_may_have_been_missed_is_not_denied() {
        let text = text(Vec::new(), Some("control: a gap"));
        assert!(text.contains("cannot tell whether a latency exceeded 1ms: control: a gap"), "{text}");
        assert!(!text.contains("no latency exceeded"), "{text}");
    }

    #[test]
    fn a_response_that_had_not_ended_took_at_least_that_long() {
        let trace = |unended| RecordedTrace {
            path: "late.dat".to_owned(),
            latency_ns: Some(2_000_000_000),
            thread: Some("control".to_owned()),
            unended,
            ..RecordedTrace::default()
        };
        assert!(text(vec![trace(false)], None).contains("control took 2.00 s; its trace"));
        let unended = text(vec![trace(true)], None);
        assert!(
            unended
                .contains("control took at least 2.00 s and had not ended when the recording did; its trace"),
            "{unended}"
        );
    }
}
