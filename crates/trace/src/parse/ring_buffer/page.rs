//! Walks the events of one page: lengths, time deltas, time extends, absolute stamps, padding.
//!
//! Each entry begins with 32 bits: 5 for its type, 27 for the time since the entry before. Types 1 to 28 are events of
//! as many 4-byte words; 0 is an event whose length is in the next word; 29 is padding or a discarded event, 30
//! extends the delta, 31 is an absolute time (its lower 59 bits).

use super::layout::{PageHeader, PageLayout};
use crate::parse::bytes::ByteOrder;

const PADDING: u32 = 29;
const TIME_EXTEND: u32 = 30;
const TIME_STAMP: u32 = 31;
const DELTA_BITS: u32 = 27;
/// An absolute stamp has the bits below; those above come from the time before it.
const STAMP_BITS: u32 = 59;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// When, on the buffer's clock.
    pub time: u64,
    /// Where in the page its data begins.
    pub begin: usize,
    pub end: usize,
}

/// What is wrong in a page, and where in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PageError {
    pub at: usize,
    pub message: &'static str,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Walk {
    position: usize,
    end: usize,
    time: u64,
}

impl Walk {
    /// Before the first event of a page.
    pub(super) fn new(layout: &PageLayout, header: &PageHeader) -> Self {
        Self { position: layout.data_offset, end: header.data_end, time: header.time }
    }

    /// The next event; `None` at the end of the page.
    #[inline]
    pub(super) fn next(&mut self, page: &[u8], order: ByteOrder) -> Result<Option<Record>, PageError> {
        loop {
            if self.position >= self.end {
                return Ok(None);
            }
            let at = self.position;
            let word = self.word(page, at, order)?;
            let (kind, delta) = match order {
                ByteOrder::Little => (word & 31, word >> 5),
                ByteOrder::Big => (word >> DELTA_BITS, word & ((1 << DELTA_BITS) - 1)),
            };
            match kind {
                1..PADDING => {
                    self.time = self.time.wrapping_add(u64::from(delta));
                    return self.record(at, at + 4, kind as usize * 4);
                }
                0 => {
                    let length = self.word(page, at + 4, order)? as usize;
                    self.time = self.time.wrapping_add(u64::from(delta));
                    let Some(length) = length.checked_sub(4) else {
                        return self.fail(at, "an event here has an impossible length");
                    };
                    return self.record(at, at + 8, length);
                }
                PADDING if delta == 0 => self.position = self.end,
                PADDING => {
                    // A discarded event: only its time counts.
                    let length = self.word(page, at + 4, order)? as usize;
                    self.time = self.time.wrapping_add(u64::from(delta));
                    let next = (at + 4).saturating_add(length.next_multiple_of(4));
                    if length < 4 || next > self.end {
                        return self.fail(at, "padding here does not fit into its page");
                    }
                    self.position = next;
                }
                TIME_EXTEND => {
                    let high = self.word(page, at + 4, order)?;
                    let delta = u64::from(high) << DELTA_BITS | u64::from(delta);
                    self.time = self.time.wrapping_add(delta);
                    self.position = at + 8;
                }
                _ => {
                    debug_assert_eq!(kind, TIME_STAMP);
                    let high = self.word(page, at + 4, order)?;
                    self.stamp(u64::from(high) << DELTA_BITS | u64::from(delta));
                    self.position = at + 8;
                }
            }
        }
    }

    /// An absolute time. It has 59 bits; the rest is that of the time before it, one more after a carry.
    fn stamp(&mut self, low: u64) {
        let high = self.time >> STAMP_BITS << STAMP_BITS;
        let stamp = high | low;
        let carried = high != 0 && stamp < self.time;
        self.time = if carried { stamp.wrapping_add(1 << STAMP_BITS) } else { stamp };
    }

    #[inline]
    fn word(&mut self, page: &[u8], at: usize, order: ByteOrder) -> Result<u32, PageError> {
        if at + 4 <= self.end
            && let Some(word) = order.u32(page, at)
        {
            return Ok(word);
        }
        self.fail(at, "an entry here does not fit into its page")
    }

    #[inline]
    fn record(&mut self, at: usize, begin: usize, length: usize) -> Result<Option<Record>, PageError> {
        let end = begin + length;
        if end > self.end {
            return self.fail(at, "an event here does not fit into its page");
        }
        self.position = end.next_multiple_of(4);
        Ok(Some(Record { time: self.time, begin, end }))
    }

    #[cold]
    fn fail<T>(&mut self, at: usize, message: &'static str) -> Result<T, PageError> {
        self.position = self.end;
        Err(PageError { at, message })
    }
}
