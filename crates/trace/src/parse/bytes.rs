//! Numbers in byte slices: both byte orders, any width, never out of bounds.

/// How the machine that wrote a file orders the bytes of a number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ByteOrder {
    /// Least significant byte first.
    #[default]
    Little,
    /// Most significant byte first.
    Big,
}

impl ByteOrder {
    pub const NATIVE: Self = if cfg!(target_endian = "big") { Self::Big } else { Self::Little };

    /// Two bytes at `at`; `None` beyond the end.
    #[inline]
    pub fn u16(self, bytes: &[u8], at: usize) -> Option<u16> {
        let field = array::<2>(bytes, at)?;
        Some(if self == ByteOrder::Little { u16::from_le_bytes(field) } else { u16::from_be_bytes(field) })
    }

    /// Four bytes at `at`; `None` beyond the end.
    #[inline]
    pub fn u32(self, bytes: &[u8], at: usize) -> Option<u32> {
        let field = array::<4>(bytes, at)?;
        Some(if self == ByteOrder::Little { u32::from_le_bytes(field) } else { u32::from_be_bytes(field) })
    }

    /// Eight bytes at `at`; `None` beyond the end.
    #[inline]
    pub fn u64(self, bytes: &[u8], at: usize) -> Option<u64> {
        let field = array::<8>(bytes, at)?;
        Some(if self == ByteOrder::Little { u64::from_le_bytes(field) } else { u64::from_be_bytes(field) })
    }

    /// A number of 1, 2, 4 or 8 bytes at `at`; `None` beyond the end and for another width.
    #[inline]
    pub fn number(self, bytes: &[u8], at: usize, width: usize) -> Option<u64> {
        match width {
            1 => bytes.get(at).map(|byte| u64::from(*byte)),
            2 => self.u16(bytes, at).map(u64::from),
            4 => self.u32(bytes, at).map(u64::from),
            8 => self.u64(bytes, at),
            _ => None,
        }
    }
}

/// `N` bytes at `at`; `None` beyond the end.
#[inline]
fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

/// The number whose lowest `width` bytes are `value`, with its sign spread to all 64 bits.
#[inline]
pub(crate) fn sign_extended(value: u64, width: usize) -> i64 {
    match width {
        1 => i64::from(value as i8),
        2 => i64::from(value as i16),
        4 => i64::from(value as i32),
        _ => value as i64,
    }
}

/// The bytes before the first NUL, or all of them.
#[inline]
pub(crate) fn until_nul(bytes: &[u8]) -> &[u8] {
    bytes.iter().position(|byte| *byte == 0).map_or(bytes, |end| &bytes[..end])
}

/// Bytes as text; invalid UTF-8 is replaced.
pub(crate) fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: [u8; 8] = [0x81, 2, 3, 4, 5, 6, 7, 8];

    #[test]
    fn both_orders_and_all_widths() {
        assert_eq!(ByteOrder::Little.number(&BYTES, 0, 1), Some(0x81));
        assert_eq!(ByteOrder::Little.number(&BYTES, 0, 2), Some(0x0281));
        assert_eq!(ByteOrder::Big.number(&BYTES, 0, 2), Some(0x8102));
        assert_eq!(ByteOrder::Little.number(&BYTES, 4, 4), Some(0x0807_0605));
        assert_eq!(ByteOrder::Big.number(&BYTES, 0, 8), Some(0x8102_0304_0506_0708));
    }

    #[test]
    fn nothing_is_read_beyond_the_end() {
        assert_eq!(ByteOrder::Little.number(&BYTES, 5, 4), None);
        assert_eq!(ByteOrder::Big.number(&BYTES, usize::MAX, 2), None);
        assert_eq!(ByteOrder::Big.number(&BYTES, 0, 3), None);
    }

    #[test]
    fn signs_are_spread() {
        assert_eq!(sign_extended(0x81, 1), -127);
        assert_eq!(sign_extended(0xffff_ffff, 4), -1);
        assert_eq!(sign_extended(0xffff_ffff, 8), 0xffff_ffff);
    }

    #[test]
    fn texts_end_at_nul() {
        assert_eq!(until_nul(b"ab\0c"), b"ab");
        assert_eq!(until_nul(b"abc"), b"abc");
    }
}
