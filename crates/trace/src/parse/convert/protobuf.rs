//! The part of the wire format of protocol buffers that a walk over known messages needs. Crates for it bring a compiler of
//! descriptions and hundreds of messages; four are needed here.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

impl<'a> Value<'a> {
    pub(super) fn number(self) -> Option<u64> {
        if let Self::Number(number) = self { Some(number) } else { None }
    }

    pub(super) fn bytes(self) -> Option<&'a [u8]> {
        if let Self::Bytes(bytes) = self { Some(bytes) } else { None }
    }
}

/// The fields of a message, one after the other; ends early where the message is damaged.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fields<'a> {
    pub(super) rest: &'a [u8],
}

/// A number of seven bits a byte, and what follows it.
pub(super) fn varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut value = 0;
    for (index, byte) in bytes.iter().enumerate().take(10) {
        value |= u64::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            return Some((value, &bytes[index + 1..]));
        }
    }
    None
}

impl<'a> Fields<'a> {
    pub(super) fn of(message: &'a [u8]) -> Self {
        Self { rest: message }
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = (u64, Value<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let (tag, rest) = varint(self.rest)?;
        let mut cut = |length: usize, rest: &'a [u8]| {
            let (value, rest) = rest.split_at_checked(length)?;
            self.rest = rest;
            Some(value)
        };
        let value = match tag & 7 {
            0 => {
                let (value, rest) = varint(rest)?;
                self.rest = rest;
                Value::Number(value)
            }
            1 => Value::Number(u64::from_le_bytes(cut(8, rest)?.try_into().ok()?)),
            2 => {
                let (length, rest) = varint(rest)?;
                Value::Bytes(cut(usize::try_from(length).ok()?, rest)?)
            }
            5 => Value::Number(u32::from_le_bytes(cut(4, rest)?.try_into().ok()?).into()),
            _ => return None,
        };
        Some((tag >> 3, value))
    }
}

/// The numbers of a packed list.
pub(super) fn list(mut bytes: &[u8]) -> Vec<u64> {
    let mut values = Vec::new();
    while let Some((value, rest)) = varint(bytes) {
        values.push(value);
        bytes = rest;
    }
    values
}
