//! Opens a trace of any format, recognised by its content.

use super::input::Input;
use super::ring_buffer::directory;
use super::text::TextReader;
use super::{ParseError, Source, metadata, perf_data, trace_dat};
use crate::reader::Reader;
use std::io::Read;
use std::path::Path;

/// Bytes that are looked at.
const SNIFFED_BYTES: u64 = 4096;

/// A reader for the trace at `path`, by its content: text, trace.dat, perf.data, or a folder of pages of the ring buffer;
/// gzip, Zstandard and xz are unpacked.
///
/// # Errors
/// [`ParseError::Read`] when it cannot be read, [`ParseError::Foreign`] when it is not a trace, [`ParseError::Damaged`] when
/// it is one and its head is damaged.
pub fn open(path: &Path) -> Result<Box<dyn Reader>, ParseError> {
    if directory::is(path) {
        return Ok(Box::new(directory::open(path)?));
    }
    from_source(Source::open(path)?)
}

/// A reader for the trace in `source`.
///
/// # Errors
/// As [`open`].
pub fn from_source(source: Source) -> Result<Box<dyn Reader>, ParseError> {
    let mut head = Vec::new();
    source
        .stream(0)?
        .take(SNIFFED_BYTES)
        .read_to_end(&mut head)
        .map_err(|error| source.failed(error, head.len() as u64))?;
    let foreign = |found: String| ParseError::Foreign { path: source.path().to_owned(), found };
    if head.is_empty() {
        return Err(foreign("it is empty".to_owned()));
    }
    let binary = || Input::file(source.unpacked()?, source.path());
    if head.starts_with(&metadata::MAGIC) {
        return Ok(Box::new(trace_dat::open(&binary()?)?));
    }
    if head.starts_with(&perf_data::MAGIC) || head.starts_with(&perf_data::MAGIC_SWAPPED) {
        return Ok(Box::new(perf_data::open(binary()?)?));
    }
    if head.contains(&0) {
        return Err(foreign(format!("binary data that begins with {}", begin(&head))));
    }
    Ok(Box::new(TextReader::new(source)?))
}

/// The first bytes as two hexadecimal digits each.
fn begin(head: &[u8]) -> String {
    head.iter().take(8).map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ")
}
