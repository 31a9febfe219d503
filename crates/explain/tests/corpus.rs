//! Every trace in `fixtures/traces` with an expected answer next to it; the scheme is in its README.

mod support;

use serde::Deserialize;
use std::fs;
use std::path::{Path, PathBuf};
use support::{ENDING, answers};
use whylate_core::Nanos;
use whylate_core::result::{Cause, CauseKind, ExplainAnswer, ExplainResult, ExplainedSpike};
use whylate_explain::{Options, explain};
use whylate_trace::parse;

/// The file next to a trace.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Answer {
    task: Option<String>,
    period: Option<String>,
    threshold: Option<String>,
    expect: Expected,
}

/// The expected largest spike, or `none = true`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Expected {
    #[serde(default)]
    none: bool,
    kind: Option<String>,
    /// Any of these, if the trace leaves it open.
    #[serde(default)]
    kinds: Vec<String>,
    function: Option<String>,
    /// The first callers.
    #[serde(default)]
    callers: Vec<String>,
    actor: Option<String>,
    pid: Option<u32>,
    share: Option<[f64; 2]>,
    latency_us: Option<[u64; 2]>,
    /// The trace does not show it, and the answer has to say so.
    #[serde(default)]
    cannot_tell: bool,
    /// No function may be named: it is not in the trace.
    #[serde(default)]
    no_function: bool,
    /// How late the other tasks were, latest first, in whole microseconds.
    #[serde(default)]
    also_late_us: Vec<u64>,
    /// How many spikes there are.
    spikes: Option<u64>,
    /// The largest spike on this CPU, if tasks of several CPUs are measured.
    cpu: Option<u32>,
    /// One piece of evidence has all of these words.
    #[serde(default)]
    evidence_has: Vec<String>,
    /// Codes of warnings that the answer has.
    #[serde(default)]
    warnings: Vec<String>,
    /// From when to when the cause was planted, on the trace's clock.
    planted_ns: Option<[u64; 2]>,
}

/// How much the named cause covers of the part of the planted one that made the task late.
const COVERED_LEAST: f64 = 0.8;

#[test]
fn every_trace_has_its_answer() {
    let paths = answers();
    assert!(paths.len() >= 10, "the corpus is not there: {paths:?}");
    let wrong: Vec<String> = paths.iter().filter_map(|path| check(path).err()).collect();
    assert!(wrong.is_empty(), "{} of {} are wrong:\n{}", wrong.len(), paths.len(), wrong.join("\n"));
}

fn check(path: &Path) -> Result<(), String> {
    let trace = PathBuf::from(path.to_string_lossy().strip_suffix(ENDING).expect("the ending"));
    let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let answer: Answer = toml::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))?;
    let nanos =
        |text: &Option<String>| text.as_ref().map(|text| text.parse::<Nanos>().expect("a duration").0);
    let options = Options {
        task: answer.task.as_ref().map(|task| task.parse().expect("never fails")),
        period_ns: nanos(&answer.period),
        threshold_ns: nanos(&answer.threshold),
        ..Options::default()
    };
    let name = trace.display();
    let mut reader = parse::open(&trace).map_err(|error| format!("{name}: {error}"))?;
    let result = explain(reader.as_mut(), &options).map_err(|error| format!("{name}: {error}"))?;
    result.spikes.iter().for_each(tiles);
    let mut differences = compare(&answer.expect, &result);
    // Recordings of the lab are on the planters' clock, and the file says so.
    if answer.expect.planted_ns.is_some() && trace.to_string_lossy().contains(".dat") {
        let clock = result.traces[0].clock.as_deref();
        differences.extend((clock != Some("mono")).then(|| format!("clock {clock:?}")));
    }
    if differences.is_empty() { Ok(()) } else { Err(format!("{name}: {}", differences.join("; "))) }
}

/// The timeline goes without gaps from the expected to the actual moment, and no time counts twice.
fn tiles(spike: &ExplainedSpike) {
    let ends = spike.timeline.iter().fold(spike.expected_ns, |at, segment| {
        assert_eq!(segment.from_ns, at);
        segment.to_ns
    });
    assert_eq!(ends, spike.actual_ns);
    let shares: f64 = std::iter::once(&spike.cause).chain(&spike.also).filter_map(|cause| cause.share).sum();
    assert!(shares <= 1.0 + 1e-9, "{shares}");
}

fn compare(expected: &Expected, result: &ExplainResult) -> Vec<String> {
    let mut differences = Vec::new();
    let found = result.traces.iter().map(|trace| trace.spikes_found).sum::<u64>();
    if let Some(spikes) = expected.spikes.filter(|spikes| *spikes != found) {
        differences.push(format!("{spikes} spikes expected, {found} found"));
    }
    let said = result.answer == ExplainAnswer::CannotTell;
    if said != expected.cannot_tell && (said || expected.cannot_tell) && !expected.none {
        differences.push(format!("answer {} ({:?})", result.answer, result.answer_reason));
    }
    if expected.none && result.answer == ExplainAnswer::Found {
        differences.push("late moments were found".to_owned());
    }
    let also: Vec<u64> = result.traces[0].also_late.iter().map(|late| late.latency_ns / 1000).collect();
    if !also.starts_with(&expected.also_late_us) {
        differences.push(format!("also late {also:?}"));
    }
    let missing = |code: &&String| !result.warnings.iter().any(|it| it.code == code.as_str());
    differences.extend(expected.warnings.iter().filter(missing).map(|code| format!("no warning {code}")));
    let on_cpu = |spike: &&ExplainedSpike| expected.cpu.is_none_or(|cpu| spike.cpu.0 == cpu);
    let Some(spike) = result.spikes.iter().find(on_cpu) else {
        if !expected.none && !expected.cannot_tell {
            differences.push(format!("no spike was found (task {:?})", result.traces[0].task));
        }
        return differences;
    };
    if expected.none {
        differences.push(format!("no spike expected, {} us by {:?}", spike.latency_ns / 1000, spike.cause));
        return differences;
    }
    let cause: &Cause = &spike.cause;
    let kind = serde_json::to_value(cause.kind).expect("a name").as_str().unwrap_or_default().to_owned();
    if expected.kind.iter().chain(&expected.kinds).all(|wanted| *wanted != kind) {
        differences.push(format!("kind {kind}, {:?} expected: {cause:?}", expected.kind));
    }
    let mut differ = |what: &str, wanted: &Option<String>, got: &Option<String>| {
        if wanted.is_some() && wanted != got {
            differences.push(format!("{what} {got:?}, {wanted:?} expected"));
        }
    };
    differ("function", &expected.function, &cause.function);
    if expected.no_function {
        differ("function", &Some(String::new()), &Some(cause.function.clone().unwrap_or_default()));
    }
    differ("actor", &expected.actor, &cause.actor);
    if !cause.callers.starts_with(&expected.callers) {
        differences.push(format!("callers {:?}", cause.callers));
    }
    let has_all = |text: &String| expected.evidence_has.iter().all(|word| text.contains(word));
    if !expected.evidence_has.is_empty() && !cause.evidence.iter().any(has_all) {
        differences.push(format!("evidence {:?}", cause.evidence));
    }
    let outside =
        |range: Option<[f64; 2]>, value: f64| range.is_some_and(|[low, high]| value < low || value > high);
    let (share, latency) = (cause.share.unwrap_or(0.0), spike.latency_ns as f64 / 1000.0);
    if outside(expected.share, share)
        || outside(expected.latency_us.map(|range| range.map(|us| us as f64)), latency)
    {
        differences.push(format!("share {share}, latency {latency} us"));
    }
    if expected.pid.is_some_and(|pid| cause.pid != Some(pid)) {
        differences.push(format!("pid {:?}", cause.pid));
    }
    differences.extend(expected.planted_ns.and_then(|planted| misses(planted, spike)));
    differences
}

/// Why the named cause is not the planted one, judged by its time.
fn misses([begin, end]: [u64; 2], spike: &ExplainedSpike) -> Option<String> {
    let overlap = |from: u64, to: u64| to.min(end).min(spike.actual_ns).saturating_sub(from.max(begin));
    let felt = overlap(spike.expected_ns, spike.actual_ns);
    let (from, to) = spike.cause.from_ns.zip(spike.cause.to_ns)?;
    let named = overlap(from.max(spike.expected_ns), to);
    let covered = named as f64 / felt.max(1) as f64;
    (felt == 0 || covered < COVERED_LEAST).then(|| {
        format!(
            "planted {begin} to {end}, named {from} to {to}, late {} to {}",
            spike.expected_ns, spike.actual_ns
        )
    })
}

/// Only wake-ups are decoded, but records of other kinds count; also in texts, whatever was read last.
#[test]
fn every_record_counts_in_every_form() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/traces");
    let events = |name: &str| {
        let mut reader = parse::open(&folder.join(name)).expect("a trace");
        explain(&mut *reader, &Options::default()).expect("it can be read").events
    };
    assert_eq!(events("events-rt-6.1.dat"), events("events-rt-6.1.report.zst"));
    assert_eq!(events("functions-rt-6.1.dat"), 210_179);
    // The first and the last of them.
    assert_eq!(events("functions-rt-6.1.report.zst"), 30_000);
}

/// Names that show a guest may be anywhere in a trace, not only in the windows and among the wake-ups.
#[test]
fn a_guest_is_known_by_names_outside_of_the_windows() {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/traces/styles/events_report.txt.xz");
    let mut reader = parse::open(&path).expect("a trace");
    let spikes = explain(&mut *reader, &Options::default()).expect("it can be read").spikes;
    assert_eq!(spikes[0].cause.kind, CauseKind::HostStall, "{:?}", spikes[0].cause);
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/traces").join(name)
}

fn spike_of(path: &Path) -> ExplainedSpike {
    let mut reader = parse::open(path).expect("a trace");
    explain(&mut *reader, &Options::default()).expect("it can be read").spikes.remove(0)
}

/// Whatever line stands before an ellipsis, its function did not take the time of the lines that were left out.
#[test]
fn an_ellipsis_is_no_silence_of_the_function_before_it() {
    let text = fs::read_to_string(fixture("real/page_alloc_irqsoff.txt")).expect("a text");
    let shorter: Vec<&str> = text.lines().filter(|line| !line.contains(" 1803us+")).collect();
    assert_eq!(shorter.len() + 1, text.lines().count());
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("trace.txt");
    fs::write(&path, shorter.join("\n")).expect("it can be written");
    let cause = spike_of(&path).cause;
    assert_eq!(cause.function.as_deref(), Some("__rmqueue_pcplist"), "{cause:?}");
    assert_eq!(cause.callers.first().map(String::as_str), Some("get_page_from_freelist"));
    assert!(cause.evidence[0].contains("try_to_claim_block"), "{cause:?}");
}

/// The timeline names functions of the lines that are there: not those before omitted lines, nor the tracer's own.
#[test]
fn a_section_shows_in_a_function_only_the_time_that_its_lines_show() {
    let longest = |name: &str| {
        let timeline = spike_of(&fixture(name)).timeline;
        timeline.into_iter().max_by_key(|segment| segment.to_ns - segment.from_ns).expect("a segment")
    };
    let omitted = longest("real/irqsoff_graph.txt");
    assert_eq!((omitted.what.as_str(), omitted.function), ("lines were left out", None));
    let uart = longest("real/uart_irqsoff.txt");
    assert_eq!((uart.what.as_str(), uart.function), ("ls: interrupts disabled", None));
    let old = spike_of(&fixture("real/old_trace_v102.txt"));
    let others: Vec<Option<&str>> = old.also.iter().map(|cause| cause.function.as_deref()).collect();
    assert_eq!(others.first(), Some(&Some("vgacon_set_origin")), "{others:?}");
}

/// Its four lines are the edges of the section, and a reschedule was requested meanwhile: a tick came.
#[test]
fn a_tracer_without_functions_shows_no_missing_tick() {
    let evidence = spike_of(&fixture("real/deactivate_cpu128.txt")).cause.evidence;
    assert!(!evidence.iter().any(|line| line.contains("no tick came")), "{evidence:?}");
}
