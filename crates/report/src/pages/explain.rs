//! Reports of `whylate explain`: a sentence that names the culprit, a picture of the time between the expected and
//! the actual moment, and the records that are its evidence. Nothing here decides about causes.

use super::{finding, log};
use crate::section::{
    Block, Cell, Column, Depth, Item, Page, Row, Section, Span, Table, Text, Timeline, Tone, sentences,
};
use crate::sections::{guide, warnings};
use crate::words;
use whylate_core::figure::{self, nanoseconds, of_kernel, priority, share};
use whylate_core::result::{
    CauseKind, EvidenceLine, ExpectedFrom, ExplainAnswer, ExplainResult, ExplainedRun, ExplainedSpike,
    ExplainedTrace, LateTask, Spike, ThresholdFrom, TimelineSegment,
};

/// Spikes that a terminal draws in full; the others have a line.
const DRAWN_MAX: usize = 3;
const LINES_MAX: usize = 100;

pub fn explain(result: &ExplainResult) -> Page {
    if result.answer == ExplainAnswer::Log {
        return log::page(result);
    }
    let (title, title_tone) = match result.spikes.first() {
        Some(spike) if spike.cause.kind == CauseKind::Unattributed => (finding::finding(spike), Tone::Warn),
        Some(spike) => (finding::finding(spike), Tone::Bad),
        None if !result.measured.is_empty() && result.answer != ExplainAnswer::None => {
            (largest(&result.measured).unwrap_or_else(|| count(result)), Tone::Warn)
        }
        None => (count(result), if result.answer == ExplainAnswer::None { Tone::Good } else { Tone::Warn }),
    };
    let run = result.of_run.iter().map(of_run);
    let traces = run.chain(result.traces.iter().map(described));
    let counted = match result.answer {
        _ if !result.spikes.is_empty() => Some(count(result)),
        ExplainAnswer::Found => Some(count(result)).filter(|counted| *counted != title),
        _ => result.answer_reason.clone().or_else(|| worst(result)),
    };
    let left_out = result.traces.iter().filter_map(left_out);
    Page {
        origin: "whylate explain".to_owned(),
        title,
        title_tone,
        about: traces.chain(counted).chain(left_out).map(|line| vec![line]).collect(),
        sections: sections(result),
        ..Page::default()
    }
}

/// Sleeps that only `--what blocked` explains.
fn left_out(trace: &ExplainedTrace) -> Option<String> {
    let sleeps = match trace.waits_left_out {
        0 => return None,
        1 => "1 sleep without a timer is".to_owned(),
        many => format!("{} sleeps without a timer are", figure::count(many)),
    };
    let threshold = nanoseconds(trace.threshold_ns);
    Some(format!("{sleeps} longer than {threshold} and not counted: `--what blocked` explains them."))
}

/// `run quick on bench-3, Linux 6.12.9-rt, started 2026-11-23T03:10:00Z, cell l3`.
fn of_run(run: &ExplainedRun) -> String {
    let ExplainedRun { plan, host, kernel, started_at, cell } = run;
    let host = if host.is_empty() { String::new() } else { format!(" on {host}") };
    let cell = cell.as_ref().map(|cell| format!(", cell {cell}")).unwrap_or_default();
    format!("run {plan}{host}, Linux {kernel}, started {started_at}{cell}")
}

/// What the run measured, each spike, and what the trace does not show.
pub(super) fn sections(result: &ExplainResult) -> Vec<Section> {
    let measured = Section::new("measured", "Spikes that the run measured");
    // A spike that a trace shows too has its own section, with the same cause.
    let is_extra = |spike: &&Spike| {
        !result.spikes.iter().any(|shown| shown.cpu == spike.cpu && shown.cause == spike.cause)
    };
    // The start of a listed response has its causes among those of the response.
    let is_own = |spike: &&Spike| !result.measured.iter().any(|whole| is_begin_of(spike, whole));
    let listed = result.measured.iter().filter(is_extra).filter(is_own);
    let measured = measured.with(sentences(listed.map(line))).unless_empty();
    let spikes = result.spikes.iter().enumerate().map(|(index, spike)| {
        let line = format!("{} s: {}", moment(spike.expected_ns), finding::finding(spike));
        let depth = if index < DRAWN_MAX { Depth::Main } else { Depth::Brief(line) };
        let trace = result.traces.get(spike.trace);
        let cell = in_cell(trace.and_then(|trace| trace.cell.as_ref()));
        self::spike(format!("{}{cell}", heading(spike)), spike, trace).depth(depth)
    });
    let more: u64 = result.traces.iter().map(|trace| trace.also_late_more).sum();
    let more = (more > 0).then(|| {
        Block::note(format!("Late tasks that are not listed: {more} (`--task NAME` explains one)."))
    });
    let also = Section::new("also-late", "Other late tasks")
        .with_all(also_late(result))
        .with_all(more)
        .unless_empty();
    let guide = guide::of_explanation(result);
    let all = measured.into_iter().chain(spikes).chain(also).chain(guide);
    all.chain(warnings::section(&result.warnings)).collect()
}

/// Whether a spike is a part (`task/audio/wakeup`) of another one that began at the same moment.
fn is_begin_of(part: &Spike, whole: &Spike) -> bool {
    let name = |spike: &Spike| spike.probe.clone().unwrap_or_default();
    let begin_ns = |spike: &Spike| spike.at_ns.saturating_sub(spike.latency_ns);
    let is_part = name(part).strip_prefix(&name(whole)).is_some_and(|rest| rest.starts_with('/'));
    is_part && part.cpu == whole.cpu && begin_ns(part) == begin_ns(whole)
}

/// Other tasks, with the worst moment of each.
fn also_late(result: &ExplainResult) -> Option<Table> {
    let mut columns = vec![Column::text("task")];
    columns.extend(["CPU", "priority", "late by"].map(Column::number));
    columns.extend([Column::text("delay"), Column::number("ran at")]);
    let row = |late: &LateTask| {
        Row::of::<Cell>([
            named(&late.task, late.pid).into(),
            late.cpu.to_string().into(),
            late.priority.map(|it| priority(of_kernel(it))).unwrap_or_default().into(),
            nanoseconds(late.latency_ns).into(),
            late.what.name().into(),
            format!("{} s", moment(late.at_ns)).into(),
        ])
    };
    let rows: Vec<Row> = result.traces.iter().flat_map(|trace| &trace.also_late).map(row).collect();
    (!rows.is_empty()).then(|| Table::new(columns, rows))
}

/// `cyclictest-192`.
fn named(task: &str, pid: Option<u32>) -> String {
    let pid = pid.map(|pid| format!("-{pid}")).unwrap_or_default();
    format!("{}{pid}", if task.is_empty() { "hardware" } else { task })
}

/// The basis of "none": the largest latency in the trace.
fn worst(result: &ExplainResult) -> Option<String> {
    let worst = result.traces.iter().filter_map(|trace| trace.worst.as_ref());
    let worst = worst.max_by_key(|late| late.latency_ns)?;
    let (who, latency) = (named(&worst.task, worst.pid), nanoseconds(worst.latency_ns));
    Some(format!(
        "The largest latency is {latency}: {who} on CPU {} at {} s.",
        worst.cpu,
        moment(worst.at_ns)
    ))
}

/// `cyclictest-192 on CPU 0: 3.46 ms late`.
fn heading(spike: &ExplainedSpike) -> String {
    if spike.task.is_empty() {
        return format!("CPU {}: {}", spike.cpu, finding::length(spike));
    }
    let task = named(&spike.task, spike.pid);
    format!("{task} on CPU {}: {} late", spike.cpu, finding::length(spike))
}

/// A line about a spike that a probe of the run recorded.
fn line(spike: &Spike) -> String {
    let probe = spike.probe.as_deref().unwrap_or("probe");
    let hwlat = spike.hwlat.as_ref().map(|sample| format!(" ({})", words::hwlat(sample))).unwrap_or_default();
    let cause = words::cause(&spike.cause);
    let cell = in_cell(spike.cell.as_ref());
    format!("{} {probe} on CPU {}{cell}: {cause}{hwlat}", nanoseconds(spike.latency_ns), spike.shown_cpu())
}

/// ` in cell l3`.
fn in_cell(cell: Option<&String>) -> String {
    cell.map(|cell| format!(" in cell {cell}")).unwrap_or_default()
}

/// The largest spike that a probe of the run recorded.
fn largest(measured: &[Spike]) -> Option<String> {
    let spike = measured.iter().max_by_key(|spike| spike.latency_ns)?;
    let probe = spike.probe.as_deref().unwrap_or("probe");
    let latency = nanoseconds(spike.latency_ns);
    Some(format!("{latency} in {probe} on CPU {}: {}", spike.shown_cpu(), spike.cause.sentence()))
}

/// One spike: the moments, the callers, the confidence, other contributors, the time as a picture and in figures.
pub(crate) fn spike(title: String, spike: &ExplainedSpike, trace: Option<&ExplainedTrace>) -> Section {
    let (at, ran) = (moment(spike.expected_ns), moment(spike.actual_ns));
    let found = Some(finding::finding(spike)).filter(|finding| !title.contains(finding));
    let mut items: Vec<Item> = found.into_iter().map(Item::from).collect();
    let ran =
        if spike.unended { format!("had not run by {ran} s, the end") } else { format!("ran at {ran} s") };
    items.push(Item::from(format!("expected at {at} s ({}), {ran}", expected(spike))));
    items.extend(spike.hwlat.as_ref().map(|sample| Item::from(words::hwlat(sample))));
    items.extend(finding::chain(&spike.cause).map(|chain| Item::from(Text::code(chain))));
    items.extend(finding::confidence(&spike.cause).map(Item::from));
    items
        .extend(spike.also.iter().map(|cause| format!("also {}", finding::contributor(cause, spike)).into()));
    let file = trace.map(|trace| format!("records of {}", trace.path));
    let records: Vec<Item> = spike.evidence.iter().map(record).collect();
    let records = Section::new("", file.unwrap_or_else(|| "records".to_owned())).with(records);
    Section::new("", title)
        .with(items)
        .with(timeline(spike))
        .with(table(spike))
        .with(records.depth(Depth::Folded))
}

fn record(line: &EvidenceLine) -> Item {
    Text::from(format!("byte {}, {}: ", line.offset, line.meaning)).and(Span::Code(line.text.clone())).into()
}

/// The segments from the expected moment on.
fn timeline(spike: &ExplainedSpike) -> Timeline {
    let since = |at_ns: u64| at_ns.saturating_sub(spike.expected_ns);
    let segments = spike.timeline.iter().map(|segment| TimelineSegment {
        from_ns: since(segment.from_ns),
        to_ns: since(segment.to_ns),
        ..segment.clone()
    });
    Timeline { length_ns: spike.latency_ns, segments: segments.collect() }
}

/// The same in figures.
fn table(spike: &ExplainedSpike) -> Section {
    let mut columns: Vec<Column> = ["from", "time", "share", "CPU"].map(Column::number).into();
    columns.extend(["what", "function"].map(Column::text));
    let timeline = timeline(spike);
    let row = |segment: &TimelineSegment| {
        let time = segment.to_ns - segment.from_ns;
        Row::of::<Cell>([
            format!("+{}", nanoseconds(segment.from_ns)).into(),
            nanoseconds(time).into(),
            share(timeline.share(time)).into(),
            segment.cpu.to_string().into(),
            Text::default().and(Span::Swatch(segment.kind)).and_plain(segment.what.as_str()).into(),
            segment.function.as_ref().map_or("".into(), |function| Text::code(function).into()),
        ])
    };
    let rows = timeline.segments.iter().take(LINES_MAX).map(row).collect();
    let left_out = timeline.segments.len().saturating_sub(LINES_MAX);
    let note = (left_out > 0)
        .then(|| Block::note(format!("Later stages that only the JSON (`--json`) lists: {left_out}.")));
    let section = Section::new("", "What happened, in order").depth(Depth::Detail);
    section.with(Table::new(columns, rows)).with_all(note)
}

/// `492.318937`: seconds of the trace's clock.
pub(crate) fn moment(at_ns: u64) -> String {
    let (whole, rest) = (at_ns / 1_000_000_000, at_ns % 1_000_000_000);
    if rest.is_multiple_of(1000) {
        format!("{whole}.{:06}", rest / 1000)
    } else {
        format!("{whole}.{rest:09}")
    }
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
        let how = if trace.period_inferred { "inferred from the task's runs" } else { "given" };
        parts.push(format!("period {} ({how})", nanoseconds(period)));
    }
    if trace.threshold_from == ThresholdFrom::Marker {
        let threshold = nanoseconds(trace.threshold_ns);
        parts.push(format!("threshold {threshold} (from the break marker in the trace)"));
    }
    parts.join(", ")
}

/// ` in 2.00 s of the trace`, if that is known of all traces.
fn covered(traces: &[ExplainedTrace]) -> String {
    let sum = traces.iter().try_fold(0u64, |sum, trace| sum.checked_add(trace.covered_ns?));
    let of = if traces.len() == 1 { "the trace" } else { "the traces" };
    sum.map(|covered_ns| format!(" in {} of {of}", nanoseconds(covered_ns))).unwrap_or_default()
}

/// How many spikes there are, and how many are shown.
pub(super) fn count(result: &ExplainResult) -> String {
    let found: u64 = result.traces.iter().map(|trace| trace.spikes_found).sum();
    let threshold = result.traces.iter().map(|trace| trace.threshold_ns).min().unwrap_or(0);
    let threshold = nanoseconds(threshold);
    let shown = result.spikes.len() as u64;
    let found = found.max(shown);
    // If the trace itself says which moment is meant, its latency is already in the same line.
    let is_itself = |trace: &ExplainedTrace| {
        matches!(
            trace.threshold_from,
            ThresholdFrom::Kept | ThresholdFrom::Header | ThresholdFrom::Stop | ThresholdFrom::Tracer
        )
    };
    let largest = result.spikes.iter().max_by_key(|spike| spike.latency_ns).map(finding::length);
    let above = match largest {
        Some(largest) if result.traces.iter().all(is_itself) && found > 1 => {
            format!(", the largest {largest}")
        }
        Some(largest) if result.traces.iter().all(is_itself) => format!(" of {largest}"),
        _ => format!(" above {threshold}"),
    };
    let number = match result.traces.iter().any(|trace| trace.wakeups_unseen > 0) {
        true => format!("At least {found}"),
        false => found.to_string(),
    };
    match (result.answer, found, shown) {
        (ExplainAnswer::CannotTell, ..) => "The trace does not show whether a task was late.".to_owned(),
        (ExplainAnswer::Found, 0, _) => {
            "The run's probes recorded these spikes; no trace shows any of them.".to_owned()
        }
        (_, 0, _) if result.traces.is_empty() => "The run's probes recorded no spike.".to_owned(),
        (_, 0, _) => format!("No latency above {threshold} was found{}.", covered(&result.traces)),
        (_, 1, _) => format!("{number} latency{above}."),
        (_, _, 1) => format!("{number} latencies{above}; the largest is explained."),
        (_, found, shown) if found > shown => {
            format!("{number} latencies{above}; the {shown} largest are explained.")
        }
        _ => format!("{number} latencies{above}."),
    }
}

/// The basis of the expected moment, and how exact it is.
fn expected(spike: &ExplainedSpike) -> String {
    let basis = match spike.expected_from {
        ExpectedFrom::Timer => "the expiry of the task's timer",
        ExpectedFrom::Tracer => "the latency that the tracer measured",
        ExpectedFrom::Marker => "the latency that the task printed",
        ExpectedFrom::Probe => "the latency that the probe measured",
        // The sleep began when the task's work ended, which takes a different time in each period.
        ExpectedFrom::Period => {
            return "from the last sleep and the period: too late by the task's run time".to_owned();
        }
        ExpectedFrom::Wakeup => "the wake-up",
        ExpectedFrom::Interrupted => "the moment of the interruption",
    };
    format!("from {basis}, within {}", nanoseconds(spike.expected_error_ns))
}
