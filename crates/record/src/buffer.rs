//! A trace buffer of our own: an instance of tracefs, so that other users of tracing are not disturbed.
//!
//! The mount of tracefs, if whylate makes it, and the folder of the instance are in the journal: what a killed
//! recording left is removed by `whylate treat restore`, or by the next recording. Settings in the folder are removed
//! with it.

use super::error::RecordError;
use super::tracefs::{PLACES, Tracefs};
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use whylate_core::Warning;
use whylate_host::HostRoot;
use whylate_treat::{Change, Guard, Holder, JournalPlace, Target};

/// A trace buffer that exists until it is dropped.
#[derive(Debug)]
pub(super) struct Buffer {
    tracefs: Tracefs,
    folder: PathBuf,
    guard: Guard,
}

impl Buffer {
    /// Makes one, with tracing off in it. Only one for each purpose can exist at a time; its journal has the same
    /// name.
    pub(super) fn create(host: &HostRoot, purpose: &str) -> Result<Self, RecordError> {
        let holder = Holder::this_process(purpose, None, false, host);
        let place = JournalPlace::of_this_machine(purpose);
        let mut guard = Guard::begin(&place, host, holder).map_err(RecordError::Journal)?;
        let tracefs = mounted(host, &mut guard)?;
        let name = format!("whylate-{purpose}-{}", std::process::id());
        let folder = tracefs.top().join("instances").join(name);
        let target = Target::Directory { path: folder.display().to_string() };
        let change = Change::required(target, Target::PRESENT, "a trace buffer of its own");
        guard.apply("trace", &[change]).map_err(RecordError::Journal)?;
        let buffer = Self { tracefs, folder, guard };
        buffer.set("tracing_on", "0")?;
        Ok(buffer)
    }

    pub(super) fn tracefs(&self) -> &Tracefs {
        &self.tracefs
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Changes settings that all buffers share; undone with the buffer. The warnings are about optional changes that
    /// could not be made.
    pub(super) fn change_shared(&mut self, changes: &[Change]) -> Result<Vec<Warning>, RecordError> {
        self.guard.apply("trace", changes).map_err(RecordError::Journal)
    }

    /// Writes one value to a file of the buffer.
    pub(super) fn set(&self, file: &str, value: &str) -> Result<(), RecordError> {
        let path = self.folder.join(file);
        fs::write(&path, value).map_err(|source| RecordError::Write { path, value: value.to_owned(), source })
    }

    /// Adds one value to a list that is a file of the buffer; writing it otherwise replaces the list.
    pub(super) fn add(&self, file: &str, value: &str) -> std::io::Result<()> {
        fs::OpenOptions::new().append(true).open(self.folder.join(file))?.write_all(value.as_bytes())
    }

    /// Removes the buffer and restores what was changed.
    pub(super) fn remove(mut self) -> Result<(), RecordError> {
        self.stop_all();
        match self.guard.undo().problems().as_slice() {
            [] => Ok(()),
            problems => Err(RecordError::LeftBehind(problems.join("; "))),
        }
    }

    /// Stops everything in the buffer, so that nothing keeps it busy.
    fn stop_all(&self) {
        for (file, value) in [("tracing_on", "0"), ("events/enable", "0"), ("current_tracer", "nop")] {
            // The buffer is removed next; that reports the error.
            let _ = self.set(file, value);
        }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // The guard, dropped after this, removes the folder.
        self.stop_all();
    }
}

/// tracefs, mounted for the time of the guard if it is not mounted.
fn mounted(host: &HostRoot, guard: &mut Guard) -> Result<Tracefs, RecordError> {
    let missing = match Tracefs::find(host) {
        Ok(tracefs) => return Ok(tracefs),
        Err(error) => error,
    };
    if !Tracefs::is_known(host) {
        return Err(missing);
    }
    let target = Target::Mount {
        path: PLACES[0].to_owned(),
        filesystem: "tracefs".to_owned(),
        options: String::new(),
    };
    let change = Change::required(target, Target::PRESENT, "tracefs for the recording");
    match guard.apply("trace", &[change]) {
        Ok(_) => Tracefs::find(host),
        // First what is missing, then why it could not be mounted (usually a container).
        Err(error) => Err(RecordError::Unavailable(format!("{missing} ({error})"))),
    }
}
