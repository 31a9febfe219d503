//! `trace_printk` events: the text's address stands in the record, the text in `printk_formats`, and the arguments
//! are packed as the kernel's `vbin_printf` does it.

use crate::parse::bytes::{ByteOrder, sign_extended, until_nul};
use std::collections::HashMap;

/// Texts that are kept; kernels have some thousand.
const TEXTS_MAX: usize = 1 << 18;

/// The texts of `printk_formats` by address.
#[derive(Clone, Debug, Default)]
pub struct PrintkFormats {
    texts: HashMap<u64, Box<str>>,
}

impl PrintkFormats {
    /// Reads the file: `0xffffffff81d2b0e0 : "text\n"` on each line; other lines are skipped.
    pub fn parse(file: &str) -> Self {
        let entry = |line: &str| {
            let (address, text) = line.split_once(" : \"")?;
            let address = u64::from_str_radix(address.trim().strip_prefix("0x")?, 16).ok()?;
            Some((address, unescaped(text.strip_suffix('"')?).into_boxed_str()))
        };
        Self { texts: file.lines().filter_map(entry).take(TEXTS_MAX).collect() }
    }

    pub fn text(&self, address: u64) -> Option<&str> {
        self.texts.get(&address).map(|text| &**text)
    }
}

/// Undoes the escapes that the kernel writes: `\n`, `\t`, `\\`, `\"`.
fn unescaped(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        plain.push(match letter {
            '\\' => match letters.next() {
                Some('n') => '\n',
                Some('t') => '\t',
                other => other.unwrap_or('\\'),
            },
            _ => letter,
        });
    }
    plain
}

/// Arguments as `vbin_printf` packs them: numbers at a multiple of their size (of four for eight bytes), texts as
/// they are with a NUL.
struct Arguments<'a> {
    bytes: &'a [u8],
    at: usize,
    order: ByteOrder,
}

impl Arguments<'_> {
    fn number(&mut self, width: usize) -> Option<u64> {
        let begin = self.at.next_multiple_of(width.min(4));
        let value = self.order.number(self.bytes, begin, width)?;
        self.at = begin + width;
        Some(value)
    }

    fn text(&mut self) -> Option<String> {
        let text = until_nul(self.bytes.get(self.at..)?);
        self.at += text.len() + 1;
        Some(String::from_utf8_lossy(text).into_owned())
    }
}

/// Longest padding that a text gets.
const PADDING_MAX: usize = 256;

/// One conversion of a format: `%-8.3lu`.
#[derive(Debug, Default)]
struct Conversion {
    left: bool,
    zeros: bool,
    prefixed: bool,
    width: usize,
    precision: Option<usize>,
    bytes: usize,
}

/// The text of a format with its packed arguments. Conversions without arguments are left out.
pub(super) fn formatted(format: &str, arguments: &[u8], order: ByteOrder, long_bytes: usize) -> String {
    let mut arguments = Arguments { bytes: arguments, at: 0, order };
    let mut text = String::with_capacity(format.len());
    let mut rest = format;
    while let Some(percent) = rest.find('%') {
        text.push_str(&rest[..percent]);
        rest = &rest[percent + 1..];
        let (shown, after) = conversion(rest, &mut arguments, long_bytes);
        text.push_str(&shown.unwrap_or_default());
        rest = after;
    }
    text.push_str(rest);
    text
}

/// Shows the conversion with which `format` begins (behind its `%`); the rest of the format.
fn conversion<'a>(
    format: &'a str,
    arguments: &mut Arguments<'_>,
    long_bytes: usize,
) -> (Option<String>, &'a str) {
    let mut how = Conversion { bytes: 4, ..Conversion::default() };
    let mut precision = false;
    for (at, letter) in format.char_indices() {
        let after = &format[at + letter.len_utf8()..];
        match letter {
            '-' => how.left = true,
            '#' => how.prefixed = true,
            '0' if how.width == 0 && !precision => how.zeros = true,
            '+' | ' ' => {}
            '.' => {
                precision = true;
                how.precision = Some(0);
            }
            '0'..='9' => {
                let digit = letter as usize - '0' as usize;
                let field = if precision { how.precision.get_or_insert(0) } else { &mut how.width };
                *field = (*field * 10 + digit).min(PADDING_MAX);
            }
            '*' => {
                let value = arguments.number(4).map(|value| (value as usize).min(PADDING_MAX));
                if precision { how.precision = value } else { how.width = value.unwrap_or(0) }
            }
            'l' => how.bytes = if how.bytes == long_bytes { 8 } else { long_bytes },
            'L' | 'q' | 'j' => how.bytes = 8,
            'z' | 't' => how.bytes = long_bytes,
            'h' => how.bytes = if how.bytes == 2 { 1 } else { 2 },
            '%' => return (Some("%".to_owned()), after),
            _ => return value(letter, &how, after, arguments, long_bytes),
        }
    }
    (None, "")
}

fn value<'a>(
    letter: char,
    how: &Conversion,
    after: &'a str,
    arguments: &mut Arguments<'_>,
    long_bytes: usize,
) -> (Option<String>, &'a str) {
    let digits = match letter {
        'd' | 'i' | 'u' | 'x' | 'X' | 'o' => arguments.number(how.bytes).map(|value| match letter {
            'd' | 'i' => sign_extended(value, how.bytes).to_string(),
            'x' if how.prefixed => format!("{value:#x}"),
            'x' => format!("{value:x}"),
            'X' => format!("{value:X}"),
            'o' => format!("{value:o}"),
            _ => value.to_string(),
        }),
        'c' => arguments.number(1).map(|value| char::from(value as u8).to_string()),
        's' => arguments.text().map(|text| match how.precision {
            Some(most) => text.chars().take(most).collect(),
            None => text,
        }),
        // The kernel formatted all `%p` conversions other than pointers to functions itself.
        'p' => {
            let kind = after.chars().next().unwrap_or(' ');
            let skipped: usize = after.chars().take_while(char::is_ascii_alphanumeric).count();
            let pointer = !kind.is_ascii_alphanumeric() || matches!(kind, 'S' | 's' | 'x' | 'K' | 'e');
            let shown = if pointer {
                arguments.number(long_bytes).map(|value| format!("{value:#x}"))
            } else {
                arguments.text()
            };
            return (shown, &after[skipped..]);
        }
        _ => None,
    };
    (digits.map(|digits| padded(&digits, how)), after)
}

fn padded(text: &str, how: &Conversion) -> String {
    let width = how.width;
    match (how.left, how.zeros, text.strip_prefix('-')) {
        (true, ..) => format!("{text:<width$}"),
        (false, true, Some(digits)) => format!("-{digits:0>0$}", width.saturating_sub(1)),
        (false, true, None) => format!("{text:0>width$}"),
        (false, false, _) => format!("{text:>width$}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use whylate_testing::says;

    #[test]
    fn the_file_is_read_and_unescaped() {
        let formats = PrintkFormats::parse("0xffffffff81000010 : \"a \\\"b\\\"\\n\"\nrubbish\n0x10 : \"\"\n");
        assert_eq!(formats.text(0xffff_ffff_8100_0010), Some("a \"b\"\n"));
        assert_eq!(formats.text(0x10), Some(""));
        assert_eq!(formats.text(0x11), None);
    }

    #[test]
    fn arguments_are_unpacked_as_the_kernel_packs_them() {
        let mut packed = Vec::new();
        packed.extend_from_slice(&(-5i32).to_le_bytes());
        packed.extend_from_slice(b"name\0");
        packed.extend_from_slice(&[0; 3]);
        packed.extend_from_slice(&0x1_0000_0002u64.to_le_bytes());
        packed.push(b'z');
        packed.push(0);
        packed.extend_from_slice(&513u16.to_le_bytes());
        let text = formatted("v=%04d <%-6s> %llx %c %hu 100%%", &packed, ByteOrder::Little, 8);
        assert!(says("v-name-z", &text));
    }

    #[test]
    fn pointers_and_widths_from_arguments() {
        let mut packed = Vec::new();
        packed.extend_from_slice(&6u32.to_be_bytes());
        packed.extend_from_slice(&9u32.to_be_bytes());
        packed.extend_from_slice(&0xc000_1000u32.to_be_bytes());
        packed.extend_from_slice(b"10.0.0.1\0");
        let text = formatted("[%*u] %pS %pI4", &packed, ByteOrder::Big, 4);
        assert_eq!(text, "[     9] 0xc0001000 10.0.0.1");
    }

    #[test]
    fn too_few_arguments_leave_gaps() {
        assert_eq!(formatted("a %d b %s c %", &[1, 0], ByteOrder::Little, 8), "a  b \u{1} c ");
    }
}
