//! The lines and words of a text, with their places for error messages.

use crate::Problem;
use std::borrow::Cow;
use std::str::FromStr;

pub(crate) struct ToolLines<'t> {
    text: &'t str,
    /// Lines of the file before these.
    before: usize,
}

/// A line, or the rest of one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ToolLine<'t> {
    whole: &'t str,
    /// Without spaces and colour sequences around it.
    pub(crate) text: &'t str,
    number: usize,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Word<'t> {
    pub(crate) text: &'t str,
    line: ToolLine<'t>,
}

impl<'t> ToolLines<'t> {
    pub(crate) fn new(text: &'t str) -> Self {
        Self { text, before: 0 }
    }

    /// The parts that begin with a line that starts so; what is before the first belongs to it.
    pub(crate) fn runs(&self, start: &str) -> Vec<ToolLines<'t>> {
        let mut begins: Vec<(usize, usize)> = Vec::new();
        let mut at = 0;
        for (index, line) in self.text.split_inclusive('\n').enumerate() {
            let text = plain(line);
            // `# Histogram` is a line of its own, others have something behind it.
            if text == start || start.ends_with([':', ' ']) && text.starts_with(start) {
                begins.push((at, index));
            }
            at += line.len();
        }
        if let Some(first) = begins.first_mut() {
            *first = (0, 0);
        }
        let ends = begins.iter().skip(1).map(|(at, _)| *at).chain([self.text.len()]);
        let part = |((begin, index), end): (&(usize, usize), usize)| ToolLines {
            text: &self.text[*begin..end],
            before: self.before + index,
        };
        begins.iter().zip(ends).map(part).collect()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = ToolLine<'t>> + use<'t> {
        let before = self.before;
        self.text.lines().enumerate().map(move |(index, whole)| ToolLine {
            whole,
            text: plain(whole),
            number: before + index + 1,
        })
    }

    /// What follows `start` in the first line that begins with it.
    pub(crate) fn behind(&self, start: &str) -> Option<ToolLine<'t>> {
        self.iter().find_map(|line| line.behind(start))
    }

    /// Something is missing at the end of the text.
    pub(crate) fn ends(&self, message: impl Into<String>) -> Problem {
        let line = self.iter().last().unwrap_or(ToolLine { whole: "", text: "", number: 1 });
        Problem { line: line.number, column: line.whole.len() + 1, message: message.into() }
    }
}

/// The text with whole lines, each in its place: a mail or a shell may break rows of figures.
pub(crate) fn whole(text: &str) -> Cow<'_, str> {
    let lines: Vec<&str> = text.lines().collect();
    let mut columns = 0;
    let mut joined = String::new();
    let mut is_changed = false;
    let mut at = 0;
    while let Some(line) = lines.get(at) {
        let mut parts = vec![*line];
        let is_header = plain(line).starts_with("Index") && plain(line).contains('-');
        while let Some(next) = lines.get(at + parts.len()).filter(|_| parts.len() < PARTS_MAX) {
            let row =
                parts.iter().map(|part| plain(part).trim_end_matches('\\')).collect::<Vec<_>>().join(" ");
            let goes_on = if parts.last().is_some_and(|it| it.ends_with('\\')) {
                true
            } else if is_header {
                let titles = ["IRQ-", "Thr-", "Usr-", "CPU-"];
                titles.iter().any(|title| plain(next).starts_with(title))
            } else {
                is_broken(&row, plain(next), columns)
            };
            if !goes_on {
                break;
            }
            parts.push(next);
        }
        if is_header && parts.len() > 1 {
            columns = parts.iter().flat_map(|part| plain(part).split_whitespace()).count();
        }
        is_changed |= parts.len() > 1;
        joined.push_str(parts[0].trim_end_matches('\\'));
        for part in &parts[1..] {
            joined.push(' ');
            joined.push_str(plain(part).trim_end_matches('\\'));
        }
        parts.iter().for_each(|_| joined.push('\n'));
        at += parts.len();
    }
    if is_changed { joined.into() } else { text.into() }
}

/// A row is broken into no more lines.
const PARTS_MAX: usize = 12;

/// Whether a row of figures goes on in the next line; `columns` of a table whose head was broken, else 0.
fn is_broken(row: &str, next: &str, columns: usize) -> bool {
    let is_figures = |text: &str| {
        // `<--- CPU with spike`.
        let text = text.split('<').next().unwrap_or_default();
        let mut words = text.split(|it: char| it.is_whitespace() || it == '|').filter(|it| !it.is_empty());
        !text.is_empty() && words.all(|word| word == "-" || word.parse::<f64>().is_ok())
    };
    let first = row.split_whitespace().next().unwrap_or_default();
    if row.starts_with("T:") {
        // `T: 0 (9615) … Max:` and the figure in the next line, or `Max:` too.
        let is_whole =
            row.rsplit_once("Max:").is_some_and(|(_, rest)| rest.contains(|it: char| it.is_ascii_digit()));
        let is_next = next.starts_with(|it: char| it.is_ascii_digit())
            || next.contains("Max:") && !next.starts_with("T:");
        return !is_whole && is_next;
    }
    if row.split_whitespace().nth(1).is_some_and(|it| it.starts_with('#')) && first.parse::<u32>().is_ok() {
        return is_figures(next) && next.split_whitespace().nth(1).is_none_or(|it| !it.starts_with('#'));
    }
    let is_row =
        first.parse::<u64>().is_ok() || matches!(first, "over:" | "count:" | "min:" | "avg:" | "max:");
    columns > 0 && is_row && is_figures(next) && {
        let count = |text: &str| text.split_whitespace().count();
        count(row) + count(next) <= columns
    }
}

/// The same without the marks of a comment, as results stand in sources and in books.
pub(crate) fn uncommented(text: &str) -> String {
    let bare = |line: &str| {
        let line = plain(line);
        let rest = line.strip_prefix("# ").or(line.strip_prefix("// ")).or((line == "#").then_some(""));
        format!("{}\n", rest.unwrap_or(line))
    };
    text.lines().map(bare).collect()
}

/// Without the escape sequences that terminals take for colours.
fn plain(line: &str) -> &str {
    let mut text = line.trim();
    while let Some(rest) = text.strip_prefix('>') {
        text = rest.trim_start();
    }
    while let Some((_, rest)) = text.strip_prefix("\u{1b}[").and_then(|rest| rest.split_once('m')) {
        text = rest.trim_start();
    }
    text
}

impl<'t> ToolLine<'t> {
    /// What follows `start`.
    pub(crate) fn behind(self, start: &str) -> Option<Self> {
        self.text.strip_prefix(start).map(|text| Self { text, ..self })
    }

    /// What comes before `end`, or all of it.
    pub(crate) fn before(self, end: &str) -> Self {
        Self { text: self.text.split(end).next().unwrap_or(self.text), ..self }
    }

    /// Its words; `|` is none.
    pub(crate) fn words(self) -> impl Iterator<Item = Word<'t>> {
        let words = self.text.split(|letter: char| letter.is_whitespace() || letter == '|');
        words.filter(|word| !word.is_empty()).map(move |text| Word { text, line: self })
    }

    /// All its words as numbers, `count` of them.
    pub(crate) fn numbers<T: FromStr>(self, count: usize) -> Result<Vec<T>, Problem> {
        let numbers = self.words().map(Word::number).collect::<Result<Vec<T>, Problem>>()?;
        if numbers.len() == count {
            return Ok(numbers);
        }
        Err(self
            .problem(format!("this line has {} numbers; it needs {count}: is it cut off?", numbers.len())))
    }

    /// Something is wrong at its end.
    pub(crate) fn problem(self, message: impl Into<String>) -> Problem {
        Problem { line: self.number, column: self.whole.trim_end().len() + 1, message: message.into() }
    }
}

impl<'t> Word<'t> {
    /// What follows `start`; the whole word without it.
    pub(crate) fn behind(self, start: &str) -> Self {
        Self { text: self.text.strip_prefix(start).unwrap_or(self.text), ..self }
    }

    /// What comes before the first letter of that kind.
    pub(crate) fn until(self, is_end: impl Fn(char) -> bool) -> Self {
        Self { text: self.text.split(is_end).next().unwrap_or(self.text), ..self }
    }

    /// The words between `separator`.
    pub(crate) fn parts(self, separator: char) -> impl Iterator<Item = Word<'t>> {
        self.text.split(separator).map(move |text| Self { text, ..self })
    }

    pub(crate) fn number<T: FromStr>(self) -> Result<T, Problem> {
        self.text.parse().map_err(|_| self.problem(format!("`{}` is not a number, or too large", self.text)))
    }

    pub(crate) fn problem(self, message: impl Into<String>) -> Problem {
        let column = self.text.as_ptr() as usize - self.line.whole.as_ptr() as usize + 1;
        Problem { line: self.line.number, column, message: message.into() }
    }
}
