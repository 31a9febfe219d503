//! What the template is filled with: every text of the page, formatted.

use super::chart::{PanelKey, charts_clock, panel_keys, rate_units};
use super::facts::{FactSection, sections};
use crate::figure::{count, nanoseconds, unit_name};
use crate::table::{Field, Group, Line, LineKind, is_softirq, measured_cpus, run_groups};
use crate::{causes, latency, words};
use serde::Serialize;
use whylate_core::result::{CellResult, Outcome, RunResult, Spike, Verdict};
use whylate_core::{CpuId, Warning};

const SPIKES_MAX: usize = 20;
/// So many other contributors of a spike are named.
const ALSO_MAX: usize = 3;
const INTERRUPT_LINES_MAX: usize = 16;

/// The page.
#[derive(Debug, Serialize)]
pub(super) struct Page {
    title: String,
    question: Option<String>,
    verdict: Mark,
    machine: Vec<String>,
    extent: String,
    started_at: String,
    host: String,
    failures: Vec<String>,
    findings: Vec<Mark>,
    floors: Vec<String>,
    groups: Vec<GroupView>,
    whole_cell_note: Option<&'static str>,
    corrected_note: Option<&'static str>,
    rates: Vec<String>,
    spikes: Vec<SpikeView>,
    spikes_left_out: usize,
    spikes_dropped: Option<String>,
    causes: Vec<CauseView>,
    events: Vec<String>,
    ipis: IpiTable,
    interrupts: InterruptTable,
    late: Vec<String>,
    noise: Vec<NoiseView>,
    warnings: Vec<Warning>,
    facts: Vec<FactSection>,
    command: String,
    command_note: Option<String>,
    run_directory: String,
    plan: Option<String>,
    version: String,
}

/// A sentence with what it means for the reader.
#[derive(Debug, Serialize)]
struct Mark {
    /// `good`, `bad`, `warn` or `plain`: the colour; word and symbol say the same.
    class: &'static str,
    symbol: &'static str,
    word: &'static str,
    text: String,
}

/// One probe: its table and its charts.
#[derive(Debug, Serialize)]
struct GroupView {
    probe: String,
    meaning: &'static str,
    columns: Vec<ColumnView>,
    lines: Vec<LineView>,
    panels: Vec<PanelView>,
}

#[derive(Debug, Serialize)]
struct ColumnView {
    title: &'static str,
    class: &'static str,
}

#[derive(Debug, Serialize)]
struct LineView {
    corrected: bool,
    cells: Vec<CellView>,
}

#[derive(Debug, Serialize)]
struct CellView {
    text: Option<String>,
    class: &'static str,
}

/// Place of a panel in the charts' data.
#[derive(Debug, Serialize)]
struct PanelView {
    index: usize,
    suffix: String,
}

#[derive(Debug, Serialize)]
struct SpikeView {
    latency: String,
    at: String,
    cell: String,
    probe: String,
    cpu: CpuId,
    repeat: Option<u32>,
    sample: String,
    cause: String,
    evidence: Vec<String>,
}

/// A first cause of a cell's largest spikes.
#[derive(Debug, Serialize)]
struct CauseView {
    cell: String,
    probe: String,
    what: String,
    spikes: String,
    largest: String,
}

/// Interrupts from other CPUs against cells.
#[derive(Debug, Serialize)]
struct IpiTable {
    cells: Vec<String>,
    rows: Vec<IpiView>,
    left_out: usize,
}

#[derive(Debug, Serialize)]
struct IpiView {
    cpu: CpuId,
    function: String,
    caller: String,
    senders: String,
    counts: Vec<String>,
}

/// Interrupt lines against cells.
#[derive(Debug, Serialize)]
struct InterruptTable {
    cells: Vec<String>,
    rows: Vec<InterruptRow>,
    left_out: usize,
}

#[derive(Debug, Serialize)]
struct InterruptRow {
    cpu: CpuId,
    line: String,
    description: String,
    softirq: bool,
    counts: Vec<Option<String>>,
}

#[derive(Debug, Serialize)]
struct NoiseView {
    cell: String,
    duration: String,
    threshold: String,
    gaps: String,
    max: Option<String>,
    floor_steal: Option<String>,
    cell_steal: Option<String>,
    smis: Option<String>,
}

/// Everything that is on the page but the charts' data.
pub(super) fn page(run: &RunResult) -> Page {
    let groups = run_groups(run);
    let spikes = spikes(run);
    let (command, command_note) = words::reproduce(run);
    Page {
        title: run.plan.name.clone(),
        question: run.plan.question.clone(),
        verdict: verdict(run),
        machine: words::run_machine(run),
        extent: words::extent(run),
        started_at: run.started_at.clone(),
        host: run.facts.host.clone(),
        failures: words::failures(run),
        findings: findings(run),
        floors: words::noise_floors(run),
        whole_cell_note: (groups.len() > 1).then_some(words::WHOLE_CELL_NOTE),
        corrected_note: groups.iter().any(Group::has_corrected).then_some(words::CORRECTED_NOTE),
        groups: group_views(run, &groups),
        rates: rate_units(run).iter().map(|unit| rate_title(unit)).collect(),
        spikes_left_out: spikes.len().saturating_sub(SPIKES_MAX),
        spikes: spikes.into_iter().take(SPIKES_MAX).collect(),
        spikes_dropped: words::dropped_spikes(run.cells.iter().flat_map(|cell| &cell.probes)),
        causes: causes::of_run(run).into_iter().map(cause_view).collect(),
        events: causes::events_of_run(run),
        ipis: ipis(run),
        interrupts: interrupts(run),
        late: latency::of_run(run),
        noise: run.cells.iter().filter_map(noise).collect(),
        warnings: run.warnings.clone(),
        facts: sections(&run.facts, &measured_cpus(run)),
        command,
        command_note,
        run_directory: run.run.clone(),
        plan: words::plan_text(run),
        version: run.facts.whylate_version.clone(),
    }
}

fn verdict(run: &RunResult) -> Mark {
    let (class, symbol) = match run.verdict {
        Verdict::Pass => ("good", "✓"),
        Verdict::Fail => ("bad", "✗"),
        Verdict::NoLimit => ("plain", "–"),
        Verdict::Incomplete => ("warn", "!"),
    };
    Mark { class, symbol, word: words::verdict(run.verdict), text: run.verdict_reason.clone() }
}

fn findings(run: &RunResult) -> Vec<Mark> {
    let marks = words::findings(run).into_iter().map(|finding| {
        let (class, symbol, word) = match finding.outcome {
            Outcome::Worse => ("bad", "▲", "worse"),
            Outcome::Better => ("good", "▼", "better"),
            Outcome::NoEffect => ("plain", "=", "no effect"),
            Outcome::TooFewRepeats => ("plain", "?", "cannot tell"),
        };
        // Signs that a terminal cannot be trusted to have.
        let text = finding.text.replace(" -> ", " → ").replace(">= ", "≥ ");
        Mark { class, symbol, word, text }
    });
    marks.collect()
}

fn rate_title(unit: &str) -> String {
    match unit {
        "bytes_per_s" => "bytes/s".to_owned(),
        unit => unit_name(unit),
    }
}

fn group_views(run: &RunResult, groups: &[Group]) -> Vec<GroupView> {
    let keys = panel_keys(run);
    groups.iter().map(|group| group_view(group, &keys)).collect()
}

fn group_view(group: &Group, keys: &[PanelKey<'_>]) -> GroupView {
    let fields: Vec<Field> = Field::ALL.into_iter().filter(|field| group.uses(*field)).collect();
    let panels = keys.iter().enumerate().filter(|(_, key)| key.probe == group.probe);
    GroupView {
        probe: group.probe.clone(),
        meaning: words::probe_meaning(&group.probe),
        columns: fields
            .iter()
            .map(|field| ColumnView { title: group.title(*field), class: class(*field) })
            .collect(),
        lines: group.lines.iter().map(|line| line_view(line, &fields)).collect(),
        panels: panels
            .map(|(index, key)| PanelView {
                index,
                suffix: [key.series.map(str::to_owned), key.cpu.map(|cpu| format!("CPU {cpu}"))]
                    .into_iter()
                    .flatten()
                    .map(|part| format!(", {part}"))
                    .collect(),
            })
            .collect(),
    }
}

/// The style of a column; a narrow screen leaves `minor` ones out.
fn class(field: Field) -> &'static str {
    match field {
        Field::Cell | Field::Series => "name",
        Field::Mean | Field::P9999 => "number minor",
        _ => "number",
    }
}

fn line_view(line: &Line, fields: &[Field]) -> LineView {
    let cells = fields.iter().map(|field| CellView {
        text: line.cells.get(*field as usize).cloned().flatten(),
        class: match field {
            Field::Max if line.over_limit => "number over",
            field => class(*field),
        },
    });
    LineView { corrected: line.kind != LineKind::Recorded, cells: cells.collect() }
}

fn spikes(run: &RunResult) -> Vec<SpikeView> {
    let clock = charts_clock(run);
    let views = words::spikes(run).into_iter().map(|(cell, spike)| SpikeView {
        latency: nanoseconds(spike.latency_ns),
        at: clock.text(spike.at_ns),
        cell: cell.name.clone(),
        probe: spike.probe.clone().unwrap_or_default(),
        cpu: spike.cpu,
        repeat: spike.repeat,
        sample: count(spike.sample),
        cause: words::cause_and_share(&spike.cause),
        evidence: evidence(spike),
    });
    views.collect()
}

/// What speaks for the cause, who called its function, and who else contributed.
fn evidence(spike: &Spike) -> Vec<String> {
    let mut lines = spike.cause.evidence.clone();
    if !spike.cause.callers.is_empty() {
        lines.push(format!("called by {}", spike.cause.callers.join(" < ")));
    }
    if !spike.also.is_empty() {
        let also: Vec<String> = spike.also.iter().take(ALSO_MAX).map(words::cause_and_share).collect();
        lines.push(format!("also {}", also.join("; ")));
    }
    if let Some(event) = spike.event {
        lines.push(format!("event {event}: other CPUs were late at the same moment"));
    }
    lines
}

fn cause_view(first: causes::FirstCause) -> CauseView {
    CauseView {
        what: format!("{}{}", first.what, first.losses()),
        spikes: format!("{} of {}", count(first.spikes as u64), count(first.of as u64)),
        largest: nanoseconds(first.largest_ns),
        cell: first.cell,
        probe: first.probe,
    }
}

fn ipis(run: &RunResult) -> IpiTable {
    let causes::Ipis { cells, lines, left_out } = causes::Ipis::of_cells(&run.cells);
    let view = |line: causes::IpiLine| IpiView {
        cpu: line.cpu,
        function: line.function,
        caller: line.caller,
        senders: line.senders,
        counts: line.counts.iter().map(|number| count(*number)).collect(),
    };
    IpiTable { cells, rows: lines.into_iter().map(view).collect(), left_out }
}

/// The lines with the largest counts in any cell, hard interrupts before softirqs.
fn interrupts(run: &RunResult) -> InterruptTable {
    let mut keys: Vec<(CpuId, &str, &str, u64)> = Vec::new();
    for record in run.cells.iter().flat_map(|cell| &cell.interrupts).filter(|record| record.count > 0) {
        match keys.iter_mut().find(|key| key.0 == record.cpu && key.1 == record.line) {
            Some(key) => key.3 = key.3.max(record.count),
            None => keys.push((record.cpu, &record.line, &record.description, record.count)),
        }
    }
    keys.sort_by_key(|(cpu, line, _, most)| (is_softirq(line), std::cmp::Reverse(*most), *cpu));
    let left_out = keys.len().saturating_sub(INTERRUPT_LINES_MAX);
    let cells: Vec<&CellResult> = run.cells.iter().filter(|cell| cell.skipped.is_none()).collect();
    let counted = |cell: &&CellResult, cpu: CpuId, line: &str| {
        let record = cell.interrupts.iter().find(|record| record.cpu == cpu && record.line == line);
        record.map(|record| count(record.count))
    };
    let rows = keys.into_iter().take(INTERRUPT_LINES_MAX).map(|(cpu, line, description, _)| InterruptRow {
        cpu,
        line: line.strip_prefix("softirq:").unwrap_or(line).to_owned(),
        description: description.to_owned(),
        softirq: is_softirq(line),
        counts: cells.iter().map(|cell| counted(cell, cpu, line)).collect(),
    });
    InterruptTable {
        rows: rows.collect(),
        cells: cells.iter().map(|cell| cell.name.clone()).collect(),
        left_out,
    }
}

fn noise(cell: &CellResult) -> Option<NoiseView> {
    let floor = cell.noise_floor.as_ref()?;
    Some(NoiseView {
        cell: cell.name.clone(),
        duration: nanoseconds(floor.duration_ns),
        threshold: nanoseconds(floor.threshold_ns),
        gaps: count(floor.gaps),
        max: floor.max_ns.map(nanoseconds),
        floor_steal: floor.steal_ns.map(nanoseconds),
        cell_steal: cell.steal_ns.map(nanoseconds),
        smis: cell.smis.map(count),
    })
}
