//! What each load achieved while the probes ran.

use crate::section::{Column, Depth, Row, Section, Table};
use whylate_core::figure::rate;
use whylate_core::result::RunResult;

pub(super) fn of_run(run: &RunResult) -> Vec<Section> {
    let rates = run.cells.iter().flat_map(|cell| cell.rates.iter().map(move |rate| (cell, rate)));
    let row = |(cell, load): (&_, &whylate_core::result::RateResult)| {
        let cell: &whylate_core::result::CellResult = cell;
        Row::of([cell.name.clone(), load.load.clone(), rate(load.mean, &load.unit)])
    };
    let columns = vec![Column::text("cell"), Column::text("load"), Column::number("mean rate")];
    let section = Section::new("loads", "Loads").meaning("what each achieved while the probes ran");
    section.depth(Depth::Detail).with(Table::new(columns, rates.map(row).collect())).unless_empty()
}
