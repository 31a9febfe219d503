//! The noise floor: the result of a short stall check without load for each cell.

use super::summary::{cause_name, sure_cause};
use crate::section::{Block, Cell, Column, Depth, Row, Section, Table};
use whylate_core::WarningCode;
use whylate_core::figure::{count, nanoseconds};
use whylate_core::result::{CellResult, NoiseFloor, RunResult};

pub(super) fn of_run(run: &RunResult) -> Vec<Section> {
    let figures = Section::new("noise", "Noise floor").depth(Depth::Detail);
    let figures = figures.meaning("what a short check without load measured for each cell").with(table(run));
    let line = line(run).map(|line| Section::new("", "").with(Block::note(line)));
    line.into_iter().chain(figures.unless_empty()).collect()
}

/// The largest of all cells in one line: `Noise floor without load: up to 1.20 ms (cell l3), … Spikes
/// of this size may come from the hypervisor.`
fn line(run: &RunResult) -> Option<String> {
    let floors = || run.cells.iter().filter_map(|cell| Some((cell, cell.noise_floor.as_ref()?)));
    let largest = |of: fn(&NoiseFloor) -> Option<u64>| {
        let values = floors().filter_map(move |(cell, floor)| Some((of(floor).filter(|it| *it > 0)?, cell)));
        values.max_by_key(|(value, _)| *value).map(|(value, cell)| (nanoseconds(value), &cell.name))
    };
    let gap = largest(|floor| floor.max_ns.filter(|_| floor.gaps > 0))
        .map(|(time, cell)| format!("up to {time} (cell {cell})"));
    let steal = largest(|floor| floor.steal_ns).map(|(time, cell)| format!("{time} stolen (cell {cell})"));
    let is_ordinary = run.warnings.iter().any(|warning| warning.code == WarningCode::NoRealtimePriority);
    let is_guest = run.facts.environment.hypervisor.is_some();
    let known = floors().max_by_key(|(_, floor)| floor.max_ns).and_then(|(_, floor)| sure_cause(floor));
    let known = known.map(cause_name);
    let source = match (&known, steal.is_some(), is_ordinary) {
        (Some(cause), ..) => cause.as_str(),
        (None, false, true) => "other threads: the check ran at ordinary priority",
        _ if steal.is_some() || is_guest => "the hypervisor",
        _ => "the machine itself (its interrupts, its firmware), not from a load",
    };
    let seen: Vec<String> = gap.into_iter().chain(steal).collect();
    (!seen.is_empty()).then(|| {
        format!("Noise floor without load: {}. Spikes of this size may come from {source}.", seen.join(", "))
    })
}

fn table(run: &RunResult) -> Table {
    let titles = [
        "duration",
        "threshold",
        "gaps",
        "largest",
        "steal in the check",
        "steal in the cell",
        "SMIs in the cell",
    ];
    let columns = std::iter::once(Column::text("cell")).chain(titles.map(Column::number)).collect();
    let row = |cell: &CellResult| {
        let floor = cell.noise_floor.as_ref()?;
        Some(Row::of::<Cell>([
            cell.name.as_str().into(),
            nanoseconds(floor.duration_ns).into(),
            nanoseconds(floor.threshold_ns).into(),
            count(floor.gaps).into(),
            floor.max_ns.map(nanoseconds).into(),
            floor.steal_ns.map(nanoseconds).into(),
            cell.steal_ns.map(nanoseconds).into(),
            cell.smis.map(count).into(),
        ]))
    };
    Table::new(columns, run.cells.iter().filter_map(row).collect())
}
