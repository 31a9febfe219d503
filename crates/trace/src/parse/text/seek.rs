//! Finds a time in a text by bisection, without reading everything before it.

use super::machine::Machine;
use crate::parse::lines::{LineError, Lines};
use crate::parse::{ParseError, Source};

/// Near enough: the rest is read line by line.
const NEAR_BYTES: u64 = 512 << 10;
/// How far before the place the reading begins: CPUs are merged in pages when `trace_pipe` is read.
const BACK_BYTES: u64 = 1 << 20;
/// Lines among which one with a time must be.
const LINES_MAX: usize = 4096;

/// Offset of a line from which on everything from `from_ns` on is read; 0 when it cannot be found directly.
pub(super) fn find(source: &Source, machine: &mut Machine, from_ns: u64) -> Result<u64, ParseError> {
    // The meaning of a function-graph line depends on the lines before it.
    let Some(length) = source.len_bytes().filter(|_| machine.is_seekable()) else { return Ok(0) };
    let (mut low, mut high) = (0, length);
    while high - low > NEAR_BYTES {
        let middle = low + (high - low) / 2;
        match first_time(source, machine, middle)? {
            Some(at_ns) if at_ns < from_ns => low = middle,
            Some(_) => high = middle,
            // No line with a time here: stop, and use the last known one.
            None => break,
        }
    }
    let begin = low.saturating_sub(BACK_BYTES);
    if begin == 0 { Ok(0) } else { Ok(line_after(source, begin)?.offset()) }
}

/// The lines from the first one that begins behind `offset`.
fn line_after(source: &Source, offset: u64) -> Result<Lines, ParseError> {
    let mut lines = Lines::new(source.stream(offset)?, offset);
    match lines.next() {
        Ok(_) | Err(LineError::TooLong(_)) => Ok(lines),
        Err(LineError::Read(error, at)) => Err(source.failed(error, at)),
    }
}

/// The time of the first line behind `offset` that has one.
fn first_time(source: &Source, machine: &mut Machine, offset: u64) -> Result<Option<u64>, ParseError> {
    let mut lines = line_after(source, offset)?;
    for _ in 0..LINES_MAX {
        match lines.next() {
            Ok(Some(line)) => {
                if let Some(at_ns) = machine.time(lines.bytes(line)) {
                    return Ok(Some(at_ns));
                }
            }
            Ok(None) | Err(LineError::TooLong(_)) => return Ok(None),
            Err(LineError::Read(error, at)) => return Err(source.failed(error, at)),
        }
    }
    Ok(None)
}
