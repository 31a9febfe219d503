//! Android's and Chrome's: `atrace -z`, which packs the text of tracefs with zlib, and the HTML page of systrace, which
//! has it inside.

use super::{ConvertError, each_line};
use crate::parse::Source;
use std::io::{self, BufReader, Read, Write};

/// What stands before the packed text.
const ATRACE: &[u8] = b"TRACE:\n";
/// Marks of the pages of today, and of those before 2014, which had the text as a literal of JavaScript.
const SCRIPT: &[u8] = b"class=\"trace-data\"";
const LITERAL: &[u8] = b"linuxPerfData = \"";

/// Whether it is the output of `atrace`, which may have other text before the mark.
pub(super) fn is_atrace(head: &[u8]) -> bool {
    packed_at(head).is_some()
}

/// Where the packed text begins: a header of zlib behind the mark.
fn packed_at(head: &[u8]) -> Option<usize> {
    let at = memchr::memmem::find(head, ATRACE)? + ATRACE.len();
    let is_zlib =
        |header: &[u8]| header[0] == 0x78 && (u16::from(header[0]) << 8 | u16::from(header[1])) % 31 == 0;
    head.get(at..at + 2).filter(|header| is_zlib(header)).map(|_| at)
}

pub(super) fn convert_atrace(source: &Source, output: &mut dyn Write) -> Result<(), ConvertError> {
    let failed = |error| source.failed(error, 0);
    let mut head = Vec::new();
    source.stream(0)?.take(4096).read_to_end(&mut head).map_err(failed)?;
    let stream = source.stream(packed_at(&head).unwrap_or(0) as u64)?;
    let mut text = flate2::bufread::ZlibDecoder::new(BufReader::new(stream));
    let mut block = vec![0; 64 << 10];
    loop {
        match text.read(&mut block) {
            Ok(0) => return Ok(()),
            Ok(read) => output.write_all(&block[..read])?,
            Err(error) => return Err(damaged(source, &error).into()),
        }
    }
}

fn damaged(source: &Source, error: &io::Error) -> crate::parse::ParseError {
    let message = format!("the packed trace is damaged or cut off ({error})");
    crate::parse::ParseError::Damaged { path: source.path().to_owned(), offset: ATRACE.len() as u64, message }
}

pub(super) fn is_html(head: &[u8]) -> bool {
    let start = head.trim_ascii_start();
    let begins = |mark: &[u8]| start.get(..mark.len()).is_some_and(|start| start.eq_ignore_ascii_case(mark));
    begins(b"<!doctype html") || begins(b"<html")
}

/// Copies the text between the marks; a page can have several traces.
pub(super) fn convert_html(source: &Source, output: &mut dyn Write) -> Result<(), ConvertError> {
    let find = memchr::memmem::find;
    let (mut inside, mut literal) = (false, false);
    each_line(source, |line| {
        let mut text = line;
        if !inside {
            if let Some(at) = find(line, SCRIPT) {
                // Behind the end of the tag.
                text = line[at..].splitn(2, |byte| *byte == b'>').nth(1).unwrap_or_default();
            } else if let Some(at) = find(line, LITERAL) {
                (literal, text) = (true, &line[at + LITERAL.len()..]);
            } else {
                return Ok(true);
            }
            inside = true;
        }
        if literal {
            // Each line of the text is `…\n\`.
            let text = text.trim_ascii_end();
            inside = !(text.ends_with(b"\";") || find(text, b"</script>").is_some());
            let text = text.strip_suffix(b"\\").unwrap_or(text);
            output.write_all(text.strip_suffix(b"\\n").unwrap_or(text))?;
            literal = inside;
            return output.write_all(b"\n").map(|()| true);
        }
        match find(text, b"</script>") {
            Some(end) => {
                inside = false;
                output.write_all(&text[..end])?;
                output.write_all(b"\n")?;
            }
            None => output.write_all(text)?,
        }
        Ok(true)
    })
}
