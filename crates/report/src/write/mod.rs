//! The writers: each draws every section, and each escapes in one place.

pub(crate) mod bars;
mod html;
mod markdown;
mod table;
mod terminal;
mod timeline;

pub use terminal::Style;

use crate::section::Page;

impl Page {
    /// As text for a terminal.
    pub fn terminal(&self, style: Style) -> String {
        terminal::page(self, style)
    }

    /// In GitHub's Markdown, for pull requests and issues.
    pub fn markdown(&self) -> String {
        markdown::page(self)
    }

    /// As one self-contained HTML document.
    pub fn html(&self) -> String {
        html::page(self)
    }
}

/// What stands where a figure is missing.
const MISSING: &str = "-";

/// One line without control characters, and without those that turn the direction of writing: names and paths from a
/// result must neither steer a terminal nor show in another order than they have.
fn plain(text: &str) -> String {
    let is_hidden = |c: char| {
        c.is_control()
            || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    text.chars().map(|c| if matches!(c, '\n' | '\t') { ' ' } else { c }).filter(|c| !is_hidden(*c)).collect()
}

/// A line without its colours.
fn words(line: &table::Line) -> String {
    line.iter().map(|(text, _)| text.as_str()).collect()
}

/// How many columns a text takes; every character is taken as one column wide.
fn length(text: &str) -> usize {
    text.chars().count()
}

/// Breaks at blanks; a word longer than the width has a line of its own.
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
    fn text_from_a_result_cannot_steer_the_terminal() {
        assert_eq!(plain("l3\u{1b}[2Jx\ny\u{202e}z"), "l3[2Jx yz");
    }

    #[test]
    fn paragraphs_break_at_blanks() {
        assert_eq!(wrap("a bb ccc dddd", 6), ["a bb", "ccc", "dddd"]);
        assert_eq!(wrap("incomprehensibilities x", 6), ["incomprehensibilities", "x"]);
        assert_eq!(wrap("", 6), [""]);
    }
}
