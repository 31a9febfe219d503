//! The journal: what was changed, on disk before it is changed, so that it can be undone after anything.
//!
//! A journal is a file of lines in a folder, with a lock beside it: one process at a time writes. `treatments` is the
//! journal of treatments; a part of whylate that changes other settings for a while keeps one of another name, and
//! `whylate treat restore` looks at all of them.

mod record;

pub use record::{Contents, Entry, Fate, Holder, JOURNAL_FORMAT, State};

pub(crate) use record::Record;

use crate::error::TreatError;
use rustix::fs::{FlockOperation, flock};
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use whylate_core::moment::utc_text;
use whylate_host::HostRoot;
use whylate_sys::process;

/// Environment variable with the folder of whylate's state.
pub const STATE_VARIABLE: &str = "WHYLATE_STATE_DIR";
/// That folder where the variable is not set.
const STATE_FOLDER: &str = "/var/lib/whylate";
/// Name of the journal of treatments.
pub const TREATMENTS: &str = "treatments";
const SUFFIX: &str = ".jsonl";

/// Where a journal is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalPlace {
    folder: PathBuf,
    name: String,
}

impl JournalPlace {
    /// The journal `name` in the folder `journal` of `state`.
    pub fn new(state: &Path, name: &str) -> Self {
        Self { folder: state.join("journal"), name: name.to_owned() }
    }

    /// The journal `name` of this machine: in `$WHYLATE_STATE_DIR`, else in /var/lib/whylate.
    pub fn of_this_machine(name: &str) -> Self {
        let state: Option<OsString> = std::env::var_os(STATE_VARIABLE).filter(|value| !value.is_empty());
        Self::new(&state.map_or_else(|| PathBuf::from(STATE_FOLDER), PathBuf::from), name)
    }

    /// Every journal that there is in the same folder, this one first.
    ///
    /// # Errors
    /// [`TreatError::State`] when the folder cannot be read.
    pub fn all(&self) -> Result<Vec<Self>, TreatError> {
        let mut names = Vec::new();
        match fs::read_dir(&self.folder) {
            Ok(entries) => {
                for entry in entries {
                    let entry = entry.map_err(|source| state_error("read", &self.folder, source))?;
                    let name = entry.file_name().to_string_lossy().into_owned();
                    names.extend(name.strip_suffix(SUFFIX).map(str::to_owned));
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(source) => return Err(state_error("read", &self.folder, source)),
        }
        names.retain(|name| *name != self.name);
        names.sort_unstable();
        names.insert(0, self.name.clone());
        Ok(names.into_iter().map(|name| Self { folder: self.folder.clone(), name }).collect())
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its file.
    pub fn path(&self) -> PathBuf {
        self.folder.join(format!("{}{SUFFIX}", self.name))
    }

    fn lock_path(&self) -> PathBuf {
        self.folder.join(format!("{}.lock", self.name))
    }

    /// What it says now; empty when there is none. Needs no lock, and so may miss the newest line.
    ///
    /// # Errors
    /// [`TreatError::State`] when it cannot be read.
    pub fn read(&self) -> Result<Contents, TreatError> {
        match fs::read(self.path()) {
            Ok(bytes) => Ok(Contents::parse(&bytes).0),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Contents::default()),
            Err(source) => Err(state_error("read", &self.path(), source)),
        }
    }

    /// The process that took its lock last, when it still runs: it may be changing settings.
    pub fn held_by(&self) -> Option<Holder> {
        File::open(self.lock_path()).ok().and_then(|file| read_holder(&file)).filter(Holder::is_alive)
    }

    /// Whether a journal can be kept here; tried without leaving anything behind but the folder.
    ///
    /// # Errors
    /// [`TreatError::State`].
    pub fn check(&self) -> Result<(), TreatError> {
        self.open_lock().map(drop)
    }

    fn open_lock(&self) -> Result<File, TreatError> {
        fs::create_dir_all(&self.folder).map_err(|source| state_error("create", &self.folder, source))?;
        let path = self.lock_path();
        let open = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
        open.map_err(|source| state_error("create", &path, source))
    }
}

fn state_error(action: &'static str, path: &Path, source: io::Error) -> TreatError {
    TreatError::State { action, path: path.to_owned(), source }
}

fn read_holder(mut file: &File) -> Option<Holder> {
    let mut text = String::new();
    file.seek(SeekFrom::Start(0)).ok()?;
    file.read_to_string(&mut text).ok()?;
    serde_json::from_str(&text).ok()
}

impl Holder {
    /// This process, from now on. `kept` says that its changes shall outlive it.
    pub fn this_process(command: &str, run: Option<&str>, kept: bool, root: &HostRoot) -> Self {
        let boot_id = boot_id(root);
        let since_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        Self {
            command: command.to_owned(),
            run: run.map(str::to_owned),
            kept,
            pid: std::process::id(),
            start_ticks: process::started_ticks(std::process::id()).unwrap_or(0),
            boot_id,
            since_s,
        }
    }

    /// Whether its process still runs.
    pub fn is_alive(&self) -> bool {
        process::started_ticks(self.pid) == Some(self.start_ticks)
    }

    /// When it began: RFC 3339, UTC.
    pub fn since(&self) -> String {
        utc_text(UNIX_EPOCH + Duration::from_secs(self.since_s))
    }
}

/// The boot that the machine below `root` is in; empty where the kernel does not say.
pub(crate) fn boot_id(root: &HostRoot) -> String {
    root.read_trimmed("/proc/sys/kernel/random/boot_id").ok().flatten().unwrap_or_default()
}

/// A journal that this process alone writes to.
#[derive(Debug)]
pub(crate) struct Journal {
    path: PathBuf,
    file: File,
    contents: Contents,
    /// Held until the journal is dropped, whatever ends the process.
    lock: File,
}

impl Drop for Journal {
    fn drop(&mut self) {
        // Closing is not enough: a child that is just being started holds the file until it calls exec.
        let _ = flock(&self.lock, FlockOperation::Unlock);
    }
}

impl Journal {
    /// Takes the lock and reads what is there.
    pub(crate) fn open(place: &JournalPlace, holder: &Holder) -> Result<Self, TreatError> {
        let lock = place.open_lock()?;
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            let holder = read_holder(&lock).map_or_else(
                || "another whylate".to_owned(),
                |holder| format!("`{}` (pid {}) since {}", holder.command, holder.pid, holder.since()),
            );
            return Err(TreatError::Held { holder });
        }
        let failed = |source| state_error("lock", &place.lock_path(), source);
        let text = serde_json::to_vec(holder).map_err(|error| failed(error.into()))?;
        lock.set_len(0).and_then(|()| (&lock).write_all(&text)).map_err(failed)?;
        let path = place.path();
        let is_new = !path.exists();
        let mut options = OpenOptions::new();
        let open = options.read(true).append(true).create(true).open(&path);
        let mut file = open.map_err(|source| state_error("create", &path, source))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(|source| state_error("read", &path, source))?;
        let (contents, good) = Contents::parse(&bytes);
        if good < bytes.len() {
            file.set_len(good as u64).map_err(|source| state_error("write", &path, source))?;
        }
        if is_new {
            let folder = File::open(&place.folder).and_then(|folder| folder.sync_all());
            folder.map_err(|source| state_error("write", &place.folder, source))?;
        }
        Ok(Self { path, file, contents, lock })
    }

    pub(crate) fn contents(&self) -> &Contents {
        &self.contents
    }

    /// The number of the next entry.
    pub(crate) fn next_entry(&self) -> u64 {
        self.contents.entries.last().map_or(1, |entry| entry.entry + 1)
    }

    /// Begins a session, and returns its number.
    pub(crate) fn begin_session(&mut self, holder: &Holder) -> Result<u64, TreatError> {
        let session = self.contents.sessions.last_key_value().map_or(1, |(last, _)| last + 1);
        let format = JOURNAL_FORMAT.to_owned();
        self.append(vec![Record::Session { format, session, holder: holder.clone() }])?;
        Ok(session)
    }

    /// Adds lines, all or none where the disk allows it.
    pub(crate) fn append(&mut self, records: Vec<Record>) -> Result<(), TreatError> {
        let mut text = Vec::new();
        let failed = |source| state_error("write", &self.path, source);
        for record in &records {
            serde_json::to_writer(&mut text, record).map_err(|error| failed(error.into()))?;
            text.push(b'\n');
        }
        let before = self.file.metadata().map_err(failed)?.len();
        if let Err(source) = self.file.write_all(&text) {
            // Half a line would spoil the next one.
            let _ = self.file.set_len(before);
            return Err(failed(source));
        }
        records.into_iter().for_each(|record| self.contents.add(record));
        Ok(())
    }

    /// Brings every line to the disk.
    pub(crate) fn sync(&self) -> Result<(), TreatError> {
        self.file.sync_data().map_err(|source| state_error("write", &self.path, source))
    }

    /// Empties the journal when nothing in it is to be undone any more.
    pub(crate) fn clear_if_closed(&mut self) -> Result<(), TreatError> {
        if self.contents.open().next().is_some() {
            return self.sync();
        }
        let cleared = self.file.set_len(0).and_then(|()| self.file.sync_data());
        cleared.map_err(|source| state_error("write", &self.path, source))?;
        self.contents = Contents::default();
        Ok(())
    }
}
