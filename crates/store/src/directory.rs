//! Writing a run directory.
//!
//! Rows are kept in memory until [`Sink::flush`], which is called after each stored interval, when there are many
//! rows, and at the end of each cell. A flush writes one segment per table that has rows, all under the same number,
//! and then lists them in the manifest. A killed process loses only rows that came after the last flush.

use crate::coarse::{Keeping, Merged, Room, coarser};
use crate::error::{At, StoreError};
use crate::fix;
use crate::folder::{Folder, add_line, if_present};
use crate::info::{INFO_FILE, RunInfo, to_json};
use crate::kept::{self, Kept};
use crate::latency_records;
use crate::manifest::{Flush, Listed, Manifest, ManifestWriter, parts_of, sha256};
use crate::reader::{own_rows, require_folder};
use crate::segment;
use crate::tables::{Keyed, NAMES, RateKey, Rows, Sink, Table};
use crate::traces::TRACES_FOLDER;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use whylate_core::result::{FixStep, RunResult};

/// Folder with the output of the commands of `exec` loads.
pub(crate) const LOADS_FOLDER: &str = "loads";
/// Name of the file with what treatments changed.
pub(crate) const TREATMENTS_FILE: &str = "treatments.jsonl";
/// Name of the file with the finished result.
pub(crate) const RESULT_FILE: &str = "result.json";

/// A run directory that is being written. One process at a time can hold it. The folder stays locked while it is
/// open, so that no other process writes to it and readers see that the run is active.
#[derive(Debug)]
pub struct RunDirectory {
    folder: Folder,
    folders: BTreeMap<&'static str, Folder>,
    run: String,
    pending: Rows,
    kept: Kept,
    /// `None` if the run may take all the room that it needs.
    room: Option<Room>,
    next_segment: u32,
    manifest: ManifestWriter,
    /// The run's other files, once they are sealed.
    sealed: Option<Vec<Listed>>,
}

impl RunDirectory {
    /// Makes the directory `path` with `run.json` and empty folders. Missing parents are made too.
    ///
    /// # Errors
    /// [`StoreError::Occupied`] when `path` exists and is not an empty directory (nothing is changed then);
    /// [`StoreError::Foreign`] when it belongs to another user; [`StoreError::DiskFull`] or [`StoreError::Io`] when
    /// it cannot be made.
    pub fn create(path: &Path, info: &RunInfo) -> Result<Self, StoreError> {
        let folder = Folder::create(path)?;
        folder.lock()?;
        let mut directory = Self::begin(folder, &info.run, None, 1)?;
        directory.update_info(info)?;
        Ok(directory)
    }

    /// Opens the directory of a run that did not complete, to continue it. Existing data stay unchanged, except that
    /// a truncated line is ended. Segments get numbers after the highest existing one.
    ///
    /// # Errors
    /// [`StoreError::NotARun`], [`StoreError::BadInfo`], [`StoreError::UnknownFormat`]; [`StoreError::Busy`] while
    /// another process writes to it; [`StoreError::Foreign`] or [`StoreError::OpenToAll`] if another user could
    /// redirect root to other files; [`StoreError::Damaged`]; [`StoreError::Io`] when it cannot be read or written.
    pub fn reopen(path: &Path) -> Result<(Self, RunInfo), StoreError> {
        // Checks that it is a run before the lock, so that the error is the right one.
        RunInfo::read(&require_folder(path)?)?;
        let folder = Folder::writable(path)?;
        folder.lock()?;
        let (mut info, hash) = RunInfo::read(&folder)?;
        let manifest = Manifest::read(&folder, &info.run).at("read", path)?;
        let problem = match &manifest {
            None => info.manifest.then(|| "its manifest is missing".to_owned()),
            Some(known) if known.is_empty() => Some("its manifest is empty".to_owned()),
            Some(known) if !known.is_info(&hash, info.state) => Some("`run.json` was altered".to_owned()),
            Some(known) => known.problems.first().map(|first| format!("its manifest {first}")),
        };
        if let Some(problem) = problem {
            return Err(StoreError::Damaged(path.to_owned(), problem));
        }
        let mut last = manifest.iter().flat_map(Manifest::numbers).max().unwrap_or(0);
        for table in NAMES {
            last = segment_numbers(&folder, table)?.into_iter().fold(last, u32::max);
        }
        info.manifest = true;
        let mut directory = Self::begin(folder, &info.run, manifest.as_ref(), last + 1)?;
        for name in [TREATMENTS_FILE, latency_records::FILE, fix::FILE] {
            directory.end_last_line(name)?;
        }
        directory.update_info(&info)?;
        Ok((directory, info))
    }

    fn begin(
        folder: Folder,
        run: &str,
        known: Option<&Manifest>,
        next_segment: u32,
    ) -> Result<Self, StoreError> {
        let mut folders = BTreeMap::new();
        for name in NAMES.iter().copied().chain([TRACES_FOLDER, LOADS_FOLDER]) {
            let subfolder = folder.subfolder(name)?;
            subfolder.check_owner()?;
            folders.insert(name, subfolder);
        }
        let manifest = ManifestWriter::begin(&folder, run, known, next_segment)?;
        folder.sync()?;
        let (pending, kept) = (Rows::default(), Kept::default());
        let room = None;
        let (run, sealed) = (run.to_owned(), None);
        Ok(Self { folder, folders, run, pending, kept, room, next_segment, manifest, sealed })
    }

    /// Limits what the run keeps from now on: older intervals become longer, and only their largest spikes stay.
    pub fn limit(&mut self, keeping: Keeping) {
        self.room = Some(Room { keeping, ..Room::default() });
    }

    /// What [`Self::limit`] has cost, in words for the user; `None` if nothing was lost.
    pub fn thinned(&self) -> Option<String> {
        self.room.as_ref().and_then(Room::cost)
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Replaces `run.json`.
    ///
    /// # Errors
    /// [`StoreError::DiskFull`] or [`StoreError::Io`]; the old file stays then.
    pub fn update_info(&mut self, info: &RunInfo) -> Result<(), StoreError> {
        self.replace_info(info, None)
    }

    /// Replaces `run.json` for the last time: the manifest records that the run has ended, and the digests of its
    /// other files. Later writes break the seal.
    pub fn seal(&mut self, info: &RunInfo) -> Result<(), StoreError> {
        self.merge(kept::LAST_MIN);
        let mut names =
            vec![TREATMENTS_FILE.to_owned(), latency_records::FILE.to_owned(), fix::FILE.to_owned()];
        names.extend(crate::traces::notes(&self.folder));
        let mut files = Vec::new();
        for name in names {
            let bytes = self.folder.read(&name).at("read", &self.path().join(&name))?;
            files.extend(bytes.map(|bytes| Listed::of(&name, &bytes)));
        }
        self.replace_info(info, Some(&files))?;
        self.sealed = Some(files);
        Ok(())
    }

    /// The manifest comes first, so that an unlisted `run.json` is never in place.
    fn replace_info(&mut self, info: &RunInfo, sealed: Option<&[Listed]>) -> Result<(), StoreError> {
        let text = to_json(&self.path().join(INFO_FILE), info)?;
        self.folder.stage(INFO_FILE, &text)?;
        let listed = self.manifest.info(sha256(&[&text]));
        let seal = |files| self.manifest.seal(files, None);
        if let Err(error) = listed.and_then(|()| sealed.map_or(Ok(()), seal)) {
            self.folder.discard(INFO_FILE);
            return Err(error);
        }
        self.folder.publish(INFO_FILE)
    }

    /// Writes `result.json`. After the end of a run the seal then covers it and states the verdict: a list needs
    /// nothing else.
    pub fn write_result(&mut self, result: &RunResult) -> Result<(), StoreError> {
        let text = to_json(&self.path().join(RESULT_FILE), result)?;
        self.folder.write_atomically(RESULT_FILE, &text)?;
        let Some(sealed) = &mut self.sealed else { return Ok(()) };
        sealed.retain(|listed| listed.name != RESULT_FILE);
        sealed.push(Listed::of(RESULT_FILE, &text));
        self.manifest.seal(sealed, Some(result.verdict))
    }

    /// Adds a line of JSON to `treatments.jsonl`, the run's own copy of what treatments changed and undid.
    pub fn add_treatments(&self, line: &str) -> Result<(), StoreError> {
        self.add_line_to(TREATMENTS_FILE, line)
    }

    pub(crate) fn add_line_to(&self, name: &str, line: &str) -> Result<(), StoreError> {
        add_line(&self.folder.append(name)?, &self.path().join(name), line)
    }

    /// Adds a step of a search to `fix.jsonl`.
    pub fn add_fix_step(&self, step: &FixStep) -> Result<(), StoreError> {
        let encoded = serde_json::to_string(step);
        let line =
            encoded.map_err(|error| StoreError::Encode(self.path().join(fix::FILE), error.to_string()))?;
        self.add_line_to(fix::FILE, &line)
    }

    /// Writes the segment with the next number; it counts once the manifest lists it.
    fn write_segment(&self, rows: &Rows, replaces: Vec<u32>) -> Result<Flush, StoreError> {
        let writer = FlushWriter { directory: self, tables: RefCell::default() };
        rows.write(&writer)?;
        let tables = writer.tables.into_inner();
        Ok(Flush { segment: self.next_segment, replaces, of: parts_of(rows), tables })
    }

    /// Merges the kept segments if there are at least `least` of them; on a full disk they stay as they are. A
    /// segment that is too large to be merged stays too, and is made coarser later.
    fn merge(&mut self, least: usize) {
        let (rows, segments) = self.kept.take();
        let merged = match (&segments[..], &self.room) {
            ([segment], Some(room)) => Some(Merged::new(*segment, room.single, &rows)),
            (all, _) if all.len() >= least => self.replace(&rows, all),
            _ => None,
        };
        if let (Some(merged), Some(room)) = (merged, &mut self.room) {
            room.add(merged);
        }
        self.thin();
    }

    /// Writes rows as a segment that replaces others. If that fails, the others stay as they are.
    fn replace(&mut self, rows: &Rows, segments: &[u32]) -> Option<Merged> {
        let segment = self.next_segment;
        let written = self.write_segment(rows, segments.to_vec());
        let bytes = written.as_ref().map_or(0, Flush::bytes);
        match written.and_then(|flush| self.manifest.flushed(flush)) {
            Ok(()) => {
                self.next_segment += 1;
                self.remove_segments(segments);
                Some(Merged::new(segment, bytes, rows))
            }
            Err(_) => {
                self.remove_segments(&[segment]);
                None
            }
        }
    }

    /// Makes older segments coarser, one after another, until there is enough room or nothing more to gain.
    fn thin(&mut self) {
        while let Some(nth) = self.room.as_ref().and_then(Room::next) {
            let before = self.room.as_ref().map(|room| room.merged[nth]);
            let Some(before) = before else { return };
            let rows = own_rows(&self.folder, before.segment);
            let made = rows.map(coarser).and_then(|(rows, spikes)| {
                self.replace(&rows, &[before.segment]).map(|merged| (merged, spikes))
            });
            let Some(room) = &mut self.room else { return };
            room.merged[nth] = match made {
                Some((merged, spikes)) => {
                    room.coarser += 1;
                    room.spikes += spikes;
                    Merged { level: before.level + 1, ..merged }
                }
                // The segment stays as it is.
                None => Merged { level: u32::MAX, ..before },
            };
        }
    }

    /// Removes segments that do not count. A segment that cannot be removed only takes room.
    fn remove_segments(&self, numbers: &[u32]) {
        for table in NAMES {
            let folder = self.folder(table);
            for number in numbers {
                let _ = folder.remove(segment::file_name(*number));
            }
            let _ = folder.sync();
        }
    }

    /// The number that the next segment gets.
    pub fn next_segment(&self) -> u32 {
        self.next_segment
    }

    /// Ends the last line of a file, so that an added line begins on a new one.
    fn end_last_line(&self, name: &str) -> Result<(), StoreError> {
        let text = self.folder.read(name).at("read", &self.path().join(name))?.unwrap_or_default();
        if matches!(text.last(), None | Some(b'\n')) { Ok(()) } else { self.add_line_to(name, "") }
    }

    /// The run's own folder, for readers.
    pub fn opened(&self) -> &Folder {
        &self.folder
    }

    /// An open folder of the run.
    pub(crate) fn folder(&self, name: &str) -> &Folder {
        self.folders.get(name).unwrap_or(&self.folder)
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
        if self.kept.is_full_before(&self.pending) {
            self.merge(2);
        }
        let flush = self.write_segment(&self.pending, Vec::new())?;
        if let Some(room) = &mut self.room {
            room.single += flush.bytes();
        }
        self.manifest.flushed(flush)?;
        self.kept.add(self.next_segment, std::mem::take(&mut self.pending));
        self.next_segment += 1;
        Ok(())
    }

    /// `loads/<cell>-<repeat>-<attempt>-<load>.txt`; characters that are not valid in a file name become `_`.
    fn load_output_path(&self, key: &RateKey) -> PathBuf {
        let RateKey { cell, repeat, attempt, load, .. } = key;
        let loads = self.folder(LOADS_FOLDER);
        // Only root may write below folders of other users, who can swap them. The fixed path of a process with file
        // capabilities is not open to its children.
        let is_root = rustix::process::geteuid().is_root();
        let folder = if is_root { loads.fixed_path() } else { loads.path().to_owned() };
        folder.join(file_name(&format!("{cell}-{repeat}-{attempt}-{load}.txt")))
    }
}

/// The text as a file name, with `_` for each character that does not belong there.
pub(crate) fn file_name(text: &str) -> String {
    let safe = |c: char| if c.is_alphanumeric() || "+-_.".contains(c) { c } else { '_' };
    text.chars().map(safe).collect()
}

/// Writes the segments of one flush.
pub(crate) struct FlushWriter<'d> {
    directory: &'d RunDirectory,
    tables: RefCell<Vec<Listed>>,
}

impl FlushWriter<'_> {
    /// Writes a segment, unless it would be empty. A repeated flush replaces the files of the failed one.
    pub(crate) fn write<R: Table>(&self, rows: &[Keyed<R, R::Key>]) -> Result<(), StoreError> {
        if rows.is_empty() {
            return Ok(());
        }
        let RunDirectory { run, next_segment, .. } = self.directory;
        let (folder, name) = (self.directory.folder(R::NAME), segment::file_name(*next_segment));
        let bytes = segment::encode(run, rows)
            .map_err(|error| StoreError::Encode(folder.path().join(&name), error.to_string()))?;
        folder.write_atomically(&name, &bytes)?;
        let rows = Some(rows.len() as u64);
        self.tables.borrow_mut().push(Listed { rows, ..Listed::of(R::NAME, &bytes) });
        Ok(())
    }
}

/// Whether another process is writing to the run.
pub fn is_being_written(path: &Path) -> bool {
    Folder::open(path).is_ok_and(|folder| folder.is_held())
}

/// Numbers of the closed segments of a table; none when it has no folder.
pub(crate) fn segment_numbers(run: &Folder, table: &str) -> Result<Vec<u32>, StoreError> {
    let names = if_present(run.enter(table).and_then(|folder| folder.names()));
    let names = names.at("read", &run.path().join(table))?.unwrap_or_default();
    Ok(names.iter().filter_map(|name| name.to_str()).filter_map(segment::number).collect())
}
