//! Merges segments that were flushed one after another: a flush a minute makes 13,000 small files a day, which take
//! longer to open than to read.
//!
//! Their rows stay in memory until there are enough of them. The merged segment is written like a flush. The manifest
//! line that lists it names the segments that it replaces, and only then are these removed. A killed process
//! therefore leaves either the single segments or the merged one, even if files of the other remain.

use crate::tables::Rows;

/// The most memory for the rows of segments that wait to be merged.
const BYTES_MAX: usize = 4 << 20;
/// How many segments are merged at once.
const SEGMENTS_MAX: usize = 120;
/// At the end of a run, fewer segments than this are left as they are.
pub(crate) const LAST_MIN: usize = 10;

/// Rows that were flushed and are not merged yet.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    rows: Rows,
    segments: Vec<u32>,
}

impl Kept {
    /// Whether these rows would be too many with those that are kept.
    pub(crate) fn is_full_before(&self, more: &Rows) -> bool {
        self.segments.len() >= SEGMENTS_MAX || self.rows.bytes() + more.bytes() > BYTES_MAX
    }

    /// Keeps the rows that were flushed as a segment.
    pub(crate) fn add(&mut self, number: u32, rows: Rows) {
        self.rows.append(rows);
        self.segments.push(number);
    }

    /// Takes the rows and the segments that hold them; nothing is kept then.
    pub(crate) fn take(&mut self) -> (Rows, Vec<u32>) {
        let Self { rows, segments } = std::mem::take(self);
        (rows, segments)
    }
}
