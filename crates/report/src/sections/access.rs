//! The time of one access to memory: of passes by a task whose data others displace, and of passes right behind them.

use crate::section::{Column, Row, Section, Table};
use whylate_core::figure::{count, nanoseconds_f64};
use whylate_core::result::{CpuResult, MeasureResult, ProbeResult, RunResult};

pub(super) fn of_run(run: &RunResult) -> Vec<Section> {
    let probes = run.cells.iter().flat_map(|cell| cell.probes.iter().map(move |probe| (cell, probe)));
    section(probes.flat_map(|(cell, probe)| rows(probe, &cell.name)).collect())
}

pub(super) fn of_measure(measure: &MeasureResult) -> Vec<Section> {
    section(rows(&measure.probe, "").collect())
}

fn section(rows: Vec<Row>) -> Vec<Section> {
    let mut columns = vec![Column::text("cell"), Column::text("pass"), Column::number("CPU")];
    columns.extend([Column::number("accesses"), Column::number("one access, median")]);
    let meaning = "first: after others had the CPU; again: right behind it";
    Section::new("access", "Time of an access")
        .meaning(meaning)
        .with(Table::new(columns, rows))
        .unless_empty()
}

fn rows<'r>(probe: &'r ProbeResult, cell: &str) -> impl Iterator<Item = Row> + use<'r> {
    let cell = Some(cell.to_owned()).filter(|cell| !cell.is_empty());
    let row = move |cpu: &CpuResult| {
        let each = nanoseconds_f64(cpu.access_ns?);
        let accesses = count(cpu.accesses?);
        Some(Row::of([
            cell.clone(),
            cpu.series.clone(),
            Some(cpu.cpu.to_string()),
            Some(accesses),
            Some(each),
        ]))
    };
    probe.cpus.iter().filter_map(row)
}
