//! Where the value of a field is in records.

use crate::parse::bytes::{ByteOrder, sign_extended};

/// A record and the byte order of its numbers.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// Its bytes, from `common_type` on.
    pub bytes: &'a [u8],
    /// Its byte order.
    pub order: ByteOrder,
}

/// What is at the offset of a field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Place {
    /// Not readable: there is no such field, or it is a structure.
    #[default]
    Nothing,
    Number,
    /// An array, of as many bytes as the field has; to the end of the record when that is 0.
    Array,
    /// Where the array is: its offset from the start of the record in the lower 16 bits, its length in the upper ones
    /// (`__data_loc`).
    DataLocation,
    /// The same, but its offset from the end of the field (`__rel_loc`).
    RelativeLocation,
}

/// Where the value of a field is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slot {
    /// Bytes from the start of the record.
    pub offset: u32,
    /// Size of the field in bytes.
    pub size: u32,
    /// Whether a number has a sign.
    pub signed: bool,
    pub place: Place,
}

impl Slot {
    pub(crate) fn is_array(self) -> bool {
        !matches!(self.place, Place::Nothing | Place::Number)
    }

    /// A number, extended by its sign when it has one; `None` if the record is too short.
    #[inline]
    pub fn value(self, record: Record<'_>) -> Option<u64> {
        let width = self.size as usize;
        let value = record.order.number(record.bytes, self.offset as usize, width)?;
        Some(if self.signed { sign_extended(value, width) as u64 } else { value })
    }

    /// An array; `None` if the record is too short.
    #[inline]
    pub fn bytes(self, record: Record<'_>) -> Option<&[u8]> {
        let offset = self.offset as usize;
        let base = match self.place {
            Place::Array if self.size == 0 => return record.bytes.get(offset..),
            Place::Array => return record.bytes.get(offset..offset.checked_add(self.size as usize)?),
            Place::DataLocation => 0,
            Place::RelativeLocation => offset + 4,
            Place::Nothing | Place::Number => return None,
        };
        let location = record.order.u32(record.bytes, offset)?;
        let begin = base + (location & 0xffff) as usize;
        record.bytes.get(begin..begin + (location >> 16) as usize)
    }
}
