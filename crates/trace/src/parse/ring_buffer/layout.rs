//! The layout of a page of the ring buffer: `events/header_page`.

use crate::parse::bytes::ByteOrder;
use crate::parse::format::fields;

/// The writer overwrote or dropped events before this page.
const MISSED: u64 = 1 << 31;
/// How many is stored behind the page's data.
const MISSED_STORED: u64 = 1 << 30;
/// The number of bytes of data in the page.
const COMMITTED: u64 = (1 << 27) - 1;
/// Pages (sub-buffers) are at most this big.
pub(in crate::parse) const PAGE_BYTES_MAX: usize = 16 << 20;

/// Layout of the pages of a ring buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageLayout {
    /// Byte order of everything in the page.
    pub order: ByteOrder,
    /// Width of the commit field: 8 on 64-bit kernels, 4 on 32-bit ones.
    pub commit_width: usize,
    commit_offset: usize,
    pub data_offset: usize,
    /// Size of a whole page with its header: the sub-buffer size, 4096 mostly.
    pub page_bytes: usize,
}

/// The header of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageHeader {
    /// The time from which the first event's delta counts.
    pub time: u64,
    /// Where in the page the data ends.
    pub data_end: usize,
    /// Events were lost before this page.
    pub missed: bool,
    /// Their number, when the kernel had room to store it.
    pub missed_events: Option<u64>,
}

impl PageLayout {
    /// Reads the text of `header_page`.
    pub fn parse(text: &str, order: ByteOrder) -> Result<Self, String> {
        let fields = fields(text).map_err(|error| error.to_string())?;
        let field = |name: &str| {
            fields
                .iter()
                .find(|field| field.name == name)
                .map(|field| (field.slot.offset as usize, field.slot.size as usize))
                .ok_or_else(|| format!("header_page has no `{name}`"))
        };
        let (time, commit, data) = (field("timestamp")?, field("commit")?, field("data")?);
        let (commit_offset, commit_width) = commit;
        let page_bytes = data.0 + data.1;
        let plausible = time == (0, 8)
            && matches!(commit_width, 4 | 8)
            && commit_offset >= 8
            && data.0 >= commit_offset + commit_width
            && data.0 < page_bytes
            && page_bytes <= PAGE_BYTES_MAX;
        if !plausible {
            return Err("header_page describes an unknown page layout".to_owned());
        }
        Ok(Self { order, commit_width, commit_offset, data_offset: data.0, page_bytes })
    }

    /// The same layout with pages of another size; `None` for one that cannot be.
    pub fn with_page_bytes(self, page_bytes: usize) -> Option<Self> {
        let plausible = page_bytes > self.data_offset && page_bytes <= PAGE_BYTES_MAX;
        plausible.then_some(Self { page_bytes, ..self })
    }

    /// The time of a page; `None` if it is too short.
    pub fn time(&self, page: &[u8]) -> Option<u64> {
        self.order.u64(page, 0)
    }

    pub fn header(&self, page: &[u8]) -> Result<PageHeader, String> {
        let short = || "a page has no complete header".to_owned();
        let time = self.time(page).ok_or_else(short)?;
        let commit = self.order.number(page, self.commit_offset, self.commit_width).ok_or_else(short)?;
        let committed = (commit & COMMITTED) as usize;
        let data_end = self.data_offset + committed;
        if data_end > page.len() {
            return Err(format!(
                "a page claims {committed} bytes of events, but has room for {}",
                page.len().saturating_sub(self.data_offset)
            ));
        }
        let missed_events = if commit & MISSED_STORED == 0 {
            None
        } else {
            self.order.number(page, data_end, self.commit_width)
        };
        Ok(PageHeader { time, data_end, missed: commit & MISSED != 0, missed_events })
    }
}
