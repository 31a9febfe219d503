//! Lines of text with colours, wrapped to the width of the terminal.

use super::Style;
use whylate_core::Warning;

/// What a line says by its colour; the words say the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Colour {
    Plain,
    Red,
    Green,
    Yellow,
}

/// Sentences are not set wider than this, however wide the terminal is: nobody reads lines of 200 columns.
const TEXT_WIDTH_MAX: usize = 120;

/// A text that grows line by line.
pub(super) struct Page {
    text: String,
    style: Style,
}

impl Page {
    pub(super) fn new(style: Style) -> Self {
        Self { text: String::new(), style }
    }

    pub(super) fn finish(self) -> String {
        self.text
    }

    pub(super) fn blank(&mut self) {
        self.text.push('\n');
    }

    /// A line as it stands; `codes` are the parameters of an ANSI sequence.
    pub(super) fn line(&mut self, line: &str, codes: &str) {
        self.text.push_str(&self.paint(line.trim_end(), codes));
        self.text.push('\n');
    }

    pub(super) fn paint(&self, text: &str, codes: &str) -> String {
        if self.style.color && !codes.is_empty() && !text.is_empty() {
            format!("\u{1b}[{codes}m{text}\u{1b}[0m")
        } else {
            text.to_owned()
        }
    }

    pub(super) fn title(&mut self, name: &str, question: Option<&str>) {
        self.line(&clean(name), "1");
        if let Some(question) = question {
            self.wrapped(question, 0, "");
        }
    }

    /// Parts joined by middle dots, broken between parts.
    pub(super) fn dim_list(&mut self, parts: &[String]) {
        let mut line = String::new();
        for part in parts {
            let part = clean(part);
            if !line.is_empty() && length(&line) + 3 + length(&part) > self.style.width {
                self.line(&line, "2");
                line.clear();
            }
            if !line.is_empty() {
                line.push_str(" · ");
            }
            line.push_str(&part);
        }
        self.line(&line, "2");
    }

    pub(super) fn dim(&mut self, text: &str) {
        self.wrapped(text, 0, "2");
    }

    pub(super) fn note(&mut self, text: &str) {
        self.wrapped(text, 0, "2");
    }

    pub(super) fn coloured(&mut self, text: &str, colour: Colour) {
        self.wrapped(text, 0, codes(colour));
    }

    pub(super) fn heading(&mut self, text: &str) {
        self.blank();
        self.line(text, "1");
    }

    pub(super) fn item(&mut self, text: &str, colour: Option<Colour>) {
        self.wrapped(&format!("  {}", clean(text)), 4, colour.map_or("", codes));
    }

    pub(super) fn verdict(&mut self, word: &str, reason: &str, colour: Colour) {
        let indent = length(word) + 2;
        for (index, line) in
            wrap(&clean(reason), self.style.width.saturating_sub(indent)).into_iter().enumerate()
        {
            let first = if index == 0 { self.paint(word, bold(colour)) } else { " ".repeat(length(word)) };
            self.line(&format!("{first}  {line}"), "");
        }
    }

    /// A coloured word in a column of its own, and a sentence beside it.
    pub(super) fn labelled(&mut self, word: &str, text: &str, column: usize, colour: Colour) {
        let width = self.style.width.min(TEXT_WIDTH_MAX).saturating_sub(column + 2);
        for (index, line) in wrap(text, width).into_iter().enumerate() {
            let padded = format!("{word:column$}");
            let first = if index == 0 { self.paint(&padded, codes(colour)) } else { " ".repeat(column) };
            self.line(&format!("  {first}{line}"), "");
        }
    }

    /// A paragraph that begins at that column.
    pub(super) fn indented(&mut self, text: &str, column: usize) {
        self.wrapped(&format!("{}{text}", " ".repeat(column)), column + 2, "2");
    }

    /// Every warning with its remedy, under one heading.
    pub(super) fn warnings(&mut self, warnings: &[Warning]) {
        if warnings.is_empty() {
            return;
        }
        self.heading(&format!("Warnings ({})", warnings.len()));
        for warning in warnings {
            self.wrapped(&format!("  {}: {}", warning.code, warning.text), 4, "33");
            if let Some(fix) = &warning.fix {
                self.wrapped(&format!("    fix: {fix}"), 9, "");
            }
        }
    }

    /// A paragraph; lines after the first are indented by `indent`.
    fn wrapped(&mut self, text: &str, indent: usize, codes: &str) {
        let text = clean(text);
        let lead: String = text.chars().take_while(|c| *c == ' ').collect();
        let first_width = self.style.width.min(TEXT_WIDTH_MAX).saturating_sub(lead.len());
        let lines = wrap(text.trim_start(), first_width.saturating_sub(indent.saturating_sub(lead.len())));
        for (index, line) in lines.into_iter().enumerate() {
            let before = if index == 0 { lead.clone() } else { " ".repeat(indent) };
            self.line(&format!("{before}{line}"), codes);
        }
    }
}

fn codes(colour: Colour) -> &'static str {
    match colour {
        Colour::Plain => "",
        Colour::Red => "31",
        Colour::Green => "32",
        Colour::Yellow => "33",
    }
}

fn bold(colour: Colour) -> &'static str {
    match colour {
        Colour::Plain => "1",
        Colour::Red => "1;31",
        Colour::Green => "1;32",
        Colour::Yellow => "1;33",
    }
}

/// Without control characters: names and outputs from a result must not steer the terminal.
pub(super) fn clean(text: &str) -> String {
    text.chars().map(|c| if c == '\n' || c == '\t' { ' ' } else { c }).filter(|c| !c.is_control()).collect()
}

/// How many columns a text takes; every character is taken as one column wide.
pub(super) fn length(text: &str) -> usize {
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
        assert_eq!(clean("l3\u{1b}[2Jx\ny"), "l3[2Jx y");
    }

    #[test]
    fn paragraphs_break_at_blanks() {
        assert_eq!(wrap("a bb ccc dddd", 6), ["a bb", "ccc", "dddd"]);
        assert_eq!(wrap("incomprehensibilities x", 6), ["incomprehensibilities", "x"]);
        assert_eq!(wrap("", 6), [""]);
    }
}
