//! Writing a run directory.
//!
//! Rows are kept in memory until [`Sink::flush`], which is called after each stored interval and at the end of
//! each cell; a flush writes one segment per table that has rows, all under the same number. What a killed process
//! loses is what came after the last flush.

use crate::disk::{append_line, end_last_line, if_present, sync_folder, write_atomically};
use crate::error::{At, StoreError};
use crate::info::{RunInfo, write_json};
use crate::latency_records;
use crate::segment;
use crate::tables::{Keyed, NAMES, RateKey, Rows, Sink, Table};
use crate::traces::TRACES_FOLDER;
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use whylate_core::result::RunResult;

/// Folder of what the commands of `exec` loads printed.
const LOADS_FOLDER: &str = "loads";
/// Name of the file with what treatments changed.
const TREATMENTS_FILE: &str = "treatments.jsonl";
/// Name of the file with the finished result.
const RESULT_FILE: &str = "result.json";

/// A run directory that is being written. One process at a time can have it.
#[derive(Debug)]
pub struct RunDirectory {
    path: PathBuf,
    run: String,
    pending: Rows,
    next_segment: u32,
    /// Held while the run is written, so that nobody else writes to it and readers see that it is alive.
    _lock: File,
}

impl RunDirectory {
    /// Makes the directory `path` with `run.json` and empty folders. Missing parents are made too.
    ///
    /// # Errors
    /// [`StoreError::Occupied`] when `path` exists and is not an empty directory (nothing is changed then);
    /// [`StoreError::DiskFull`] or [`StoreError::Io`] when it cannot be made.
    pub fn create(path: &Path, info: &RunInfo) -> Result<Self, StoreError> {
        make_empty_folder(path)?;
        let lock = lock(path)?;
        info.write(path)?;
        for folder in NAMES.iter().chain(&[TRACES_FOLDER, LOADS_FOLDER]) {
            let folder = path.join(folder);
            fs::create_dir(&folder).at("create", &folder)?;
        }
        sync_folder(path)?;
        if let Some(parent) = path.parent() {
            sync_folder(parent)?;
        }
        Ok(Self::new(path, info, 1, lock))
    }

    /// Opens the directory of a run that did not complete, to continue it. Nothing that is there is changed, but that a
    /// line whose writing was cut off is ended; segments get numbers after the highest one found.
    ///
    /// # Errors
    /// [`StoreError::NotARun`], [`StoreError::BadInfo`], [`StoreError::UnknownFormat`]; [`StoreError::Busy`] while
    /// another process writes to it; [`StoreError::Io`] when it cannot be read or written.
    pub fn reopen(path: &Path) -> Result<(Self, RunInfo), StoreError> {
        // First whether it is a run at all: a lock on something else would be a strange thing to complain about.
        RunInfo::read(path)?;
        let lock = lock(path)?;
        let info = RunInfo::read(path)?;
        let mut last = 0;
        for table in NAMES {
            let folder = path.join(table);
            fs::create_dir_all(&folder).at("create", &folder)?;
            last = segment_numbers(&folder)?.into_iter().fold(last, u32::max);
        }
        for name in [TREATMENTS_FILE, latency_records::FILE] {
            end_last_line(&path.join(name))?;
        }
        Ok((Self::new(path, &info, last + 1, lock), info))
    }

    fn new(path: &Path, info: &RunInfo, next_segment: u32, lock: File) -> Self {
        let (path, run) = (path.to_owned(), info.run.clone());
        Self { path, run, pending: Rows::default(), next_segment, _lock: lock }
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Replaces `run.json`.
    ///
    /// # Errors
    /// [`StoreError::DiskFull`] or [`StoreError::Io`]; the old one stays then.
    pub fn update_info(&self, info: &RunInfo) -> Result<(), StoreError> {
        info.write(&self.path)
    }

    /// Writes `result.json`.
    ///
    /// # Errors
    /// [`StoreError::DiskFull`] or [`StoreError::Io`].
    pub fn write_result(&self, result: &RunResult) -> Result<(), StoreError> {
        write_json(&self.path.join(RESULT_FILE), result)
    }

    /// Adds a line of JSON to `treatments.jsonl`, the run's own copy of what treatments changed and undid.
    ///
    /// # Errors
    /// [`StoreError::DiskFull`] or [`StoreError::Io`].
    pub fn add_treatments(&self, line: &str) -> Result<(), StoreError> {
        append_line(&self.path.join(TREATMENTS_FILE), line)
    }

    /// The folder for recorded traces.
    pub fn traces_path(&self) -> PathBuf {
        self.path.join(TRACES_FOLDER)
    }
}

impl Sink for RunDirectory {
    fn rows(&mut self) -> &mut Rows {
        &mut self.pending
    }

    fn directory(&self) -> Option<&RunDirectory> {
        Some(self)
    }

    fn flush(&mut self) -> Result<(), StoreError> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let writer = FlushWriter { path: &self.path, run: &self.run, segment: self.next_segment };
        self.pending.write(&writer)?;
        self.pending = Rows::default();
        self.next_segment += 1;
        Ok(())
    }

    /// `loads/<cell>-<repeat>-<attempt>-<load>.txt`; characters of names that do not belong in a file name become `_`.
    fn load_output_path(&self, key: &RateKey) -> PathBuf {
        let RateKey { cell, repeat, attempt, load, .. } = key;
        self.path.join(LOADS_FOLDER).join(file_name(&format!("{cell}-{repeat}-{attempt}-{load}.txt")))
    }
}

/// What belongs in a file name, each other character as `_`.
pub(crate) fn file_name(text: &str) -> String {
    let safe = |c: char| if c.is_alphanumeric() || "+-_.".contains(c) { c } else { '_' };
    text.chars().map(safe).collect()
}

/// Writes the segments of one flush.
pub(crate) struct FlushWriter<'p> {
    path: &'p Path,
    /// The name of the run.
    run: &'p str,
    segment: u32,
}

impl FlushWriter<'_> {
    /// Writes a segment, unless it would be empty. A repeated flush replaces what the failed one left.
    pub(crate) fn write<R: Table>(&self, rows: &[Keyed<R, R::Key>]) -> Result<(), StoreError> {
        if rows.is_empty() {
            return Ok(());
        }
        let path = self.path.join(R::NAME).join(segment::file_name(self.segment));
        match segment::encode(self.run, rows) {
            Ok(bytes) => write_atomically(&path, &bytes),
            Err(error) => Err(StoreError::Encode(path, error.to_string())),
        }
    }
}

fn make_empty_folder(path: &Path) -> Result<(), StoreError> {
    let occupied = || StoreError::Occupied(path.to_owned());
    match if_present(fs::read_dir(path)) {
        Ok(Some(mut entries)) => entries.next().map_or(Ok(()), |_| Err(occupied())),
        Ok(None) => match fs::create_dir_all(path) {
            // A symbolic link that leads nowhere.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(occupied()),
            made => made.at("create", path),
        },
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => Err(occupied()),
        Err(error) => Err(error).at("read", path),
    }
}

fn lock(path: &Path) -> Result<File, StoreError> {
    let folder = File::open(path).at("open", path)?;
    match folder.try_lock() {
        Err(TryLockError::WouldBlock) => Err(StoreError::Busy(path.to_owned())),
        // Some network file systems know no locks: better a run without one than no run.
        Ok(()) | Err(TryLockError::Error(_)) => Ok(folder),
    }
}

/// Whether another process is writing to the run.
pub(crate) fn is_being_written(path: &Path) -> bool {
    File::open(path).is_ok_and(|folder| matches!(folder.try_lock_shared(), Err(TryLockError::WouldBlock)))
}

/// Numbers of the closed segments in a table's folder; none when there is no such folder.
pub(crate) fn segment_numbers(folder: &Path) -> Result<Vec<u32>, StoreError> {
    let entries = if_present(fs::read_dir(folder)).at("read", folder)?;
    let mut numbers = Vec::new();
    for entry in entries.into_iter().flatten() {
        let name = entry.at("read", folder)?.file_name();
        numbers.extend(name.to_str().and_then(segment::number));
    }
    Ok(numbers)
}
