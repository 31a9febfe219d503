//! Where a journal is, and what it says to a process that does not hold it.

use super::{Contents, boot_id, lines, lock, refused, state_error};
use crate::error::TreatError;
use rustix::fs::OFlags;
use std::collections::BTreeSet;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Duration;
use whylate_host::HostRoot;
use whylate_host::environment::folder_variable;
use whylate_sys::private::PrivateFolder;

/// Environment variable with the folder of whylate's state.
pub const STATE_VARIABLE: &str = "WHYLATE_STATE_DIR";
/// The default of that folder.
const STATE_FOLDER: &str = "/var/lib/whylate";
const SUFFIX: &str = ".jsonl";
const MARK_SUFFIX: &str = ".mark";
/// How often a journal that looks damaged is read again without its lock: its writer may be at work.
const READS_MAX: usize = 5;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct JournalPlace {
    pub(super) folder: PathBuf,
    pub(super) name: String,
}

impl JournalPlace {
    /// The journal `name` in the folder `journal` of `state`.
    pub fn new(state: &Path, name: &str) -> Self {
        Self { folder: state.join("journal"), name: name.to_owned() }
    }

    /// The journal `name` of this machine: in `$WHYLATE_STATE_DIR`, else in /var/lib/whylate.
    pub fn of_this_machine(name: &str) -> Self {
        let state = folder_variable(STATE_VARIABLE);
        Self::new(&state.unwrap_or_else(|| PathBuf::from(STATE_FOLDER)), name)
    }

    /// The default journal of this machine; `None` if this is that one.
    pub fn usual(&self) -> Option<Self> {
        let usual = Self::new(Path::new(STATE_FOLDER), &self.name);
        (usual.folder != self.folder).then_some(usual)
    }

    /// Every journal in the same folder, this one first.
    ///
    /// # Errors
    /// [`TreatError::Untrusted`] for a folder that others can write to, [`TreatError::State`] when it cannot be read.
    pub fn all(&self) -> Result<Vec<Self>, TreatError> {
        let mut names = BTreeSet::new();
        if self.open_folder()?.is_some() {
            let entries =
                fs::read_dir(&self.folder).map_err(|source| state_error("read", &self.folder, source))?;
            for entry in entries {
                let entry = entry.map_err(|source| state_error("read", &self.folder, source))?;
                let name = entry.file_name().to_string_lossy().into_owned();
                let of = |suffix| name.strip_suffix(suffix).map(str::to_owned);
                names.extend(of(SUFFIX).or_else(|| of(MARK_SUFFIX)));
            }
        }
        names.remove(&self.name);
        let others = names.into_iter().map(|name| Self { folder: self.folder.clone(), name });
        Ok(std::iter::once(self.clone()).chain(others).collect())
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn path(&self) -> PathBuf {
        self.folder.join(self.file_name())
    }

    pub(super) fn file_name(&self) -> String {
        format!("{}{SUFFIX}", self.name)
    }

    pub(super) fn mark_name(&self) -> String {
        format!("{}{MARK_SUFFIX}", self.name)
    }

    /// The folder; `None` if it does not exist.
    fn open_folder(&self) -> Result<Option<PrivateFolder>, TreatError> {
        match PrivateFolder::open_to_read(&self.folder) {
            Err(error) if error.is_absence() => Ok(None),
            other => other.map(Some).map_err(refused("read")),
        }
    }

    /// The folder: only this user may write to it, all may read it. The same holds for the one around it, if it is
    /// whylate's own.
    pub(super) fn make_folder(&self) -> Result<PrivateFolder, TreatError> {
        let state = self.folder.parent().unwrap_or(&self.folder);
        let is_own = state == Path::new(STATE_FOLDER) && rustix::process::geteuid().is_root();
        // An existing folder is its owner's: its mode stays.
        if is_own || !state.exists() {
            PrivateFolder::make_readable(state).map_err(refused("create"))?;
        }
        PrivateFolder::make_readable(&self.folder).map_err(refused("create"))
    }

    /// Whether any of its files exist.
    pub(crate) fn exists(&self) -> bool {
        [self.file_name(), self.mark_name()]
            .iter()
            .any(|name| self.folder.join(name).symlink_metadata().is_ok())
    }

    /// What it says now; empty without a journal. Takes no lock, and so may miss the newest line.
    ///
    /// # Errors
    /// [`TreatError::Untrusted`] when others could have written it, [`TreatError::State`] when it cannot be read.
    pub fn read(&self, root: &HostRoot) -> Result<Contents, TreatError> {
        let Some(folder) = self.open_folder()? else { return Ok(Contents::default()) };
        let boot_id = boot_id(root);
        let mut reads = 1;
        loop {
            // In this order: the mark never states more lines than there were.
            let marked = lines::read_mark(self.bytes(&folder, &self.mark_name())?.as_deref(), &boot_id);
            let bytes = self.bytes(&folder, &self.file_name())?.unwrap_or_default();
            let mut parsed = lines::parse(&bytes, marked);
            if parsed.damage.is_empty() || reads == READS_MAX {
                parsed.contents.damage.append(&mut parsed.damage);
                return Ok(parsed.contents);
            }
            reads += 1;
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// What a file of the folder holds; `None` if it does not exist.
    pub(super) fn bytes(&self, folder: &PrivateFolder, name: &str) -> Result<Option<Vec<u8>>, TreatError> {
        let mut bytes = Vec::new();
        match folder.open_file(name, OFlags::RDONLY) {
            Ok(mut file) => {
                let path = self.folder.join(name);
                file.read_to_end(&mut bytes).map_err(|source| state_error("read", &path, source))?;
                Ok(Some(bytes))
            }
            Err(error) if error.is_absence() => Ok(None),
            Err(error) => Err(refused("read")(error)),
        }
    }

    /// Whether a journal can be kept here; tried without leaving anything behind except the folders.
    pub fn check(&self, root: &HostRoot) -> Result<(), TreatError> {
        lock::open(self, &self.make_folder()?, root).map(drop)
    }
}
