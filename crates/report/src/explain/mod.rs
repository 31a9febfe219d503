//! Reports of `whylate explain`: a sentence that names the culprit, then the time between the expected and the actual
//! moment as a picture, then the records that speak for it.
//!
//! In goes an [`ExplainResult`]; out comes text. Nothing here decides about causes.

pub(crate) mod html;
mod markdown;
pub(crate) mod sentence;
mod terminal;

pub use html::html;
pub use markdown::markdown;
pub use terminal::terminal;

use crate::figure::nanoseconds;
use whylate_core::result::{ExplainResult, ExplainedSpike, ExplainedTrace};

/// The trace of a spike.
fn trace_of<'r>(result: &'r ExplainResult, spike: &ExplainedSpike) -> Option<&'r ExplainedTrace> {
    result.traces.get(spike.trace)
}

/// `492.318937`: seconds of the trace's clock.
fn moment(at_ns: u64) -> String {
    let (whole, rest) = (at_ns / 1_000_000_000, at_ns % 1_000_000_000);
    if rest.is_multiple_of(1000) {
        format!("{whole}.{:06}", rest / 1000)
    } else {
        format!("{whole}.{rest:09}")
    }
}

/// What was looked at, a sentence for each trace.
fn traces(result: &ExplainResult) -> Vec<String> {
    result.traces.iter().map(described).collect()
}

fn described(trace: &ExplainedTrace) -> String {
    let mut parts = vec![format!("{}: {}", trace.path, trace.format)];
    parts.extend(
        trace.tracer.iter().filter(|tracer| *tracer != "nop").map(|tracer| format!("{tracer} tracer")),
    );
    parts.extend(trace.kernel.iter().map(|kernel| format!("Linux {kernel}")));
    let task = match &trace.task {
        Some(task) => format!("task {task} ({})", trace.task_reason),
        None => trace.task_reason.clone(),
    };
    parts.push(task);
    if let Some(period) = trace.period_ns {
        let how = if trace.period_inferred { "inferred from its rhythm" } else { "given" };
        parts.push(format!("period {} ({how})", nanoseconds(period)));
    }
    parts.join(", ")
}

/// How many late moments there are, and how many are shown.
fn count(result: &ExplainResult) -> String {
    let found: u64 = result.traces.iter().map(|trace| trace.spikes_found).sum();
    let threshold = result.traces.iter().map(|trace| trace.threshold_ns).max().unwrap_or(0);
    let shown = result.spikes.len() as u64;
    match (found.max(shown), shown) {
        (0, _) => format!("No latency above {} was found.", nanoseconds(threshold)),
        (1, _) => format!("1 latency above {}.", nanoseconds(threshold)),
        (found, shown) if found > shown => {
            format!("{found} latencies above {}; the {shown} largest are explained.", nanoseconds(threshold))
        }
        (found, _) => format!("{found} latencies above {}.", nanoseconds(threshold)),
    }
}

/// What the expected moment rests on, and how exact it is.
fn expected(spike: &ExplainedSpike) -> String {
    use whylate_core::result::ExpectedFrom;
    let basis = match spike.expected_from {
        ExpectedFrom::Timer => "the expiry of its timer",
        ExpectedFrom::Tracer => "the latency that the tracer measured",
        ExpectedFrom::Marker => "the latency that the task printed",
        ExpectedFrom::Probe => "the latency that the probe measured",
        ExpectedFrom::Period => "the last sleep and the period",
        ExpectedFrom::Wakeup => "the wake-up",
        ExpectedFrom::Interrupted => "the moment at which it had to stop",
    };
    format!("by {basis}, within {}", nanoseconds(spike.expected_error_ns))
}
