//! Where the values of a record are: what is left of a format description when only speed counts.

use crate::parse::bytes::{ByteOrder, sign_extended};
use crate::parse::format::{EventFormat, Field, Placement};

/// A record and the byte order of its numbers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record<'a> {
    /// Its bytes, from `common_type` on.
    pub(super) bytes: &'a [u8],
    /// Its byte order.
    pub(super) order: ByteOrder,
}

/// A number in a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Slot {
    offset: u32,
    width: u8,
    signed: bool,
}

impl Slot {
    /// The number field of that name.
    pub(super) fn of(format: &EventFormat, name: &str) -> Option<Self> {
        Self::field(format.field(name)?)
    }

    fn field(field: &Field) -> Option<Self> {
        let plain = !field.array && field.placement == Placement::Inline;
        let width = u8::try_from(field.size).ok().filter(|width| matches!(width, 1 | 2 | 4 | 8))?;
        plain.then_some(Self { offset: field.offset as u32, width, signed: field.signed })
    }

    /// Its value, extended by its sign when it has one; `None` when the record is too short.
    #[inline]
    pub(super) fn value(self, record: Record<'_>) -> Option<u64> {
        let value = record.order.number(record.bytes, self.offset as usize, usize::from(self.width))?;
        Some(if self.signed { sign_extended(value, usize::from(self.width)) as u64 } else { value })
    }
}

/// Bytes in a record: a text or an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Span {
    /// At an offset, of fixed size.
    Inline(u32, u32),
    /// From an offset to the end of the record.
    Rest(u32),
    /// Where the 32 bits at the offset say, counted from the number given.
    Dynamic(u32, u32),
}

impl Span {
    /// The array or text field of that name.
    pub(super) fn of(format: &EventFormat, name: &str) -> Option<Self> {
        let field = format.field(name).filter(|field| field.array)?;
        let offset = field.offset as u32;
        Some(match field.placement {
            Placement::DataLocation => Self::Dynamic(offset, 0),
            Placement::RelativeLocation => Self::Dynamic(offset, offset + 4),
            Placement::Inline if field.size == 0 => Self::Rest(offset),
            Placement::Inline => Self::Inline(offset, field.size as u32),
        })
    }

    /// Its bytes; `None` when the record is too short.
    #[inline]
    pub(super) fn bytes(self, record: Record<'_>) -> Option<&[u8]> {
        match self {
            Self::Inline(offset, size) => {
                record.bytes.get(offset as usize..(offset as usize).checked_add(size as usize)?)
            }
            Self::Rest(offset) => record.bytes.get(offset as usize..),
            Self::Dynamic(offset, base) => {
                let location = record.order.u32(record.bytes, offset as usize)?;
                let begin = (base + (location & 0xffff)) as usize;
                record.bytes.get(begin..begin + (location >> 16) as usize)
            }
        }
    }
}
