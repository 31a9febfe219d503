//! trace.dat, the file of `trace-cmd record`: versions 6 and 7.
//!
//! In: such a file, of either byte order and word size, packed with zlib, zstd or not at all. Out: a
//! [`BufferReader`] over the events of all its buffers (the top one and instances) whose clock is that of the first
//! buffer with events.
//!
//! Times are those of the trace clock, plus the offset that `--ts-offset` stored in the file; cycles become nanoseconds if
//! the file has the factor. Shifts to the wall clock (`--date`) or to the clock of a host (a guest's time shift) are not
//! applied: times inside the kernel's own events would not move with them. Unknown options, and those that do not matter to
//! the explanation (hooks, process maps, guests), are skipped.

mod options;
mod version6;
mod version7;

use super::bytes::ByteOrder;
use super::input::Input;
use super::metadata::{Head, MAGIC, Metadata, plausible};
use super::ring_buffer::{BufferReader, Clock, Cursor, Merge, PAGES_BYTES_MAX, PageLayout, Pages};
use super::unpack::{Algorithm, Unpacker};
use super::{ParseError, Source, TextReader};
use crate::reader::{Reader, TraceInfo};
use options::Options;
use whylate_core::CpuId;

/// Where the events of a CPU are.
#[derive(Clone, Copy, Debug)]
struct CpuData {
    cpu: CpuId,
    offset: u64,
    bytes: u64,
}

/// One of the file's buffers.
#[derive(Clone, Debug)]
struct Buffer {
    /// The instance's name; empty for the top one.
    name: String,
    /// Its clock, if the file states it for each buffer.
    clock: Option<String>,
    /// Size of its pages, if the file states it for each buffer.
    page_bytes: Option<u32>,
    packed: bool,
    cpus: Vec<CpuData>,
}

/// The content of the file, for both versions.
#[derive(Debug, Default)]
struct Contents {
    order: ByteOrder,
    page_bytes: u32,
    algorithm: Algorithm,
    metadata: Metadata,
    options: Options,
    buffers: Vec<Buffer>,
    /// The trace is kept as text, as trace-cmd does for latency tracers.
    text: Option<Vec<u8>>,
}

/// Opens a trace.dat, also one that keeps its trace as text.
pub(super) fn open_any(input: &Input) -> Result<Box<dyn Reader>, ParseError> {
    let (version, contents) = contents(input)?;
    match contents.text {
        Some(text) => {
            let source = Source::memory(&input.path().display().to_string(), text)?;
            Ok(Box::new(TextReader::new(source)?.named("trace.dat with text")))
        }
        None => Ok(Box::new(of_contents(input, version, contents)?)),
    }
}

/// Opens a trace.dat that has records.
///
/// # Errors
/// [`ParseError::Foreign`] when it is not one, or of another version; [`ParseError::Damaged`] when it is damaged or
/// truncated; [`ParseError::Read`] when it cannot be read.
pub fn open(input: &Input) -> Result<BufferReader, ParseError> {
    let (version, contents) = contents(input)?;
    of_contents(input, version, contents)
}

fn of_contents(input: &Input, version: u32, contents: Contents) -> Result<BufferReader, ParseError> {
    if contents.buffers.is_empty() {
        let message = "the file has no buffer with events: trace-cmd was stopped before it wrote them";
        return Err(input.damaged(input.length(), message));
    }
    let Contents { order, algorithm, metadata, options, buffers, page_bytes, .. } = contents;
    let layout =
        PageLayout::parse(&metadata.header_page, order).map_err(|message| input.damaged(0, message))?;
    let (buffers, clock) = of_one_clock(buffers, options.clock.clone());
    let (mut cursors, mut memory_bytes) = (Vec::new(), 0);
    for buffer in &buffers {
        let layout = buffer_layout(input, layout, buffer, page_bytes)?;
        for data in buffer.cpus.iter().filter(|data| data.bytes > 0) {
            let pages = if buffer.packed {
                Pages::packed(input, data.offset, data.bytes, &layout)?
            } else {
                Pages::plain(input, data.offset, data.bytes, layout.page_bytes)?
            };
            memory_bytes += pages.memory_bytes();
            if memory_bytes > PAGES_BYTES_MAX {
                let message = "the trace has too many CPUs, or too many pages, to fit into memory";
                return Err(input.damaged(data.offset, message));
            }
            cursors.push(Cursor::new(data.cpu, layout, pages));
        }
    }
    let info = TraceInfo {
        format: format!("trace.dat v{version}"),
        clock: clock.clone(),
        kernel: options.release.clone(),
        cpus: options.cpus,
        resolution_ns: options.resolution_ns(clock.as_deref()),
        recorded: metadata.recorded(),
        ..TraceInfo::default()
    };
    let merge = Merge::new(Unpacker::new(algorithm), cursors);
    let times = options.times(clock.as_deref());
    let info = TraceInfo { lost: options.lost, ..info };
    Ok(BufferReader::new(info, layout, merge, metadata, times))
}

/// The header, and what follows it in the file's version.
fn contents(input: &Input) -> Result<(u32, Contents), ParseError> {
    let mut magic = [0; MAGIC.len()];
    if input.length() < MAGIC.len() as u64 || input.fill(0, &mut magic).is_err() || magic != MAGIC {
        return Err(foreign(input, "not a trace.dat file"));
    }
    let mut scan = input.scan(MAGIC.len() as u64, ByteOrder::Little);
    let version_at = scan.position;
    let head = Head::read(&mut scan)?;
    match head.version.as_str() {
        "6" => Ok((6, version6::read(scan, head.page_bytes)?)),
        "7" => Ok((7, version7::read(scan, head.page_bytes)?)),
        other if other.len() <= 8 => Err(foreign(
            input,
            &format!("a trace.dat of version {other:?}, not 6 or 7; convert it with `trace-cmd convert`"),
        )),
        _ => Err(input.damaged(version_at, "the version is not a number")),
    }
}

fn foreign(input: &Input, found: &str) -> ParseError {
    ParseError::Foreign { path: input.path().to_owned(), found: found.to_owned() }
}

/// The buffers with the clock of the first one that has events, and that clock: times of different clocks cannot be
/// merged.
fn of_one_clock(buffers: Vec<Buffer>, clock: Option<String>) -> (Vec<Buffer>, Option<String>) {
    let has_events = |buffer: &Buffer| buffer.cpus.iter().any(|data| data.bytes > 0);
    let first = buffers.iter().find(|buffer| has_events(buffer)).or(buffers.first());
    let clock = first.and_then(|buffer| buffer.clock.clone()).or(clock);
    let same = |buffer: &Buffer| buffer.clock.is_none() || buffer.clock == clock;
    (buffers.into_iter().filter(same).collect(), clock)
}

/// The layout of a buffer's pages. Version 7 has the size for each buffer; in version 6, sub-buffers that are larger
/// than the machine's pages show in the page's header only.
fn buffer_layout(
    input: &Input,
    layout: PageLayout,
    buffer: &Buffer,
    page_bytes: u32,
) -> Result<PageLayout, ParseError> {
    let bytes = match buffer.page_bytes {
        Some(bytes) => bytes as usize,
        None => layout.page_bytes.max(page_bytes as usize),
    };
    let layout = layout.with_page_bytes(bytes);
    layout.ok_or_else(|| {
        input.damaged(0, format!("buffer {:?} has pages of {bytes} bytes, which is impossible", buffer.name))
    })
}

/// The clock that `trace_clock` of tracefs has selected, how its times become nanoseconds, and their smallest step.
pub(crate) fn selected_clock(text: &str) -> (Option<String>, Clock, u64) {
    let clock = options::selected(text);
    let options = Options::default();
    let (times, resolution_ns) = (options.times(clock.as_deref()), options.resolution_ns(clock.as_deref()));
    (clock, times, resolution_ns)
}
