//! Writing a run directory.
//!
//! Rows are kept in memory until [`Sink::flush`], which is called after each stored interval and at the end of
//! each cell; a flush writes one segment per table that has rows, all under the same number. What a killed process
//! loses is what came after the last flush.

use crate::disk::{sync_folder, write_atomically};
use crate::error::StoreError;
use crate::info::{RunInfo, write_json};
use crate::latency_records;
use crate::rows::{RateKey, RowKey, Rows, Sink};
use crate::segment;
use crate::table::{
    Batch, CAUSES, COUNTERS, HISTOGRAMS, INTERRUPTS, INTERVALS, IPIS, RATES, SPIKES, TABLES, Table,
    segment_name, segment_number,
};
use crate::traces::TRACES_FOLDER;
use std::fs::{self, File, TryLockError};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use whylate_core::CpuId;
use whylate_core::result::{HistogramKind, LatencyRecord, RunResult};

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
        for folder in TABLES.iter().map(|table| table.name).chain([TRACES_FOLDER, LOADS_FOLDER]) {
            let folder = path.join(folder);
            fs::create_dir(&folder).map_err(|error| StoreError::io("create", &folder, error))?;
        }
        sync_folder(path)?;
        if let Some(parent) = path.parent() {
            sync_folder(parent)?;
        }
        Ok(Self {
            path: path.to_owned(),
            run: info.run.clone(),
            pending: Rows::default(),
            next_segment: 1,
            _lock: lock,
        })
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
        for table in TABLES {
            let folder = path.join(table.name);
            fs::create_dir_all(&folder).map_err(|error| StoreError::io("create", &folder, error))?;
            let numbers = segment_numbers(&folder)?;
            last = last.max(numbers.last().copied().unwrap_or(0));
        }
        for name in [TREATMENTS_FILE, latency_records::FILE] {
            end_last_line(&path.join(name))?;
        }
        let run = info.run.clone();
        let path = path.to_owned();
        Ok((Self { path, run, pending: Rows::default(), next_segment: last + 1, _lock: lock }, info))
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
        self.add_line(TREATMENTS_FILE, line)
    }

    /// Keeps who was late in a new maximum of a kernel histogram: a line of `latency-records.jsonl`.
    ///
    /// # Errors
    /// [`StoreError::DiskFull`] or [`StoreError::Io`].
    pub fn add_latency_record(
        &self,
        key: &RowKey,
        cpu: CpuId,
        kind: HistogramKind,
        record: &LatencyRecord,
    ) -> Result<(), StoreError> {
        let RowKey { cell, repeat, attempt, .. } = key;
        let line = latency_records::Line {
            cell: cell.clone(),
            repeat: *repeat,
            attempt: *attempt,
            cpu,
            kind,
            record: record.clone(),
        };
        self.add_line(latency_records::FILE, &line.to_json())
    }

    fn add_line(&self, name: &str, line: &str) -> Result<(), StoreError> {
        let path = self.path.join(name);
        let open = fs::OpenOptions::new().append(true).create(true).open(&path);
        open.and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()))
            .map_err(|source| StoreError::io("write", &path, source))
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
        let (run, pending) = (self.run.as_str(), &mut self.pending);
        let place = Place { path: &self.path, segment: self.next_segment };
        // `intervals` come last: they vouch for the rest of their interval.
        place.write(&HISTOGRAMS, &pending.histogram_batch(run))?;
        place.write(&SPIKES, &pending.spike_batch(run))?;
        place.write(&CAUSES, &pending.cause_batch(run))?;
        place.write(&IPIS, &pending.ipi_batch(run))?;
        place.write(&RATES, &pending.rate_batch(run))?;
        place.write(&INTERRUPTS, &pending.interrupt_batch(run))?;
        place.write(&COUNTERS, &pending.counter_batch(run))?;
        place.write(&INTERVALS, &pending.interval_batch(run))?;
        *pending = Rows::default();
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

/// Where a flush writes.
struct Place<'p> {
    path: &'p Path,
    segment: u32,
}

impl Place<'_> {
    /// Writes a segment, unless it would be empty. A repeated flush replaces what the failed one left.
    fn write(&self, table: &Table, batch: &Batch) -> Result<(), StoreError> {
        if batch.rows() == 0 {
            return Ok(());
        }
        let path = self.path.join(table.name).join(segment_name(self.segment));
        let bytes = segment::encode(table, batch)
            .map_err(|error| StoreError::Encode { path: path.clone(), reason: error.to_string() })?;
        write_atomically(&path, &bytes)
    }
}

/// Ends the last line of a file, so that what is added to it begins a new one.
fn end_last_line(path: &Path) -> Result<(), StoreError> {
    let ends = |mut file: File| -> io::Result<()> {
        let mut last = [b'\n'];
        if file.metadata()?.len() > 0 {
            file.seek(SeekFrom::End(-1))?;
            file.read_exact(&mut last)?;
        }
        if last == [b'\n'] { Ok(()) } else { file.write_all(b"\n") }
    };
    match fs::OpenOptions::new().read(true).append(true).open(path).and_then(ends) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(StoreError::io("write", path, error)),
        _ => Ok(()),
    }
}

fn make_empty_folder(path: &Path) -> Result<(), StoreError> {
    let occupied = || StoreError::Occupied { path: path.to_owned() };
    match fs::read_dir(path) {
        Ok(mut entries) => entries.next().map_or(Ok(()), |_| Err(occupied())),
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => Err(occupied()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            fs::create_dir_all(path).map_err(|error| match error.kind() {
                // Also a symbolic link that leads nowhere.
                io::ErrorKind::AlreadyExists => occupied(),
                _ => StoreError::io("create", path, error),
            })
        }
        Err(error) => Err(StoreError::io("read", path, error)),
    }
}

fn lock(path: &Path) -> Result<File, StoreError> {
    let folder = File::open(path).map_err(|error| StoreError::io("open", path, error))?;
    match folder.try_lock() {
        Err(TryLockError::WouldBlock) => Err(StoreError::Busy { path: path.to_owned() }),
        // Some network file systems know no locks: better a run without one than no run.
        Ok(()) | Err(TryLockError::Error(_)) => Ok(folder),
    }
}

/// Whether another process is writing to the run.
pub(crate) fn is_being_written(path: &Path) -> bool {
    File::open(path).is_ok_and(|folder| matches!(folder.try_lock_shared(), Err(TryLockError::WouldBlock)))
}

/// Numbers of the closed segments in a table's folder, ascending; none when there is no such folder.
pub(crate) fn segment_numbers(folder: &Path) -> Result<Vec<u32>, StoreError> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(StoreError::io("read", folder, error)),
    };
    let mut numbers = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|error| StoreError::io("read", folder, error))?;
        numbers.extend(entry.file_name().to_str().and_then(segment_number));
    }
    numbers.sort_unstable();
    Ok(numbers)
}
