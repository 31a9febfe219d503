//! The lines and words of a text, with where they are: what is wrong is reported there.

use crate::Problem;
use std::str::FromStr;

pub(crate) struct ToolLines<'t> {
    text: &'t str,
}

/// A line, or the rest of one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ToolLine<'t> {
    whole: &'t str,
    /// Without spaces, and without what colours it, before and behind it.
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
        Self { text }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = ToolLine<'t>> + use<'t> {
        self.text.lines().enumerate().map(|(index, whole)| ToolLine {
            whole,
            text: plain(whole),
            number: index + 1,
        })
    }

    /// What follows `start` in the first line that begins with it.
    pub(crate) fn behind(&self, start: &str) -> Option<ToolLine<'t>> {
        self.iter().find_map(|line| line.behind(start))
    }

    /// What lacks at the end of the text.
    pub(crate) fn ends(&self, message: impl Into<String>) -> Problem {
        let line = self.iter().last().unwrap_or(ToolLine { whole: "", text: "", number: 1 });
        Problem { line: line.number, column: line.whole.len() + 1, message: message.into() }
    }
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
            .problem(format!("{} numbers, where {count} are expected: is the line cut off?", numbers.len())))
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
