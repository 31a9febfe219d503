//! The runs of a folder, and the words that a user gives them.
//!
//! A list reads `run.json`, the verdict of `result.json` and `labels.json` of each run, and no table. Labels are the
//! user's: they are not part of what was measured, and the manifest does not name them.

use crate::directory::{LOADS_FOLDER, RESULT_FILE, TREATMENTS_FILE, is_being_written};
use crate::error::{At as _, StoreError};
use crate::folder::{Folder, TEMPORARY_SUFFIX};
use crate::info::INFO_FILE;
use crate::reader::threads;
use crate::tables::NAMES;
use crate::traces::TRACES_FOLDER;
use crate::{fix, latency_records, manifest};
use serde::de::{Deserializer as _, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fmt;
use std::fs;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use whylate_core::result::{LIVE_SOCKET, RunState, RunSummary, Verdict};

const LABELS: &str = "labels.json";
/// whylate does not write larger files.
const LABELS_MAX: u64 = 1 << 20;

/// What a user says of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Labels {
    /// Words, sorted.
    #[serde(default)]
    pub tags: Vec<String>,
    #[serde(default)]
    pub note: Option<String>,
}

impl Labels {
    /// Those of a run; none where there are none.
    ///
    /// # Errors
    /// A file that is not of this form.
    pub fn read(run: &Path) -> Result<Self, StoreError> {
        let path = run.join(LABELS);
        let is_small = fs::symlink_metadata(&path).is_ok_and(|it| it.is_file() && it.len() <= LABELS_MAX);
        if !is_small {
            return Ok(Self::default());
        }
        let text = fs::read(&path).at("read", &path)?;
        serde_json::from_slice(&text).map_err(|error| StoreError::BadInfo(path, error))
    }

    /// Replaces those that were there.
    pub fn write(&self, run: &Path) -> Result<(), StoreError> {
        require_run(run)?;
        let text = serde_json::to_vec_pretty(self)
            .map_err(|error| StoreError::Encode(run.join(LABELS), error.to_string()))?;
        let folder = Folder::open(run)?;
        folder.check_owner()?;
        folder.write_atomically(LABELS, &text)
    }
}

/// Deletes a run. What somebody else put into its folder stays there, and is returned by name.
///
/// # Errors
/// [`StoreError::NotARun`] for another folder, a link or a file; [`StoreError::Busy`] while it is written.
pub fn remove(run: &Path) -> Result<Vec<String>, StoreError> {
    require_run(run)?;
    if Folder::open(run)?.is_held() {
        return Err(StoreError::Busy(run.to_owned()));
    }
    let mut kept = Vec::new();
    for entry in fs::read_dir(run).at("read", run)? {
        let entry = entry.at("read", run)?;
        let (name, path) = (entry.file_name().to_string_lossy().into_owned(), entry.path());
        let is_folder = entry.file_type().at("read", &path)?.is_dir();
        match (is_of_a_run(&name), is_folder) {
            (true, true) => fs::remove_dir_all(&path).at("remove", &path)?,
            // The last: until then it is a run, and can be removed again.
            (true, false) if name == INFO_FILE => {}
            (true, false) => fs::remove_file(&path).at("remove", &path)?,
            (false, _) => kept.push(name),
        }
    }
    fs::remove_file(run.join(INFO_FILE)).at("remove", run)?;
    if kept.is_empty() {
        fs::remove_dir(run).at("remove", run)?;
    }
    kept.sort_unstable();
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

/// Refuses what is not a run directory, and a link to one.
pub fn require_run(run: &Path) -> Result<(), StoreError> {
    let is_folder = fs::symlink_metadata(run).is_ok_and(|it| it.is_dir());
    if is_folder && run.join(INFO_FILE).is_file() { Ok(()) } else { Err(StoreError::NotARun(run.to_owned())) }
}

/// Only what a list needs of `run.json`.
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

/// The runs in a folder, the newest first. What is not a run is left out, and so is one that cannot be read.
pub fn list(folder: &Path) -> Vec<RunSummary> {
    RunList::default().read(folder)
}

/// When the files of a run that a list shows were written.
type Stamp = [Option<SystemTime>; 3];

/// The runs in a folder, of which only those that have changed are read again.
#[derive(Debug, Default)]
pub struct RunList(HashMap<PathBuf, (Stamp, RunSummary)>);

impl RunList {
    /// As [`list`].
    pub fn read(&mut self, folder: &Path) -> Vec<RunSummary> {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        // Links may lead out of the folder.
        let folders = entries.filter(|entry| entry.file_type().is_ok_and(|it| it.is_dir()));
        let mut known = std::mem::take(&mut self.0);
        let mut changed: Vec<(PathBuf, Stamp)> = Vec::new();
        for path in folders.map(|entry| entry.path()) {
            let stamp = [INFO_FILE, RESULT_FILE, LABELS]
                .map(|name| fs::symlink_metadata(path.join(name)).and_then(|it| it.modified()).ok());
            match known.remove(&path) {
                Some((former, summary)) if former == stamp => {
                    self.0.insert(path, (stamp, summary));
                }
                _ => changed.push((path, stamp)),
            }
        }
        self.0.extend(read_all(&changed));
        let mut runs: Vec<RunSummary> = self.0.values().map(|(_, summary)| summary.clone()).collect();
        for run in runs.iter_mut().filter(|run| run.state == RunState::Running) {
            run.running = is_being_written(Path::new(&run.path));
        }
        runs.sort_by(|a, b| (&b.started_at, &b.path).cmp(&(&a.started_at, &a.path)));
        runs
    }
}

/// Reads runs with all CPUs; those that cannot be read are left out.
fn read_all(runs: &[(PathBuf, Stamp)]) -> Vec<(PathBuf, (Stamp, RunSummary))> {
    let threads = threads();
    let one = |(path, stamp): &(PathBuf, Stamp)| Some((path.clone(), (*stamp, summary(path)?)));
    let read = |part: &[(PathBuf, Stamp)]| part.iter().filter_map(one).collect::<Vec<_>>();
    std::thread::scope(|scope| {
        let begin = |part| (part, std::thread::Builder::new().spawn_scoped(scope, move || read(part)).ok());
        let parts: Vec<_> = runs.chunks(runs.len().div_ceil(threads).max(1)).map(begin).collect();
        // Where there is too little memory for another thread, this one reads.
        let of_part = |(part, thread): (_, Option<std::thread::ScopedJoinHandle<'_, Vec<_>>>)| {
            thread.and_then(|thread| thread.join().ok()).unwrap_or_else(|| read(part))
        };
        parts.into_iter().flat_map(of_part).collect()
    })
}

/// The verdict of a result: it stands before what is long, and nothing behind it is read.
fn verdict(path: &Path) -> Option<Verdict> {
    let mut found = None;
    let mut result = serde_json::Deserializer::from_reader(BufReader::new(fs::File::open(path).ok()?));
    // What is left of the result is an error to serde, and none to a list.
    let _ = result.deserialize_map(UntilVerdict(&mut found));
    found
}

/// Reads the fields of a result until its verdict.
struct UntilVerdict<'found>(&'found mut Option<Verdict>);

impl<'de> Visitor<'de> for UntilVerdict<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a result")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<(), A::Error> {
        while let Some(name) = fields.next_key::<String>()? {
            if name == "verdict" {
                *self.0 = Some(fields.next_value()?);
                break;
            }
            fields.next_value::<IgnoredAny>()?;
        }
        Ok(())
    }
}

fn summary(path: &Path) -> Option<RunSummary> {
    let head: Head = serde_json::from_slice(&fs::read(path.join(INFO_FILE)).ok()?).ok()?;
    let labels = Labels::read(path).unwrap_or_default();
    Some(RunSummary {
        path: path.display().to_string(),
        plan: head.plan.name,
        started_at: head.started_at,
        state: head.state,
        running: false,
        verdict: verdict(&path.join(RESULT_FILE)),
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
    use std::time::Duration;
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
        assert_eq!(Labels::read(&old).unwrap(), labels);
        let found = list(folder.path());
        let told: Vec<(&str, &[String])> = found.iter().map(|it| (it.path.as_str(), &*it.tags)).collect();
        assert_eq!(told, [(new.to_str().unwrap(), &[][..]), (old.to_str().unwrap(), &labels.tags[..])]);
        // A run with labels reads as one without.
        assert!(crate::Reader::open(&old).unwrap().warnings().is_empty());
        remove(&old).unwrap();
        assert_eq!(list(folder.path()).len(), 1);
    }

    #[test]
    fn nothing_is_read_behind_the_verdict() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let read = |text: &str| {
            fs::write(file.path(), text).unwrap();
            verdict(file.path())
        };
        assert_eq!(
            read(r#"{"plan": {"verdict": "fail"}, "verdict": "pass", "cells": [{"#),
            Some(Verdict::Pass)
        );
        assert_eq!(read(r#"{"plan": {"verdict": "fail"}}"#), None);
        assert_eq!(read("[]"), None);
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
    fn what_others_put_into_a_run_stays() {
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
