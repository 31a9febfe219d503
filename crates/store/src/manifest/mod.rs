//! `manifest.jsonl`: the content of the run directory, so that missing, extra, exchanged and altered files are found.
//!
//! Each write adds a line of JSON, in order: `begun` (a process writes to the run), `info` (a new `run.json`),
//! `flushed` (the segments of one flush, with rows, length and hash of each, the parts that they hold, and the
//! segments that they replace), `sealed` (the run has ended: the hashes of its other files). Each line ends with a
//! hash over itself and the line before it. A line that is cut out, exchanged or altered breaks the chain, and
//! without the last line the run is not sealed.

mod read;
mod write;

pub(crate) use read::{Manifest, Origin};
pub(crate) use write::ManifestWriter;

use crate::tables::{Rows, Span};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use whylate_core::figure::nanoseconds;
use whylate_core::result::Verdict;

/// Its name in the run directory.
pub(crate) const FILE: &str = "manifest.jsonl";
/// `format` of its first line.
const FORMAT: &str = "whylate.manifest/2";
/// The format of earlier versions, which replaced no segments.
const FORMAT_BEFORE: &str = "whylate.manifest/1";

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case")]
enum Entry {
    /// A process begins to write; its segments have numbers from `first_segment` on.
    Begun { format: String, run: String, first_segment: u32 },
    /// A new `run.json`, about to be renamed into place.
    Info { sha256: String },
    /// All segments of a flush are in place, or the segment into which several flushes were merged.
    Flushed(Flush),
    Sealed {
        files: Vec<Listed>,
        /// Absent until the result is there.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        verdict: Option<Verdict>,
    },
    #[serde(other)]
    Other,
}

/// The segments of one flush.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Flush {
    pub(crate) segment: u32,
    /// The segments whose rows it holds, which no longer count.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) replaces: Vec<u32>,
    pub(crate) of: Vec<Part>,
    pub(crate) tables: Vec<Listed>,
}

impl Flush {
    pub(crate) fn bytes(&self) -> u64 {
        self.tables.iter().map(|listed| listed.bytes).sum()
    }
}

#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Listed {
    /// Name of the table, or path below the run directory.
    pub(crate) name: String,
    /// Absent for files other than tables.
    pub(crate) rows: Option<u64>,
    pub(crate) bytes: u64,
    pub(crate) sha256: String,
}

impl Listed {
    pub(crate) fn of(name: &str, bytes: &[u8]) -> Self {
        Self { name: name.to_owned(), rows: None, bytes: bytes.len() as u64, sha256: sha256(&[bytes]) }
    }

    /// Whether it is the file that holds `bytes`.
    pub(crate) fn is(&self, bytes: &[u8]) -> bool {
        self.bytes == bytes.len() as u64 && self.sha256 == sha256(&[bytes])
    }
}

/// A part of the measurement: some time of one attempt.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    pub cell: String,
    pub repeat: u32,
    pub attempt: u32,
    /// The probes; empty if only loads were recorded.
    pub probes: Vec<String>,
    pub start_ns: u64,
    pub end_ns: u64,
}

impl std::fmt::Display for Part {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "cell `{}`, repeat {}", self.cell, self.repeat)?;
        if self.attempt > 1 {
            write!(f, ", attempt {}", self.attempt)?;
        }
        if !self.probes.is_empty() {
            write!(f, ": {}", self.probes.join(", "))?;
        }
        let length_ns = self.end_ns.saturating_sub(self.start_ns);
        if length_ns == 0 { Ok(()) } else { write!(f, ", {} of the repeat", nanoseconds(length_ns)) }
    }
}

pub(crate) fn parts_of(rows: &Rows) -> Vec<Part> {
    let mut parts: BTreeMap<(&str, u32, u32), Part> = BTreeMap::new();
    let mut add = |(cell, repeat, attempt), probe: Option<&str>, span: Option<Span>| {
        let new =
            || Part { cell: String::from(cell), repeat, attempt, start_ns: u64::MAX, ..Part::default() };
        let part = parts.entry((cell, repeat, attempt)).or_insert_with(new);
        if let Some(probe) = probe.filter(|probe| !part.probes.iter().any(|known| known == probe)) {
            part.probes.push(probe.to_owned());
        }
        if let Some(Span { start_ns, end_ns }) = span {
            (part.start_ns, part.end_ns) = (part.start_ns.min(start_ns), part.end_ns.max(end_ns));
        }
    };
    for (key, interval) in &rows.intervals {
        let span = Span { start_ns: interval.start_ns, end_ns: interval.end_ns };
        add((&key.cell, key.repeat, key.attempt), Some(&key.probe), Some(span));
    }
    rows.attempts().into_iter().for_each(|attempt| add(attempt, None, None));
    let mut parts: Vec<Part> = parts.into_values().collect();
    parts.iter_mut().for_each(|part| part.start_ns = part.start_ns.min(part.end_ns));
    parts
}

/// SHA-256 of bytes, as hexadecimal digits.
pub(crate) fn sha256(bytes: &[&[u8]]) -> String {
    let mut hasher = Sha256::new();
    bytes.iter().for_each(|bytes| hasher.update(bytes));
    hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What comes before the chain's hash at the end of a line.
const CHAIN: &str = ",\"chain\":\"";

/// The hash over a line (without its end) and all lines before it.
fn chained(before: &str, text: &str) -> String {
    sha256(&[before.as_bytes(), text.as_bytes()])
}
