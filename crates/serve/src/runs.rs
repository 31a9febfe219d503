//! The runs of the folder, by name.

use crate::error::Refusal;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use whylate_core::result::RunSummary;
use whylate_store::RunList;

/// So old may the list be: a thousand runs are not read again for each of a hundred readers.
const AGE_MAX: Duration = Duration::from_millis(500);

/// The list, which is read again when it is old.
#[derive(Debug)]
pub(crate) struct Runs {
    folder: PathBuf,
    read: Mutex<Read>,
}

#[derive(Debug, Default)]
struct Read {
    list: RunList,
    at: Option<Instant>,
    runs: Vec<RunSummary>,
}

impl Runs {
    pub(crate) fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), read: Mutex::default() }
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The newest first.
    pub(crate) fn all(&self) -> Vec<RunSummary> {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if read.at.is_none_or(|at| at.elapsed() >= AGE_MAX) {
            read.runs = read.list.read(&self.folder);
            read.at = Some(Instant::now());
        }
        read.runs.clone()
    }

    /// The directory of a run, by its name in the list.
    pub(crate) fn find(&self, name: &str) -> Result<PathBuf, Refusal> {
        let found =
            self.all().into_iter().map(|run| PathBuf::from(run.path)).find(|path| name_of(path) == name);
        found.ok_or_else(|| Refusal::NoRun(name.to_owned()))
    }
}

/// What a run is called in addresses.
pub(crate) fn name_of(run: &Path) -> String {
    run.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}
