//! Small steps over bytes: numbers, tokens, `key=value` pairs. No allocation, no panic, wrong input is `None`.

use memchr::{memchr, memchr2, memmem, memrchr};

/// Any number with this many digits fits into 64 bits.
const DIGITS_SAFE: usize = 19;
/// Nanoseconds of the last digit of a fraction of a second, by the number of its digits.
const FRACTIONS: [u64; 10] =
    [1_000_000_000, 100_000_000, 10_000_000, 1_000_000, 100_000, 10_000, 1000, 100, 10, 1];

/// A decimal number and what follows it; `None` without a digit, or when it does not fit.
#[inline]
pub(super) fn number(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut value = 0u64;
    let mut length = 0;
    while let Some(digit) = bytes.get(length).map(|byte| byte.wrapping_sub(b'0')).filter(|digit| *digit < 10)
    {
        // The longest numbers alone can be too large.
        value = if length < DIGITS_SAFE {
            value * 10 + u64::from(digit)
        } else {
            value.checked_mul(10)?.checked_add(u64::from(digit))?
        };
        length += 1;
    }
    (length > 0).then(|| (value, &bytes[length..]))
}

/// The whole of `bytes` as a decimal number.
pub(super) fn whole(bytes: &[u8]) -> Option<u64> {
    number(bytes).filter(|(_, rest)| rest.is_empty()).map(|(value, _)| value)
}

/// The whole of `bytes` as a decimal number of 32 bits.
pub(super) fn whole_u32(bytes: &[u8]) -> Option<u32> {
    whole(bytes).and_then(|value| value.try_into().ok())
}

/// The whole of `bytes` as a decimal number of 32 bits with a sign.
pub(super) fn whole_i32(bytes: &[u8]) -> Option<i32> {
    match bytes.strip_prefix(b"-") {
        Some(digits) => 0i32.checked_sub_unsigned(whole_u32(digits)?),
        None => whole_u32(bytes)?.try_into().ok(),
    }
}

/// The whole of `bytes` as a decimal number that may have a sign; what does not fit wraps.
pub(super) fn signed(bytes: &[u8]) -> Option<i64> {
    match bytes.strip_prefix(b"-") {
        Some(digits) => Some((whole(digits)? as i64).wrapping_neg()),
        None => whole(bytes).map(|value| value as i64),
    }
}

/// The whole of `bytes` as a hexadecimal number, with or without `0x`.
pub(in crate::parse) fn hexadecimal(bytes: &[u8]) -> Option<u64> {
    let digits = bytes.strip_prefix(b"0x").unwrap_or(bytes);
    if digits.is_empty() || digits.len() > 16 {
        return None;
    }
    digits.iter().try_fold(0u64, |value, byte| Some(value << 4 | u64::from(char::from(*byte).to_digit(16)?)))
}

/// `12.000345678`, `12.000345` or (a raw counter, or microseconds) `12` in nanoseconds, the number of digits after the
/// dot, and what follows.
pub(in crate::parse) fn seconds(bytes: &[u8]) -> Option<(u64, usize, &[u8])> {
    let (whole, rest) = number(bytes)?;
    let Some(rest) = rest.strip_prefix(b".") else { return Some((whole, 0, rest)) };
    let (fraction, after) = number(rest)?;
    let digits = rest.len() - after.len();
    let scale = *FRACTIONS.get(digits)?;
    let nanoseconds = whole.checked_mul(1_000_000_000)?.checked_add(fraction.checked_mul(scale)?)?;
    Some((nanoseconds, digits, after))
}

/// What follows the spaces (and tabs) at the start.
#[inline]
pub(super) fn skip_spaces(bytes: &[u8]) -> &[u8] {
    let length = bytes.iter().position(|byte| !matches!(byte, b' ' | b'\t')).unwrap_or(bytes.len());
    &bytes[length..]
}

/// What comes before the spaces (and tabs) at the end.
#[inline]
pub(super) fn trim_end(bytes: &[u8]) -> &[u8] {
    let length = bytes.iter().rposition(|byte| !matches!(byte, b' ' | b'\t')).map_or(0, |last| last + 1);
    &bytes[..length]
}

/// Without spaces at both ends.
pub(in crate::parse) fn trim(bytes: &[u8]) -> &[u8] {
    trim_end(skip_spaces(bytes))
}

/// Up to the first space, and what follows it.
pub(super) fn token(bytes: &[u8]) -> (&[u8], &[u8]) {
    match memchr(b' ', bytes) {
        Some(length) => (&bytes[..length], &bytes[length + 1..]),
        None => (bytes, &[]),
    }
}

/// Splits at the first `separator`.
pub(in crate::parse) fn split<'a>(bytes: &'a [u8], separator: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    let found = memmem::find(bytes, separator)?;
    Some((&bytes[..found], &bytes[found + separator.len()..]))
}

/// Splits at the last `separator`.
pub(in crate::parse) fn split_last(bytes: &[u8], separator: u8) -> Option<(&[u8], &[u8])> {
    let found = memrchr(separator, bytes)?;
    Some((&bytes[..found], &bytes[found + 1..]))
}

/// What follows `key=` or `key:` at the start of a word.
pub(super) fn behind<'a>(mut words: &'a [u8], key: &[u8]) -> Option<&'a [u8]> {
    loop {
        words = skip_spaces(words);
        if let Some([b'=' | b':', rest @ ..]) = words.strip_prefix(key) {
            return Some(rest);
        }
        words = &words[memchr2(b' ', b'\t', words)?..];
    }
}

/// The value of `key=value` or `key:value` among words; it has no spaces.
pub(super) fn value<'a>(words: &'a [u8], key: &[u8]) -> Option<&'a [u8]> {
    let rest = behind(words, key)?;
    Some(&rest[..memchr2(b' ', b'\t', rest).unwrap_or(rest.len())])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        assert_eq!(number(b"120]x"), Some((120, &b"]x"[..])));
        assert_eq!(number(b"x"), None);
        assert_eq!(number(b"99999999999999999999"), None);
        assert_eq!(whole_i32(b"-1"), Some(-1));
        assert_eq!(whole_i32(b"-2147483648"), Some(i32::MIN));
        assert_eq!(whole_i32(b"2147483648"), None);
        assert_eq!(hexadecimal(b"0xff25d7baff9239a0"), Some(0xff25_d7ba_ff92_39a0));
        assert_eq!(hexadecimal(b"(____ptrval____)"), None);
        assert_eq!(hexadecimal(b"0x10000000000000000"), None);
    }

    #[test]
    fn times_have_the_precision_that_is_written() {
        assert_eq!(seconds(b"31.298748: x"), Some((31_298_748_000, 6, &b": x"[..])));
        assert_eq!(seconds(b"31.000000001:"), Some((31_000_000_001, 9, &b":"[..])));
        assert_eq!(seconds(b"123456789:"), Some((123_456_789, 0, &b":"[..])));
        assert_eq!(seconds(b"1.0000000001:"), None);
        assert_eq!(seconds(b"99999999999999.5:"), None);
    }

    #[test]
    fn pairs() {
        assert_eq!(value(b"hrtimer=0xf now=12", b"now"), Some(&b"12"[..]));
        assert_eq!(value(b"seq:1\tcontext:0", b"context"), Some(&b"0"[..]));
        assert_eq!(value(b"unknown=12", b"now"), None);
        assert_eq!(behind(b"irq=1 name=a b", b"name"), Some(&b"a b"[..]));
        assert_eq!(
            (signed(b"-1"), signed(b"18446744073709551615"), signed(b"-")),
            (Some(-1), Some(-1), None)
        );
    }
}
