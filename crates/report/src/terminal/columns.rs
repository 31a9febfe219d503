//! The table: which columns fit, how wide they are, and their lines.

use super::Style;
use super::page::{Page, clean, length};
use crate::figure::MISSING;
use crate::table::{Field, Group, Line, LineKind, used_fields};
use crate::words;

const GAP: usize = 2;

/// A column that is printed.
struct Column {
    field: Field,
    width: usize,
}

/// Prints every group under the same columns, which columns had no room, and what must be known to read the rest.
pub(crate) fn push_groups(page: &mut Page, groups: &[Group], style: Style) {
    let used = used_fields(groups).into_iter();
    let mut columns: Vec<Column> =
        used.map(|field| Column { field, width: width_of(field, groups) }).collect();
    let left_out = fit(&mut columns, style.width);
    for (index, group) in groups.iter().enumerate() {
        if index > 0 {
            page.blank();
        }
        push_group(page, group, &columns, style);
    }
    page.blank();
    if let Some(group) = groups.first().filter(|_| !left_out.is_empty()) {
        let names: Vec<&str> = left_out.iter().map(|field| group.title(*field)).collect();
        page.note(&format!("Not shown at this width: {}.", names.join(", ")));
    }
    if groups.len() > 1 && columns.iter().any(|column| column.field.of_whole_cell()) {
        page.note(words::WHOLE_CELL_NOTE);
    }
    if groups.iter().any(Group::has_corrected) {
        page.note(words::CORRECTED_NOTE);
    }
}

fn push_group(page: &mut Page, group: &Group, columns: &[Column], style: Style) {
    let total: usize = columns.iter().map(|column| column.width + GAP).sum::<usize>().saturating_sub(GAP);
    let heading = format!("{}: {}", group.probe, words::probe_meaning(&group.probe));
    page.line(&clean(&heading), "1");
    let titles = columns.iter().map(|column| aligned(column, group.title(column.field)));
    page.line(&titles.collect::<Vec<_>>().join("  "), "2");
    page.line(&"─".repeat(total.min(style.width)), "2");
    for line in &group.lines {
        let text = line_text(page, line, columns);
        page.line(&text, if line.kind == LineKind::Recorded { "" } else { "3" });
    }
}

fn line_text(page: &Page, line: &Line, columns: &[Column]) -> String {
    let cells = columns.iter().map(|column| {
        let value = line.cells.get(column.field as usize).cloned().flatten();
        let blank = if line.kind == LineKind::Recorded { MISSING } else { "" };
        let text = aligned(column, &clean(value.as_deref().unwrap_or(blank)));
        match column.field {
            Field::Max if line.over_limit => page.paint(&text, "31"),
            _ => text,
        }
    });
    cells.collect::<Vec<_>>().join("  ")
}

/// Text to the left, figures to the right.
fn aligned(column: &Column, text: &str) -> String {
    let padding = " ".repeat(column.width.saturating_sub(length(text)));
    match column.field {
        Field::Cell | Field::Series => format!("{text}{padding}"),
        _ => format!("{padding}{text}"),
    }
}

fn width_of(field: Field, groups: &[Group]) -> usize {
    let titles = groups.iter().map(|group| length(group.title(field)));
    let lines = groups.iter().flat_map(|group| &group.lines);
    let values = lines.map(|line| {
        let value = line.cells.get(field as usize).and_then(Option::as_deref).unwrap_or(MISSING);
        length(&clean(value))
    });
    titles.chain(values).max().unwrap_or(0)
}

/// Takes columns away until the rest fits; gives those that were taken, in the table's order.
fn fit(columns: &mut Vec<Column>, width: usize) -> Vec<Field> {
    let mut left_out = Vec::new();
    while columns.iter().map(|column| column.width + GAP).sum::<usize>() > width + GAP {
        let least = columns
            .iter()
            .enumerate()
            .filter(|(_, column)| column.field.importance() < 9)
            .min_by_key(|(_, column)| column.field.importance());
        let Some((index, _)) = least else { break };
        left_out.push(columns.remove(index).field);
    }
    left_out.sort_by_key(|field| *field as usize);
    left_out
}
