//! Verdicts that earlier lists found, in a file of the user: a list then reads each run only once.
//!
//! A line is a digest, and a verdict with figures as JSON. The digest covers the manifest of the run and the stamps of all
//! its files (inode, length, times of the last write and change), so that a changed or exchanged file gives another digest.
//! The clock of a file system ticks in steps: a run that was changed in the last seconds is not cached.

use crate::error::StoreError;
use crate::folder::{Folder, Found};
use crate::manifest;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::io::Write as _;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};
use whylate_core::result::{RunFigures, RunResult, Verdict};

const FILE: &str = "verdicts";
/// With more lines than this, only the newer half stays.
const LINES_MAX: usize = 1 << 14;
const BYTES_MAX: u64 = 1 << 22;
/// Other versions may judge differently.
const VERSION: &str = concat!("whylate.verdicts/2 ", env!("CARGO_PKG_VERSION"));
/// The age that the last change of a run must have.
const SETTLED_S: i64 = 2;

/// The part of a result that a list shows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Judged {
    pub(crate) verdict: Verdict,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) figures: Option<RunFigures>,
}

impl Judged {
    pub(crate) fn of(run: &RunResult) -> Self {
        Self { verdict: run.verdict, figures: RunFigures::of(run) }
    }
}

/// Results of earlier lists. A cache that cannot be read or written behaves like an empty one.
#[derive(Debug)]
pub struct VerdictCache {
    folder: Folder,
    known: HashMap<String, Judged>,
    found: Mutex<Vec<String>>,
}

impl VerdictCache {
    /// The cache in a folder, which is made if it is missing.
    ///
    /// # Errors
    /// If the folder cannot be made, or another user can write in it.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let (above, name) = Folder::above(path)?;
        let folder = above.subfolder(&name)?;
        if !above.is_own() || !folder.is_own() {
            return Err(StoreError::OpenToAll(path.to_owned()));
        }
        let text = folder.read_up_to(FILE, BYTES_MAX).ok().flatten().unwrap_or_default();
        let lines: Vec<(String, Judged)> = String::from_utf8_lossy(&text).lines().filter_map(parse).collect();
        let it = Self { folder, known: HashMap::new(), found: Mutex::default() };
        if lines.len() > LINES_MAX {
            let kept: String = lines[lines.len() / 2..].iter().map(|(digest, of)| line(digest, of)).collect();
            it.folder.write_atomically(FILE, kept.as_bytes())?;
        }
        Ok(Self { known: lines.into_iter().collect(), ..it })
    }

    /// That of a run with these files.
    pub(crate) fn find(&self, digest: &str) -> Option<Judged> {
        self.known.get(digest).cloned()
    }

    /// Notes what [`Self::save`] writes.
    pub(crate) fn note(&self, digest: &str, files: &[Found], judged: &Judged) {
        if is_settled(files, SystemTime::now()) {
            self.found.lock().unwrap_or_else(PoisonError::into_inner).push(line(digest, judged));
        }
    }

    /// Writes the new verdicts. Without this the next list is slower.
    pub(crate) fn save(&mut self) {
        let found = std::mem::take(self.found.get_mut().unwrap_or_else(PoisonError::into_inner));
        if found.is_empty() {
            return;
        }
        self.known.extend(found.iter().filter_map(|line| parse(line.trim_end())));
        // In one write: another list may add its own lines.
        let text = found.concat();
        _ = self.folder.append(FILE).map(|mut file| file.write_all(text.as_bytes()));
    }
}

/// The digest of a run with these files; `None` without a manifest.
pub(crate) fn digest(run: &Folder, files: &[Found]) -> Option<String> {
    let manifest = run.read(manifest::FILE).ok()??;
    let files: String = files.iter().map(|it| format!("{:?} {:?}\n", it.name, it.stamp)).collect();
    let owners = format!("{:?}", run.owners());
    Some(manifest::sha256(&[VERSION.as_bytes(), owners.as_bytes(), &manifest, files.as_bytes()]))
}

fn is_settled(files: &[Found], now: SystemTime) -> bool {
    let now_s = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64);
    // Times of the last writing and of the last change.
    files.iter().all(|it| it.stamp[3].max(it.stamp[5]).saturating_add(SETTLED_S) < now_s)
}

/// Empty where it cannot be written.
fn line(digest: &str, judged: &Judged) -> String {
    serde_json::to_string(judged).map(|judged| format!("{digest} {judged}\n")).unwrap_or_default()
}

fn parse(line: &str) -> Option<(String, Judged)> {
    let (digest, judged) = line.split_once(' ')?;
    let is_digest = digest.len() == 64 && digest.bytes().all(|it| it.is_ascii_hexdigit());
    let judged = serde_json::from_str(judged).ok()?;
    is_digest.then(|| (digest.to_owned(), judged))
}
