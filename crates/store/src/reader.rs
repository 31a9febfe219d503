//! Reading a run directory, also one whose run was killed at any moment.
//!
//! Segments are read one number at a time, so that the memory needed does not grow with the length of the run.
//! Temporary files are ignored. A damaged file is skipped with a warning; nothing else is lost by it.

use crate::directory::{is_being_written, segment_numbers};
use crate::disk::if_present;
use crate::error::StoreError;
use crate::info::RunInfo;
use crate::segment;
use crate::tables::{Keyed, NAMES, Rows, Table};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use whylate_core::{Warning, WarningCode};

/// A run directory that is being read.
#[derive(Debug)]
pub struct Reader {
    path: PathBuf,
    info: RunInfo,
    in_progress: bool,
    numbers: Vec<u32>,
}

/// What one flush wrote.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Segment {
    /// Its number, from 1.
    pub number: u32,
    /// Its rows.
    pub rows: Rows,
    /// What of it could not be read.
    pub warnings: Vec<Warning>,
}

impl Reader {
    /// Opens a run directory.
    ///
    /// # Errors
    /// [`StoreError::NotARun`] when `path` holds no `run.json`; [`StoreError::BadInfo`] or
    /// [`StoreError::UnknownFormat`] when that cannot be understood; [`StoreError::Io`] when a folder cannot be read.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        // The lock is looked at first: a run that ends in between is then read as ended.
        let in_progress = is_being_written(path);
        let info = RunInfo::read(path)?;
        let mut numbers = BTreeSet::new();
        for table in NAMES {
            numbers.extend(segment_numbers(&path.join(table))?);
        }
        Ok(Self { path: path.to_owned(), info, in_progress, numbers: numbers.into_iter().collect() })
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// `run.json`.
    pub fn info(&self) -> &RunInfo {
        &self.info
    }

    /// Whether a process was writing to the run when it was opened. A run that says `running` without one was killed.
    pub fn is_in_progress(&self) -> bool {
        self.in_progress
    }

    /// The segments, oldest first; each is read when it is asked for.
    pub fn segments(&self) -> impl Iterator<Item = Segment> + '_ {
        self.numbers.iter().map(|number| self.segment(*number))
    }

    fn segment(&self, number: u32) -> Segment {
        let mut reader = SegmentReader { path: &self.path, number, warnings: Vec::new() };
        let rows = Rows::read(&mut reader);
        Segment { number, rows, warnings: reader.warnings }
    }
}

/// Reads the files of one flush.
pub(crate) struct SegmentReader<'p> {
    path: &'p Path,
    number: u32,
    warnings: Vec<Warning>,
}

impl SegmentReader<'_> {
    /// The rows of one table; none, and a warning, when its file cannot be read.
    pub(crate) fn read<R: Table>(&mut self) -> Vec<Keyed<R, R::Key>> {
        let path = self.path.join(R::NAME).join(segment::file_name(self.number));
        let rows = match if_present(fs::read(&path)) {
            Ok(Some(bytes)) => segment::decode::<R>(bytes.into()).map_err(|damage| damage.to_string()),
            // A flush writes no segment for a table without rows.
            Ok(None) => Ok(Vec::new()),
            Err(error) => Err(error.to_string()),
        };
        rows.unwrap_or_else(|reason| {
            let text = format!("{}: skipped: {reason}; the other segments are not affected", path.display());
            self.warnings.push(Warning::new(WarningCode::DamagedSegment, text));
            Vec::new()
        })
    }

    /// Adds warnings about intervals of which a part is missing.
    pub(crate) fn warn_incomplete(&mut self, problems: Vec<String>) {
        for problem in problems {
            let text = format!("segment {}: {problem}", self.number);
            self.warnings.push(Warning::new(WarningCode::IncompleteInterval, text));
        }
    }
}
