//! One field of an event, and how its value is read from a record.

use crate::parse::bytes::{ByteOrder, sign_extended, until_nul};

/// Where the value of a field is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// At the field's offset.
    Inline,
    /// At the offset in the lower 16 bits of the field, from the begin of the record; its length is in the upper
    /// 16 bits (`__data_loc`).
    DataLocation,
    /// The same, from the end of the field (`__rel_loc`).
    RelativeLocation,
}

/// A field of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its name: `prev_pid`.
    pub name: String,
    /// Its C type without the name and the array's brackets: `unsigned long`, `char`.
    pub type_name: String,
    /// Bytes from the begin of the record.
    pub offset: usize,
    /// Its size in bytes; 0 where it reaches to the end of the record.
    pub size: usize,
    /// Whether numbers in it have a sign.
    pub signed: bool,
    /// Number of elements; `None` for a plain value and for an array whose length only the record tells.
    pub elements: Option<usize>,
    /// Whether it is an array.
    pub array: bool,
    /// Where its value is.
    pub placement: Placement,
}

impl Field {
    /// Size of one element in bytes: the field's own for a plain value, `None` for an array of unknown elements.
    pub fn element_size(&self) -> Option<usize> {
        match (self.array, self.elements) {
            (false, _) => Some(self.size),
            (true, Some(count)) if count > 0 && self.size.is_multiple_of(count) => Some(self.size / count),
            _ => None,
        }
    }

    /// The bytes of its value in `record`; `None` when the record is too short.
    pub fn bytes<'a>(&self, record: &'a [u8], order: ByteOrder) -> Option<&'a [u8]> {
        match self.placement {
            Placement::Inline if self.size == 0 => record.get(self.offset..),
            Placement::Inline => record.get(self.offset..self.offset.checked_add(self.size)?),
            Placement::DataLocation => self.dynamic(record, order, 0),
            Placement::RelativeLocation => self.dynamic(record, order, self.offset.checked_add(4)?),
        }
    }

    fn dynamic<'a>(&self, record: &'a [u8], order: ByteOrder, base: usize) -> Option<&'a [u8]> {
        let location = order.u32(record, self.offset)?;
        let begin = base.checked_add((location & 0xffff) as usize)?;
        record.get(begin..begin.checked_add((location >> 16) as usize)?)
    }

    /// Its value without a sign; `None` when the record is too short or the field is no number.
    pub fn unsigned(&self, record: &[u8], order: ByteOrder) -> Option<u64> {
        if self.array || self.placement != Placement::Inline {
            return None;
        }
        order.number(record, self.offset, self.size)
    }

    /// Its value; a field that the format calls unsigned is not extended with a sign.
    pub fn signed(&self, record: &[u8], order: ByteOrder) -> Option<i64> {
        let value = self.unsigned(record, order)?;
        Some(if self.signed { sign_extended(value, self.size) } else { value as i64 })
    }

    /// Its value as text up to the first NUL; bytes that are no UTF-8 are replaced.
    pub fn text<'a>(&self, record: &'a [u8], order: ByteOrder) -> Option<std::borrow::Cow<'a, str>> {
        self.bytes(record, order).map(|bytes| String::from_utf8_lossy(until_nul(bytes)))
    }
}
