//! Recognises the kind of a given file, and names the command that shows it.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use whylate_trace::parse;

/// The number of bytes that suffice to recognise a file.
const HEAD_BYTES: u64 = 256 << 10;
/// The number of bytes of a table in which its worst row is looked for.
const TABLE_BYTES: u64 = 64 << 20;

/// How whylate's own JSON begins, in its first lines.
const OWN: [&str; 2] = ["\"format\": \"whylate.", "\"format\":\"whylate."];
const OWN_LINES: usize = 3;

/// Files that are neither trace, log nor result: how they begin, what they are, what to do.
const OTHERS: &[(&[u8], &str, &str)] = &[
    (b"%PDF", "a PDF", "give the text or the data that the PDF was made from"),
    (b"\x89PNG", "a picture", "give the data that the picture shows"),
    (b"\xff\xd8\xff", "a picture", "give the data that the picture shows"),
    (b"GIF8", "a picture", "give the data that the picture shows"),
    (
        b"\x7fELF",
        "a program, a module or a dump of memory",
        "give what was recorded: a trace, a log or a result",
    ),
    (b"\xff\xfe", "a text in UTF-16", "`iconv -f UTF-16 -t UTF-8 FILE > text.txt` converts it to UTF-8"),
    (b"\xfe\xff", "a text in UTF-16", "`iconv -f UTF-16 -t UTF-8 FILE > text.txt` converts it to UTF-8"),
    (b"KDUMP", "a dump of a kernel's memory", "`crash` prints the kernel log in the dump: give this log"),
    (
        b"LPKSHHRH",
        "a journal of systemd",
        "`journalctl -k --file FILE -o short-monotonic > log.txt`, then `whylate explain log.txt`",
    ),
    (b"PAR1", "a Parquet table", "give the run directory that contains the table"),
    (b"SQLite format 3", "a database", "export its table as text"),
    (b"\xd4\xc3\xb2\xa1", "a capture of packets", "record the scheduler: `whylate trace record`"),
    (b"\x0a\x0d\x0d\x0a", "a capture of packets", "record the scheduler: `whylate trace record`"),
    (b"!<arch>", "an archive of programs", "unpack the archive and give what was recorded"),
    (
        b"<!DOCTYPE html",
        "a web page",
        "give the file that the page shows; from a forum, copy the text of the trace",
    ),
    (b"<html", "a web page", "give the file that the page shows; from a forum, copy the text of the trace"),
    (b"<?xml", "XML", "whylate reads only XML of rteval; give other data as text"),
    (b"#!", "a script", "run the script, and give its output"),
    (
        b"{",
        "JSON",
        "whylate reads results of cyclictest, oslat and jitterdebugger, logs of dmesg and journalctl, and Chrome traces with scheduler events",
    ),
    (
        b"[",
        "JSON",
        "whylate reads results of cyclictest, oslat and jitterdebugger, logs of dmesg and journalctl, and Chrome traces with scheduler events",
    ),
    (b"kernel.", "a list of settings", "`whylate check` reads the settings of the running machine"),
    (
        b"CONFIG_",
        "the configuration of a kernel",
        "`whylate check` reads the configuration of the running kernel",
    ),
    (
        b"#\n# Automatically generated",
        "the configuration of a kernel",
        "`whylate check` reads the configuration of the running kernel",
    ),
    (b"processor\t:", "/proc/cpuinfo", "`whylate check` reads this file on the machine itself"),
    (
        b"           CPU0",
        "/proc/interrupts",
        "the counts have no times; `whylate run` records the interrupts during a measurement",
    ),
];

/// The start of a file, up to its last whole line.
fn head(path: &Path, limit: u64) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path).ok().filter(|_| path.is_file())?.take(limit).read_to_end(&mut bytes).ok()?;
    if bytes.len() as u64 == limit {
        bytes.truncate(bytes.iter().rposition(|byte| *byte == b'\n').map_or(bytes.len(), |at| at + 1));
    }
    Some(bytes)
}

/// The tool whose result a file is.
pub(super) fn tool(path: &Path) -> Option<&'static str> {
    whylate_import::tool(&head(path, HEAD_BYTES)?)
}

/// The kind of a file that `whylate explain` cannot explain, and what to do: a result, a table, anything else.
pub(super) fn not_a_trace(path: &Path) -> Option<String> {
    let begin = head(path, HEAD_BYTES)?;
    if let Some(tool) = whylate_import::tool(&begin) {
        let path = path.display();
        return Some(format!("{path} is a result of {tool}, not a trace: `whylate report {path}` shows it"));
    }
    named(path, &begin)
}

/// The kind of a file that `whylate report` cannot read, and what to do: a trace, a log, a table, anything else.
pub(super) fn not_a_result(path: &Path) -> Option<String> {
    let begin = head(path, HEAD_BYTES)?;
    let shown = path.display();
    if parse::open(path).is_ok() {
        return Some(format!("{shown} is a trace: `whylate explain {shown}` explains it"));
    }
    if whylate_kmsg::is_log(&begin) {
        return Some(format!(
            "{shown} is a log of the kernel: `whylate explain {shown}` shows its messages about latency"
        ));
    }
    named(path, &begin).or_else(|| Some(unknown(path, &begin)))
}

/// A form that is known by name but not read.
fn named(path: &Path, begin: &[u8]) -> Option<String> {
    whylate_import::named_form(path, begin)?;
    whylate_import::named_form(path, &head(path, TABLE_BYTES)?)
}

/// What a file of no known kind looks like.
pub(super) fn unknown(path: &Path, begin: &[u8]) -> String {
    let shown = path.display();
    let text = std::str::from_utf8(begin)
        .ok()
        .or_else(|| std::str::from_utf8(begin.get(..begin.len().saturating_sub(3))?).ok());
    let start = begin.trim_ascii_start();
    let found = OTHERS.iter().find(|(mark, ..)| begin.starts_with(mark) || start.starts_with(mark));
    let is_own = |text: &str| {
        text.starts_with('{')
            && text.lines().take(OWN_LINES).any(|line| OWN.iter().any(|own| line.contains(own)))
    };
    let (what, to_do) = match (found, text) {
        (_, Some(text)) if is_own(text.trim_start()) => {
            ("JSON of whylate".to_owned(), "give the run directory that the JSON was made from")
        }
        (Some((_, what, to_do)), _) => ((*what).to_owned(), *to_do),
        (None, _) if begin.is_empty() => ("an empty file".to_owned(), "check whether the recording worked"),
        (None, None) => match parse::open(path) {
            // The reader knows it by name: an LTTng stream, an archive.
            Err(parse::ParseError::Foreign { found, .. }) if !found.starts_with("binary data") => {
                return format!("{}: {found}", path.display());
            }
            _ => (
                "binary data of no known kind".to_owned(),
                "give a trace (trace.dat, perf.data, Perfetto), a log or a result",
            ),
        },
        (None, Some(text)) => {
            let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
            let columns = |mark: char| lines.iter().take(50).all(|line| line.contains(mark));
            let what = match () {
                () if columns(',') || columns(';') => "a table of comma-separated values",
                () if columns('\t') => "a table of tab-separated values",
                () => "a text",
            };
            let first: String = lines.first().map_or("", |line| line.trim()).chars().take(60).collect();
            (
                format!("{what} that begins with `{first}`"),
                "give a trace (`whylate trace record` makes one), a log of the kernel, or the output of a tool from its first line on",
            )
        }
    };
    format!("{shown}: neither a trace nor a result that whylate reads; it looks like {what}: {to_do}")
}

/// The same for a file.
pub(super) fn unknown_file(path: &Path) -> Option<String> {
    Some(unknown(path, &head(path, HEAD_BYTES)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_of_whylate_is_no_json_of_another_tool() {
        let said = |text: &str| unknown(Path::new("a.json"), text.as_bytes());
        assert!(said("{\n  \"format\": \"whylate.run/1\",\n").contains("directory"));
        assert!(!said("{\n  \"format\": \"other.run/1\",\n").contains("directory"));
    }
}
