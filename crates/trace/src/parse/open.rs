//! Opens a trace of any format, recognised by its content.

use super::input::Input;
use super::ring_buffer::directory;
use super::text::TextReader;
use super::{ParseError, Source, archive, convert, metadata, perf_data, trace_dat};
use crate::reader::Reader;
use std::io::Read;
use std::path::Path;

/// How many bytes are checked.
const SNIFFED_BYTES: u64 = 4096;

/// Other kinds of files, by their start, and what to do with them.
const REFUSED: [(&[u8], &str); 7] = [
    (b"\xc1\x1f\xfc\xc1", CTF),
    (b"\xc1\xfc\x1f\xc1", CTF),
    (b"\x57\x1d\xd1\x75", CTF),
    (b"\x75\xd1\x1d\x57", CTF),
    (b"/* CTF ", CTF),
    (b"PK\x03\x04", "a zip archive: unpack it and give the trace inside"),
    (b"{", "JSON; for a Perfetto or Chrome trace, give the original file, not an export"),
];
const CTF: &str = "CTF";

/// What to do with a trace of LTTng, its folder or a file in it.
fn ctf(path: &Path) -> String {
    let folder = if path.is_dir() { Some(path) } else { path.parent() };
    let folder = folder.filter(|it| !it.as_os_str().is_empty()).unwrap_or(Path::new("."));
    format!(
        "a trace in CTF, as LTTng writes: run `babeltrace2 {} > trace.txt`, then `whylate explain trace.txt`",
        folder.display()
    )
}

/// Whether a folder is one of LTTng: its streams are next to a file `metadata`, perhaps one folder down.
pub fn is_ctf(path: &Path) -> bool {
    [path.to_owned(), path.join("kernel")].iter().any(|folder| folder.join("metadata").is_file())
}

/// A reader for the trace at `path`, by its content: text, trace.dat, perf.data, Perfetto, or pages of the ring buffer in a
/// folder or an archive. gzip, Zstandard and xz are unpacked.
///
/// # Errors
/// [`ParseError::Read`] when it cannot be read, [`ParseError::Foreign`] when it is not a trace, [`ParseError::Damaged`] when
/// it is one and its head is damaged.
pub fn open(path: &Path) -> Result<Box<dyn Reader>, ParseError> {
    if directory::is(path) {
        return Ok(Box::new(directory::open(path)?));
    }
    if path.is_dir() {
        let found = if is_ctf(path) { ctf(path) } else { directory::LAYOUT.to_owned() };
        return Err(ParseError::Foreign { path: path.to_owned(), found });
    }
    from_source(Source::open(path)?)
}

/// A reader for the trace in `source`.
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
        return trace_dat::open_any(&binary()?);
    }
    if head.starts_with(&perf_data::MAGIC) || head.starts_with(&perf_data::MAGIC_SWAPPED) {
        return Ok(Box::new(perf_data::open(binary()?)?));
    }
    if archive::is(&head) {
        return archive::open_archive(&source);
    }
    if let Some((_, found)) = REFUSED.iter().find(|(begin, _)| head.starts_with(begin)) {
        return Err(foreign(if *found == CTF { ctf(source.path()) } else { (*found).to_owned() }));
    }
    let (source, name) = match convert::converted(&source, &head)? {
        Some((text, name)) => (text, Some(name)),
        None if head.contains(&0) => {
            return Err(foreign(format!("binary data that begins with {}", begin(&head))));
        }
        None => (source, None),
    };
    let (source, name) = match convert::unwrapped(&source)? {
        Some(text) => (text, name.or(Some("tracefs text from a mail with broken lines"))),
        None => (source, name),
    };
    let reader = TextReader::new(source)?;
    Ok(Box::new(if let Some(name) = name { reader.named(name) } else { reader }))
}

/// The first bytes as two hexadecimal digits each.
fn begin(head: &[u8]) -> String {
    head.iter().take(8).map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ")
}
