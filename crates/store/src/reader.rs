//! Reading a run directory, even if the run was killed at any moment or damaged later.
//!
//! Threads read a few segments at a time, so that the memory needed does not grow with the length of the run.
//! Temporary files are ignored. Files that the manifest does not list, or lists differently, are not read; warnings
//! say what is lost, and whose data it is.

use crate::damage::Damage;
use crate::directory::{RESULT_FILE, segment_numbers};
use crate::error::StoreError;
use crate::folder::Folder;
use crate::info::{ExecutionState, RunInfo};
use crate::latency_records;
use crate::manifest::{self, Flush, Listed, Manifest, Origin, Part, parts_of};
use crate::segment::{self, Room};
use crate::tables::{Apart, Keyed, NAMES, Rows, Table};
use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::mpsc::sync_channel;
use std::sync::{Mutex, PoisonError};
use whylate_core::order::InOrder;
use whylate_core::result::{RunState, Verdict};
use whylate_core::{Warning, WarningCode};

/// How many threads read segments at once: each holds the rows of one in memory.
const THREADS_MAX: usize = 4;
/// In the whole process, only one segment at a time may take more than [`ROOM_SHARED`].
static LARGE: Mutex<()> = Mutex::new(());

/// The number of threads that read on this machine.
pub(crate) fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX)
}

/// A run directory that is being read.
#[derive(Debug)]
pub struct Reader {
    folder: Folder,
    info: RunInfo,
    in_progress: bool,
    manifest: Option<Manifest>,
    numbers: Vec<u32>,
    warnings: Vec<Warning>,
    damages: Vec<Damage>,
}

/// What one flush wrote.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Segment {
    /// Its number, from 1.
    pub number: u32,
    pub rows: Rows,
    /// What a killed process left incomplete.
    pub warnings: Vec<Warning>,
    pub damages: Vec<Damage>,
}

impl Reader {
    /// Opens a run directory.
    ///
    /// # Errors
    /// [`StoreError::NotARun`] when `path` holds no `run.json`; [`StoreError::BadInfo`] or
    /// [`StoreError::UnknownFormat`] when that cannot be understood; [`StoreError::Io`] when it cannot be read.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        Self::of(require_folder(path)?)
    }

    /// As [`Self::open`], for a run that will be written to again: as root, only one in which no other user can
    /// write.
    pub fn to_continue(path: &Path) -> Result<Self, StoreError> {
        require_folder(path).and_then(|_| Self::of(Folder::writable(path)?))
    }

    /// As [`Self::open`], for an open folder.
    pub fn of(folder: Folder) -> Result<Self, StoreError> {
        // Checks the lock first: a run that ends in between is then read as ended.
        let in_progress = folder.is_held();
        let (info, hash) = RunInfo::read(&folder)?;
        let mut reader = Self {
            folder,
            info,
            in_progress,
            manifest: None,
            numbers: Vec::new(),
            warnings: Vec::new(),
            damages: Vec::new(),
        };
        reader.read_manifest(&hash);
        reader.check_files();
        reader.find_segments();
        Ok(reader)
    }

    fn read_manifest(&mut self, hash: &str) {
        let file = self.path().join(manifest::FILE);
        let damage = |problem: &String| {
            Damage::of_run(WarningCode::DamagedManifest, format!("{} {problem}", file.display()))
        };
        let (mut problems, mut unlisted) = (Vec::new(), None);
        match Manifest::read(&self.folder, &self.info.run) {
            // Its entries are unknown: the segments are read as far as possible.
            Ok(Some(found)) if found.is_empty() => {
                problems.push("does not begin like a manifest".to_owned());
            }
            Ok(Some(found)) => {
                problems.extend(found.problems.iter().cloned());
                // While a run goes on, its files may change between two reads.
                if !self.in_progress && !found.is_info(hash, self.info.state) {
                    problems
                        .push("lists a different checksum for `run.json`: `run.json` was altered".to_owned());
                }
                if !self.in_progress && found.sealed.is_none() && self.info.state != RunState::Running {
                    problems
                        .push("does not say that the run has ended: its last lines are missing".to_owned());
                }
                if !found.is_whole() {
                    unlisted = Some("an earlier version of whylate wrote some segments, without a manifest");
                }
                self.manifest = Some(found);
            }
            Ok(None) if self.info.manifest => problems.push("is missing".to_owned()),
            Ok(None) => unlisted = Some("an earlier version of whylate wrote this run, without a manifest"),
            Err(error) => problems.push(format!("cannot be read: {error}")),
        }
        self.damages.extend(problems.iter().map(damage));
        if let Some(what) = unlisted {
            let text = format!("not sealed: {what}; files may be missing unnoticed");
            self.warnings.push(Warning::new(WarningCode::NotSealed, text));
        }
    }

    /// Compares the files other than tables with the seal.
    fn check_files(&mut self) {
        let Some(sealed) = self.manifest.as_ref().and_then(|manifest| manifest.sealed.as_ref()) else {
            return;
        };
        if self.in_progress {
            return;
        }
        let mut names: BTreeSet<String> = sealed.iter().map(|listed| listed.name.clone()).collect();
        names.extend(crate::traces::notes(&self.folder));
        names.extend([latency_records::FILE.to_owned()]);
        for name in names {
            let listed = sealed.iter().find(|listed| listed.name == name);
            let problem = match (self.folder.read(&name), listed) {
                (Ok(None), None) => continue,
                (Ok(Some(bytes)), Some(listed)) if listed.is(&bytes) => continue,
                (Ok(None), Some(_)) => "is missing".to_owned(),
                (Ok(Some(_)), _) => "was altered after the run".to_owned(),
                (Err(error), _) => format!("cannot be read: {error}"),
            };
            let text = format!("{} {problem}", self.path().join(&name).display());
            // Traces may be removed to save room, and treatments are a copy: no figure rests on them.
            match name == latency_records::FILE {
                true => self.damages.push(Damage::of_run(WarningCode::AlteredFile, text)),
                false => self.warnings.push(Warning::new(WarningCode::AlteredFile, text)),
            }
        }
    }

    fn find_segments(&mut self) {
        let mut numbers: BTreeSet<u32> = BTreeSet::new();
        for table in NAMES {
            match segment_numbers(&self.folder, table) {
                Ok(found) => numbers.extend(found),
                Err(error) => {
                    self.damages.push(Damage::of_run(WarningCode::DamagedSegment, error.to_string()));
                }
            }
        }
        let unlisted_to = match &self.manifest {
            // Earlier versions used every number.
            None => numbers.last().copied().unwrap_or(0),
            Some(manifest) => {
                numbers.extend(manifest.numbers());
                manifest.first_segment().saturating_sub(1)
            }
        };
        for missing in (1..=unlisted_to).filter(|number| !numbers.contains(number)).take(100) {
            let text = format!("segment {missing} is missing from every table");
            self.damages.push(Damage::of_run(WarningCode::DamagedSegment, text));
        }
        for number in numbers {
            let origin = self.manifest.as_ref().map_or(Origin::Unlisted, |manifest| manifest.origin(number));
            match origin {
                Origin::Listed(_) | Origin::Unlisted => self.numbers.push(number),
                Origin::Replaced => {}
                // It is about to be listed.
                Origin::CutOff | Origin::Extra if self.in_progress => {}
                Origin::CutOff => {
                    let text =
                        format!("segment {number} is left out: it is incomplete, because the run was killed");
                    self.warnings.push(Warning::new(WarningCode::IncompleteInterval, text));
                }
                Origin::Extra => {
                    let text = format!("segment {number} is left out: the manifest does not list it");
                    self.damages.push(Damage::of_run(WarningCode::DamagedSegment, text));
                }
            }
        }
        if let Some(manifest) = &self.manifest {
            self.numbers.order_by_key(|number| manifest.place(*number));
        }
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    pub fn folder(&self) -> &Folder {
        &self.folder
    }

    /// Whether the run's result was written at its end.
    pub fn has_result(&self) -> bool {
        self.folder.find(RESULT_FILE).is_some()
    }

    /// `run.json`.
    pub fn info(&self) -> &RunInfo {
        &self.info
    }

    /// Whether a process was writing to the run when it was opened. A `running` run without such a process was
    /// killed.
    pub fn is_in_progress(&self) -> bool {
        self.in_progress
    }

    /// Whether the run recorded its end: only then is it known to be complete.
    pub fn has_ended(&self) -> bool {
        self.manifest.as_ref().is_none_or(|manifest| manifest.sealed.is_some())
    }

    /// What was found on opening, and what a killed process left incomplete.
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    /// Loss and damage that is visible without reading the segments.
    pub fn damages(&self) -> &[Damage] {
        &self.damages
    }

    /// The verdict that the seal covers; `None` if there is none, or if a file differs from the manifest.
    pub(crate) fn sealed_verdict(&self) -> Option<Verdict> {
        let manifest = self.manifest.as_ref().filter(|_| !self.in_progress)?;
        let is_listed = |number: &u32| {
            let Origin::Listed(flush) = manifest.origin(*number) else { return false };
            NAMES.iter().all(|table| {
                let listed = flush.tables.iter().find(|listed| listed.name == *table);
                match (segment::bytes(&self.folder, table, *number), listed) {
                    (Ok(None), None) => true,
                    (Ok(Some(bytes)), Some(listed)) => listed.is(&bytes),
                    _ => false,
                }
            })
        };
        let is_whole = self.warnings.is_empty() && self.damages.is_empty();
        manifest.verdict.filter(|_| is_whole && self.numbers.iter().all(is_listed))
    }

    /// Whether the writing process has merged segments since this was opened: some may have been removed before they
    /// were read.
    pub(crate) fn is_outdated(&self) -> bool {
        if !self.in_progress {
            return false;
        }
        let now = Manifest::read(&self.folder, &self.info.run).ok().flatten();
        now.as_ref().map(Manifest::replaced) != self.manifest.as_ref().map(Manifest::replaced)
    }

    /// Forgets the segments before that number.
    pub(crate) fn keep_from(&mut self, number: u32) {
        self.numbers.retain(|other| *other >= number);
    }

    /// The segments, oldest first; each is read on demand.
    pub fn segments(&self) -> impl Iterator<Item = Segment> + '_ {
        self.numbers.iter().map(|number| self.segment(*number))
    }

    /// Gives each segment to `take`, oldest first, while other threads read the next ones. A segment that is too
    /// large for that is read alone when its turn comes.
    pub(crate) fn each_segment(&self, mut take: impl FnMut(Segment)) {
        let mut take_read = |(number, read): (u32, Option<Segment>)| {
            let alone = read.is_none().then(|| LARGE.lock().unwrap_or_else(PoisonError::into_inner));
            take(read.unwrap_or_else(|| self.segment(number)));
            drop(alone);
        };
        let threads = threads();
        std::thread::scope(|scope| {
            let read_every = |first| {
                let (sender, receiver) = sync_channel(0);
                let mut numbers = self.numbers.iter().skip(first).step_by(threads);
                // Ends early only if the receiver is gone.
                let work = move || numbers.all(|number| sender.send((*number, self.shared(*number))).is_ok());
                std::thread::Builder::new().spawn_scoped(scope, work).ok().map(|_| receiver)
            };
            let receivers: Option<Vec<_>> = (0..threads).map(read_every).collect();
            let Some(receivers) = receivers else {
                // Too little memory for other threads.
                return self.numbers.iter().for_each(|number| take_read((*number, None)));
            };
            let in_order = receivers.iter().cycle().take(self.numbers.len());
            in_order.filter_map(|receiver| receiver.recv().ok()).for_each(take_read);
        });
    }

    fn segment(&self, number: u32) -> Segment {
        let mut reader = self.segment_reader(number, segment::ROOM);
        let rows = Rows::read(&mut reader);
        reader.into_segment(rows, &self.info)
    }

    /// The same while other threads read too; `None` if there is not enough room for that.
    fn shared(&self, number: u32) -> Option<Segment> {
        let mut reader = self.segment_reader(number, segment::ROOM_SHARED);
        let rows = Rows::read(&mut reader);
        (!reader.lacks_room).then(|| reader.into_segment(rows, &self.info))
    }

    fn segment_reader(&self, number: u32, room: usize) -> SegmentReader<'_> {
        let flush = self.manifest.as_ref().and_then(|manifest| match manifest.origin(number) {
            Origin::Listed(flush) => Some(flush),
            _ => None,
        });
        SegmentReader::new(&self.folder, number, flush, room)
    }
}

/// The folder at that path; a file cannot be a run.
pub(crate) fn require_folder(path: &Path) -> Result<Folder, StoreError> {
    Folder::open(path).map_err(|error| match error {
        StoreError::Io(_, _, source)
            if [ErrorKind::NotADirectory, ErrorKind::NotFound].contains(&source.kind()) =>
        {
            StoreError::NotARun(path.to_owned())
        }
        other => other,
    })
}

/// The rows of a segment of a run that this process writes; `None` if one of its tables cannot be read.
pub(crate) fn own_rows(run: &Folder, number: u32) -> Option<Rows> {
    let mut reader = SegmentReader::new(run, number, None, segment::ROOM);
    let rows = Rows::read(&mut reader);
    (reader.unread.is_empty() && reader.apart.intervals.is_empty()).then_some(rows)
}

/// Reads the files of one flush.
pub(crate) struct SegmentReader<'r> {
    run: &'r Folder,
    number: u32,
    /// Its entry in the manifest; `None` in runs without one.
    flush: Option<&'r Flush>,
    /// Tables that cannot be read, and why.
    unread: Vec<(&'static str, String)>,
    apart: Apart,
    room: Room,
    /// Whether a table needs more room.
    lacks_room: bool,
}

impl<'r> SegmentReader<'r> {
    fn new(run: &'r Folder, number: u32, flush: Option<&'r Flush>, room: usize) -> Self {
        let (unread, apart) = (Vec::new(), Apart::default());
        Self { run, number, flush, unread, apart, room: Room(room), lacks_room: false }
    }

    /// The rows of one table; empty if its file cannot be read.
    pub(crate) fn read<R: Table>(&mut self) -> Vec<Keyed<R, R::Key>> {
        let listed = self.flush.map(|flush| flush.tables.iter().find(|listed| listed.name == R::NAME));
        let rows = match (segment::bytes(self.run, R::NAME, self.number), listed) {
            (Err(error), _) => Err(error.to_string()),
            // A flush writes no segment for a table without rows.
            (Ok(None), None | Some(None)) => Ok(Vec::new()),
            (Ok(None), Some(Some(_))) => Err("it is missing".to_owned()),
            (Ok(Some(_)), Some(None)) => Err("the manifest does not list it".to_owned()),
            (Ok(Some(bytes)), Some(Some(listed))) => self.read_listed::<R>(bytes, listed),
            (Ok(Some(bytes)), None) => self.decode::<R>(bytes),
        };
        rows.unwrap_or_else(|reason| {
            self.unread.push((R::NAME, reason));
            Vec::new()
        })
    }

    fn read_listed<R: Table>(
        &mut self,
        bytes: Vec<u8>,
        listed: &Listed,
    ) -> Result<Vec<Keyed<R, R::Key>>, String> {
        if !listed.is(&bytes) {
            // The file's own checksum gives the better reason.
            segment::verify(&bytes).map_err(|damage| damage.to_string())?;
            return Err("its checksum differs from the checksum in the manifest".to_owned());
        }
        let rows = self.decode::<R>(bytes)?;
        match listed.rows {
            Some(count) if count != rows.len() as u64 => {
                Err(format!("it has {} rows, but the manifest lists {count}", rows.len()))
            }
            _ => Ok(rows),
        }
    }

    fn decode<R: Table>(&mut self, bytes: Vec<u8>) -> Result<Vec<Keyed<R, R::Key>>, String> {
        segment::decode::<R>(&bytes.into(), &mut self.room).map_err(|damage| {
            self.lacks_room |= matches!(damage, segment::Damage::Room);
            damage.to_string()
        })
    }

    /// Records intervals and histograms that were found without each other.
    pub(crate) fn note_apart(&mut self, apart: Apart) {
        self.apart = apart;
    }

    fn into_segment(self, rows: Rows, info: &RunInfo) -> Segment {
        let Self { number, flush, unread, apart, .. } = self;
        let of = flush.map_or_else(|| parts_of(&rows), |flush| flush.of.clone());
        let mut segment = Segment { number, rows, ..Segment::default() };
        let mut reasons: Vec<(String, Vec<&str>)> = Vec::new();
        for (table, reason) in unread {
            match reasons.iter_mut().find(|(known, _)| *known == reason) {
                Some((_, tables)) => tables.push(table),
                None => reasons.push((reason, vec![table])),
            }
        }
        let unaffected = || "the other segments are not affected".to_owned();
        let lost = of.first().map_or_else(unaffected, |part| format!("lost: {part}"));
        for (reason, tables) in reasons {
            let file = |table: &&str| format!("{table}/{}", segment::file_name(number));
            let files: Vec<String> = tables.iter().map(file).collect();
            let text = format!("skipped {}: {reason}; {lost}", files.join(", "));
            let warning = Warning::new(WarningCode::DamagedSegment, text);
            let loses_samples = tables.iter().any(|table| ["intervals", "histograms"].contains(table));
            segment.damages.push(Damage { warning, of: of.clone(), loses_samples });
        }
        segment.add_apart(apart, flush.is_some(), info);
        segment
    }
}

impl Segment {
    /// Reports intervals and histograms that were found without each other. In runs without a manifest, histograms
    /// without an interval are leftovers of a killed process, unless their repeat is done.
    fn add_apart(&mut self, apart: Apart, is_listed: bool, info: &RunInfo) {
        let (number, Apart { intervals, histograms }) = (self.number, apart);
        if let Some(max_ns) = intervals.iter().map(|(_, interval)| interval.max_ns.unwrap_or(0)).max() {
            let samples = intervals.iter().fold(0u64, |sum, (_, it)| sum.saturating_add(it.samples));
            let text = format!(
                "segment {number}: skipped {} intervals with {samples} samples (the largest {max_ns} ns): their \
                 histograms are missing",
                intervals.len()
            );
            let of = parts_of(&Rows { intervals, ..Rows::default() });
            self.damages.push(Damage {
                loses_samples: true,
                of,
                ..Damage::of_run(WarningCode::IncompleteInterval, text)
            });
        }
        let Some(first) = histograms.first() else { return };
        let text =
            format!("segment {number}: skipped {} histograms: their intervals are missing", histograms.len());
        let is_done = |cell: &str, repeat, attempt| {
            let newest = info.newest_execution(cell, repeat);
            newest.is_some_and(|it| it.attempt == attempt && it.state == ExecutionState::Done)
        };
        if !is_listed && !histograms.iter().any(|key| is_done(&key.cell, key.repeat, key.attempt)) {
            self.warnings.push(Warning::new(WarningCode::IncompleteInterval, text));
            return;
        }
        let (cell, probes) = (first.cell.clone(), vec![first.probe.clone()]);
        let of = vec![Part { cell, repeat: first.repeat, attempt: first.attempt, probes, ..Part::default() }];
        self.damages.push(Damage {
            loses_samples: true,
            of,
            ..Damage::of_run(WarningCode::IncompleteInterval, text)
        });
    }
}
