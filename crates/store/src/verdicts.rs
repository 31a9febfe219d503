//! Verdicts that lists have found before, in a file of the user: a list reads each run once.
//!
//! A line is a digest and a verdict. The digest is over the manifest of the run and the stamps of all its files (inode, length,
//! times of the last writing and change), so that a run with another file, or with a changed one, is not found here. The clock
//! of a file system ticks in steps: a run that was changed in the last seconds is not noted.

use crate::error::StoreError;
use crate::folder::{Folder, Found};
use crate::manifest;
use std::collections::HashMap;
use std::io::Write as _;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};
use whylate_core::result::Verdict;

const FILE: &str = "verdicts";
/// More lines than these are too many: the newer half stays.
const LINES_MAX: usize = 1 << 14;
const BYTES_MAX: u64 = 1 << 22;
/// Other versions may judge otherwise.
const VERSION: &str = concat!("whylate.verdicts/1 ", env!("CARGO_PKG_VERSION"));
/// How old the last change of a run has to be.
const SETTLED_S: i64 = 2;

/// What earlier lists have found. One that cannot be read or written is as one that is empty.
#[derive(Debug)]
pub struct VerdictCache {
    folder: Folder,
    known: HashMap<String, Verdict>,
    found: Mutex<Vec<String>>,
}

impl VerdictCache {
    /// That in a folder, which is made where it is missing.
    ///
    /// # Errors
    /// A folder that cannot be made, and one in which another user can write.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let (above, name) = Folder::above(path)?;
        let folder = above.subfolder(&name)?;
        if !above.is_own() || !folder.is_own() {
            return Err(StoreError::OpenToAll(path.to_owned()));
        }
        let text = folder.read_up_to(FILE, BYTES_MAX).ok().flatten().unwrap_or_default();
        let lines: Vec<(String, Verdict)> =
            String::from_utf8_lossy(&text).lines().filter_map(parse).collect();
        let it = Self { folder, known: HashMap::new(), found: Mutex::default() };
        if lines.len() > LINES_MAX {
            let kept: String =
                lines[lines.len() / 2..].iter().map(|(digest, of)| line(digest, *of)).collect();
            it.folder.write_atomically(FILE, kept.as_bytes())?;
        }
        Ok(Self { known: lines.into_iter().collect(), ..it })
    }

    /// The verdict of a run with these files.
    pub(crate) fn find(&self, digest: &str) -> Option<Verdict> {
        self.known.get(digest).copied()
    }

    /// Notes a verdict, which [`Self::save`] writes.
    pub(crate) fn note(&self, digest: &str, files: &[Found], verdict: Verdict) {
        if is_settled(files, SystemTime::now()) {
            self.found.lock().unwrap_or_else(PoisonError::into_inner).push(line(digest, verdict));
        }
    }

    /// Writes what was noted. Without it the next list is slower.
    pub(crate) fn save(&mut self) {
        let found = std::mem::take(self.found.get_mut().unwrap_or_else(PoisonError::into_inner));
        if found.is_empty() {
            return;
        }
        self.known.extend(found.iter().filter_map(|line| parse(line.trim_end())));
        // In one write: another list may add its own.
        let text = found.concat();
        _ = self.folder.append(FILE).map(|mut file| file.write_all(text.as_bytes()));
    }
}

/// What stands for a run with these files; `None` without a manifest.
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

fn line(digest: &str, verdict: Verdict) -> String {
    format!("{digest} {}\n", verdict.name())
}

fn parse(line: &str) -> Option<(String, Verdict)> {
    let (digest, verdict) = line.split_once(' ')?;
    let is_digest = digest.len() == 64 && digest.bytes().all(|it| it.is_ascii_hexdigit());
    let verdict = serde_json::from_value(serde_json::Value::from(verdict)).ok()?;
    is_digest.then(|| (digest.to_owned(), verdict))
}
