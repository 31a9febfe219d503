//! Interrupts on the target CPUs, by line and cell.

use crate::section::{Block, Cell, Column, Depth, Row, Section, Table};
use std::cmp::Reverse;
use whylate_core::figure::count;
use whylate_core::order::InOrder;
use whylate_core::record::InterruptRecord;
use whylate_core::result::{CellResult, RunResult};

const LINES_MAX: usize = 16;
/// Prefix of the line of a softirq vector.
const SOFTIRQ: &str = "softirq:";

/// Whether the record counts a softirq vector, which runs inside or after an interrupt that is counted already.
pub(super) fn is_softirq(record: &InterruptRecord) -> bool {
    record.line.starts_with(SOFTIRQ)
}

/// The lines with the largest counts in any cell, hard interrupts before softirqs.
pub(super) fn of_run(run: &RunResult) -> Vec<Section> {
    let mut largest: Vec<&InterruptRecord> = Vec::new();
    for record in run.cells.iter().flat_map(|cell| &cell.interrupts).filter(|record| record.count > 0) {
        match largest.iter_mut().find(|known| is_same(known, record)) {
            Some(known) if known.count < record.count => *known = record,
            Some(_) => {}
            None => largest.push(record),
        }
    }
    largest.order_by_key(|record| (is_softirq(record), Reverse(record.count), record.cpu));
    let left_out = largest.len().saturating_sub(LINES_MAX);
    let cells: Vec<&CellResult> = run.cells.iter().filter(|cell| cell.skipped.is_none()).collect();
    let row = |line: &&InterruptRecord| {
        let what = if is_softirq(line) { "softirq" } else { line.description.as_str() };
        let name = line.line.strip_prefix(SOFTIRQ).unwrap_or(&line.line);
        let counted = cells.iter().map(|cell| {
            let record = cell.interrupts.iter().find(|record| is_same(record, line));
            Cell::from(record.map(|record| count(record.count)))
        });
        let texts = [line.cpu.to_string(), name.to_owned(), what.to_owned()].map(Cell::from);
        Row::of(texts.into_iter().chain(counted))
    };
    let mut columns = vec![Column::number("CPU"), Column::text("line"), Column::text("what")];
    columns.extend(cells.iter().map(|cell| Column::number(&cell.name)));
    let table = Table::new(columns, largest.iter().take(LINES_MAX).map(row).collect());
    let note =
        (left_out > 0).then(|| Block::note(format!("Less frequent lines that are left out: {left_out}.")));
    let section = Section::new("interrupts", "Interrupts").depth(Depth::Detail);
    let section = section.meaning("on the target CPUs while the probes ran, over all repeats");
    section.with(table).with_all(note).unless_empty()
}

fn is_same(one: &InterruptRecord, other: &InterruptRecord) -> bool {
    one.cpu == other.cpu && one.line == other.line
}
