//! Quoted-printable, as mails are sent: `=3D` is a sign of equality, and `=` at the end of a line continues it.

use super::{ConvertError, each_line};
use crate::parse::Source;
use std::io::Write;

/// The words of a mail header that name the encoding.
const ENCODING: &[u8] = b"content-transfer-encoding: quoted-printable";

/// Whether the mail's header says so, or there is an `=` and each one is valid quoted-printable.
pub(super) fn is(head: &[u8]) -> bool {
    let mut lines = head.split(|byte| *byte == b'\n');
    if lines.any(|line| line.trim_ascii().eq_ignore_ascii_case(ENCODING)) {
        return true;
    }
    let whole = &head[..head.len().saturating_sub(2)];
    let mut signs = memchr::memchr_iter(b'=', whole).peekable();
    signs.peek().is_some() && signs.all(|at| escape(&head[at..]).is_some())
}

/// What an `=` stands for, and how many bytes it takes.
fn escape(bytes: &[u8]) -> Option<(Option<u8>, usize)> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'A'..=b'F' => Some(byte - b'A' + 10),
        _ => None,
    };
    match bytes {
        [b'=', b'\n', ..] => Some((None, 2)),
        [b'=', b'\r', b'\n', ..] => Some((None, 3)),
        [b'=', high, low, ..] => Some((Some(digit(*high)? << 4 | digit(*low)?), 3)),
        _ => None,
    }
}

pub(super) fn convert(source: &Source, output: &mut dyn Write) -> Result<(), ConvertError> {
    each_line(source, |mut line| {
        while let Some(at) = memchr::memchr(b'=', line) {
            output.write_all(&line[..at])?;
            let (byte, length) = escape(&line[at..]).unwrap_or((Some(b'='), 1));
            output.write_all(byte.as_slice())?;
            line = &line[at + length..];
        }
        output.write_all(line)?;
        Ok(true)
    })
}
