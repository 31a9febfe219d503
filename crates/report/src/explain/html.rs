//! The explanation as one HTML file, in the style of the report of a run: every text is escaped by the template
//! engine, and the time bars are drawn without scripts; a script makes them zoom.

use super::{count, expected, moment, sentence, traces};
use crate::ReportError;
use crate::figure::{nanoseconds, share};
use crate::html::STYLE;
use crate::words;
use minijinja::value::Serde;
use minijinja::{Environment, context};
use serde::Serialize;
use whylate_core::result::{
    CauseClass, CauseKind, EvidenceLine, ExplainResult, ExplainedSpike, TimelineSegment,
};
use whylate_core::{CpuId, Warning};

const TEMPLATE: &str = include_str!("explain.html");
/// One spike below its heading; the report of a run includes it too.
pub(crate) const SPIKE_TEMPLATE: &str = include_str!("spike.html");
pub(crate) const OWN_STYLE: &str = include_str!("explain.css");
pub(crate) const SCRIPT: &str = include_str!("explain.js");
/// Lines of a spike's table.
const LINES_MAX: usize = 200;

#[derive(Serialize)]
struct Page<'r> {
    headline: String,
    traces: Vec<String>,
    count: String,
    measured: Vec<String>,
    spikes: Vec<SpikeView<'r>>,
    warnings: &'r [Warning],
}

#[derive(Serialize)]
pub(crate) struct SpikeView<'r> {
    finding: String,
    moments: String,
    latency: String,
    length_ns: u64,
    chain: Option<String>,
    confidence: Option<String>,
    also: Vec<String>,
    lanes: Vec<Lane>,
    table: Vec<Line>,
    left_out: usize,
    evidence: &'r [EvidenceLine],
}

/// The bar of a CPU.
#[derive(Serialize)]
struct Lane {
    cpu: CpuId,
    parts: Vec<Part>,
}

/// A segment; places are relative to the expected moment, and in percent of the latency.
#[derive(Serialize)]
struct Part {
    kind: &'static str,
    from_ns: u64,
    to_ns: u64,
    left: String,
    width: String,
    title: String,
    label: String,
}

#[derive(Serialize)]
struct Line {
    from: String,
    time: String,
    share: String,
    cpu: CpuId,
    kind: &'static str,
    what: String,
    function: String,
}

/// The explanation as one self-contained HTML document.
///
/// # Errors
/// [`ReportError::Template`] when the page cannot be put together, which no result should bring about.
pub fn html(result: &ExplainResult) -> Result<String, ReportError> {
    let mut environment = Environment::new();
    // The name's ending switches escaping on.
    environment.add_template("explain.html", TEMPLATE)?;
    environment.add_template("spike.html", SPIKE_TEMPLATE)?;
    let measured = result.measured.iter().map(|spike| {
        let probe = spike.probe.as_deref().unwrap_or("probe");
        format!(
            "{} {probe} on CPU {}: {}",
            nanoseconds(spike.latency_ns),
            spike.cpu,
            words::cause(&spike.cause)
        )
    });
    let page = Page {
        headline: result.spikes.first().map_or_else(|| count(result), sentence::finding),
        traces: traces(result),
        count: count(result),
        measured: measured.collect(),
        spikes: result.spikes.iter().map(view).collect(),
        warnings: &result.warnings,
    };
    Ok(environment.get_template("explain.html")?.render(context! {
        page => Serde(page),
        style => STYLE,
        own_style => OWN_STYLE,
        script => SCRIPT,
    })?)
}

pub(crate) fn view(spike: &ExplainedSpike) -> SpikeView<'_> {
    let mut cpus: Vec<CpuId> = spike.timeline.iter().map(|segment| segment.cpu).collect();
    cpus.sort_unstable();
    cpus.dedup();
    let lane = |cpu: CpuId| {
        let own = spike.timeline.iter().filter(move |segment| segment.cpu == cpu);
        Lane { cpu, parts: own.map(|segment| part(segment, spike)).collect() }
    };
    SpikeView {
        finding: sentence::finding(spike),
        moments: format!(
            "Expected {} s ({}), ran {} s.",
            moment(spike.expected_ns),
            expected(spike),
            moment(spike.actual_ns)
        ),
        latency: nanoseconds(spike.latency_ns),
        length_ns: spike.latency_ns,
        chain: sentence::chain(&spike.cause),
        confidence: sentence::confidence(&spike.cause),
        also: spike.also.iter().map(|cause| sentence::contributor(cause, spike)).collect(),
        lanes: cpus.into_iter().map(lane).collect(),
        table: spike.timeline.iter().take(LINES_MAX).map(|segment| line(segment, spike)).collect(),
        left_out: spike.timeline.len().saturating_sub(LINES_MAX),
        evidence: &spike.evidence,
    }
}

fn part(segment: &TimelineSegment, spike: &ExplainedSpike) -> Part {
    let (from, to) = (segment.from_ns - spike.expected_ns, segment.to_ns - spike.expected_ns);
    let percent = |ns: u64| format!("{:.4}", ns as f64 * 100.0 / spike.latency_ns.max(1) as f64);
    let label = match &segment.function {
        Some(function) => format!("{} ({function})", segment.what),
        None => segment.what.clone(),
    };
    Part {
        kind: class(segment.kind),
        from_ns: from,
        to_ns: to,
        left: percent(from),
        width: percent(to - from),
        title: format!("{label}: {} from +{}", nanoseconds(to - from), nanoseconds(from)),
        label,
    }
}

fn line(segment: &TimelineSegment, spike: &ExplainedSpike) -> Line {
    let time = segment.to_ns - segment.from_ns;
    Line {
        from: nanoseconds(segment.from_ns - spike.expected_ns),
        time: nanoseconds(time),
        share: share(time as f64 / spike.latency_ns.max(1) as f64),
        cpu: segment.cpu,
        kind: class(segment.kind),
        what: segment.what.clone(),
        function: segment.function.clone().unwrap_or_default(),
    }
}

/// The colour of a kind; the words say the same.
fn class(kind: Option<CauseKind>) -> &'static str {
    match kind.map(CauseKind::class) {
        Some(CauseClass::Section) => "off",
        Some(CauseClass::Interrupt) => "irq",
        Some(CauseClass::Thread) => "thread",
        Some(CauseClass::Idle) => "idle",
        Some(CauseClass::Machine) => "machine",
        Some(CauseClass::Unknown) => "unknown",
        None => "switch",
    }
}
