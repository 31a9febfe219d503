//! A position in the events of one CPU.

use super::layout::PageLayout;
use super::merge::Wanted;
use super::page::{Record, Walk};
use super::pages::Pages;
use crate::parse::ParseError;
use crate::parse::unpack::Unpacker;
use whylate_core::CpuId;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item {
    Record(Record),
    Lost {
        /// Time of the page behind the loss.
        time: u64,
        /// Their number, when known.
        events: Option<u64>,
    },
}

impl Item {
    /// When, on the buffer's clock.
    #[inline]
    pub fn time(&self) -> u64 {
        match self {
            Item::Record(record) => record.time,
            Item::Lost { time, .. } => *time,
        }
    }
}

/// The events of one CPU, one after the other.
#[derive(Debug)]
pub struct Cursor {
    pub cpu: CpuId,
    layout: PageLayout,
    pages: Pages,
    /// Index of the current page, and of the next one to be read.
    page: u64,
    next_page: u64,
    walk: Walk,
    item: Option<Item>,
    /// Records that were passed since the last seek.
    pub(super) records: u64,
}

impl Cursor {
    /// Before the first event.
    pub fn new(cpu: CpuId, layout: PageLayout, pages: Pages) -> Self {
        Self { cpu, layout, pages, page: 0, next_page: 0, walk: Walk::default(), item: None, records: 0 }
    }

    /// The current item; `None` before the first [`Cursor::advance`] and at the end.
    #[inline]
    pub fn item(&self) -> Option<Item> {
        self.item
    }

    /// The data of the current record; empty for other items.
    #[inline]
    pub fn data(&self) -> &[u8] {
        match (self.item, self.pages.page(self.page)) {
            (Some(Item::Record(record)), Some(page)) => page.get(record.begin..record.end).unwrap_or(&[]),
            _ => &[],
        }
    }

    /// Where in the file the item is.
    pub fn offset(&self) -> u64 {
        let at = match self.item {
            Some(Item::Record(record)) => record.begin,
            _ => 0,
        };
        self.pages.offset(self.page, at)
    }

    /// The file is damaged at the current place.
    pub(super) fn damaged(&self, message: String) -> ParseError {
        let at = if let Some(Item::Record(record)) = self.item { record.begin } else { 0 };
        self.pages.damaged(self.page, at, message)
    }

    /// Goes to the next wanted item. After an error, the next call continues after the damage.
    pub(super) fn advance(&mut self, wanted: &Wanted, unpacker: &mut Unpacker) -> Result<(), ParseError> {
        self.item = None;
        loop {
            if let Some(page) = self.pages.page(self.page) {
                loop {
                    match self.walk.next(page, self.layout.order) {
                        Ok(Some(record)) => {
                            self.records += 1;
                            if wanted.wants(page, &record, self.layout.order) {
                                self.item = Some(Item::Record(record));
                                return Ok(());
                            }
                        }
                        Ok(None) => break,
                        Err(error) => {
                            return Err(self.pages.damaged(self.page, error.at, error.message));
                        }
                    }
                }
            }
            if self.next_page >= self.pages.count() {
                return Ok(());
            }
            self.turn_page(unpacker)?;
            if self.item.is_some() {
                return Ok(());
            }
        }
    }

    /// Goes to the start of the next page; the item is the loss before it, when there is one.
    fn turn_page(&mut self, unpacker: &mut Unpacker) -> Result<(), ParseError> {
        self.page = self.next_page;
        self.next_page += 1;
        self.walk = Walk::default();
        if let Err(error) = self.pages.load(self.page, true, unpacker) {
            // After a read error stop: every further page would fail, too.
            self.next_page = self.pages.count();
            return Err(error);
        }
        let Some(page) = self.pages.page(self.page) else { return Ok(()) };
        let header = self.layout.header(page);
        let header = header.map_err(|message| self.pages.damaged(self.page, 0, message))?;
        self.walk = Walk::new(&self.layout, &header);
        if header.missed {
            self.item = Some(Item::Lost { time: header.time, events: header.missed_events });
        }
        Ok(())
    }

    /// Goes before the page that has the first event for whose time `before` is false; `before` is true for an early
    /// part of the times and false for the rest. Only the headers of some pages are read.
    pub(super) fn seek(
        &mut self,
        before: impl Fn(u64) -> bool,
        unpacker: &mut Unpacker,
    ) -> Result<(), ParseError> {
        let (mut low, mut high) = (0, self.pages.count());
        while low < high {
            let middle = low + (high - low) / 2;
            self.pages.load(middle, false, unpacker)?;
            let time = self.pages.page(middle).and_then(|page| self.layout.time(page)).unwrap_or(u64::MAX);
            if before(time) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        (self.item, self.records) = (None, 0);
        self.walk = Walk::default();
        self.next_page = low.saturating_sub(1);
        self.page = self.next_page;
        Ok(())
    }
}
