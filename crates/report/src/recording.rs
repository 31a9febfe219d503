//! The report of `whylate trace record`: the probe's figures, the traces that were kept, and who made the task late.

use crate::table::measure_group;
use crate::terminal::Style;
use crate::terminal::columns;
use crate::terminal::page::{Colour, Page};
use crate::{ReportError, has_samples};
use whylate_core::Nanos;
use whylate_core::result::RecordingResult;

/// The report as text for a terminal; `until` was the limit.
///
/// # Errors
/// [`ReportError::NoSamples`] when no CPU has a sample.
pub fn terminal(recording: &RecordingResult, until: Nanos, style: Style) -> Result<String, ReportError> {
    if !has_samples(&recording.probe) {
        let reasons = recording.warnings.iter().map(|warning| warning.text.clone()).collect();
        return Err(ReportError::NoSamples { reasons });
    }
    let mut page = Page::new(style);
    columns::push_groups(&mut page, &[measure_group(&recording.probe)], style);
    page.blank();
    for trace in &recording.traces {
        let latency = crate::figure::nanoseconds(trace.latency_ns);
        let line = format!("CPU {} was {latency} late; the trace is {}", trace.cpu, trace.path);
        page.coloured(&line, Colour::Red);
    }
    if recording.traces.is_empty() {
        page.coloured(&format!("nothing was later than {until}; there is no trace"), Colour::Green);
    }
    if recording.missed > 0 {
        let text = "more latencies above the limit while a trace was being saved; they have none";
        page.item(&format!("{} {text}", recording.missed), None);
    }
    page.warnings(&recording.warnings);
    let mut text = page.finish();
    if !recording.traces.is_empty() {
        text.push('\n');
        text.push_str(&crate::explain::terminal(&recording.explained, style));
    }
    Ok(text)
}
