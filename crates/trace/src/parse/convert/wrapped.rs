//! Lines that a mail client broke: at a blank if the next word would not have fit, also within a quotation.
//!
//! `… [001] d..2. 492.293101: sched_switch: prev_comm=a` and `prev_pid=7 …` in the next line are one line again.

use super::{ConvertError, each_line, written};
use crate::parse::text::{begins_event, unquoted};
use crate::parse::{ParseError, Source};
use std::io::Write;

/// Clients break lines at 72 to 78 columns; a mark of quotation comes before or after that.
const WIDTHS: std::ops::RangeInclusive<usize> = 68..=82;
/// A longer line is not joined from parts.
const LINE_BYTES_MAX: usize = 8 << 10;
/// How much of a text is checked.
const SAMPLE_BYTES: usize = 64 << 10;

/// The text with whole lines; `None` if none was broken.
pub(in crate::parse) fn unwrapped(source: &Source) -> Result<Option<Source>, ParseError> {
    let (mut lines, mut seen, mut broken, mut whole) = (Joiner::default(), 0, 0u64, 0u64);
    let sample = each_line(source, |line| {
        seen += line.len();
        broken += u64::from(lines.continues(line));
        whole += u64::from(line.len() > *WIDTHS.end() + 1 && begins_event(line));
        lines.add(line);
        Ok(seen < SAMPLE_BYTES && whole == 0)
    });
    match sample {
        Ok(()) if broken > 0 && whole == 0 => written(source, convert).map(Some),
        Ok(()) => Ok(None),
        Err(ConvertError::Parse(error)) => Err(error),
        Err(ConvertError::Write(error)) => Err(source.failed(error, 0)),
    }
}

fn convert(source: &Source, output: &mut dyn Write) -> Result<(), ConvertError> {
    let mut lines = Joiner::default();
    each_line(source, |line| {
        if !lines.continues(line) {
            output.write_all(&lines.line)?;
            output.write_all(b"\n")?;
        }
        lines.add(line);
        Ok(true)
    })?;
    output.write_all(&lines.line)?;
    Ok(output.write_all(b"\n")?)
}

/// A partly read line.
#[derive(Default)]
struct Joiner {
    /// Without marks of quotation.
    line: Vec<u8>,
    /// Columns of its last part, with them.
    columns: usize,
}

impl Joiner {
    /// Whether the next line continues it: its first word would have been beyond the width.
    fn continues(&self, next: &[u8]) -> bool {
        let text = unquoted(trimmed(next));
        let word = text.iter().position(u8::is_ascii_whitespace).unwrap_or(text.len());
        let is_word = word > 0 && text[0] != b'#' && !text.starts_with(b"=>");
        let fits = self.columns + 1 + word <= *WIDTHS.start();
        if self.line.len() > LINE_BYTES_MAX
            || !is_word
            || fits
            || self.columns > *WIDTHS.end()
            || begins_event(text)
        {
            return false;
        }
        begins_event(&self.line) || begins_event(&self.joined(text))
    }

    fn joined(&self, text: &[u8]) -> Vec<u8> {
        let space: &[u8] = if self.line.ends_with(b" ") { b"" } else { b" " };
        [&self.line, space, text].concat()
    }

    fn add(&mut self, next: &[u8]) {
        let text = unquoted(trimmed(next));
        self.line = if self.continues(next) { self.joined(text) } else { text.to_vec() };
        self.columns = trimmed(next).len();
    }
}

/// Without the end of the line.
fn trimmed(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}
