//! The traces of a run in its report: who made each of the traced spikes late.

use crate::explain::html::{SpikeView, view};
use crate::explain::sentence;
use crate::figure::nanoseconds;
use serde::Serialize;
use whylate_core::result::{ExplainedSpike, RunResult, SpikeTrace};

/// Traces that a page shows; the others are in the run directory.
const SHOWN_MAX: usize = 24;

/// A trace on the HTML page.
#[derive(Serialize)]
pub(crate) struct TraceView<'r> {
    /// Which spike it is of, and its file.
    heading: String,
    path: &'r str,
    /// Absent while nothing explains it.
    spike: Option<SpikeView<'r>>,
    /// Why there is no explanation.
    reason: Option<String>,
}

/// All traces, largest latency first.
fn traces(run: &RunResult) -> Vec<&SpikeTrace> {
    let mut traces: Vec<&SpikeTrace> = run.cells.iter().flat_map(|cell| &cell.traces).collect();
    traces.sort_by_key(|trace| std::cmp::Reverse(trace.latency_ns));
    traces
}

/// `4.02 ms timer in l3, repeat 2, CPU 1`.
fn heading(trace: &SpikeTrace) -> String {
    format!(
        "{} {} in {}, repeat {}, CPU {}",
        nanoseconds(trace.latency_ns),
        trace.probe,
        trace.cell,
        trace.repeat,
        trace.cpu
    )
}

fn explanation(trace: &SpikeTrace) -> Result<&ExplainedSpike, String> {
    match (&trace.error, &trace.explained) {
        (Some(error), _) => Err(error.clone()),
        (None, None) => Err("not explained yet; `whylate explain` does it".to_owned()),
        (None, Some(explained)) => {
            explained.spikes.first().ok_or_else(|| "the moment is not in the trace".to_owned())
        }
    }
}

/// A sentence for the largest trace of each probe in each cell, and how to see more; none for a run without traces.
pub(crate) fn lines(run: &RunResult) -> Vec<String> {
    let traces = traces(run);
    // The largest of each probe in each cell; the others are near it.
    let is_first = |index: usize| {
        let own = traces[index];
        !traces[..index].iter().any(|other| other.cell == own.cell && other.probe == own.probe)
    };
    let shown: Vec<&SpikeTrace> =
        (0..traces.len()).filter(|index| is_first(*index)).map(|index| traces[index]).collect();
    let mut lines: Vec<String> = shown
        .iter()
        .map(|trace| {
            let told = explanation(trace).map_or_else(|reason| reason, sentence::finding);
            format!("{}: {told} ({})", heading(trace), trace.path)
        })
        .collect();
    if !lines.is_empty() {
        let more = traces.len() - shown.len();
        let others = if more > 0 { format!("{more} more; ") } else { String::new() };
        lines.push(format!("{others}with timelines: whylate explain {}", run.run));
    }
    lines
}

/// The traces for the HTML page.
pub(crate) fn views(run: &RunResult) -> Vec<TraceView<'_>> {
    traces(run).into_iter().take(SHOWN_MAX).map(trace_view).collect()
}

fn trace_view(trace: &SpikeTrace) -> TraceView<'_> {
    let (spike, reason) = match explanation(trace) {
        Ok(spike) => (Some(view(spike)), None),
        Err(reason) => (None, Some(reason)),
    };
    TraceView { heading: heading(trace), path: &trace.path, spike, reason }
}
