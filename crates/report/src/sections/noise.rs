//! The noise floor: what a short stall check without load saw beside each cell.

use crate::section::{Block, Cell, Column, Depth, Row, Section, Table};
use whylate_core::figure::{count, nanoseconds};
use whylate_core::result::{CellResult, NoiseFloor, RunResult};

pub(super) fn of_run(run: &RunResult) -> Vec<Section> {
    let figures = Section::new("noise", "Noise floor").depth(Depth::Detail);
    let figures = figures.meaning("a short stall check without load beside each cell").with(table(run));
    let line = line(run).map(|line| Section::new("", "").with(Block::note(line)));
    line.into_iter().chain(figures.unless_empty()).collect()
}

/// All cells in one line: `Noise floor without load: l3 1.20 ms, above-l3 48.0 us; spikes of this size may come from the
/// hypervisor.`
fn line(run: &RunResult) -> Option<String> {
    let floors = || run.cells.iter().filter_map(|cell| Some((cell, cell.noise_floor.as_ref()?)));
    let stolen = |floor: &NoiseFloor| floor.steal_ns.is_some_and(|steal| steal > 0);
    let seen = floors().filter(|(_, floor)| floor.gaps > 0 || stolen(floor)).map(|(cell, floor)| {
        let largest = floor.max_ns.map(nanoseconds);
        let steal =
            floor.steal_ns.filter(|steal| *steal > 0).map(|steal| format!("{} stolen", nanoseconds(steal)));
        let figures: Vec<String> = largest.into_iter().chain(steal).collect();
        format!("{} {}", cell.name, figures.join(" and "))
    });
    let seen: Vec<String> = seen.collect();
    if seen.is_empty() {
        return None;
    }
    let is_guest = run.facts.environment.hypervisor.is_some();
    let source = match is_guest || floors().any(|(_, floor)| stolen(floor)) {
        true => "the hypervisor",
        false => "the machine itself (its interrupts, its firmware), not from a load",
    };
    Some(format!(
        "Noise floor without load: {}; spikes of this size may come from {source}.",
        seen.join(", ")
    ))
}

fn table(run: &RunResult) -> Table {
    let titles = [
        "looked for",
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
