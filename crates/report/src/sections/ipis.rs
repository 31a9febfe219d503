//! Interrupts from other CPUs, by interrupted CPU, function and sender.

use crate::section::{Block, Cell, Column, Depth, Row, Section, Table};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use whylate_core::CpuId;
use whylate_core::figure::count;
use whylate_core::order::InOrder;
use whylate_core::record::IpiRecord;
use whylate_core::result::{CellResult, MeasureResult, RunResult};

/// The most lines that are listed.
const LINES_MAX: usize = 16;
/// The most senders that are named.
const SENDERS_MAX: usize = 3;

/// Only cells that were not skipped: the others have no counts.
pub(super) fn of_run(run: &RunResult) -> Vec<Section> {
    let ran = run.cells.iter().filter(|cell| cell.skipped.is_none());
    let cells: Vec<_> = ran.map(|cell: &CellResult| (cell.name.as_str(), cell.ipis.as_slice())).collect();
    section(&cells).into_iter().map(|section| section.depth(Depth::Detail)).collect()
}

pub(super) fn of_measure(measure: &MeasureResult) -> Vec<Section> {
    section(&[("times", &measure.ipis)])
}

/// The most frequent ones, CPU by CPU, with a count for each cell.
fn section(cells: &[(&str, &[IpiRecord])]) -> Vec<Section> {
    let mut ways: Vec<(Way<'_>, Sent)> = ways(cells).into_iter().collect();
    let most = |(_, (_, counts)): &(Way<'_>, Sent)| Reverse(counts.iter().copied().max());
    let left_out = ways.len().saturating_sub(LINES_MAX);
    ways.order_by_key(most);
    ways.truncate(LINES_MAX);
    ways.order_by_key(|way| (way.0.0, most(way)));
    let mut columns = vec![Column::number("CPU")];
    columns.extend(["function", "requested by", "sent by"].map(Column::text));
    columns.extend(cells.iter().map(|(cell, _)| Column::number(*cell)));
    let note = (left_out > 0)
        .then(|| Block::note(format!("{left_out} rows with less frequent interrupts are left out.")));
    let section = Section::new("ipis", "Interrupts from other CPUs").depth(Depth::Folded);
    let section = section.with(Table::new(columns, ways.iter().map(row).collect())).with_all(note);
    section.unless_empty()
}

/// A CPU, the function that runs there, and its caller.
type Way<'a> = (CpuId, &'a str, &'a str);
/// The threads that sent it, and its count in each of the cells.
type Sent = (BTreeSet<String>, Vec<u64>);

fn ways<'a>(cells: &[(&str, &'a [IpiRecord])]) -> BTreeMap<Way<'a>, Sent> {
    let mut ways = BTreeMap::<Way<'_>, Sent>::new();
    for (index, (_, records)) in cells.iter().enumerate() {
        for record in *records {
            let caller = record.caller.as_deref().unwrap_or_default();
            let key = (record.cpu, record.function.as_str(), caller);
            let fresh = || (BTreeSet::new(), vec![0; cells.len()]);
            let (senders, counts) = ways.entry(key).or_insert_with(fresh);
            senders.extend(record.from_task.clone());
            counts[index] += record.count;
        }
    }
    ways
}

fn row(((cpu, function, caller), (senders, counts)): &(Way<'_>, Sent)) -> Row {
    let named: Vec<&str> = senders.iter().take(SENDERS_MAX).map(String::as_str).collect();
    let more = senders.len().saturating_sub(SENDERS_MAX);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let senders = format!("{}{more}", named.join(", "));
    // Empty if the kernel does not report it.
    let known = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    let texts = [Some(cpu.to_string()), known(function), known(caller), known(&senders)].map(Cell::from);
    Row::of(texts.into_iter().chain(counts.iter().map(|number| count(*number).into())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::write::Style;

    #[test]
    fn senders_of_one_function_are_one_line() {
        let record = |task: &str, count| IpiRecord {
            cpu: CpuId(1),
            function: "do_flush_tlb_all".to_owned(),
            caller: Some("flush_tlb_all".to_owned()),
            from_task: Some(task.to_owned()),
            count,
            ..IpiRecord::default()
        };
        let (idle, load) = (vec![record("a", 2)], vec![record("a", 300), record("b", 1_000)]);
        let cell = |name: &str, ipis| CellResult { name: name.to_owned(), ipis, ..CellResult::default() };
        let cells = [cell("idle", idle), cell("tlb", load)];
        let cells: Vec<_> = cells.iter().map(|cell| (cell.name.as_str(), cell.ipis.as_slice())).collect();
        let page = crate::section::Page { sections: section(&cells), ..Default::default() };
        let text = page.terminal(Style::default());
        let expected = "  1  do_flush_tlb_all  flush_tlb_all  a, b        2  1,300";
        assert!(text.lines().any(|line| line == expected), "{text}");
    }
}
