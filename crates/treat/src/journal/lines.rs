//! Lines of a journal: each has a number, and a checksum over all that is before it in the line.
//!
//! The journal has a mark in a file next to it: how many lines it has, so that the loss of the last ones shows, too.
//! The mark is written after the lines, so a process that is killed in between leaves more lines than the mark says. A
//! line behind the mark that is not whole was cut off while it was written, before the change that it records was
//! made.
//!
//! Journals of earlier versions (`whylate.journal/1`) have neither. They are read as those versions did, and are
//! rewritten when they are opened.

use super::record::{Contents, JournalRecord};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The text between a line and its checksum of eight digits.
const CHECKSUM: &[u8] = b",\"crc\":\"";
/// How every line of an earlier version begins; lines of this version begin with their number.
const OLD_LINE: &[u8] = b"{\"record\":";
/// Length of every mark: a shorter one never leaves parts of a longer one behind.
const MARK_LENGTH: usize = 159;
/// How much of a damaged line is shown.
const SHOWN_MAX: usize = 240;

#[derive(Serialize, Deserialize)]
struct Numbered<T> {
    seq: u64,
    #[serde(flatten)]
    of: T,
}

/// How many lines a journal has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Mark {
    /// The boot in which it was written. The changes of an earlier boot are gone with the reboot.
    pub(super) boot_id: String,
}

/// What the file of the mark holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Marked {
    /// There is no mark.
    Not,
    Damaged,
    /// The journal has at least this many lines.
    Lines(u64),
}

/// One line with its number and checksum, and its end.
pub(super) fn seal<T: Serialize>(seq: u64, of: &T) -> serde_json::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(&Numbered { seq, of })?;
    line.pop();
    let checksum = crc32fast::hash(&line);
    line.extend_from_slice(CHECKSUM);
    line.extend_from_slice(format!("{checksum:08x}\"}}\n").as_bytes());
    Ok(line)
}

/// The line and its number, if it is intact.
fn unseal<T: for<'a> Deserialize<'a>>(line: &[u8]) -> Option<(u64, T)> {
    let (body, end) = line.split_at_checked(line.len().checked_sub(CHECKSUM.len() + 10)?)?;
    let digits = end.strip_prefix(CHECKSUM)?.strip_suffix(b"\"}")?;
    if format!("{:08x}", crc32fast::hash(body)).as_bytes() != digits {
        return None;
    }
    let Numbered { seq, of } = serde_json::from_slice(line).ok()?;
    Some((seq, of))
}

pub(super) fn mark(lines: u64, boot_id: &str) -> serde_json::Result<Vec<u8>> {
    let mut text = seal(lines, &Mark { boot_id: boot_id.to_owned() })?;
    text.pop();
    text.resize(MARK_LENGTH.max(text.len()), b' ');
    text.push(b'\n');
    Ok(text)
}

/// The lines that a mark states in this boot.
pub(super) fn read_mark(text: Option<&[u8]>, boot_id: &str) -> Marked {
    match text.map(|text| unseal::<Mark>(text.trim_ascii_end())) {
        None => Marked::Not,
        Some(None) => Marked::Damaged,
        Some(Some((_, mark))) if mark.boot_id != boot_id => Marked::Lines(0),
        Some(Some((lines, _))) => Marked::Lines(lines),
    }
}

/// A journal as it was read.
#[derive(Debug, Default)]
pub(super) struct Parsed {
    pub(super) contents: Contents,
    /// How many bytes are whole lines; the rest was cut off.
    pub(super) good: usize,
    /// Number of the last line.
    pub(super) last: u64,
    /// Whether an earlier version wrote it.
    pub(super) is_old: bool,
    /// What is known to be missing, one sentence each.
    pub(super) damage: Vec<String>,
}

/// Reads a journal and its mark.
pub(super) fn parse(bytes: &[u8], marked: Marked) -> Parsed {
    let lines: Vec<&[u8]> = bytes.split_inclusive(|&byte| byte == b'\n').collect();
    let whole = |line: &&[u8]| line.strip_suffix(b"\n").map(<[u8]>::to_vec);
    let sealed: Vec<Option<(u64, JournalRecord)>> =
        lines.iter().map(|line| whole(line).and_then(|line| unseal(&line))).collect();
    if sealed.iter().all(Option::is_none)
        && lines.first().is_some_and(|line| line.starts_with(OLD_LINE))
        && matches!(marked, Marked::Not | Marked::Lines(0))
    {
        return parse_old(&lines);
    }
    let mut parsed = Parsed::default();
    let end = sealed.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
    parsed.good = lines[..end].iter().map(|line| line.len()).sum();
    let mut found = BTreeMap::new();
    let mut is_in_order = true;
    for (number, record) in sealed.into_iter().enumerate() {
        match record {
            Some((seq, record)) => {
                is_in_order &= parsed.last < seq;
                parsed.last = parsed.last.max(seq);
                found.insert(seq, record);
            }
            None if number < end => parsed.damage.push(shown(number + 1, lines[number])),
            None => {}
        }
    }
    let marked = match marked {
        Marked::Lines(lines) => lines,
        Marked::Not | Marked::Damaged => {
            // Nothing was written yet: a journal gets its mark before its first line.
            if marked == Marked::Damaged || !bytes.is_empty() {
                parsed.damage.push("the file with the line count is missing or damaged".to_owned());
            }
            u64::MAX
        }
    };
    if parsed.last < marked {
        let behind = lines.iter().enumerate().skip(end);
        parsed.damage.extend(behind.map(|(number, line)| shown(number + 1, line)));
    }
    let expected = if marked == u64::MAX { parsed.last } else { parsed.last.max(marked) };
    let missing = (expected as usize).saturating_sub(found.len());
    if missing > parsed.damage.len() || (missing > 0 && parsed.damage.is_empty()) {
        parsed.damage.push(format!("{missing} of {expected} lines are missing"));
    }
    if !is_in_order {
        parsed.damage.push("lines are not in the order in which they were written".to_owned());
    }
    parsed.last = expected;
    found.into_values().for_each(|record| parsed.contents.add(record));
    parsed
}

/// Lines without numbers and checksums: one that cannot be read and is not the last one is damage.
fn parse_old(lines: &[&[u8]]) -> Parsed {
    let mut parsed = Parsed { is_old: true, ..Parsed::default() };
    let mut unread = Vec::new();
    let mut end = 0;
    for (number, line) in lines.iter().enumerate() {
        end += line.len();
        let record = line.strip_suffix(b"\n").and_then(|line| serde_json::from_slice(line).ok());
        match record {
            Some(record) => {
                parsed.contents.add(record);
                parsed.damage.append(&mut unread);
                parsed.good = end;
            }
            None => unread.push(shown(number + 1, line)),
        }
    }
    parsed
}

/// What can still be read of a damaged line.
fn shown(number: usize, line: &[u8]) -> String {
    let text: String = String::from_utf8_lossy(line)
        .chars()
        .map(|c| if c.is_control() || c == char::REPLACEMENT_CHARACTER { '?' } else { c })
        .take(SHOWN_MAX)
        .collect();
    let text = text.trim_matches('?').trim();
    if text.is_empty() {
        return format!("line {number} cannot be read");
    }
    format!("line {number} cannot be trusted; it reads: {text}")
}

#[cfg(test)]
#[path = "lines_tests.rs"]
mod tests;
