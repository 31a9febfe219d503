//! The writers: each can draw every section, and each escapes in one place.

pub(crate) mod bars;
mod html;
mod markdown;
mod shares;
mod table;
mod terminal;
mod timeline;

pub(crate) use html::class_of;
pub use html::{Field, FieldValue, Form, Frame};
pub use terminal::Style;

use crate::section::Page;
use whylate_core::text::line as plain;

impl Page {
    pub fn terminal(&self, style: Style) -> String {
        terminal::page(self, style)
    }

    /// In GitHub's Markdown, for pull requests and issues.
    pub fn markdown(&self) -> String {
        markdown::page(self)
    }

    /// As one self-contained HTML document.
    pub fn html(&self) -> String {
        html::page(self, None)
    }

    /// As one HTML document for a web server.
    pub fn html_within(&self, frame: &Frame) -> String {
        html::page(self, Some(frame))
    }
}

/// The mark of a missing figure.
const MISSING: &str = "-";

/// A line without its colours.
fn words(line: &table::Line) -> String {
    line.iter().map(|(text, _)| text.as_str()).collect()
}

/// The number of columns that a text takes; every character counts as one column.
fn length(text: &str) -> usize {
    text.chars().count()
}

/// Breaks at spaces; a word longer than the width has a line of its own.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = String::new();
    for word in text.split_whitespace() {
        if !line.is_empty() && length(&line) + 1 + length(word) > width {
            lines.push(std::mem::take(&mut line));
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines.push(line);
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paragraphs_break_at_blanks() {
        assert_eq!(wrap("a bb ccc dddd", 6), ["a bb", "ccc", "dddd"]);
        assert_eq!(wrap("incomprehensibilities x", 6), ["incomprehensibilities", "x"]);
        assert_eq!(wrap("", 6), [""]);
    }
}
