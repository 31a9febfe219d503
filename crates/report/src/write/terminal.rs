//! Reports as text for a terminal.
//!
//! Never wider than [`Style::width`] if that is at least 60 columns: less important columns are left out, and the
//! report names them. Everything goes through [`Terminal::line`], which removes control characters.

use super::table::{self, Layout, Line};
use super::{bars, length, plain, shares, timeline, wrap};
use crate::section::{Block, Depth, Item, Page, Section, Table, Text, Tone, Verdict};
use whylate_core::Warning;

/// Sentences are not wider than this on any terminal, so that they stay readable.
const TEXT_WIDTH_MAX: usize = 120;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    pub color: bool,
    pub width: usize,
}

impl Default for Style {
    /// No colours, 120 columns: for a file.
    fn default() -> Self {
        Self { color: false, width: 120 }
    }
}

pub(super) fn page(page: &Page, style: Style) -> String {
    let has_details = page.has_details;
    let mut out =
        Terminal { text: String::new(), style, last: Last::Begin, pending: Vec::new(), has_details };
    if !page.title.is_empty() {
        out.paragraph("", &unquoted(&page.title), 0, bold(page.title_tone));
    }
    page.question.iter().for_each(|question| out.paragraph("", &unquoted(question), 0, ""));
    page.about.iter().for_each(|parts| out.parts(parts));
    for section in &page.sections {
        out.section(section, &tables(section, has_details));
        out.notes_of_tables();
    }
    if page.verdict.is_some() || !page.failures.is_empty() {
        out.gap();
    }
    page.failures.iter().for_each(|failure| out.paragraph("", &unquoted(failure), 0, codes(Tone::Warn)));
    if let Some(Verdict { word, reason, tone }) = &page.verdict {
        out.labelled("", word, bold(*tone), length(word) + 2, &unquoted(reason));
    }
    out.text
}

/// Removes the backticks of code.
fn unquoted(text: &str) -> String {
    Text::from(text).words()
}

/// The tables of a section and of its parts, which share their columns.
fn tables(section: &Section, has_details: bool) -> Vec<&Table> {
    let is_drawn =
        |section: &Section| has_details || !matches!(section.depth, Depth::Brief(_) | Depth::Detail);
    let tables = section.blocks.iter().flat_map(|block| match block {
        Block::Table(table) => vec![table],
        Block::Part(part) if is_drawn(part) => tables(part, has_details),
        _ => Vec::new(),
    });
    tables.collect()
}

/// The last output.
#[derive(Clone, Copy, PartialEq)]
enum Last {
    Begin,
    Heading,
    Note,
    Brief,
    List,
    Other,
}

struct Terminal {
    text: String,
    style: Style,
    last: Last,
    /// Notes of the tables above; they appear below the last of them.
    pending: Vec<String>,
    has_details: bool,
}

impl Terminal {
    /// A line of texts, each with the parameters of an ANSI sequence.
    fn line(&mut self, parts: &Line) {
        let mut parts: Vec<(String, &str)> =
            parts.iter().map(|(text, codes)| (plain(text), *codes)).collect();
        while let Some((mut text, codes)) = parts.pop() {
            text.truncate(text.trim_end().len());
            if !text.is_empty() {
                parts.push((text, codes));
                break;
            }
        }
        for (text, codes) in parts {
            if self.style.color && !codes.is_empty() && !text.is_empty() {
                self.text.push_str(&format!("\u{1b}[{codes}m{text}\u{1b}[0m"));
            } else {
                self.text.push_str(&text);
            }
        }
        self.text.push('\n');
    }

    /// Adds one blank line, unless the text is empty or ends with one.
    fn gap(&mut self) {
        if !self.text.is_empty() && !self.text.ends_with("\n\n") {
            self.text.push('\n');
        }
    }

    /// A paragraph after `lead`; lines after the first are indented by `indent`.
    fn paragraph(&mut self, lead: &str, text: &str, indent: usize, codes: &'static str) {
        let room = self.style.width.min(TEXT_WIDTH_MAX).saturating_sub(indent.max(length(lead)));
        for (index, line) in wrap(&plain(text), room).into_iter().enumerate() {
            let before = if index == 0 { lead.to_owned() } else { " ".repeat(indent) };
            self.line(&vec![(format!("{before}{line}"), codes)]);
        }
    }

    /// Parts joined by middle dots; lines break between parts.
    fn parts(&mut self, parts: &[String]) {
        let mut line = String::new();
        for part in parts.iter().map(|part| plain(part)) {
            if !line.is_empty() && length(&line) + 3 + length(&part) > self.style.width {
                self.paragraph("", &line, 0, "2");
                line.clear();
            }
            if !line.is_empty() {
                line.push_str(" · ");
            }
            line.push_str(&part);
        }
        self.paragraph("", &line, 0, "2");
    }

    /// A coloured word after `lead`, and a paragraph in the next column.
    fn labelled(&mut self, lead: &str, word: &str, codes: &'static str, column: usize, text: &str) {
        let room = self.style.width.min(TEXT_WIDTH_MAX).saturating_sub(lead.len() + column);
        for (index, line) in wrap(&plain(text), room).into_iter().enumerate() {
            let word = if index == 0 { word } else { "" };
            let gap = " ".repeat(column.saturating_sub(length(word)));
            let lead = (lead.to_owned(), "");
            self.line(&vec![lead, (word.to_owned(), codes), (format!("{gap}{line}"), "")]);
        }
    }

    fn section(&mut self, section: &Section, shared: &[&Table]) {
        match &section.depth {
            _ if self.has_details => self.gap(),
            Depth::Detail => return,
            Depth::Brief(line) => {
                self.notes_of_tables();
                if self.last != Last::Brief {
                    self.gap();
                }
                self.last = Last::Brief;
                return self.paragraph("", &unquoted(line), 2, "");
            }
            Depth::Main | Depth::Folded => self.gap(),
        }
        self.last = Last::Begin;
        if !section.title.is_empty() {
            let colon = if section.meaning.is_empty() { "" } else { ": " };
            self.paragraph("", &unquoted(&format!("{}{colon}{}", section.title, section.meaning)), 0, "1");
            self.last = Last::Heading;
        }
        section.blocks.iter().for_each(|block| self.block(block, shared));
    }

    fn block(&mut self, block: &Block, shared: &[&Table]) {
        let kind = match block {
            Block::Part(part) => return self.section(part, shared),
            Block::Charts(_) | Block::Forest(_) | Block::Flame(_) | Block::Cards(_) | Block::Aside(_) => {
                return;
            }
            Block::Text(_, Tone::Soft) => Last::Note,
            Block::List(_) | Block::Warnings(_) | Block::Pairs(_) | Block::Text(..) => Last::List,
            Block::Table(_) | Block::Bars(_) | Block::Timeline(_) | Block::Lines(_) | Block::Shares(_) => {
                Last::Other
            }
        };
        if !matches!(block, Block::Table(_)) {
            self.notes_of_tables();
        }
        let follows = !matches!(self.last, Last::Begin | Last::Heading);
        if follows && (self.last != kind || kind == Last::Other) {
            self.gap();
        }
        self.last = kind;
        self.draw(block, shared);
    }

    fn notes_of_tables(&mut self) {
        let notes = std::mem::take(&mut self.pending);
        if !notes.is_empty() {
            self.gap();
            notes.iter().for_each(|note| self.paragraph("", &unquoted(note), 0, "2"));
            self.last = Last::Note;
        }
    }

    fn draw(&mut self, block: &Block, shared: &[&Table]) {
        match block {
            Block::Text(text, tone) => self.paragraph("", &text.words(), 0, codes(*tone)),
            Block::List(items) => {
                let column = items.iter().map(|item| length(item.label) + 2).max().unwrap_or(0);
                items.iter().for_each(|item| self.item(item, if column > 2 { column } else { 0 }));
            }
            Block::Warnings(warnings) => warnings.iter().for_each(|warning| self.warning(warning)),
            Block::Pairs(pairs) => pairs
                .iter()
                .for_each(|(name, value)| self.paragraph("  ", &format!("{name}: {value}"), 4, "")),
            Block::Table(table) => self.table(table, shared),
            Block::Bars(bars) => bars::lines(bars, self.style.width).iter().for_each(|line| self.line(line)),
            Block::Timeline(timeline) => {
                timeline::lines(timeline, self.style.width).iter().for_each(|line| self.line(line));
            }
            Block::Lines(lines) => lines.iter().for_each(|line| self.line(&vec![(line.clone(), "")])),
            Block::Shares(all) => {
                shares::lines(all, self.style.width).iter().for_each(|line| self.line(line));
            }
            Block::Charts(_)
            | Block::Forest(_)
            | Block::Flame(_)
            | Block::Cards(_)
            | Block::Part(_)
            | Block::Aside(_) => {}
        }
    }

    /// A point of a list; `column` is the width of the labels.
    fn item(&mut self, item: &Item, column: usize) {
        match column {
            0 => self.paragraph("  ", &item.text.words(), 4, codes(item.tone)),
            _ => self.labelled("  ", item.label, codes(item.tone), column, &item.text.words()),
        }
        for (name, text) in &item.below {
            self.paragraph(&" ".repeat(column + 2), &format!("{name}: {}", unquoted(text)), column + 4, "2");
        }
    }

    fn warning(&mut self, warning: &Warning) {
        let text = format!("{}: {}", warning.code, unquoted(&warning.text));
        self.paragraph("  ", &text, 4, codes(Tone::Warn));
        if let Some(fix) = &warning.fix {
            self.paragraph("    ", &format!("fix: {}", unquoted(fix)), 9, "");
        }
    }

    fn table(&mut self, table: &Table, shared: &[&Table]) {
        let mut alike: Vec<&Table> =
            shared.iter().copied().filter(|other| other.columns.len() == table.columns.len()).collect();
        if alike.is_empty() {
            alike.push(table);
        }
        let mut layout = Layout::new(&alike, table::used(&alike), self.style.width);
        loop {
            if layout.fits {
                layout.lines(table).iter().for_each(|line| self.line(line));
            } else {
                layout.sentences(table).iter().for_each(|row| self.paragraph("  ", row, 4, ""));
            }
            let Some(rest) = layout.rest().filter(|_| table.folds) else { break };
            self.gap();
            self.paragraph("", "Columns that did not fit into the table above:", 0, "2");
            layout = Layout::new(&alike, rest, self.style.width);
        }
        self.pending = layout.notes(table);
    }
}

/// The parameters of the ANSI sequence of a tone.
pub(super) fn codes(tone: Tone) -> &'static str {
    match tone {
        Tone::Plain => "",
        Tone::Bad => "31",
        Tone::Good => "32",
        Tone::Warn => "33",
        Tone::Soft => "2",
    }
}

fn bold(tone: Tone) -> &'static str {
    match tone {
        Tone::Plain | Tone::Soft => "1",
        Tone::Bad => "1;31",
        Tone::Good => "1;32",
        Tone::Warn => "1;33",
    }
}
