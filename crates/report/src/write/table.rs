//! A table on a terminal: which columns fit, their widths, and their lines.

use super::terminal::codes;
use super::{MISSING, length, plain, wrap};
use crate::section::{ALWAYS, Cell, Row, Table, Text, Tone};
use whylate_core::order::InOrder;

const GAP: usize = 2;
/// The least width of a column whose texts are broken into lines.
const WRAPPED_MIN: usize = 24;

/// Texts of a line, each with the parameters of an ANSI sequence.
pub(super) type Line = Vec<(String, &'static str)>;

/// The columns that any of the tables uses.
pub(super) fn used(tables: &[&Table]) -> Vec<usize> {
    let columns = 0..tables.first().map_or(0, |table| table.columns.len());
    columns.filter(|column| tables.iter().any(|table| table.uses(*column))).collect()
}

pub(super) struct Layout {
    /// Position in the table, and width.
    columns: Vec<(usize, usize)>,
    left_out: Vec<usize>,
    /// Whether everything required fits.
    pub(super) fits: bool,
}

impl Layout {
    /// For tables that share their columns.
    pub(super) fn new(tables: &[&Table], columns: Vec<usize>, width: usize) -> Self {
        let widest = |column: usize| {
            let texts = tables.iter().flat_map(|table| {
                let cells = table.rows.iter().map(move |row| length(&text(row, column)));
                cells.chain([length(&plain(&table.columns[column].title))])
            });
            texts.max().unwrap_or(0)
        };
        let mut columns: Vec<(usize, usize)> =
            columns.into_iter().map(|column| (column, widest(column))).collect();
        let about = |column: usize| tables.first().map(|table| &table.columns[column]);
        let importance = |column: usize| about(column).map_or(ALWAYS, |column| column.importance);
        let mut left_out = Vec::new();
        while total(&columns) > width {
            let optional = columns.iter().enumerate().filter(|(_, (column, _))| importance(*column) < ALWAYS);
            let Some((least, _)) = optional.min_by_key(|(_, (column, _))| importance(*column)) else { break };
            left_out.push(columns.remove(least).0);
        }
        left_out.order();
        let missing = total(&columns).saturating_sub(width);
        let broken = columns.iter_mut().find(|(column, _)| about(*column).is_some_and(|column| column.wraps));
        if let Some((_, wide)) = broken.filter(|(_, wide)| *wide >= WRAPPED_MIN + missing) {
            *wide -= missing;
        }
        Self { fits: total(&columns) <= width, columns, left_out }
    }

    /// The columns of a second table: the first column, and those that were left out.
    pub(super) fn rest(&self) -> Option<Vec<usize>> {
        let (first, _) =
            self.columns.first().filter(|_| self.columns.len() > 1 && !self.left_out.is_empty())?;
        Some(std::iter::once(*first).chain(self.left_out.iter().copied()).collect())
    }

    /// The title line, a rule, and the rows.
    pub(super) fn lines(&self, table: &Table) -> Vec<Line> {
        let cells = self
            .columns
            .iter()
            .map(|(column, width)| self.padded(table, *column, &table.columns[*column].title, *width));
        let titles: Vec<String> = cells.collect();
        let mut lines: Vec<Line> =
            [titles.join("  "), "─".repeat(total(&self.columns))].map(|line| vec![(line, "2")]).to_vec();
        lines.extend(table.rows.iter().flat_map(|row| self.row(table, row)));
        lines
    }

    /// A row, on several lines if a text does not fit on one.
    fn row(&self, table: &Table, row: &Row) -> Vec<Line> {
        let whole = if row.is_part { "3" } else { codes(row.tone) };
        let texts: Vec<Vec<String>> = self
            .columns
            .iter()
            .map(|(column, width)| match text(row, *column) {
                text if length(&text) > *width => wrap(&text, *width),
                text => vec![text],
            })
            .collect();
        let lines = 0..texts.iter().map(Vec::len).max().unwrap_or(0);
        let line = |index: usize| {
            let cells =
                self.columns.iter().zip(&texts).enumerate().flat_map(|(place, ((column, width), texts))| {
                    let text = texts.get(index).map_or("", String::as_str);
                    let tone = row.cells.get(*column).map_or(Tone::Plain, |cell| cell.tone);
                    let code = if tone == Tone::Plain { whole } else { codes(tone) };
                    let gap = if place > 0 { " ".repeat(GAP) } else { String::new() };
                    [(gap, whole), (self.padded(table, *column, text, *width), code)]
                });
            cells.collect()
        };
        lines.map(line).collect()
    }

    /// Aligns texts to the left and figures to the right.
    fn padded(&self, table: &Table, column: usize, text: &str, width: usize) -> String {
        let padding = " ".repeat(width.saturating_sub(length(text)));
        if table.columns[column].is_text { format!("{text}{padding}") } else { format!("{padding}{text}") }
    }

    /// Each row as `title value, title value`.
    pub(super) fn sentences(&self, table: &Table) -> Vec<String> {
        let row = |row: &Row| {
            let values = self.columns.iter().filter(|(column, _)| !text(row, *column).is_empty());
            let values = values
                .map(|(column, _)| format!("{} {}", table.columns[*column].title, text(row, *column).trim()));
            values.collect::<Vec<_>>().join(", ")
        };
        table.rows.iter().map(row).collect()
    }

    /// The columns that did not fit, and what a reader must know about the others.
    pub(super) fn notes(&self, table: &Table) -> Vec<String> {
        let titles: Vec<&str> =
            self.left_out.iter().map(|column| table.columns[*column].title.as_str()).collect();
        let mut notes = Vec::new();
        if !titles.is_empty() {
            notes.push(format!("Not shown at this width: {}.", titles.join(", ")));
        }
        let of_columns = self.columns.iter().map(|(column, _)| table.columns[*column].note);
        notes.extend(crate::section::different(of_columns));
        notes
    }
}

/// The width of all columns.
fn total(columns: &[(usize, usize)]) -> usize {
    columns.iter().map(|(_, width)| width + GAP).sum::<usize>().saturating_sub(GAP)
}

fn text(row: &Row, column: usize) -> String {
    let cell = row.cells.get(column);
    let below = |cell: &Cell| {
        cell.below.iter().map(|line| format!("; {}", Text::from(line.as_str()).words())).collect::<String>()
    };
    match cell.and_then(|cell| Some((cell, cell.text.as_ref()?))) {
        Some((cell, text)) => {
            let indent = if row.is_part && row.first() == Some(column) { "  " } else { "" };
            plain(&format!("{indent}{}{}", text.words(), below(cell)))
        }
        None if row.is_part => String::new(),
        None => MISSING.to_owned(),
    }
}
