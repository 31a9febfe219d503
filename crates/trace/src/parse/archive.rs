//! tar archives, as people send them: a folder of raw pages, or one trace.

use super::ring_buffer::directory;
use super::{ParseError, Source, open};
use crate::event::{Event, Frames, Names, Symbol};
use crate::reader::{Reader, Selection, TraceInfo};
use std::path::{Path, PathBuf};

/// Where the magic word of an archive is, and the word.
const MARK_AT: usize = 257;
const MARK: &[u8] = b"ustar";
/// How many levels of folders are searched for the one with the pages.
const DEPTH_MAX: usize = 4;

/// Whether the bytes are those of an archive.
pub(super) fn is(head: &[u8]) -> bool {
    head.get(MARK_AT..).is_some_and(|rest| rest.starts_with(MARK))
}

/// A reader, and the folder that it reads from.
struct Unpacked {
    reader: Box<dyn Reader>,
    _folder: tempfile::TempDir,
}

/// Unpacks an archive into a temporary folder and opens what is in it.
pub(super) fn open_archive(source: &Source) -> Result<Box<dyn Reader>, ParseError> {
    let unwritable = |error| ParseError::Read { path: std::env::temp_dir(), source: error };
    let folder = tempfile::tempdir().map_err(unwritable)?;
    let mut archive = tar::Archive::new(source.stream(0)?);
    archive.set_preserve_permissions(false);
    archive.set_preserve_mtime(false);
    archive.unpack(folder.path()).map_err(|error| ParseError::Damaged {
        path: source.path().to_owned(),
        offset: 0,
        message: format!("the archive cannot be unpacked ({error})"),
    })?;
    let foreign =
        |found: &str| ParseError::Foreign { path: source.path().to_owned(), found: found.to_owned() };
    let mut files = Vec::new();
    let opened = match find(folder.path(), DEPTH_MAX, &mut files) {
        Some(pages) => directory::open(&pages).map(|reader| Box::new(reader) as Box<dyn Reader>),
        None => match &files[..] {
            [file] => open(file),
            _ => return Err(foreign(directory::LAYOUT)),
        },
    };
    let reader = opened.map_err(|error| renamed(error, folder.path(), source.path()))?;
    Ok(Box::new(Unpacked { reader, _folder: folder }))
}

/// The folder of pages; the files on the way.
fn find(folder: &Path, depth: usize, files: &mut Vec<PathBuf>) -> Option<PathBuf> {
    if directory::is(folder) {
        return Some(folder.to_owned());
    }
    let mut folders = Vec::new();
    for entry in std::fs::read_dir(folder).ok()?.flatten() {
        let path = entry.path();
        if path.is_dir() { folders.push(path) } else { files.push(path) }
    }
    folders.sort();
    folders.iter().filter(|_| depth > 0).find_map(|folder| find(folder, depth - 1, files))
}

/// The same error with the path as it is in the archive.
fn renamed(error: ParseError, folder: &Path, archive: &Path) -> ParseError {
    let inside = |path: PathBuf| match path.strip_prefix(folder) {
        Ok(inside) => archive.join(inside),
        Err(_) => path,
    };
    match error {
        ParseError::Read { path, source } => ParseError::Read { path: inside(path), source },
        ParseError::Foreign { path, found } => ParseError::Foreign { path: inside(path), found },
        ParseError::Damaged { path, offset, message } => {
            ParseError::Damaged { path: inside(path), offset, message }
        }
    }
}

impl Reader for Unpacked {
    fn info(&self) -> &TraceInfo {
        self.reader.info()
    }

    fn names(&self) -> &Names {
        self.reader.names()
    }

    fn seek(&mut self, from_ns: Option<u64>, selection: Selection) -> Result<(), ParseError> {
        self.reader.seek(from_ns, selection)
    }

    fn next(&mut self) -> Result<Option<Event>, ParseError> {
        self.reader.next()
    }

    fn symbol(&self, symbol: Symbol) -> Option<(&str, u64)> {
        self.reader.symbol(symbol)
    }

    fn frames(&self, frames: Frames) -> &[Symbol] {
        self.reader.frames(frames)
    }
}
