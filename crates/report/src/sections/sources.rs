//! What took the time that a loop without sleep lost, until the parts add up to the whole.

use crate::section::{Column, Row, Section, Table};
use crate::words;
use whylate_core::figure::{count, nanoseconds, nanoseconds_f64, share};
use whylate_core::plan::ProbePlan;
use whylate_core::quantity::{LOST_NS, SOURCES};
use whylate_core::result::{
    Cause, CauseKind, CpuResult, MeasureResult, ProbeResult, RunResult, SourceResult,
};

/// The most sources of one cell and CPU that are listed; the others are one line.
const SOURCES_MAX: usize = 8;

pub(super) fn of_run(run: &RunResult) -> Vec<Section> {
    let of_cell = |probe: &ProbeResult, cell: &str| rows(probe, Some(cell));
    let all = section(
        run.cells.iter().flat_map(|cell| cell.probes.iter().flat_map(|it| of_cell(it, &cell.name))).collect(),
    );
    // For a watched thread this section is the answer.
    if run.plan.probe.iter().any(|probe| matches!(probe, ProbePlan::Task(_))) {
        return all;
    }
    all.into_iter().map(|section| section.depth(crate::section::Depth::Detail)).collect()
}

pub(super) fn of_measure(measure: &MeasureResult) -> Vec<Section> {
    section(rows(&measure.probe, None))
}

fn section(rows: Vec<Row>) -> Vec<Section> {
    let columns = vec![
        Column::text("cell"),
        Column::number("CPU"),
        Column::text("thread"),
        Column::text("source").wraps(),
        Column::number("gaps"),
        Column::number("total"),
        Column::number("share"),
        Column::number("mean").importance(1),
        Column::number("max"),
    ];
    Section::new("sources", "Who took the time")
        .meaning(
            "what caused the gaps of a loop; for a watched thread, what used the CPU or held its lock while \
             it had work",
        )
        .with(Table::new(columns, rows))
        .unless_empty()
}

fn rows(probe: &ProbeResult, cell: Option<&str>) -> Vec<Row> {
    probe.cpus.iter().flat_map(|cpu| of_cpu(cpu, cell)).collect()
}

/// The largest sources of one CPU, then the others as one, then the time without a known source.
fn of_cpu(cpu: &CpuResult, cell: Option<&str>) -> Vec<Row> {
    let sources = cpu.quantities.of(SOURCES).map_or(&[][..], Vec::as_slice);
    let (unknown, mut known): (Vec<&SourceResult>, Vec<&SourceResult>) =
        sources.iter().partition(|source| source.kind == CauseKind::Unattributed);
    let others = known.split_off(known.len().min(SOURCES_MAX));
    // A recorded source may begin before a gap and end after it: the parts refer to the larger sum.
    let known_ns = sources.iter().map(|source| source.total_ns).fold(0, u64::saturating_add);
    let lost_ns = cpu.get(LOST_NS).unwrap_or(0).max(known_ns).max(1) as f64;
    let row = |name: String, source: &SourceResult| {
        Row::of([
            cell.map(str::to_owned),
            Some(cpu.cpu.to_string()),
            cpu.series.clone(),
            Some(name),
            Some(count(source.gaps)).filter(|_| source.gaps > 0),
            Some(nanoseconds(source.total_ns)),
            Some(share(source.total_ns as f64 / lost_ns)),
            Some(nanoseconds_f64(source.mean_ns)).filter(|_| source.gaps > 0),
            Some(nanoseconds(source.max_ns)).filter(|_| source.max_ns > 0),
        ])
    };
    let rest = (!others.is_empty()).then(|| (words::counted(others.len(), "other"), sum(&others)));
    let is_watched = cpu.series.is_some();
    let named = known.into_iter().chain(unknown).map(|source| (name(source, is_watched), source.clone()));
    let (mut rows, last): (Vec<_>, Vec<_>) =
        named.partition(|(_, source)| source.kind != CauseKind::Unattributed);
    rows.extend(rest);
    rows.extend(last);
    rows.into_iter().map(|(name, source)| row(name, &source)).collect()
}

fn name(source: &SourceResult, is_watched: bool) -> String {
    if is_watched && source.kind == CauseKind::Unattributed {
        return "the thread's wake-ups (from timer or interrupt to context switch), and what is not explained".to_owned();
    }
    let SourceResult { kind, actor, function, .. } = source.clone();
    words::cause_name(&Cause { actor, function, ..Cause::new(kind) })
}

fn sum(sources: &[&SourceResult]) -> SourceResult {
    let total =
        |of: fn(&SourceResult) -> u64| sources.iter().map(|source| of(source)).fold(0, u64::saturating_add);
    let (gaps, total_ns) = (total(|it| it.gaps), total(|it| it.total_ns));
    SourceResult {
        gaps,
        total_ns,
        mean_ns: total_ns as f64 / gaps.max(1) as f64,
        max_ns: sources.iter().map(|source| source.max_ns).max().unwrap_or(0),
        ..SourceResult::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::write::Style;
    use whylate_core::CpuId;
    use whylate_core::quantity::Quantities;

    #[test]
    fn the_lines_of_a_cpu_add_up_to_its_lost_time() {
        let source = |nth: u64| SourceResult {
            kind: CauseKind::Thread,
            actor: Some(format!("thread-{nth}")),
            gaps: 2,
            total_ns: 1_000_000 * (20 - nth),
            mean_ns: 500_000.0 * (20 - nth) as f64,
            max_ns: 900_000,
            ..SourceResult::default()
        };
        let unknown =
            SourceResult { kind: CauseKind::Unattributed, total_ns: 5_000_000, ..SourceResult::default() };
        let mut sources: Vec<SourceResult> = (0..10).map(source).collect();
        sources.push(unknown);
        let lost_ns: u64 = sources.iter().map(|source| source.total_ns).sum();
        let quantities = Quantities::default().with(LOST_NS, lost_ns).with(SOURCES, sources);
        let cpu = CpuResult { cpu: CpuId(1), quantities, ..CpuResult::default() };
        let probe = ProbeResult { probe: "stall".to_owned(), cpus: vec![cpu], ..ProbeResult::default() };
        let page = crate::section::Page { sections: section(rows(&probe, None)), ..Default::default() };
        let text = page.terminal(Style::default());
        let lines: Vec<&str> = text.lines().filter(|line| line.trim_start().starts_with("1  ")).collect();
        assert_eq!(lines.len(), SOURCES_MAX + 2, "{text}");
        assert!(lines[0].contains("thread-0") && lines[0].contains("20.0 ms"), "{text}");
        assert!(lines[SOURCES_MAX].contains("2 others") && lines[SOURCES_MAX].contains("23.0 ms"), "{text}");
        assert!(
            lines[SOURCES_MAX + 1].contains("not explained") && lines[SOURCES_MAX + 1].contains("5.00 ms"),
            "{text}"
        );
    }
}
