//! The traces of a run: files in `traces/`, each with a note beside it that says which spike it is of.
//!
//! A trace is there before its note, and is removed after it: one without a note is complete all the same, and only
//! its place in the run is not known.

use crate::directory::{RunDirectory, file_name};
use crate::disk::if_present;
use crate::error::{At, StoreError};
use crate::info::write_json;
use std::fs;
use std::path::{Path, PathBuf};
use whylate_core::result::SpikeTrace;
use whylate_core::{Warning, WarningCode};

/// Folder of recorded traces.
pub(crate) const TRACES_FOLDER: &str = "traces";
/// Ending of the notes.
const NOTE: &str = "json";

impl RunDirectory {
    /// A file for a new trace: `traces/<cell>-<repeat>-<attempt>-<number>.dat`, with the first number that is free.
    /// Characters of the cell's name that do not belong in a file name become `_`.
    pub fn new_trace_path(&self, cell: &str, repeat: u32, attempt: u32) -> PathBuf {
        let cell = file_name(cell);
        let path = |number: u32| self.traces_path().join(format!("{cell}-{repeat}-{attempt}-{number}.dat"));
        // Of a number whose trace made room for another one, nothing is left.
        (1..).map(path).find(|path| !path.exists()).unwrap_or_else(|| path(0))
    }

    /// Keeps what is known of a trace beside it.
    ///
    /// # Errors
    /// [`StoreError::DiskFull`] or [`StoreError::Io`]; an older note stays then.
    pub fn keep_trace_note(&self, trace: &SpikeTrace) -> Result<(), StoreError> {
        write_json(&self.path().join(&trace.path).with_extension(NOTE), trace)
    }

    /// Removes the note of a trace that is no more.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn remove_trace_note(&self, trace: &Path) -> Result<(), StoreError> {
        let path = trace.with_extension(NOTE);
        if_present(fs::remove_file(&path)).at("remove", &path)?;
        Ok(())
    }
}

/// The notes of the run in `path` whose traces are there, largest latency first, and what could not be read.
pub(crate) fn read(path: &Path) -> (Vec<SpikeTrace>, Vec<Warning>) {
    let (mut traces, mut warnings) = (Vec::new(), Vec::new());
    let mut notes: Vec<PathBuf> = fs::read_dir(path.join(TRACES_FOLDER))
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|ending| ending == NOTE))
        .collect();
    notes.sort();
    for note in notes {
        let read = fs::read(&note).map_err(|error| error.to_string());
        let parsed = read
            .and_then(|text| serde_json::from_slice::<SpikeTrace>(&text).map_err(|error| error.to_string()));
        match parsed {
            // The path in a note may come from anywhere.
            Ok(trace) => {
                if note.with_extension("dat").is_file() {
                    traces.push(trace);
                }
            }
            Err(error) => {
                let text = format!("{} says nothing of its trace: {error}", note.display());
                warnings.push(Warning::new(WarningCode::UnreadableTraceNote, text));
            }
        }
    }
    traces.sort_by_key(|trace| std::cmp::Reverse(trace.latency_ns));
    (traces, warnings)
}
