//! The events of all CPUs in the order of time.

use super::cursor::{Cursor, Item};
use super::page::Record;
use crate::parse::ParseError;
use crate::parse::bytes::ByteOrder;
use crate::parse::unpack::Unpacker;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Which records are wanted: by the 16 bits with which their data begins.
#[derive(Clone, Debug)]
pub struct Wanted {
    all: bool,
    bits: Vec<u64>,
}

impl Wanted {
    /// Every record.
    pub fn all() -> Self {
        Self { all: true, bits: Vec::new() }
    }

    pub fn only(ids: impl IntoIterator<Item = u16>) -> Self {
        let mut bits = vec![0; 1 << 10];
        for id in ids {
            bits[usize::from(id >> 6)] |= 1 << (id & 63);
        }
        Self { all: false, bits }
    }

    /// Whether `record` of `page` is wanted.
    #[inline]
    pub fn wants(&self, page: &[u8], record: &Record, order: ByteOrder) -> bool {
        self.all || order.u16(page, record.begin).is_none_or(|id| self.has(id))
    }

    /// Whether records with that id are wanted, when not all are.
    #[inline]
    pub(crate) fn has(&self, id: u16) -> bool {
        self.bits.get(usize::from(id >> 6)).is_some_and(|word| word >> (id & 63) & 1 == 1)
    }
}

/// Merges the CPUs. The one with the earliest item is current; the others wait in a heap.
#[derive(Debug)]
pub struct Merge {
    unpacker: Unpacker,
    cursors: Vec<Cursor>,
    wanted: Wanted,
    waiting: BinaryHeap<Reverse<(u64, usize)>>,
    current: Option<usize>,
    /// Cursors that were not yet advanced to their first item.
    unprimed: Vec<usize>,
}

impl Merge {
    /// All events of the cursors.
    pub fn new(unpacker: Unpacker, cursors: Vec<Cursor>) -> Self {
        let unprimed = (0..cursors.len()).collect();
        let waiting = BinaryHeap::with_capacity(cursors.len());
        Self { unpacker, cursors, wanted: Wanted::all(), waiting, current: None, unprimed }
    }

    /// The cursor that [`Merge::take`] went to.
    pub fn cursor(&self, cursor: usize) -> &Cursor {
        &self.cursors[cursor]
    }

    /// Records that were passed since the last seek.
    pub(super) fn records(&self) -> u64 {
        self.cursors.iter().map(|cursor| cursor.records).sum()
    }

    fn advance(&mut self, cursor: usize) -> Result<(), ParseError> {
        self.cursors[cursor].advance(&self.wanted, &mut self.unpacker)
    }

    /// Goes to the end of the times for which `before` is true (by whole pages: some earlier events may come first), or to
    /// the start without `before`. From there on it gives only `wanted` records.
    pub fn seek(&mut self, before: Option<&dyn Fn(u64) -> bool>, wanted: Wanted) -> Result<(), ParseError> {
        self.wanted = wanted;
        self.waiting.clear();
        self.current = None;
        self.unprimed = (0..self.cursors.len()).collect();
        for cursor in &mut self.cursors {
            let before = |time| before.is_some_and(|before| before(time));
            cursor.seek(before, &mut self.unpacker)?;
        }
        Ok(())
    }

    /// Goes to the next item: the number of its CPU's cursor, or `None` at the end.
    #[inline]
    pub fn take(&mut self) -> Result<Option<(usize, Item)>, ParseError> {
        while let Some(index) = self.unprimed.last().copied() {
            self.advance(index)?;
            self.unprimed.pop();
            if let Some(item) = self.cursors[index].item() {
                self.waiting.push(Reverse((item.time(), index)));
            }
        }
        if let Some(index) = self.current.take() {
            if let Err(error) = self.advance(index) {
                self.unprimed.push(index);
                return Err(error);
            }
            self.current = self.cursors[index].item().map(|item| self.earlier(item.time(), index));
        }
        if self.current.is_none() {
            self.current = self.waiting.pop().map(|Reverse((_, index))| index);
        }
        Ok(self.current.and_then(|index| Some((index, self.cursors[index].item()?))))
    }

    /// Which is the earliest: the cursor `index` at `time`, or the first of those that wait; the other one waits.
    #[inline]
    fn earlier(&mut self, time: u64, index: usize) -> usize {
        match self.waiting.peek_mut() {
            Some(mut first) if first.0 < (time, index) => {
                let Reverse((_, earlier)) = std::mem::replace(&mut *first, Reverse((time, index)));
                earlier
            }
            _ => index,
        }
    }
}
