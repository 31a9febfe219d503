//! Reading a run directory, also one whose run was killed at any moment.
//!
//! Segments are read one number at a time, so that the memory needed does not grow with the length of the run.
//! Temporary files are ignored. A segment that is damaged is left out with a warning; nothing else is lost by it.

use crate::decode;
use crate::directory::{is_being_written, segment_numbers};
use crate::error::StoreError;
use crate::info::RunInfo;
use crate::rows::{BucketRow, RowKey, Rows};
use crate::segment::{self, Damage};
use crate::table::{
    Batch, CAUSES, COUNTERS, HISTOGRAMS, INTERRUPTS, INTERVALS, IPIS, RATES, SPIKES, TABLES, Table,
    segment_name,
};
use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use whylate_core::record::Interval;
use whylate_core::{CpuId, Warning};

/// `code` of the warnings about segments that cannot be read.
pub const DAMAGED_SEGMENT: &str = "damaged-segment";
/// `code` of the warnings about intervals of which a part is missing.
pub const INCOMPLETE_INTERVAL: &str = "incomplete-interval";

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
        for table in TABLES {
            numbers.extend(segment_numbers(&path.join(table.name))?);
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
        let mut warnings = Vec::new();
        let buckets = self.read(&HISTOGRAMS, number, decode::buckets, &mut warnings);
        let intervals = self.read(&INTERVALS, number, decode::intervals, &mut warnings);
        let rows = Rows {
            spikes: self.read(&SPIKES, number, decode::spikes, &mut warnings),
            causes: self.read(&CAUSES, number, decode::causes, &mut warnings),
            ipis: self.read(&IPIS, number, decode::ipis, &mut warnings),
            rates: self.read(&RATES, number, decode::rates, &mut warnings),
            interrupts: self.read(&INTERRUPTS, number, decode::interrupts, &mut warnings),
            counters: self.read(&COUNTERS, number, decode::counters, &mut warnings),
            intervals: join(intervals, buckets, number, &mut warnings),
        };
        Segment { number, rows, warnings }
    }

    /// The rows of one segment of one table; none, and a warning, when it cannot be read.
    fn read<R>(
        &self,
        table: &'static Table,
        number: u32,
        decode: impl Fn(&Batch) -> Result<Vec<R>, Damage>,
        warnings: &mut Vec<Warning>,
    ) -> Vec<R> {
        let path = self.path.join(table.name).join(segment_name(number));
        let rows = match fs::read(&path) {
            Ok(bytes) => {
                let batch = segment::decode(table, bytes.into());
                batch.and_then(|batch| decode(&batch)).map_err(|damage| damage.to_string())
            }
            // A flush writes no segment for a table without rows.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Vec::new(),
            Err(error) => Err(error.to_string()),
        };
        rows.unwrap_or_else(|reason| {
            let text = format!("{}: left out: {reason}; the other segments are not affected", path.display());
            warnings.push(Warning::without_fix(DAMAGED_SEGMENT, text));
            Vec::new()
        })
    }
}

/// What names an interval: its key, CPU and begin.
type Place = (Arc<RowKey>, CpuId, u64);

/// Gives each interval its histogram. An interval without one (its segment was lost) is left out: it would be in no
/// quantile; a histogram without an interval was cut off while it was written.
fn join(
    mut intervals: Vec<(Arc<RowKey>, Interval)>,
    buckets: Vec<BucketRow>,
    number: u32,
    warnings: &mut Vec<Warning>,
) -> Vec<(Arc<RowKey>, Interval)> {
    let mut histograms: HashMap<Place, Vec<(u64, u64)>> = HashMap::new();
    for bucket in buckets {
        let place = (bucket.key, bucket.cpu, bucket.start_ns);
        histograms.entry(place).or_default().push((bucket.lower_ns, bucket.count));
    }
    for (key, interval) in &mut intervals {
        let found = histograms.remove(&(Arc::clone(key), interval.cpu, interval.start_ns));
        interval.histogram = found.unwrap_or_default();
        interval.histogram.sort_unstable();
    }
    let mut lost = Lost::default();
    intervals.retain(|(_, interval)| lost.keep(interval));
    if lost.intervals > 0 {
        let Lost { intervals, samples, max_ns } = lost;
        let text = format!(
            "segment {number}: {intervals} intervals with {samples} samples (the largest {max_ns} ns) have no \
             histogram and are left out"
        );
        warnings.push(Warning::without_fix(INCOMPLETE_INTERVAL, text));
    }
    if !histograms.is_empty() {
        let text = format!(
            "segment {number}: {} histograms have no interval and are left out: their writing was cut off",
            histograms.len()
        );
        warnings.push(Warning::without_fix(INCOMPLETE_INTERVAL, text));
    }
    intervals
}

/// Intervals that lost their histogram.
#[derive(Default)]
struct Lost {
    intervals: u64,
    samples: u64,
    max_ns: u64,
}

impl Lost {
    /// Whether the interval can be kept; counts it when not.
    fn keep(&mut self, interval: &Interval) -> bool {
        let whole = interval.samples == 0 || !interval.histogram.is_empty();
        if !whole {
            self.intervals += 1;
            self.samples += interval.samples;
            self.max_ns = self.max_ns.max(interval.max_ns.unwrap_or(0));
        }
        whole
    }
}
