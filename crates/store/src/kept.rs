//! Segments that were flushed one after another and become one: a flush a minute is 13,000 small files a day, which take
//! longer to open than to read.
//!
//! Their rows stay in memory until there are enough of them. The merged segment is written as a flush is; the line of the
//! manifest that lists it says which segments it replaces, and only then are these removed. So a killed process leaves either
//! the single segments or the merged one, whatever files of the other are still there.

use crate::tables::Rows;

/// The most memory for the rows of segments that wait to be merged.
const BYTES_MAX: usize = 4 << 20;
/// How many segments are merged at once.
const SEGMENTS_MAX: usize = 120;
/// At the end of a run fewer are left as they are.
pub(crate) const LAST_MIN: usize = 10;

/// What was flushed and is not merged yet.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    rows: Rows,
    segments: Vec<u32>,
}

impl Kept {
    /// Whether more rows would be too many.
    pub(crate) fn is_full_before(&self, more: &Rows) -> bool {
        self.segments.len() >= SEGMENTS_MAX || self.rows.bytes() + more.bytes() > BYTES_MAX
    }

    /// Keeps what was flushed as a segment.
    pub(crate) fn add(&mut self, number: u32, rows: Rows) {
        self.rows.append(rows);
        self.segments.push(number);
    }

    /// The rows and the segments that hold them. Nothing is kept then.
    pub(crate) fn take(&mut self) -> (Rows, Vec<u32>) {
        let Self { rows, segments } = std::mem::take(self);
        (rows, segments)
    }
}
