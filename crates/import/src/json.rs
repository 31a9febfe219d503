//! The JSON of rt-tests (`cyclictest --json`, `oslat --json`) and of jitterdebugger.

use crate::options;
use crate::series::ToolSeries;
use crate::{Imported, Problem};
use serde::Deserialize;
use std::collections::BTreeMap;
use whylate_core::Facts;
use whylate_core::result::MeasureResult;

/// A document of any of them.
#[derive(Deserialize)]
struct Document {
    #[serde(rename = "cmdline:", alias = "cmdline")]
    command: Option<String>,
    #[serde(rename = "rt_test_version:", alias = "rt_test_version", alias = "version")]
    version: Option<serde_json::Value>,
    sysinfo: Option<System>,
    /// cyclictest with `--nsecs` counts nanoseconds.
    resolution_in_ns: Option<u8>,
    thread: Option<BTreeMap<u32, Thread>>,
    cpu: Option<BTreeMap<u32, Thread>>,
}

#[derive(Deserialize)]
struct System {
    #[serde(default)]
    nodename: String,
    #[serde(default)]
    release: String,
    #[serde(default)]
    realtime: u8,
}

#[derive(Deserialize)]
#[serde(try_from = "RawThread")]
struct Thread(RawThread);

#[derive(Deserialize)]
struct RawThread {
    #[serde(default)]
    histogram: BTreeMap<u64, u64>,
    #[serde(alias = "count")]
    cycles: Option<u64>,
    min: Option<u64>,
    max: Option<u64>,
    avg: Option<f64>,
    cpu: Option<i64>,
    /// oslat's, in seconds.
    duration: Option<f64>,
}

impl TryFrom<RawThread> for Thread {
    type Error = String;

    /// What does not fit together is refused here, where its place in the file is known.
    fn try_from(thread: RawThread) -> Result<Self, String> {
        series(&thread, 0, 1000, Histogram::Ends(0))
            .finish()
            .map_err(|problem| problem.message)
            .map(|_| Self(thread))
    }
}

pub(crate) fn tool(text: &str) -> Option<&'static str> {
    let head: String = text.chars().take(4096).filter(|letter| !letter.is_whitespace()).collect();
    let of = |name: &str| head.contains(&format!("\":\"{name}")) || head.contains(&format!("/{name}"));
    match () {
        () if head.starts_with("{\"format\":\"whylate.measure/") => Some(OWN),
        () if head.contains("\"format\":\"whylate") => None,
        () if head.contains("cmdline") && of("cyclictest") => Some("cyclictest"),
        () if head.contains("cmdline") && of("oslat") => Some("oslat"),
        () if head.contains("\"cpu\":{\"") && head.contains("\"histogram\":{") => Some("jitterdebugger"),
        () => None,
    }
}

/// The tool whose documents are [`MeasureResult`]s as they are.
pub(crate) const OWN: &str = "whylate measure";

pub(crate) fn own(text: &str) -> Result<MeasureResult, Problem> {
    serde_json::from_slice(text.as_bytes()).map_err(|error| problem(&error))
}

fn problem(error: &serde_json::Error) -> Problem {
    let message = error.to_string();
    let message = message.rsplit_once(" at line ").map_or(message.as_str(), |(what, _)| what).to_owned();
    Problem { line: error.line(), column: error.column(), message }
}

pub(crate) fn read(text: &str) -> Result<Imported, Problem> {
    let document: Document = serde_json::from_str(text).map_err(|error| problem(&error))?;
    let oslat = document.command.as_deref().is_some_and(|command| command.contains("oslat"));
    // Empty buckets are left out, so the last one may not be the end.
    let end = document.command.as_deref().and_then(options::histogram_end).unwrap_or(0);
    let form = if oslat { Histogram::LastHasRest } else { Histogram::Ends(end) };
    let unit_ns = if document.resolution_in_ns == Some(1) { 1 } else { 1000 };
    let mut facts = Facts::default();
    if let Some(system) = document.sysinfo {
        facts.host = system.nodename;
        facts.kernel.release = system.release;
        facts.kernel.realtime = system.realtime != 0;
    }
    let threads = document.thread.or(document.cpu).unwrap_or_default();
    let mut remarks = Vec::new();
    if threads.values().any(|Thread(thread)| thread.cpu.is_some_and(|cpu| cpu < 0)) {
        remarks.push("threads were not bound to CPUs: the figures are listed by thread number".to_owned());
    }
    let all = threads.iter().map(|(number, Thread(thread))| series(thread, *number, unit_ns, form));
    let series = all.filter(|series| series.count != Some(0)).collect();
    let version = document.version.map(|version| version.as_str().map_or(version.to_string(), str::to_owned));
    let probe = if oslat { "stall" } else { "timer" };
    let command = document.command.as_deref().map(without_files);
    Ok(Imported { probe, version, command, facts, series, remarks, ..Imported::default() })
}

/// A command line without the options that only name its output.
fn without_files(command: &str) -> String {
    let is_file = |word: &&str| word.starts_with("--json") || word.starts_with("--histfile");
    command.split_whitespace().filter(|word| !is_file(word)).collect::<Vec<_>>().join(" ")
}

/// How a tool counts what its histogram has no bucket for.
#[derive(Clone, Copy)]
enum Histogram {
    /// It leaves out values from this on, and perhaps from a larger value on.
    Ends(u64),
    /// The last bucket of oslat has all that is above it, too.
    LastHasRest,
}

fn series(thread: &RawThread, number: u32, unit_ns: u64, form: Histogram) -> ToolSeries {
    let nanoseconds = |value: u64| value.saturating_mul(unit_ns);
    let mut buckets: Vec<(u64, u64)> =
        thread.histogram.iter().map(|(value, count)| (nanoseconds(*value), *count)).collect();
    let last = buckets.last().copied();
    let max_ns = thread.max.map(nanoseconds);
    // No sample is above an end that is above the largest.
    let is_end = |end_ns: &u64| last.is_some() && max_ns.is_none_or(|max_ns| max_ns >= *end_ns);
    let end_ns = match form {
        Histogram::Ends(end) => Some(nanoseconds(end)).filter(is_end).unwrap_or(0),
        Histogram::LastHasRest => 0,
    };
    let mut series = ToolSeries {
        cpu: thread.cpu.and_then(|cpu| u32::try_from(cpu).ok()).unwrap_or(number),
        count: thread.cycles,
        min_ns: thread.min.map(nanoseconds),
        mean_ns: thread.avg.map(|avg| avg * unit_ns as f64),
        max_ns,
        measured_ns: thread.duration.map_or(0, |seconds| (seconds * 1e9) as u64),
        limit_ns: last.map_or(0, |(value, _)| value.saturating_add(unit_ns)).max(end_ns),
        ..ToolSeries::of(number)
    };
    if let (Histogram::LastHasRest, Some((value, count)), Some(max_ns)) = (form, last, max_ns)
        && max_ns > value
    {
        buckets.pop();
        (series.over, series.limit_ns) = (count, value);
    }
    series.buckets = buckets;
    series
}
