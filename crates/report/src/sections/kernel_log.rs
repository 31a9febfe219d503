//! Messages of the kernel's log about latency during the measurement, on the time line of its repeats.

use crate::section::{Cell, Column, Row, Section, Table};
use whylate_core::figure::nanoseconds;
use whylate_core::result::{RunMessage, RunResult};

pub(super) fn of_run(run: &RunResult) -> Vec<Section> {
    let section = Section::new("kernel-log", "The kernel's log during the run");
    let meaning = "messages about latency; `whylate explain --why KIND` explains each kind";
    let columns = vec![
        Column::number("time since boot"),
        Column::text("during"),
        Column::text("kind"),
        Column::number("figure"),
        Column::number("lines").importance(4),
        Column::text("message").wraps(),
    ];
    let table = Table::new(columns, run.kernel_log.iter().map(row).collect());
    section.meaning(meaning).with_all((!run.kernel_log.is_empty()).then_some(table)).unless_empty()
}

fn row(it: &RunMessage) -> Row {
    let place = match (&it.cell, it.repeat) {
        (Some(cell), Some(repeat)) => format!("{cell}, repeat {repeat}"),
        _ => "between repeats".to_owned(),
    };
    let message = &it.message;
    let at = message.at_ns.map(|ns| format!("{:.3} s", ns as f64 / 1e9)).unwrap_or_default();
    Row::of::<Cell>([
        at.into(),
        place.into(),
        message.code.clone().into(),
        message.figure_ns.map(nanoseconds).unwrap_or_default().into(),
        message.lines.to_string().into(),
        message.text.clone().into(),
    ])
}
