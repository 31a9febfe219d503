//! The records of the data section, one after the other, packed ones too.
//!
//! `perf record -z` packs the records of each buffer into one stream of Zstandard for the whole file, cut into records of
//! their own. They are unpacked in whole blocks, so they can come later than unpacked records after them: marks of rounds
//! mean nothing then.

use super::header::Section;
use crate::parse::ParseError;
use crate::parse::bytes::ByteOrder;
use crate::parse::input::Input;
use structured_zstd::decoding::FrameDecoder;

/// Types of records that this reader needs to know.
pub(super) mod kind {
    pub(in super::super) const MAPPING: u32 = 1;
    pub(in super::super) const LOST: u32 = 2;
    pub(in super::super) const COMMAND: u32 = 3;
    pub(in super::super) const SAMPLE: u32 = 9;
    pub(in super::super) const MAPPING_WITH_FILE: u32 = 10;
    pub(in super::super) const LOST_SAMPLES: u32 = 13;
    pub(in super::super) const FINISHED_ROUND: u32 = 68;
    pub(super) const AUXILIARY_TRACE: u32 = 71;
    pub(super) const PACKED: u32 = 81;
    pub(super) const PACKED_WITH_LENGTH: u32 = 83;
}

/// Bytes of a record's header.
const HEADER_BYTES: usize = 8;
/// Bytes that are read at once; a record has at most 64 KiB.
const BLOCK_BYTES: usize = 1 << 20;

/// A record: its type, its body, and where it is. A packed record has the offset of its containing record.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record<'a> {
    pub(super) kind: u32,
    pub(super) body: &'a [u8],
    pub(super) offset: u64,
}

/// Which buffer a record is in, and where.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    kind: u32,
    begin: usize,
    end: usize,
    offset: u64,
    unpacked: bool,
}

#[derive(Default)]
pub(super) struct Records {
    order: ByteOrder,
    /// Where the next record is, and where the last one ends.
    position: u64,
    end: u64,
    block: Vec<u8>,
    /// Offset of the block in the file.
    block_at: u64,
    packed: Packed,
}

/// What is packed and not yet read.
#[derive(Default)]
struct Packed {
    /// Large, and the whole is moved for each record.
    decoder: Option<Box<FrameDecoder>>,
    source: Vec<u8>,
    source_read: usize,
    /// Offset of the record that it is from.
    offset: u64,
    unpacked: Vec<u8>,
    unpacked_read: usize,
    seen: bool,
    ended: bool,
}

/// An empty block of Zstandard that ends a frame: perf never ends its frames, and the end makes the decoder check the frame's
/// own statements.
const LAST_BLOCK: [u8; 3] = [1, 0, 0];

impl Records {
    pub(super) fn new(data: Section, order: ByteOrder) -> Self {
        Self {
            order,
            position: data.offset,
            end: data.offset.saturating_add(data.bytes),
            block_at: data.offset,
            ..Self::default()
        }
    }

    /// Goes on at the record at `offset`. Packed records need all that were before them.
    pub(super) fn go_to(&mut self, offset: u64) {
        self.position = offset;
        self.packed = Packed::default();
    }

    /// Whether there are packed records, which come late.
    pub(super) fn are_packed(&self) -> bool {
        self.packed.seen
    }

    /// Offset of the next record, when reading can begin there again.
    pub(super) fn restart_point(&self) -> Option<u64> {
        (!self.packed.seen).then_some(self.position)
    }

    /// The next record; `None` at the end.
    pub(super) fn next(&mut self, input: &Input) -> Result<Option<Place>, ParseError> {
        loop {
            if let Some(place) = self.next_unpacked(input)? {
                return Ok(Some(place));
            }
            if self.position >= self.end {
                if self.packed.end() {
                    continue;
                }
                return Ok(None);
            }
            let offset = self.position;
            let header = self.at(input, offset, HEADER_BYTES)?;
            let size = usize::from(self.order.u16(&self.block, header + 6).unwrap_or(0));
            let kind = self.order.u32(&self.block, header).unwrap_or(0);
            if size < HEADER_BYTES || size as u64 > self.end - offset {
                return Err(input.damaged(offset, format!("a record cannot have {size} bytes here")));
            }
            let begin = self.at(input, offset, size)? + HEADER_BYTES;
            let end = begin + size - HEADER_BYTES;
            self.position += size as u64;
            match kind {
                kind::PACKED | kind::PACKED_WITH_LENGTH => self.pack(input, kind, begin, end, offset)?,
                // AUX data (processor traces) follows the record.
                kind::AUXILIARY_TRACE => {
                    let behind = self.order.u64(&self.block[begin..end], 0).unwrap_or(0);
                    self.position = self.position.saturating_add(behind);
                }
                _ => return Ok(Some(Place { kind, begin, end, offset, unpacked: false })),
            }
        }
    }

    /// The record at a place that [`Records::next`] gave last.
    pub(super) fn record(&self, place: Place) -> Record<'_> {
        let buffer = if place.unpacked { &self.packed.unpacked } else { &self.block };
        Record { kind: place.kind, body: &buffer[place.begin..place.end], offset: place.offset }
    }

    /// Where in the block `length` bytes from `offset` on are; reads when they are not there.
    fn at(&mut self, input: &Input, offset: u64, length: usize) -> Result<usize, ParseError> {
        let inside = offset.checked_sub(self.block_at).and_then(|begin| usize::try_from(begin).ok());
        if let Some(begin) = inside
            && begin + length <= self.block.len()
        {
            return Ok(begin);
        }
        let left = self.end.min(input.length()).saturating_sub(offset);
        let wanted = left.min(BLOCK_BYTES as u64).max(length as u64) as usize;
        self.block.clear();
        self.block_at = offset;
        self.block.resize(wanted, 0);
        let filled = input.fill(offset, &mut self.block);
        if filled.is_err() {
            self.block.clear();
        }
        filled.map(|()| 0)
    }

    fn pack(
        &mut self,
        input: &Input,
        kind: u32,
        begin: usize,
        end: usize,
        offset: u64,
    ) -> Result<(), ParseError> {
        let mut body = &self.block[begin..end];
        if kind == kind::PACKED_WITH_LENGTH {
            let length = self.order.u64(body, 0).and_then(|length| usize::try_from(length).ok());
            body = length
                .and_then(|length| body.get(8..8usize.checked_add(length)?))
                .ok_or_else(|| input.damaged(offset, "a packed record is shorter than its header says"))?;
        }
        let packed = &mut self.packed;
        packed.seen = true;
        packed.offset = offset;
        packed.source.drain(..packed.source_read);
        packed.source_read = 0;
        packed.source.extend_from_slice(body);
        Ok(())
    }

    /// The next packed record; `None` if more of the file is needed.
    fn next_unpacked(&mut self, input: &Input) -> Result<Option<Place>, ParseError> {
        let order = self.order;
        let packed = &mut self.packed;
        if !packed.seen {
            return Ok(None);
        }
        loop {
            let rest = &packed.unpacked[packed.unpacked_read..];
            if let Some(size) = order.u16(rest, 6).map(usize::from) {
                if size < HEADER_BYTES {
                    return Err(
                        input.damaged(packed.offset, format!("a packed record cannot have {size} bytes"))
                    );
                }
                if size <= rest.len() {
                    let begin = packed.unpacked_read + HEADER_BYTES;
                    let end = packed.unpacked_read + size;
                    let kind = order.u32(rest, 0).unwrap_or(0);
                    packed.unpacked_read = end;
                    return Ok(Some(Place { kind, begin, end, offset: packed.offset, unpacked: true }));
                }
            }
            if !packed.unpack().map_err(|message| input.damaged(packed.offset, message))? {
                return Ok(None);
            }
        }
    }
}

impl Packed {
    /// Ends the frame behind the last record; `false` if there is nothing to end.
    fn end(&mut self) -> bool {
        let open = self.decoder.is_some() && !self.ended;
        if open {
            self.ended = true;
            self.source.extend_from_slice(&LAST_BLOCK);
        }
        open
    }

    /// Unpacks some more; `false` if there is no more.
    fn unpack(&mut self) -> Result<bool, String> {
        self.unpacked.drain(..self.unpacked_read);
        self.unpacked_read = 0;
        let damaged = |error: structured_zstd::decoding::errors::FrameDecoderError| {
            format!("packed records are damaged ({error})")
        };
        let decoder = match &mut self.decoder {
            Some(decoder) => decoder,
            None => {
                let mut source = &self.source[self.source_read..];
                if source.is_empty() {
                    return Ok(false);
                }
                let before = source.len();
                let mut decoder = FrameDecoder::new();
                decoder.reset(&mut source).map_err(damaged)?;
                self.source_read += before - source.len();
                self.decoder.insert(Box::new(decoder))
            }
        };
        let filled = self.unpacked.len();
        self.unpacked.resize(filled + BLOCK_BYTES, 0);
        let step = decoder.decode_from_to(&self.source[self.source_read..], &mut self.unpacked[filled..]);
        let (read, written) = step.map_err(damaged)?;
        self.source_read += read;
        self.unpacked.truncate(filled + written);
        if decoder.is_finished() && decoder.can_collect() == 0 {
            self.decoder = None;
        }
        Ok(read > 0 || written > 0)
    }
}
