//! A folder of raw pages, copied from tracefs by hand, without trace-cmd.
//!
//! | in the folder | copied from tracefs | |
//! |---|---|---|
//! | `cpuN.raw`, or `per_cpu/cpuN/trace_pipe_raw`, or `traces/cpuN` | `per_cpu/cpuN/trace_pipe_raw`, any number of pages | at least one |
//! | `events/header_page` (or `formats/header_page`, as SchedViz has it) | the same | required |
//! | `events/SYSTEM/EVENT/format` (or in `formats`) | the same | required for events to be known |
//! | `kallsyms` | `/proc/kallsyms` | names of functions |
//! | `saved_cmdlines`, `printk_formats`, `trace_clock` | the same | commands, texts, clock |
//! | `osrelease` | `/proc/sys/kernel/osrelease` | which flags mean what |
//!
//! Files of the traced machine's byte order are recognised by the pages' headers.

use super::{BufferReader, Cursor, Merge, PageLayout, Pages};
use crate::parse::ParseError;
use crate::parse::bytes::{ByteOrder, text};
use crate::parse::format::{EventFormat, FormatError};
use crate::parse::input::Input;
use crate::parse::metadata::Metadata;
use crate::parse::printk::PrintkFormats;
use crate::parse::symbols::Symbols;
use crate::parse::unpack::{Algorithm, Unpacker};
use crate::reader::TraceInfo;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use whylate_core::CpuId;

/// Text files larger than this are not read: no kernel writes such files.
const TEXT_BYTES_MAX: u64 = 64 << 20;
/// How many pages are checked for the byte order.
const PAGES_TRIED: u64 = 16;

pub(in crate::parse) const LAYOUT: &str = "a folder or an archive that lacks raw pages of the ring buffer; needed are `events/header_page` (or `formats/header_page`), \
     `events/SYSTEM/EVENT/format`, and `cpuN.raw`, `traces/cpuN` or `per_cpu/cpuN/trace_pipe_raw`";

/// Whether `path` is such a folder.
pub fn is(path: &Path) -> bool {
    formats_folder(path).is_some()
}

fn formats_folder(path: &Path) -> Option<PathBuf> {
    let folders = ["events", "formats"].map(|name| path.join(name));
    folders.into_iter().find(|folder| folder.join("header_page").is_file())
}

/// Opens a folder of raw pages.
pub fn open(path: &Path) -> Result<BufferReader, ParseError> {
    let events = formats_folder(path).ok_or_else(|| foreign(path, LAYOUT))?;
    let header = events.join("header_page");
    let header_page = optional(&header)?.ok_or_else(|| foreign(path, LAYOUT))?;
    let files = raw_files(path)?;
    if files.is_empty() {
        return Err(foreign(path, LAYOUT));
    }
    let mut inputs = Vec::new();
    for (_, file) in &files {
        inputs.push(Input::open(file)?);
    }
    let layout = |order| PageLayout::parse(&header_page, order).map_err(|message| damaged(&header, message));
    let (little, big) = (layout(ByteOrder::Little)?, layout(ByteOrder::Big)?);
    let layout = if filled_pages(&inputs, &big) > filled_pages(&inputs, &little) { big } else { little };
    let mut cursors = Vec::new();
    for ((cpu, _), input) in files.iter().zip(&inputs) {
        let pages = Pages::plain(input, 0, input.length(), layout.page_bytes)?;
        cursors.push(Cursor::new(*cpu, layout, pages));
    }
    let file = |name: &str| optional(&path.join(name)).map(Option::unwrap_or_default);
    let metadata = Metadata {
        formats: formats(&events)?,
        symbols: Symbols::parse(file("kallsyms")?),
        printk: PrintkFormats::parse(&file("printk_formats")?),
        commands: file("saved_cmdlines")?,
        header_page,
        ..Metadata::default()
    };
    let release = optional(&path.join("osrelease"))?.map(|release| release.trim().to_owned());
    let (name, clock, resolution_ns) = crate::parse::trace_dat::selected_clock(&file("trace_clock")?);
    let info = TraceInfo {
        format: "ring-buffer pages".to_owned(),
        clock: name,
        kernel: release,
        resolution_ns,
        recorded: metadata.recorded(),
        ..TraceInfo::default()
    };
    let merge = Merge::new(Unpacker::new(Algorithm::None), cursors);
    Ok(BufferReader::new(info, layout, merge, metadata, clock))
}

fn foreign(path: &Path, found: &str) -> ParseError {
    ParseError::Foreign { path: path.to_owned(), found: found.to_owned() }
}

fn damaged(path: &Path, message: String) -> ParseError {
    ParseError::Damaged { path: path.to_owned(), offset: 0, message }
}

/// What was read, or `None` if there is no such file or folder.
fn existing<T>(path: &Path, read: std::io::Result<T>) -> Result<Option<T>, ParseError> {
    match read {
        Ok(found) => Ok(Some(found)),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
        Err(source) => Err(ParseError::Read { path: path.to_owned(), source }),
    }
}

/// A file's text; `None` if there is no such file.
fn optional(path: &Path) -> Result<Option<String>, ParseError> {
    let Some(metadata) = existing(path, std::fs::metadata(path))? else { return Ok(None) };
    if metadata.len() > TEXT_BYTES_MAX {
        return Err(damaged(path, format!("{} bytes are too many for this file", metadata.len())));
    }
    Ok(existing(path, std::fs::read(path))?.map(text))
}

/// Names in a folder, sorted; none when there is no such folder.
fn names(path: &Path) -> Result<Vec<String>, ParseError> {
    let mut names = Vec::new();
    for entry in existing(path, std::fs::read_dir(path))?.into_iter().flatten() {
        let entry = entry.map_err(|source| ParseError::Read { path: path.to_owned(), source })?;
        names.extend(entry.file_name().into_string());
    }
    names.sort_unstable();
    Ok(names)
}

/// The files of pages with their CPUs, in the order of CPUs.
fn raw_files(path: &Path) -> Result<Vec<(CpuId, PathBuf)>, ParseError> {
    let number = |name: &str| name.strip_prefix("cpu")?.parse().ok().map(CpuId);
    let mut files = Vec::new();
    for name in names(path)? {
        if let Some(cpu) = name.strip_suffix(".raw").and_then(number) {
            files.push((cpu, path.join(name)));
        }
    }
    for name in names(&path.join("traces"))? {
        if let Some(cpu) = number(&name) {
            files.push((cpu, path.join("traces").join(name)));
        }
    }
    for name in names(&path.join("per_cpu"))? {
        let file = path.join("per_cpu").join(&name).join("trace_pipe_raw");
        if let Some(cpu) = number(&name).filter(|_| file.is_file()) {
            files.push((cpu, file));
        }
    }
    files.sort_unstable();
    Ok(files)
}

/// How many of the first pages have events in them under a layout.
fn filled_pages(inputs: &[Input], layout: &PageLayout) -> usize {
    let mut filled = 0;
    let mut page = vec![0; layout.page_bytes];
    for input in inputs {
        for index in 0..PAGES_TRIED {
            if input.fill(index * layout.page_bytes as u64, &mut page).is_err() {
                break;
            }
            filled +=
                usize::from(layout.header(&page).is_ok_and(|header| header.data_end > layout.data_offset));
        }
    }
    filled
}

/// The formats of all events.
fn formats(events: &Path) -> Result<Vec<EventFormat>, ParseError> {
    let mut formats = Vec::new();
    for system in names(events)? {
        for event in names(&events.join(&system))? {
            let file = events.join(&system).join(&event).join("format");
            if let Some(text) = optional(&file)? {
                let damaged = |error: FormatError| damaged(&file, error.to_string());
                let outline = EventFormat::parse(&system, text).map_err(damaged)?;
                // Such a folder is made by hand: report a bad file right away.
                outline.fields().map_err(damaged)?;
                formats.push(outline);
            }
        }
    }
    Ok(formats)
}
