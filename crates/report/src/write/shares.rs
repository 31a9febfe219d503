//! Bars of parts as text, with a character for each class of causes.

use super::table::Line;
use super::{length, plain};
use crate::pictures::{Shares, class_fill, class_name};

const BAR_MAX: usize = 32;
const BAR_MIN: usize = 12;

/// One line for each bar, and a legend of the characters.
pub(super) fn lines(shares: &Shares, width: usize) -> Vec<Line> {
    let label_width = shares.rows.iter().map(|row| length(&plain(&row.label))).max().unwrap_or(0);
    let note_width = shares.rows.iter().map(|row| length(&plain(&row.note))).max().unwrap_or(0);
    let bar = width.saturating_sub(label_width + note_width + 4).clamp(BAR_MIN, BAR_MAX);
    let room = width.saturating_sub(label_width + bar + 4);
    let mut lines: Vec<Line> = shares
        .rows
        .iter()
        .map(|row| {
            let filled: String = columns(row.parts.iter().map(|part| part.share), bar)
                .into_iter()
                .zip(&row.parts)
                .map(|(columns, part)| class_fill(part.class).to_string().repeat(columns))
                .collect();
            let (label, note) = (plain(&row.label), shortened(&plain(&row.note), room));
            let gap = " ".repeat(label_width.saturating_sub(length(&label)));
            vec![(format!("{label}{gap}  {filled}  "), ""), (note, "2")]
        })
        .collect();
    let legend =
        shares.classes().into_iter().map(|class| format!("{} {}", class_fill(class), class_name(class)));
    lines.extend(in_lines(legend, width).into_iter().map(|line| vec![(shortened(&line, width), "2")]));
    lines
}

/// Joins parts into lines, as many as fit on each.
fn in_lines(parts: impl Iterator<Item = String>, width: usize) -> Vec<String> {
    const BETWEEN: &str = "   ";
    let mut lines: Vec<String> = Vec::new();
    for part in parts {
        match lines.last_mut().filter(|line| length(line) + BETWEEN.len() + length(&part) <= width) {
            Some(line) => *line = format!("{line}{BETWEEN}{part}"),
            None => lines.push(part),
        }
    }
    lines
}

fn shortened(text: &str, room: usize) -> String {
    if length(text) <= room {
        return text.to_owned();
    }
    let kept: String = text.chars().take(room.saturating_sub(1)).collect();
    format!("{kept}…")
}

/// The number of columns of each part; together they fill the bar.
fn columns(shares: impl Iterator<Item = f64>, bar: usize) -> Vec<usize> {
    let mut end = 0.0;
    let mut before = 0;
    let place = |share: f64| {
        end += share;
        let column = ((end * bar as f64).round() as usize).min(bar);
        let columns = column - before;
        before = column;
        columns
    };
    shares.map(place).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_fill_the_bar() {
        assert_eq!(columns([0.5, 0.3, 0.2].into_iter(), 10), [5, 3, 2]);
        assert_eq!(columns([1.0 / 3.0; 3].into_iter(), 10).iter().sum::<usize>(), 10);
        assert_eq!(shortened("abcdef", 4), "abc…");
        let parts = ["one", "two", "three"].map(str::to_owned);
        assert_eq!(in_lines(parts.into_iter(), 9), ["one   two", "three"]);
    }
}
