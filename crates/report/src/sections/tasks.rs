//! The user's own threads: what each did, and why its worst activations took long.

use crate::section::{Column, Row, Section, Table};
use whylate_core::figure::{count, nanoseconds};
use whylate_core::result::{CpuResult, MeasureResult, ProbeResult, Quantiles, RunResult};

/// The probe that watches threads.
const PROBE: &str = "task";

pub(super) fn of_run(run: &RunResult) -> Vec<Section> {
    let many = run.cells.len() > 1;
    let of_cell = |cell: &str, probe: &ProbeResult| rows(probe, many.then_some(cell));
    let probes =
        run.cells.iter().flat_map(|cell| cell.probes.iter().map(move |probe| (cell.name.as_str(), probe)));
    section(probes.flat_map(|(cell, probe)| of_cell(cell, probe)).collect())
}

pub(super) fn of_measure(measure: &MeasureResult) -> Vec<Section> {
    section(rows(&measure.probe, None))
}

fn section(rows: Vec<Row>) -> Vec<Section> {
    let columns = vec![
        Column::text("cell"),
        Column::text("thread"),
        Column::number("id").importance(1),
        Column::number("priority"),
        Column::number("activations"),
        Column::number("late"),
        Column::number("wake-up p50").importance(1),
        Column::number("wake-up p99.9").importance(2),
        Column::number("wake-up max"),
        Column::number("run p50").importance(2),
        Column::number("response p50"),
        Column::number("response p99.9"),
        Column::number("response max"),
        Column::number("period").importance(1),
        Column::number("jitter").importance(2),
        Column::number("preempted").importance(2),
        Column::number("blocked").importance(2),
        Column::number("quota").importance(3),
        Column::number("moved").importance(3),
        Column::number("faults").importance(3),
        Column::text("sleeps in").importance(3),
        Column::text("woken by").importance(3),
    ];
    Section::new("tasks", "The watched threads")
        .meaning("response: from being due or woken to the next sleep; jitter: how far the 99.9 % of periods is from the median")
        .with(Table::new(columns, rows))
        .unless_empty()
}

fn rows(probe: &ProbeResult, cell: Option<&str>) -> Vec<Row> {
    let own = probe.cpus.iter().filter(|_| probe.probe == PROBE);
    own.filter(|cpu| cpu.samples > 0).map(|cpu| row(cpu, cell)).collect()
}

fn row(cpu: &CpuResult, cell: Option<&str>) -> Row {
    let part = |name: &str| cpu.parts.iter().find(|part| part.part == name).and_then(|part| part.quantiles);
    let (wakeup, run, period) = (part("wakeup"), part("run"), part("period"));
    let time =
        |of: &Option<Quantiles>, figure: fn(&Quantiles) -> u64| of.as_ref().map(|it| nanoseconds(figure(it)));
    let task = cpu.task.as_ref();
    let total = |ns: Option<u64>| ns.filter(|ns| *ns > 0).map(nanoseconds);
    let number = |of: Option<u64>| of.filter(|it| *it > 0).map(count);
    Row::of([
        cell.map(str::to_owned),
        cpu.series.clone(),
        task.map(|task| task.thread.to_string()),
        task.map(|task| priority(task.priority)),
        Some(count(cpu.samples)),
        number(cpu.overruns),
        time(&wakeup, |it| it.p50_ns),
        time(&wakeup, |it| it.p999_ns),
        time(&wakeup, |it| it.max_ns),
        time(&run, |it| it.p50_ns),
        time(&cpu.quantiles, |it| it.p50_ns),
        time(&cpu.quantiles, |it| it.p999_ns),
        time(&cpu.quantiles, |it| it.max_ns),
        time(&period, |it| it.p50_ns),
        time(&period, |it| it.p999_ns.saturating_sub(it.p50_ns)),
        total(task.map(|task| task.preempted_ns)),
        total(task.map(|task| task.blocked_ns)),
        total(task.map(|task| task.quota_ns)),
        number(task.map(|task| task.migrations)),
        number(task.map(|task| task.faults)),
        task.and_then(|task| task.sleeps_in.clone()),
        task.and_then(|task| task.woken_by.clone()),
    ])
}

/// As tools print it: `80`, `deadline`, `nice 5`.
fn priority(priority: i32) -> String {
    match priority {
        100.. => "deadline".to_owned(),
        0..100 => priority.to_string(),
        _ => format!("nice {}", -21 - priority),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::write::Style;
    use whylate_core::record::TaskRecord;
    use whylate_core::result::PartResult;

    #[test]
    fn a_thread_has_a_line_with_its_parts() {
        let figures = |us: u64| Quantiles {
            p50_ns: us * 1_000,
            p999_ns: us * 3_000,
            max_ns: us * 9_000,
            ..Quantiles::default()
        };
        let part = |name: &str, us: u64| PartResult {
            part: name.to_owned(),
            samples: 1_000,
            quantiles: Some(figures(us)),
            ..PartResult::default()
        };
        let task = TaskRecord { thread: 812, priority: 80, migrations: 3, ..TaskRecord::default() };
        let cpu = CpuResult {
            series: Some("audio".to_owned()),
            samples: 1_000,
            overruns: Some(7),
            quantiles: Some(figures(200)),
            parts: vec![part("wakeup", 11), part("period", 1_000)],
            task: Some(task),
            ..CpuResult::default()
        };
        let probe = ProbeResult { probe: PROBE.to_owned(), cpus: vec![cpu], ..ProbeResult::default() };
        let page = crate::section::Page { sections: section(rows(&probe, None)), ..Default::default() };
        let text = page.terminal(Style::default());
        for expected in ["audio", "80", "1,000", "7", "99.0 us", "600 us", "1.80 ms"] {
            assert!(text.contains(expected), "{expected}: {text}");
        }
        assert_eq!(
            [priority(100), priority(1), priority(-21), priority(-26)],
            ["deadline", "1", "nice 0", "nice 5"]
        );
    }
}
