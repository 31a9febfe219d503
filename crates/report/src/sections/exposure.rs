//! How long the run looked for latencies above the limit, and how often they can come.

use crate::section::{Column, Depth, Row, Section, Table};
use whylate_core::figure::{count, nanoseconds};
use whylate_core::result::{Exposure, RunResult};

pub(super) fn of_run(run: &RunResult) -> Vec<Section> {
    let columns = vec![
        Column::text("cell"),
        Column::number("watched for"),
        Column::number("CPUs"),
        Column::number("events above the limit"),
        Column::number("events per hour at most (95 %)"),
    ];
    let row = |name: &str, exposure: &Exposure| {
        let per_hour = format!("{:.2}", exposure.events_per_hour_max);
        let most = if exposure.records_missing { "at most " } else { "" };
        let events = format!("{most}{}", count(exposure.events));
        let figures = [nanoseconds(exposure.watched_ns), exposure.cpus.to_string(), events, per_hour];
        Row::of(std::iter::once(name.to_owned()).chain(figures))
    };
    let cells = run.cells.iter().filter_map(|cell| Some(row(&cell.name, cell.exposure.as_ref()?)));
    let total = run.exposure.iter().map(|exposure| row("all", exposure));
    let section = Section::new("exposure", "Exposure")
        .meaning("the time and the events behind the verdict")
        .depth(Depth::Detail);
    section.with(Table::new(columns, cells.chain(total).collect())).unless_empty()
}
