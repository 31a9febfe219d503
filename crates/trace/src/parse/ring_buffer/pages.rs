//! The pages of one CPU in a file: plain, or packed in chunks. A few of them are in memory at a time.

use super::layout::PageLayout;
use crate::parse::ParseError;
use crate::parse::input::Input;
use crate::parse::unpack::Unpacker;

/// Bytes that are read at once when pages are read one after the other.
const BLOCK_BYTES: usize = 64 << 10;
/// Chunks are at most this big (trace-cmd makes them of ten pages).
const CHUNK_BYTES_MAX: u32 = 64 << 20;
/// Most chunks of a CPU: with trace-cmd's chunks these are 600 GB.
const CHUNKS_MAX: u32 = 2 << 20;
/// Memory for the pages of all CPUs.
pub(in crate::parse) const PAGES_BYTES_MAX: u64 = 192 << 20;

#[derive(Clone, Copy, Debug)]
struct Chunk {
    /// Where its packed bytes are in the file.
    offset: u64,
    packed: u32,
    unpacked: u32,
    first_page: u64,
}

#[derive(Debug)]
enum Place {
    Plain { offset: u64 },
    Packed { chunks: Vec<Chunk> },
}

/// The pages of one CPU.
#[derive(Debug)]
pub struct Pages {
    input: Input,
    place: Place,
    count: u64,
    page_bytes: usize,
    /// What is in memory: its first page, and the bytes.
    loaded_first: u64,
    /// Where in the file the chunk that is in memory is.
    loaded_offset: u64,
    loaded: Vec<u8>,
    packed: Vec<u8>,
}

impl Pages {
    /// Unpacked pages of the file. A truncated last one is kept: its header says how much of it is data.
    pub fn plain(input: &Input, offset: u64, bytes: u64, page_bytes: usize) -> Result<Self, ParseError> {
        if offset.checked_add(bytes).is_none_or(|end| end > input.length()) {
            let message = format!(
                "{bytes} bytes of events are expected here, but the file ends after {}: it is truncated",
                input.length()
            );
            return Err(input.damaged(offset, message));
        }
        if !bytes.is_multiple_of(page_bytes as u64) {
            let message = format!("{bytes} bytes of events are not whole pages of {page_bytes} bytes");
            return Err(input.damaged(offset, message));
        }
        Ok(Self::new(input, Place::Plain { offset }, bytes / page_bytes as u64, page_bytes))
    }

    /// Pages packed in chunks: a count, then each chunk with its two sizes before it.
    pub fn packed(input: &Input, offset: u64, bytes: u64, layout: &PageLayout) -> Result<Self, ParseError> {
        let mut scan = input.scan(offset, layout.order);
        let count = scan.u32()?;
        if u64::from(count) > bytes / 8 || count > CHUNKS_MAX {
            return Err(input.damaged(offset, format!("{count} chunks do not fit into {bytes} bytes")));
        }
        // trace-cmd does not include the count itself.
        let end = offset.saturating_add(bytes).saturating_add(4).min(input.length());
        let mut chunks = Vec::with_capacity(count as usize);
        let mut pages = 0u64;
        for _ in 0..count {
            let (packed, unpacked) = (scan.u32()?, scan.u32()?);
            let whole = (unpacked as usize).is_multiple_of(layout.page_bytes);
            if packed == 0 || !whole || unpacked == 0 || unpacked > CHUNK_BYTES_MAX {
                let message = format!(
                    "a chunk of {packed} bytes unpacks to {unpacked} bytes, which are not whole pages"
                );
                return Err(scan.damaged(message));
            }
            chunks.push(Chunk { offset: scan.position, packed, unpacked, first_page: pages });
            pages += u64::from(unpacked) / layout.page_bytes as u64;
            scan.position += u64::from(packed);
            if scan.position > end {
                return Err(
                    scan.damaged("the file or the CPU's part of it ends within a chunk: it is truncated")
                );
            }
        }
        Ok(Self::new(input, Place::Packed { chunks }, pages, layout.page_bytes))
    }

    fn new(input: &Input, place: Place, count: u64, page_bytes: usize) -> Self {
        Self {
            input: input.clone(),
            place,
            count,
            page_bytes,
            loaded_first: 0,
            loaded_offset: 0,
            loaded: Vec::new(),
            packed: Vec::new(),
        }
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    /// Bytes of memory that it takes at most.
    pub(in crate::parse) fn memory_bytes(&self) -> u64 {
        match &self.place {
            Place::Plain { .. } => BLOCK_BYTES.max(self.page_bytes) as u64,
            Place::Packed { chunks } => {
                let most =
                    chunks.iter().map(|chunk| u64::from(chunk.packed) + u64::from(chunk.unpacked)).max();
                most.unwrap_or(0) + (chunks.len() * size_of::<Chunk>()) as u64
            }
        }
    }

    /// The page `index`, when it is in memory.
    #[inline]
    pub fn page(&self, index: u64) -> Option<&[u8]> {
        let begin =
            usize::try_from(index.checked_sub(self.loaded_first)?).ok()?.checked_mul(self.page_bytes)?;
        self.loaded.get(begin..begin.checked_add(self.page_bytes)?)
    }

    /// Where in the file byte `at` of the page `index` is; for packed pages, where their chunk is.
    pub fn offset(&self, index: u64, at: usize) -> u64 {
        match &self.place {
            Place::Plain { offset } => offset + index * self.page_bytes as u64 + at as u64,
            Place::Packed { .. } if self.page(index).is_some() => self.loaded_offset,
            Place::Packed { chunks } => chunk_of(chunks, index).map_or(0, |chunk| chunk.offset),
        }
    }

    /// The file is damaged at byte `at` of the page `index`.
    pub(super) fn damaged(&self, index: u64, at: usize, message: impl Into<String>) -> ParseError {
        self.input.damaged(self.offset(index, at), message)
    }

    /// Brings page `index` into memory; `ahead` reads those behind it too.
    pub(super) fn load(
        &mut self,
        index: u64,
        ahead: bool,
        unpacker: &mut Unpacker,
    ) -> Result<(), ParseError> {
        if self.page(index).is_some() {
            return Ok(());
        }
        match &self.place {
            Place::Plain { offset } => {
                let block = if ahead { (BLOCK_BYTES / self.page_bytes).max(1) as u64 } else { 1 };
                let pages = block.min(self.count.saturating_sub(index));
                let begin = offset + index * self.page_bytes as u64;
                self.loaded.clear();
                self.loaded.resize(pages as usize * self.page_bytes, 0);
                self.loaded_first = index;
                self.input.fill(begin, &mut self.loaded)
            }
            Place::Packed { chunks } => {
                let Some(chunk) = chunk_of(chunks, index) else { return Ok(()) };
                self.packed.clear();
                self.packed.resize(chunk.packed as usize, 0);
                self.input.fill(chunk.offset, &mut self.packed)?;
                self.loaded_first = chunk.first_page;
                self.loaded_offset = chunk.offset;
                let unpacked = unpacker.unpack(&self.packed, chunk.unpacked as usize, &mut self.loaded);
                unpacked.map_err(|message| {
                    self.loaded.clear();
                    self.input.damaged(chunk.offset, message)
                })
            }
        }
    }
}

/// The chunk that has page `index`.
fn chunk_of(chunks: &[Chunk], index: u64) -> Option<&Chunk> {
    chunks.get(chunks.partition_point(|chunk| chunk.first_page <= index).checked_sub(1)?)
}
