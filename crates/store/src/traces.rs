//! The traces of a run: files in `traces/`, each with a metadata file next to it that names the spike.
//!
//! A trace is written before its metadata, and removed after it. A trace without metadata is still complete; only its
//! place in the run is unknown.

use crate::directory::{RunDirectory, file_name};
use crate::error::StoreError;
use crate::folder::Folder;
use crate::info::to_json;
use std::path::{Path, PathBuf};
use whylate_core::order::InOrder;
use whylate_core::result::SpikeTrace;
use whylate_core::{Warning, WarningCode};

/// No metadata file is nearly this large, and a run may have many.
const NOTE_BYTES_MAX: u64 = 64 << 10;
pub(crate) const TRACES_FOLDER: &str = "traces";
/// Ending of the files with metadata.
const METADATA: &str = "json";

impl RunDirectory {
    /// The path for a new trace, in the open folder: `traces/<cell>-<repeat>-<attempt>-<number>.dat`, with the first
    /// free number. Characters of the cell's name that are not valid in a file name become `_`.
    pub fn new_trace_path(&self, cell: &str, repeat: u32, attempt: u32) -> PathBuf {
        let cell = file_name(cell);
        let name = |number: u32| format!("{cell}-{repeat}-{attempt}-{number}.dat");
        let traces = self.folder(TRACES_FOLDER);
        // The trace of that number was replaced by another one.
        let free = (1..).map(name).find(|name| traces.find(name).is_none());
        traces.fixed_path().join(free.unwrap_or_else(|| name(0)))
    }

    /// Writes the metadata file of a trace.
    pub fn keep_trace_note(&self, trace: &SpikeTrace) -> Result<(), StoreError> {
        let name = note_name(Path::new(&trace.path));
        let traces = self.folder(TRACES_FOLDER);
        traces.write_atomically(&name, &to_json(&traces.path().join(&name), trace)?)
    }

    /// The path of a trace below the run.
    pub fn trace_name(trace: &Path) -> PathBuf {
        Path::new(TRACES_FOLDER).join(trace.file_name().unwrap_or_default())
    }

    /// Removes the metadata of a trace that was removed.
    pub fn remove_trace_note(&self, trace: &Path) -> Result<(), StoreError> {
        self.folder(TRACES_FOLDER).remove(note_name(trace))
    }
}

/// Name of the file with the metadata of a trace.
fn note_name(trace: &Path) -> String {
    let path = trace.with_extension(METADATA);
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// The files in the folder of traces, as paths below the run, sorted.
fn files(run: &Folder) -> impl Iterator<Item = String> {
    let names = run.enter(TRACES_FOLDER).and_then(|folder| folder.names()).into_iter().flatten();
    names.filter_map(|name| name.into_string().ok()).map(|name| format!("{TRACES_FOLDER}/{name}"))
}

fn is_note(name: &str) -> bool {
    Path::new(name).extension().is_some_and(|ending| ending == METADATA)
}

/// The files with metadata, as paths below the run, sorted.
pub(crate) fn notes(run: &Folder) -> Vec<String> {
    files(run).filter(|name| is_note(name)).collect()
}

/// The traces that a run kept, as paths below it, sorted.
pub fn kept_traces(run: &Folder) -> Vec<String> {
    let is_file = |name: &String| run.find(name).is_some_and(|it| !it.is_folder);
    files(run).filter(|name| !is_note(name)).filter(is_file).collect()
}

/// The metadata of a run's traces, largest latency first, and warnings about unreadable ones. Metadata without a
/// trace does not count: the trace was removed, or the run was killed in between.
pub(crate) fn read(run: &Folder) -> (Vec<SpikeTrace>, Vec<Warning>) {
    let (mut traces, mut warnings) = (Vec::new(), Vec::new());
    for name in notes(run) {
        let (file, trace) = (run.path().join(&name), Path::new(&name).with_extension("dat"));
        let read = run.read_up_to(&name, NOTE_BYTES_MAX).map_err(serde_json::Error::io);
        match read.and_then(|text| serde_json::from_slice::<SpikeTrace>(&text.unwrap_or_default())) {
            // The path in the metadata is not trusted.
            Ok(note) if run.find(&trace).is_some_and(|it| !it.is_folder) => traces.push(note),
            Ok(_) => {
                let text = format!("{} is left out, because its trace is missing", file.display());
                warnings.push(Warning::new(WarningCode::AlteredFile, text));
            }
            Err(error) => {
                let text = format!("cannot read the metadata of a trace, {}: {error}", file.display());
                warnings.push(Warning::new(WarningCode::UnreadableTraceNote, text));
            }
        }
    }
    traces.order_by_key(|trace| std::cmp::Reverse(trace.latency_ns));
    (traces, warnings)
}
