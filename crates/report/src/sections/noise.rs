//! The noise floor: what a short stall check without load saw beside each cell.

use crate::section::{Cell, Column, Depth, Row, Section, Table, sentences};
use whylate_core::Facts;
use whylate_core::figure::{count, nanoseconds};
use whylate_core::result::{CellResult, NoiseFloor, RunResult};

pub(super) fn of_run(run: &RunResult) -> Vec<Section> {
    let seen = run
        .cells
        .iter()
        .filter_map(|cell| Some(format!("{}: {}", cell.name, noise_floor(cell, &run.facts)?)));
    let figures = Section::new("", "Figures of every cell").depth(Depth::Detail).with(table(run));
    let section =
        Section::new("noise", "Noise floor").meaning("a short stall check without load beside each cell");
    section.with(sentences(seen)).with(figures).unless_empty()
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

/// What the stall check without load saw beside a cell; `None` where it saw nothing.
fn noise_floor(cell: &CellResult, facts: &Facts) -> Option<String> {
    let floor = cell.noise_floor.as_ref()?;
    let stolen = floor.steal_ns.is_some_and(|steal| steal > 0);
    if floor.gaps == 0 && !stolen {
        return None;
    }
    let source = match (stolen, &facts.environment.hypervisor) {
        (true, _) | (_, Some(_)) => "the hypervisor",
        _ => "the machine itself (its interrupts, its firmware), not from the load",
    };
    Some(format!("{}: spikes of this size may come from {source}", noise_figures(floor)))
}

/// `3 gaps > 10.0 us in 2.00 s without load, max 1.20 ms, steal 10.0 ms`.
fn noise_figures(floor: &NoiseFloor) -> String {
    let gaps = if floor.gaps == 1 { "gap" } else { "gaps" };
    let max = floor.max_ns.map(|max| format!(", max {}", nanoseconds(max))).unwrap_or_default();
    let steal = floor.steal_ns.filter(|steal| *steal > 0).map(nanoseconds);
    format!(
        "{} {gaps} > {} in {} without load{max}{}",
        floor.gaps,
        nanoseconds(floor.threshold_ns),
        nanoseconds(floor.duration_ns),
        steal.map(|steal| format!(", steal {steal}")).unwrap_or_default(),
    )
}
