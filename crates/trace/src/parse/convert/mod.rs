//! Traces that are inside something else, or that are written in another form. Each is converted once to the text of tracefs,
//! in a temporary file without a visible name, and then read like every text.
//!
//! | what | from |
//! |---|---|
//! | a mail in quoted-printable, or whose lines a client broke | mail archives |
//! | `atrace -z` | Android |
//! | HTML of systrace | Android, Chrome |
//! | Perfetto's protobuf | Android, Perfetto: packets with ftrace events |
//! | `perf sched timehist` | perf |
//! | LTTng, as `babeltrace2` prints it | LTTng |
//! | `/proc/latency_trace`, v1.0 | Linux 2.6.8 to 2.6.10 |
//!
//! To add one: a file here with a function from the bytes to lines, and a row in [`CONVERTERS`].

mod lttng;
mod mail;
mod old;
mod perfetto;
mod protobuf;
mod systrace;
mod timehist;
mod wrapped;

pub(super) use wrapped::unwrapped;

use super::{ParseError, Source};
use std::io::{self, BufWriter, Read, Write};

/// A form that is recognised by its first bytes, and its conversion to text.
struct Converter {
    /// As [`crate::reader::TraceInfo::format`] names it.
    name: &'static str,
    is: fn(&[u8]) -> bool,
    convert: Convert,
}

const CONVERTERS: [Converter; 7] = [
    Converter { name: "LTTng, as babeltrace2 prints it", is: lttng::is, convert: lttng::convert },
    Converter { name: "tracefs text, a mail", is: mail::is, convert: mail::convert },
    Converter { name: "tracefs text, atrace", is: systrace::is_atrace, convert: systrace::convert_atrace },
    Converter { name: "tracefs text, systrace HTML", is: systrace::is_html, convert: systrace::convert_html },
    Converter { name: "tracefs text, Linux 2.6", is: old::is, convert: old::convert },
    Converter { name: "perf sched timehist", is: timehist::is, convert: timehist::convert },
    Converter { name: "Perfetto", is: perfetto::is, convert: perfetto::convert },
];

/// Why a trace is not made into text.
enum ConvertError {
    /// It cannot be read, or it is damaged.
    Parse(ParseError),
    /// The temporary file cannot be written.
    Write(io::Error),
}

impl From<ParseError> for ConvertError {
    fn from(error: ParseError) -> Self {
        Self::Parse(error)
    }
}

impl From<io::Error> for ConvertError {
    fn from(error: io::Error) -> Self {
        Self::Write(error)
    }
}

/// The trace as text, and its form; `None` for a form that is not converted. `head` is the start of the bytes.
pub(super) fn converted(source: &Source, head: &[u8]) -> Result<Option<(Source, &'static str)>, ParseError> {
    let Some(converter) = CONVERTERS.iter().find(|converter| (converter.is)(head)) else { return Ok(None) };
    Ok(Some((written(source, converter.convert)?, converter.name)))
}

type Convert = fn(&Source, &mut dyn Write) -> Result<(), ConvertError>;

fn written(source: &Source, convert: Convert) -> Result<Source, ParseError> {
    let unwritable = |error: io::Error| ParseError::Read { path: std::env::temp_dir(), source: error };
    let mut file = BufWriter::new(tempfile::NamedTempFile::new().map_err(unwritable)?);
    match convert(source, &mut file) {
        Ok(()) => {}
        Err(ConvertError::Parse(error)) => return Err(error),
        Err(ConvertError::Write(error)) => return Err(unwritable(error)),
    }
    let file = file.into_inner().map_err(|error| unwritable(error.into_error()))?;
    Ok(Source::temporary(source.path(), file))
}

/// A line is at most this long; a longer one comes in pieces.
const LINE_BYTES_MAX: u64 = 1 << 20;

/// Gives each line with its end to `take`, until that says `false`.
fn each_line(source: &Source, mut take: impl FnMut(&[u8]) -> io::Result<bool>) -> Result<(), ConvertError> {
    use std::io::BufRead;
    let mut stream = io::BufReader::new(source.stream(0)?);
    let (mut line, mut offset) = (Vec::new(), 0);
    loop {
        line.clear();
        let read = stream.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line);
        let read = read.map_err(|error| source.failed(error, offset))?;
        if read == 0 || !take(&line)? {
            return Ok(());
        }
        offset += read as u64;
    }
}
