//! The parts of a report: a page has sections, a section has blocks. Sections are made once from a result and drawn
//! by each writer. Only the writers know widths, colours, Markdown and HTML, and only they escape.

use crate::charts::Chart;
use crate::pictures::{Cards, Flame, Forest, Shares};
use whylate_core::Warning;
use whylate_core::result::{CauseKind, TimelineSegment};

/// A report: its head and its sections.
#[derive(Debug, Default)]
pub struct Page {
    /// What was done: `whylate run on bench, 2026-11-21`.
    pub(crate) origin: String,
    /// The name of the plan, or the finding.
    pub(crate) title: String,
    pub(crate) title_tone: Tone,
    pub(crate) question: Option<String>,
    /// The machine and the extent of the measurement, in short: lines of parts.
    pub(crate) about: Vec<Vec<String>>,
    pub(crate) verdict: Option<Verdict>,
    /// Failures of the run.
    pub(crate) failures: Vec<String>,
    pub(crate) sections: Vec<Section>,
    /// Whether the terminal also shows the parts that it normally leaves out.
    pub(crate) has_details: bool,
}

impl Page {
    /// The same page; with `details` the terminal shows all of it.
    #[must_use]
    pub fn detailed(self, details: bool) -> Self {
        Self { has_details: details, ..self }
    }
}

/// The answer in a word, and its reason.
#[derive(Debug)]
pub(crate) struct Verdict {
    pub(crate) word: &'static str,
    pub(crate) reason: String,
    pub(crate) tone: Tone,
}

/// The meaning for the reader. Words say the same: colour is never the only sign.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Tone {
    #[default]
    Plain,
    Good,
    Bad,
    Warn,
    /// Less important than the rest.
    Soft,
}

/// In which formats it is shown in full.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum Depth {
    #[default]
    Main,
    /// Markdown folds it away; HTML does so too if it is part of a section.
    Folded,
    /// The terminal shows this line instead; Markdown folds it under this line.
    Brief(String),
    /// As `Folded`, and the terminal leaves it out.
    Detail,
}

/// A part of a report with a heading.
#[derive(Debug, Default)]
pub(crate) struct Section {
    /// Its anchor in HTML; if empty, the title is used.
    pub(crate) id: &'static str,
    /// Without a title, its blocks continue the section above.
    pub(crate) title: String,
    /// What the title means, in half a sentence.
    pub(crate) meaning: &'static str,
    pub(crate) depth: Depth,
    pub(crate) blocks: Vec<Block>,
}

impl Section {
    pub(crate) fn new(id: &'static str, title: impl Into<String>) -> Self {
        Self { id, title: title.into(), ..Self::default() }
    }

    pub(crate) fn meaning(self, meaning: &'static str) -> Self {
        Self { meaning, ..self }
    }

    pub(crate) fn depth(self, depth: Depth) -> Self {
        Self { depth, ..self }
    }

    /// Adds this block if it is not empty.
    pub(crate) fn with(mut self, block: impl Into<Block>) -> Self {
        let block = block.into();
        let is_empty = match &block {
            Block::List(items) => items.is_empty(),
            Block::Warnings(warnings) => warnings.is_empty(),
            Block::Pairs(pairs) => pairs.is_empty(),
            Block::Table(table) => table.rows.is_empty(),
            Block::Charts(charts) => charts.is_empty(),
            Block::Lines(lines) => lines.is_empty(),
            Block::Part(part) | Block::Aside(part) => part.blocks.is_empty(),
            Block::Shares(shares) => shares.rows.is_empty(),
            Block::Forest(forest) => forest.rows.is_empty(),
            Block::Flame(flame) => flame.calls.is_empty(),
            Block::Cards(cards) => cards.cards.is_empty(),
            Block::Text(..) | Block::Bars(_) | Block::Timeline(_) => false,
        };
        if !is_empty {
            self.blocks.push(block);
        }
        self
    }

    /// Adds all of these.
    pub(crate) fn with_all<B: Into<Block>>(self, blocks: impl IntoIterator<Item = B>) -> Self {
        blocks.into_iter().fold(self, Self::with)
    }

    /// Empty if the section has no contents.
    pub(crate) fn unless_empty(self) -> Vec<Self> {
        if self.blocks.is_empty() { Vec::new() } else { vec![self] }
    }
}

/// What a section is made of.
#[derive(Debug)]
pub(crate) enum Block {
    /// A paragraph; a soft one is a note about the block above it.
    Text(Text, Tone),
    List(Vec<Item>),
    Warnings(Vec<Warning>),
    /// Names and values.
    Pairs(Vec<(String, String)>),
    Table(Table),
    /// Pictures of the figures in tables: only in HTML.
    Charts(Vec<Chart>),
    /// Bars of parts.
    Shares(Shares),
    /// Effects with their intervals on one axis: only in HTML.
    Forest(Forest),
    /// Where a program spent its time: only in HTML.
    Flame(Flame),
    /// Machines with small charts: only in HTML.
    Cards(Cards),
    /// Histograms as text: a label and `(lower edge in ns, count)`, on one axis.
    Bars(Vec<(String, Vec<(u64, u64)>)>),
    Timeline(Timeline),
    /// Lines that stay unchanged.
    Lines(Vec<String>),
    Part(Section),
    /// A part for reference: only in HTML.
    Aside(Section),
}

impl Block {
    pub(crate) fn note(text: impl Into<Text>) -> Self {
        Self::Text(text.into(), Tone::Soft)
    }
}

macro_rules! block_from {
    ($($from:ty => $variant:ident),*) => {
        $(impl From<$from> for Block {
            fn from(content: $from) -> Self {
                Self::$variant(content)
            }
        })*
    };
}
block_from!(
    Vec<Item> => List, Table => Table, Timeline => Timeline, Section => Part, Vec<Chart> => Charts, Shares => Shares,
    Forest => Forest, Flame => Flame, Cards => Cards
);

/// A list of sentences.
pub(crate) fn sentences(all: impl IntoIterator<Item = String>) -> Vec<Item> {
    all.into_iter().map(Item::from).collect()
}

/// One point of a list.
#[derive(Clone, Debug, Default)]
pub(crate) struct Item {
    pub(crate) tone: Tone,
    /// The symbol that HTML draws in front of it.
    pub(crate) symbol: &'static str,
    /// A word in a column of its own.
    pub(crate) label: &'static str,
    pub(crate) text: Text,
    /// Names and texts below it.
    pub(crate) below: Vec<(&'static str, String)>,
}

/// Makes items and cells from anything that is text.
macro_rules! from_texts {
    ($($from:ty),*) => {
        $(impl From<$from> for Item {
            fn from(text: $from) -> Self {
                Self { text: text.into(), ..Self::default() }
            }
        }
        impl From<$from> for Cell {
            fn from(text: $from) -> Self {
                Self { text: Some(text.into()), ..Self::default() }
            }
        })*
    };
}
from_texts!(String, &str, Text);

/// Words and their kinds.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Text(pub(crate) Vec<Span>);

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Span {
    Plain(String),
    /// A name, command or path.
    Code(String),
    /// A figure that is not broken into lines if there is room for it.
    Whole(String),
    /// The colour that stands for a kind on a timeline.
    Swatch(Option<CauseKind>),
}

/// Text between backticks becomes code, so that no format shows the backticks.
impl<T: Into<String>> From<T> for Text {
    fn from(text: T) -> Self {
        let text: String = text.into();
        let parts: Vec<&str> = text.split('`').collect();
        if parts.len().is_multiple_of(2) {
            return Self(vec![Span::Plain(text)]);
        }
        let span = |(index, part): (usize, &&str)| match index.is_multiple_of(2) {
            true => Span::Plain((*part).to_owned()),
            false => Span::Code((*part).to_owned()),
        };
        Self(parts.iter().enumerate().filter(|(_, part)| !part.is_empty()).map(span).collect())
    }
}

impl Text {
    pub(crate) fn code(text: impl Into<String>) -> Self {
        Self::default().and(Span::Code(text.into()))
    }

    pub(crate) fn and(mut self, span: Span) -> Self {
        self.0.push(span);
        self
    }

    pub(crate) fn and_plain(self, text: impl Into<String>) -> Self {
        self.and(Span::Plain(text.into()))
    }

    /// The words without their kinds.
    pub(crate) fn words(&self) -> String {
        let word = |span: &Span| match span {
            Span::Plain(text) | Span::Code(text) | Span::Whole(text) => text.clone(),
            Span::Swatch(_) => String::new(),
        };
        self.0.iter().map(word).collect()
    }
}

/// Rows under titles. If the terminal has no room for all columns, it leaves out the least important ones and names
/// them, or folds them into a second table. If not even the important ones fit, each row becomes a sentence.
#[derive(Debug, Default)]
pub(crate) struct Table {
    pub(crate) columns: Vec<Column>,
    pub(crate) rows: Vec<Row>,
    /// Columns without room make a second table, which begins with the first column.
    pub(crate) folds: bool,
}

/// The importance of a column that is never left out.
pub(crate) const ALWAYS: u8 = 9;

#[derive(Clone, Debug)]
pub(crate) struct Column {
    pub(crate) title: String,
    /// Figures are aligned to the right, texts to the left.
    pub(crate) is_text: bool,
    /// How important the column is, up to [`ALWAYS`]; a narrow HTML page leaves out those with 0.
    pub(crate) importance: u8,
    /// Its texts may be broken into lines.
    pub(crate) wraps: bool,
    /// What a reader must know to read it.
    pub(crate) note: &'static str,
}

impl Column {
    pub(crate) fn text(title: impl Into<String>) -> Self {
        Self { is_text: true, ..Self::number(title) }
    }

    pub(crate) fn number(title: impl Into<String>) -> Self {
        Self { title: title.into(), is_text: false, importance: ALWAYS, wraps: false, note: "" }
    }

    pub(crate) fn wraps(self) -> Self {
        Self { wraps: true, ..self }
    }

    pub(crate) fn importance(self, importance: u8) -> Self {
        Self { importance, ..self }
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Row {
    /// The anchor that links to it in HTML; without a link if empty.
    pub(crate) anchor: String,
    /// The target of its first cell on a web server's page, and the row's name when it is ticked.
    pub(crate) link: Option<(String, String)>,
    /// Belongs to the row before it; a missing cell has no meaning.
    pub(crate) is_part: bool,
    pub(crate) tone: Tone,
    pub(crate) cells: Vec<Cell>,
}

impl Row {
    pub(crate) fn of<C: Into<Cell>>(cells: impl IntoIterator<Item = C>) -> Self {
        Self { cells: cells.into_iter().map(Into::into).collect(), ..Self::default() }
    }

    /// The first cell that holds anything: the name of a part.
    pub(crate) fn first(&self) -> Option<usize> {
        self.cells.iter().position(|cell| cell.text.is_some())
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Cell {
    /// `None` if there is no figure.
    pub(crate) text: Option<Text>,
    pub(crate) tone: Tone,
    /// Small lines below it.
    pub(crate) below: Vec<String>,
}

impl From<Option<String>> for Cell {
    fn from(text: Option<String>) -> Self {
        Self { text: text.map(Text::from), ..Self::default() }
    }
}

impl Table {
    pub(crate) fn new(columns: Vec<Column>, rows: Vec<Row>) -> Self {
        Self { columns, rows, folds: false }
    }

    /// Whether a column holds anything.
    pub(crate) fn uses(&self, column: usize) -> bool {
        self.rows.iter().any(|row| row.cells.get(column).is_some_and(|cell| cell.text.is_some()))
    }

    /// The columns that hold anything.
    pub(crate) fn used(&self) -> Vec<usize> {
        (0..self.columns.len()).filter(|column| self.uses(*column)).collect()
    }
}

/// The notes of columns, each once.
pub(crate) fn different(notes: impl Iterator<Item = &'static str>) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for note in notes.filter(|note| !note.is_empty()) {
        if !all.iter().any(|known| known == note) {
            all.push(note.to_owned());
        }
    }
    all
}

/// What happened between two moments, by CPU; moments count from the first one.
#[derive(Debug)]
pub(crate) struct Timeline {
    pub(crate) length_ns: u64,
    pub(crate) segments: Vec<TimelineSegment>,
}

impl Timeline {
    /// The CPUs, ascending.
    pub(crate) fn cpus(&self) -> Vec<whylate_core::CpuId> {
        let cpus: std::collections::BTreeSet<_> = self.segments.iter().map(|segment| segment.cpu).collect();
        cpus.into_iter().collect()
    }

    /// The time as a share of the whole.
    pub(crate) fn share(&self, time_ns: u64) -> f64 {
        time_ns as f64 / self.length_ns.max(1) as f64
    }
}
