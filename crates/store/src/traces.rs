//! The traces of a run: files in `traces/`, each with metadata in a file beside it: of which spike it is.
//!
//! A trace is there before its metadata, and is removed after it: one without metadata is still complete, and only
//! its place in the run is not known.

use crate::directory::{RunDirectory, file_name};
use crate::error::StoreError;
use crate::folder;
use crate::info::to_json;
use std::fs;
use std::path::{Path, PathBuf};
use whylate_core::result::SpikeTrace;
use whylate_core::{Warning, WarningCode};

pub(crate) const TRACES_FOLDER: &str = "traces";
/// Ending of the files with metadata.
const METADATA: &str = "json";

impl RunDirectory {
    /// A file for a new trace: `traces/<cell>-<repeat>-<attempt>-<number>.dat`, with the first number that is free.
    /// Characters of the cell's name that do not belong in a file name become `_`.
    pub fn new_trace_path(&self, cell: &str, repeat: u32, attempt: u32) -> PathBuf {
        let cell = file_name(cell);
        let path = |number: u32| self.traces_path().join(format!("{cell}-{repeat}-{attempt}-{number}.dat"));
        // The trace of that number was replaced by another one.
        (1..).map(path).find(|path| !path.exists()).unwrap_or_else(|| path(0))
    }

    /// Writes the metadata of a trace beside it.
    pub fn keep_trace_note(&self, trace: &SpikeTrace) -> Result<(), StoreError> {
        let name = note_name(Path::new(&trace.path));
        let text = to_json(&self.traces_path().join(&name), trace)?;
        self.folder(TRACES_FOLDER).write_atomically(&name, &text)
    }

    /// Removes the metadata of a trace that was removed.
    pub fn remove_trace_note(&self, trace: &Path) -> Result<(), StoreError> {
        self.folder(TRACES_FOLDER).remove(&note_name(trace))
    }
}

/// Name of the file with the metadata of a trace.
fn note_name(trace: &Path) -> String {
    let path = trace.with_extension(METADATA);
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// The files with metadata, as paths below the run in `path`, sorted.
pub(crate) fn notes(path: &Path) -> Vec<String> {
    let entries = fs::read_dir(path.join(TRACES_FOLDER)).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let is_note = |name: &String| Path::new(name).extension().is_some_and(|ending| ending == METADATA);
    let mut notes: Vec<String> =
        names.filter(is_note).map(|name| format!("{TRACES_FOLDER}/{name}")).collect();
    notes.sort();
    notes
}

/// What is known of the traces of the run in `path`, largest latency first, and what could not be read. Metadata without
/// its trace does not count: somebody removed it, or the run was killed in between.
pub(crate) fn read(path: &Path) -> (Vec<SpikeTrace>, Vec<Warning>) {
    let (mut traces, mut warnings) = (Vec::new(), Vec::new());
    for file in notes(path) {
        let file = path.join(file);
        let read = folder::read(&file).map_err(serde_json::Error::io);
        match read.and_then(|text| serde_json::from_slice::<SpikeTrace>(&text.unwrap_or_default())) {
            // The path in the metadata may come from anywhere.
            Ok(trace) if file.with_extension("dat").is_file() => traces.push(trace),
            Ok(_) => {
                let text = format!("{}: left out: its trace is missing", file.display());
                warnings.push(Warning::new(WarningCode::AlteredFile, text));
            }
            Err(error) => {
                let text = format!("{}: cannot read the metadata of the trace: {error}", file.display());
                warnings.push(Warning::new(WarningCode::UnreadableTraceNote, text));
            }
        }
    }
    traces.sort_by_key(|trace| std::cmp::Reverse(trace.latency_ns));
    (traces, warnings)
}
