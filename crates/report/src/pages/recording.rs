//! The report of `whylate trace record`: the probe's figures, the traces that were kept, and what made the task late.

use super::{explain, require_samples};
use crate::ReportError;
use crate::section::{Block, Item, Page, Section, Tone};
use crate::sections::{figures, warnings};
use crate::words::counted;
use whylate_core::Nanos;
use whylate_core::figure::nanoseconds;
use whylate_core::result::RecordingResult;

/// The report; `until` was the limit.
pub fn recording(recording: &RecordingResult, until: Nanos) -> Result<Page, ReportError> {
    require_samples(&recording.probe, &recording.warnings)?;
    let mut kept = Section::new("traces", "");
    for trace in &recording.traces {
        let latency = nanoseconds(trace.latency_ns);
        let line = format!("CPU {}: the task was {latency} late; its trace is {}", trace.cpu, trace.path);
        kept = kept.with(Block::Text(line.into(), Tone::Bad));
    }
    if recording.traces.is_empty() {
        let line = format!("no latency exceeded {until}, so no trace was kept");
        kept = kept.with(Block::Text(line.into(), Tone::Good));
    }
    if recording.missed > 0 {
        let spikes = counted(recording.missed, "more spike");
        let line = format!("{spikes} came while a trace was being saved and got no trace");
        kept = kept.with(vec![Item::from(line)]);
    }
    let mut sections = figures::of_result(&recording.probe);
    sections.push(kept);
    sections.extend(warnings::section(&recording.warnings));
    if !recording.traces.is_empty() {
        let found = explain(&recording.explained);
        let line = Block::Text(found.title.into(), found.title_tone);
        let about = found.about.into_iter().flatten().map(Block::note);
        sections.push(Section::new("finding", "").with(line).with_all(about));
        sections.extend(found.sections);
    }
    Ok(Page { origin: "whylate trace record".to_owned(), sections, ..Page::default() })
}
