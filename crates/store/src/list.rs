//! The runs of a folder, and the labels that a user gives them.
//!
//! A list shows the same verdict as a report. The verdict that the manifest seals counts if every file has the digest
//! that the manifest lists; otherwise the run is read, and a [`VerdictCache`] can keep the result. Labels belong to
//! the user: they are not part of the measurement, and the manifest does not list them.

use crate::assemble::assemble;
use crate::directory::{LOADS_FOLDER, RESULT_FILE, TREATMENTS_FILE};
use crate::error::{At as _, StoreError};
use crate::folder::{Folder, Found, Owners, PARSED_MAX, TEMPORARY_SUFFIX};
use crate::info::INFO_FILE;
use crate::reader::{Reader, require_folder, threads};
use crate::tables::NAMES;
use crate::traces::TRACES_FOLDER;
use crate::verdicts::{Judged, VerdictCache, digest};
use crate::{fix, latency_records, manifest};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use whylate_core::order::InOrder;
use whylate_core::result::{LIVE_SOCKET, RunFigures, RunResult, RunState, RunSummary};

const LABELS: &str = "labels.json";
/// The largest file that whylate writes.
const LABELS_MAX: u64 = 1 << 20;

/// A user's labels for a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Labels {
    /// Words, sorted.
    #[serde(default)]
    pub tags: Vec<String>,
    #[serde(default)]
    pub note: Option<String>,
}

impl Labels {
    /// The labels of a run; empty if there are none.
    ///
    /// # Errors
    /// If the file does not have this form.
    pub fn read(run: &Folder) -> Result<Self, StoreError> {
        let path = run.path().join(LABELS);
        let Some(text) = run.read_up_to(LABELS, LABELS_MAX).at("read", &path)? else {
            return Ok(Self::default());
        };
        serde_json::from_slice(&text).map_err(|error| StoreError::BadInfo(path, error))
    }

    /// Replaces the existing labels.
    pub fn write(&self, run: &Path) -> Result<(), StoreError> {
        require_run(run)?;
        let text = serde_json::to_vec_pretty(self)
            .map_err(|error| StoreError::Encode(run.join(LABELS), error.to_string()))?;
        Folder::writable(run)?.write_atomically(LABELS, &text)
    }
}

/// Deletes a run. Files that others put into its folder stay, and their names are returned.
///
/// # Errors
/// [`StoreError::NotARun`] for another folder, a link or a file; [`StoreError::Busy`] while a process writes to it.
pub fn remove(run: &Path) -> Result<Vec<String>, StoreError> {
    let (above, name, folder) = within(run)?;
    if folder.is_held() {
        return Err(StoreError::Busy(run.to_owned()));
    }
    let mut kept = Vec::new();
    for name in folder.names().at("read", run)? {
        match name.to_str() {
            // Removed last: until then it is a run, and can be removed again.
            Some(INFO_FILE) => {}
            Some(own) if is_of_a_run(own) => folder.remove_all(Path::new(own))?,
            _ => kept.push(name.to_string_lossy().into_owned()),
        }
    }
    folder.remove(INFO_FILE)?;
    if kept.is_empty() {
        above.remove_folder(Path::new(&name))?;
    }
    Ok(kept)
}

/// Whether a run has a file or folder of this name.
fn is_of_a_run(name: &str) -> bool {
    let files = [INFO_FILE, RESULT_FILE, LABELS, TREATMENTS_FILE, LIVE_SOCKET];
    let (lines, folders) =
        ([manifest::FILE, fix::FILE, latency_records::FILE], [TRACES_FOLDER, LOADS_FOLDER]);
    let name = name.strip_suffix(TEMPORARY_SUFFIX).unwrap_or(name);
    files.contains(&name) || lines.contains(&name) || folders.contains(&name) || NAMES.contains(&name)
}

/// Refuses anything but a run directory, and a link to one.
pub fn require_run(run: &Path) -> Result<(), StoreError> {
    within(run).map(drop)
}

/// The folder that contains a run, the run's name there, and its own folder.
fn within(run: &Path) -> Result<(Folder, OsString, Folder), StoreError> {
    let not_a_run = || StoreError::NotARun(run.to_owned());
    let path = std::path::absolute(run).at("find", run)?;
    let (above, name) = path.parent().zip(path.file_name()).ok_or_else(not_a_run)?;
    let above = require_folder(above)?;
    let folder = above.enter(name).ok().filter(has_info).ok_or_else(not_a_run)?;
    Ok((above, name.to_owned(), folder))
}

/// Whether it is a run directory, or a link to one.
pub fn is_run(path: &Path) -> bool {
    Folder::open(path).is_ok_and(|folder| has_info(&folder))
}

fn has_info(folder: &Folder) -> bool {
    folder.find(INFO_FILE).is_some_and(|it| !it.is_folder)
}

/// The fields of `run.json` that a list needs.
#[derive(Deserialize)]
struct Head {
    started_at: String,
    state: RunState,
    plan: PlanName,
    facts: Machine,
}

#[derive(Deserialize)]
struct PlanName {
    name: String,
}

#[derive(Deserialize)]
struct Machine {
    #[serde(default)]
    host: String,
    #[serde(default)]
    kernel: Release,
}

#[derive(Default, Deserialize)]
struct Release {
    #[serde(default)]
    release: String,
}

/// The runs in a folder, the newest first. Other folders are left out, and so are runs that cannot be read.
pub fn list(folder: &Path, cache: Option<VerdictCache>) -> Vec<RunSummary> {
    Folder::open(folder).map_or_else(|_| Vec::new(), |folder| RunList::with(cache).read(&folder))
}

/// The path of the newest run in a folder.
pub fn newest(folder: &Path) -> Option<PathBuf> {
    let folder = Folder::open(folder).ok()?;
    let runs = folder.names().ok()?.into_iter().filter_map(|name| folder.enter(name).ok());
    let newest = runs.filter_map(|run| Some((head(&run)?.started_at, run.path().to_owned()))).max()?;
    Some(newest.1)
}

/// How many runs in a folder belong neither to the user of this process nor to root.
pub fn foreign_runs(folder: &Folder) -> usize {
    let runs = folder.names().unwrap_or_default().into_iter().filter_map(|name| folder.enter(name).ok());
    runs.filter(|run| has_info(run) && run.clone().only(Owners::OwnAndRoot).is_err()).count()
}

/// The longest time between looks at all files of a run; the files that a list shows are checked each time.
const FULL_LOOK: Duration = Duration::from_secs(5);

/// The cached facts about a run.
#[derive(Debug)]
struct Known {
    /// Stamps of the files that a list shows, and of all files.
    stamps: (Vec<Found>, Vec<Found>),
    looked_at: Instant,
    summary: RunSummary,
}

/// The runs in a folder; only those that have changed are read again.
#[derive(Debug, Default)]
pub struct RunList {
    known: HashMap<OsString, Known>,
    cache: Option<VerdictCache>,
}

impl RunList {
    /// A list that takes verdicts from a cache and adds to it.
    pub fn with(cache: Option<VerdictCache>) -> Self {
        Self { known: HashMap::new(), cache }
    }

    /// As [`list`].
    pub fn read(&mut self, folder: &Folder) -> Vec<RunSummary> {
        let names = folder.names().unwrap_or_default();
        // Links may lead out of the folder.
        let runs: Vec<(OsString, Folder)> =
            names.into_iter().filter_map(|name| Some((name.clone(), folder.enter(&name).ok()?))).collect();
        let mut known = std::mem::take(&mut self.known);
        let runs: Vec<_> = runs.into_iter().map(|(name, run)| (known.remove(&name), name, run)).collect();
        let cache = self.cache.as_ref();
        self.known = each(runs, |(known, name, run)| {
            let known = known.filter(|known| known.is_current(&run)).or_else(|| Known::of(&run, cache))?;
            Some((name, known))
        });
        self.cache.iter_mut().for_each(VerdictCache::save);
        let mut runs: Vec<RunSummary> = self.known.values().map(|known| known.summary.clone()).collect();
        runs.order_by(|a, b| (&b.started_at, &b.path).cmp(&(&a.started_at, &a.path)));
        runs
    }
}

impl Known {
    fn of(run: &Folder, cache: Option<&VerdictCache>) -> Option<Self> {
        // Taken first: later changes are seen the next time.
        let stamps = (shown(run), run.tree().ok()?);
        let judged = match cache.filter(|_| !run.is_held()) {
            Some(cache) => known_judged(run, &stamps.1, cache),
            None => judged(run),
        };
        Some(Self { looked_at: Instant::now(), summary: summary(run, judged)?, stamps })
    }

    fn is_current(&self, run: &Folder) -> bool {
        let is_same =
            || self.looked_at.elapsed() < FULL_LOOK || run.tree().is_ok_and(|it| it == self.stamps.1);
        // A run that is being written to, or no longer is.
        let is_running = self.summary.state == RunState::Running;
        shown(run) == self.stamps.0 && is_same() && (!is_running || self.summary.running == run.is_held())
    }
}

/// The files of a run that a list shows, and its folder, which shows that files were made or removed.
fn shown(run: &Folder) -> Vec<Found> {
    [".", INFO_FILE, manifest::FILE, RESULT_FILE, LABELS].iter().filter_map(|name| run.find(name)).collect()
}

/// Maps each item, on all CPUs.
fn each<T: Send, R: Send, C: FromIterator<R>>(all: Vec<T>, make: impl Fn(T) -> Option<R> + Sync) -> C {
    let (made, left) = (Mutex::new(Vec::new()), Mutex::new(all));
    let work = || {
        while let Some(one) = left.lock().unwrap_or_else(PoisonError::into_inner).pop() {
            let one = make(one);
            made.lock().unwrap_or_else(PoisonError::into_inner).extend(one);
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads() {
            // With too little memory for another thread, this one does all the work.
            _ = std::thread::Builder::new().spawn_scoped(scope, work);
        }
        work();
    });
    made.into_inner().unwrap_or_else(PoisonError::into_inner).into_iter().collect()
}

/// The verdict and the figures of a report: the sealed ones if every file matches the manifest; otherwise the run is read.
fn judged(run: &Folder) -> Option<Judged> {
    let reader = Reader::of(run.clone()).ok().filter(|reader| !reader.is_in_progress())?;
    match reader.sealed_verdict() {
        Some(verdict) => Some(Judged { verdict, figures: sealed_figures(run) }),
        None => assemble(&reader).ok().map(|result| Judged::of(&result)),
    }
}

fn sealed_figures(run: &Folder) -> Option<RunFigures> {
    let text = run.read_up_to(RESULT_FILE, PARSED_MAX).ok()??;
    RunFigures::of(&serde_json::from_slice::<RunResult>(&text).ok()?)
}

/// The same, read only if no list has found it before.
fn known_judged(run: &Folder, files: &[Found], cache: &VerdictCache) -> Option<Judged> {
    let digest = digest(run, files);
    let known = digest.as_ref().and_then(|digest| cache.find(digest));
    known.or_else(|| {
        let judged = judged(run)?;
        digest.inspect(|digest| cache.note(digest, files, &judged));
        Some(judged)
    })
}

fn head(run: &Folder) -> Option<Head> {
    serde_json::from_slice(&run.read_up_to(INFO_FILE, PARSED_MAX).ok()??).ok()
}

fn summary(run: &Folder, judged: Option<Judged>) -> Option<RunSummary> {
    let head = head(run)?;
    let (verdict, figures) = judged.map(|it| (it.verdict, it.figures)).unzip();
    let labels = Labels::read(run).unwrap_or_default();
    Some(RunSummary {
        path: run.path().display().to_string(),
        plan: head.plan.name,
        started_at: head.started_at,
        state: head.state,
        running: head.state == RunState::Running && run.is_held(),
        verdict,
        figures: figures.flatten(),
        host: head.facts.host,
        kernel: head.facts.kernel.release,
        tags: labels.tags,
        note: labels.note,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::info::RunInfo;
    use std::fs;
    use std::time::SystemTime;
    use whylate_core::Facts;
    use whylate_core::plan::{Plan, Source};

    fn run(folder: &Path, name: &str, age: u64) -> PathBuf {
        let text = "name = \"quick\"\nduration = \"1s\"\n[target]\ncpus = \"0\"\n[[probe]]\nkind = \"timer\"\n[[cell]]\n";
        let plan = Plan::parse(&Source { name: "test", text }, &[]).unwrap();
        let path = folder.join(name);
        let started = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000 - age);
        let info = RunInfo::new(name, started, plan, Facts::default());
        drop(crate::RunDirectory::create(&path, &info).unwrap());
        path
    }

    #[test]
    fn the_newest_is_first_and_labels_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let (old, new) = (run(folder.path(), "a", 100), run(folder.path(), "b", 1));
        fs::create_dir(folder.path().join("no-run")).unwrap();
        std::os::unix::fs::symlink("/", folder.path().join("link")).unwrap();
        let labels = Labels { tags: vec!["before".to_owned()], note: Some("a new kernel".to_owned()) };
        labels.write(&old).unwrap();
        assert_eq!(Labels::read(&Folder::open(&old).unwrap()).unwrap(), labels);
        let found = list(folder.path(), None);
        let listed: Vec<(&str, &[String])> = found.iter().map(|it| (it.path.as_str(), &*it.tags)).collect();
        assert_eq!(listed, [(new.to_str().unwrap(), &[][..]), (old.to_str().unwrap(), &labels.tags[..])]);
        // A run with labels reads as one without.
        assert!(Reader::open(&old).unwrap().warnings().is_empty());
        remove(&old).unwrap();
        assert_eq!(list(folder.path(), None).len(), 1);
    }

    #[test]
    fn only_runs_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = run(folder.path(), "a", 1);
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(matches!(remove(&link), Err(StoreError::NotARun(_))));
        assert!(matches!(remove(folder.path()), Err(StoreError::NotARun(_))));
        assert!(path.join("run.json").is_file());
    }

    #[test]
    fn files_that_others_put_into_a_run_stay() {
        let folder = tempfile::tempdir().unwrap();
        let path = run(folder.path(), "a", 1);
        fs::create_dir(path.join("pictures")).unwrap();
        fs::write(path.join("notes.txt"), "mine").unwrap();
        fs::write(path.join("run.json.tmp"), "{").unwrap();
        assert_eq!(remove(&path).unwrap(), ["notes.txt", "pictures"]);
        let left = fs::read_dir(&path).unwrap().count();
        assert_eq!((left, fs::read(path.join("notes.txt")).unwrap()), (2, b"mine".to_vec()));
        let other = run(folder.path(), "b", 1);
        assert_eq!(remove(&other).unwrap(), [""; 0]);
        assert!(!other.exists());
    }
}
