//! The report of `whylate trace record`: the probe's figures, the traces that were kept, and what made the task late.

use super::{explain, require_samples};
use crate::ReportError;
use crate::section::{Block, Item, Page, Section, Tone};
use crate::sections::{figures, triggers, warnings};
use crate::words::counted;
use whylate_core::Nanos;
use whylate_core::figure::nanoseconds;
use whylate_core::result::{RecordedTrace, RecordingResult};

/// The report; `until` was the limit.
pub fn recording(recording: &RecordingResult, until: Option<Nanos>) -> Result<Page, ReportError> {
    if recording.traces.is_empty() && recording.probe.triggers.is_empty() {
        require_samples(&recording.probe, &recording.warnings)?;
    }
    let mut kept = Section::new("traces", "");
    for trace in &recording.traces {
        kept = kept.with(Block::Text(line(trace).into(), Tone::Bad));
    }
    if recording.traces.is_empty() {
        let line = match until {
            Some(until) if recording.probe.triggers.is_empty() => {
                format!("no latency exceeded {until}, so no trace was kept")
            }
            Some(until) => format!("no latency exceeded {until}, and no trigger came, so no trace was kept"),
            None => "no trigger came, so no trace was kept".to_owned(),
        };
        kept = kept.with(Block::Text(line.into(), Tone::Good));
    }
    if recording.missed > 0 {
        let spikes = counted(recording.missed, "more late moment");
        let line = format!("{spikes} came while a trace was being saved and got no trace");
        kept = kept.with(vec![Item::from(line)]);
    }
    // What matters comes last: it is what a terminal still shows.
    let mut sections = warnings::section(&recording.warnings);
    sections.extend(figures::of_result(&recording.probe));
    sections.extend(triggers::of_result(&recording.probe));
    sections.push(kept);
    if !recording.explained.traces.is_empty() {
        let found = explain(&recording.explained);
        let line = Block::Text(found.title.into(), found.title_tone);
        let about = found.about.into_iter().flatten().map(Block::note);
        sections.push(Section::new("finding", "").with(line).with_all(about));
        sections.extend(found.sections);
    }
    Ok(Page { origin: "whylate trace record".to_owned(), sections, ..Page::default() })
}

/// What was late, why as far as that is known, and the file.
fn line(trace: &RecordedTrace) -> String {
    let latency = trace.latency_ns.map(nanoseconds).unwrap_or_default();
    let late = match (trace.cpu, &trace.thread, &trace.trigger) {
        (_, _, Some(trigger)) => trace.why.clone().unwrap_or_else(|| format!("{trigger}: not explained")),
        (_, Some(thread), None) => {
            let why = trace.why.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
            format!("{thread} took {latency}{why}")
        }
        (Some(cpu), None, None) => format!("CPU {cpu}: the task was {latency} late"),
        (None, None, None) => format!("the task was {latency} late"),
    };
    format!("{late}; its trace is {}", trace.path)
}
