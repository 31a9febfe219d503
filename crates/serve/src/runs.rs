//! The runs of the folder, by name.

use crate::error::Refusal;
use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use whylate_core::result::RunSummary;
use whylate_store::{Folder, RunList, VerdictCache};

/// The longest age of the list: a thousand runs are not read again for each of a hundred readers.
const AGE_MAX: Duration = Duration::from_millis(500);
/// The same if the requested run is not in it.
const AGE_OF_UNKNOWN_MAX: Duration = Duration::from_millis(20);
/// The number of searches whose pages are kept.
const PAGES_MAX: usize = 32;

/// The list, which is read again when it is old.
#[derive(Debug)]
pub(crate) struct Runs {
    folder: Folder,
    read: Mutex<Read>,
}

#[derive(Debug, Default)]
struct Read {
    list: RunList,
    at: Option<Instant>,
    runs: Vec<RunSummary>,
    /// Pages of the list, by search.
    pages: HashMap<String, Arc<str>>,
}

impl Read {
    fn refresh(&mut self, folder: &Folder, age_max: Duration) {
        if self.at.is_some_and(|at| at.elapsed() < age_max) {
            return;
        }
        let runs = self.list.read(folder);
        if runs != self.runs {
            self.pages.clear();
        }
        (self.runs, self.at) = (runs, Some(Instant::now()));
    }
}

impl Runs {
    pub(crate) fn new(folder: Folder, cache: Option<VerdictCache>) -> Self {
        Self { folder, read: Mutex::new(Read { list: RunList::with(cache), ..Read::default() }) }
    }

    pub(crate) fn folder(&self) -> &Folder {
        &self.folder
    }

    /// All runs, the newest first.
    pub(crate) fn all(&self) -> Vec<RunSummary> {
        self.fresh(AGE_MAX).runs.clone()
    }

    fn fresh(&self, age_max: Duration) -> MutexGuard<'_, Read> {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        read.refresh(&self.folder, age_max);
        read
    }

    /// The page of the list for a search, cached while no run changes.
    pub(crate) fn page(
        &self,
        search: &str,
        make: impl FnOnce(Vec<RunSummary>) -> Result<String, Refusal>,
    ) -> Result<Arc<str>, Refusal> {
        let mut read = self.fresh(AGE_MAX);
        if let Some(page) = read.pages.get(search) {
            return Ok(page.clone());
        }
        let page: Arc<str> = make(read.runs.clone())?.into();
        if read.pages.len() >= PAGES_MAX {
            read.pages.clear();
        }
        read.pages.insert(search.to_owned(), page.clone());
        Ok(page)
    }

    /// The directory of a run, by its name in the list; includes one that has just begun.
    pub(crate) fn find(&self, name: &str) -> Result<Folder, Refusal> {
        let is_in =
            |age_max| self.fresh(age_max).runs.iter().any(|run| name_of(Path::new(&run.path)) == name);
        let found = is_in(AGE_MAX) || is_in(AGE_OF_UNKNOWN_MAX);
        let opened = found.then(|| self.folder.enter(name).ok()).flatten();
        opened.ok_or_else(|| Refusal::NoRun(name.to_owned()))
    }
}

/// The name of a run in addresses.
pub(crate) fn name_of(run: &Path) -> String {
    run.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}
