//! Rows of the tables as the rest of the program knows them.

use crate::directory::RunDirectory;
use crate::error::StoreError;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use whylate_core::record::{
    CounterRecord, InterruptRecord, Interval, IpiRecord, RateRecord, SpikeCauses, SpikeRecord,
};
use whylate_core::{CpuId, SeriesName};

/// What a row of a probe belongs to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RowKey {
    /// Name of the cell.
    pub cell: String,
    /// Number of the repeat, from 1.
    pub repeat: u32,
    /// Number of the attempt at that repeat, from 1.
    pub attempt: u32,
    /// The probe, joined to its series if it has several (`timer`, `roundtrip/futex`); or [`NOISE_FLOOR`].
    pub probe: String,
}

/// Name under which the rows of the noise-floor check are stored.
pub const NOISE_FLOOR: &str = "noise-floor";

/// What a row of a load belongs to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RateKey {
    /// Name of the cell.
    pub cell: String,
    /// Number of the repeat, from 1.
    pub repeat: u32,
    /// Number of the attempt at that repeat, from 1.
    pub attempt: u32,
    /// Name of the load in the plan.
    pub load: String,
    /// Unit of the rate: `bytes_per_s`, or what the plan calls it.
    pub unit: String,
}

/// An interval of CLOCK_MONOTONIC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span {
    /// Its begin.
    pub start_ns: u64,
    /// Its end.
    pub end_ns: u64,
}

/// A row of `interrupts`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterruptRow {
    /// What it belongs to.
    pub key: Arc<RowKey>,
    /// Over which time.
    pub span: Span,
    /// CPU, line and count.
    pub record: InterruptRecord,
}

/// A row of `counters`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CounterRow {
    /// What it belongs to.
    pub key: Arc<RowKey>,
    /// Over which time.
    pub span: Span,
    /// CPU and counters.
    pub record: CounterRecord,
}

/// A row of `ipis`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IpiRow {
    /// What it belongs to.
    pub key: Arc<RowKey>,
    /// Over which time.
    pub span: Span,
    /// CPU, function, sender and count.
    pub record: IpiRecord,
}

/// Rows of all tables: what a flush writes and a segment holds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rows {
    /// Intervals with their histograms.
    pub intervals: Vec<(Arc<RowKey>, Interval)>,
    /// Moments above the threshold.
    pub spikes: Vec<(Arc<RowKey>, SpikeRecord)>,
    /// Who made spikes late.
    pub causes: Vec<(Arc<RowKey>, SpikeCauses)>,
    /// Interrupts that other CPUs sent.
    pub ipis: Vec<IpiRow>,
    /// What the loads achieved.
    pub rates: Vec<(Arc<RateKey>, RateRecord)>,
    /// Interrupts handled.
    pub interrupts: Vec<InterruptRow>,
    /// The kernel's counters.
    pub counters: Vec<CounterRow>,
}

impl Rows {
    /// Whether there is no row in any table.
    pub fn is_empty(&self) -> bool {
        self.intervals.is_empty()
            && self.spikes.is_empty()
            && self.causes.is_empty()
            && self.ipis.is_empty()
            && self.rates.is_empty()
            && self.interrupts.is_empty()
            && self.counters.is_empty()
    }

    /// Keeps intervals of a probe, with their histograms, for the next flush.
    pub fn add_intervals(&mut self, key: &Arc<RowKey>, intervals: impl IntoIterator<Item = Interval>) {
        self.intervals.extend(keyed(key, intervals, |interval| interval.series.take()));
    }

    /// Keeps spikes of a probe for the next flush.
    pub fn add_spikes(&mut self, key: &Arc<RowKey>, spikes: impl IntoIterator<Item = SpikeRecord>) {
        self.spikes.extend(keyed(key, spikes, |spike| spike.series.take()));
    }

    /// Keeps who made spikes of a probe late for the next flush.
    pub fn add_causes(&mut self, key: &Arc<RowKey>, causes: impl IntoIterator<Item = SpikeCauses>) {
        self.causes.extend(keyed(key, causes, |spike| spike.series.take()));
    }

    /// Keeps the interrupts that other CPUs sent over `span` while a probe ran, for the next flush.
    pub fn add_ipis(&mut self, key: &Arc<RowKey>, span: Span, ipis: impl IntoIterator<Item = IpiRecord>) {
        let rows = ipis.into_iter().map(|record| IpiRow { key: Arc::clone(key), span, record });
        self.ipis.extend(rows);
    }

    /// Keeps rates of a load for the next flush.
    pub fn add_rates(&mut self, key: &Arc<RateKey>, rates: impl IntoIterator<Item = RateRecord>) {
        self.rates.extend(rates.into_iter().map(|rate| (Arc::clone(key), rate)));
    }

    /// Keeps the interrupts handled over `span` while a probe ran, for the next flush. Counts of 0 are left out.
    pub fn add_interrupts(
        &mut self,
        key: &Arc<RowKey>,
        span: Span,
        interrupts: impl IntoIterator<Item = InterruptRecord>,
    ) {
        let handled = interrupts.into_iter().filter(|record| record.count > 0);
        let rows = handled.map(|record| InterruptRow { key: Arc::clone(key), span, record });
        self.interrupts.extend(rows);
    }

    /// Keeps the kernel's counters over `span` while a probe ran, for the next flush.
    pub fn add_counters(
        &mut self,
        key: &Arc<RowKey>,
        span: Span,
        counters: impl IntoIterator<Item = CounterRecord>,
    ) {
        let rows = counters.into_iter().map(|record| CounterRow { key: Arc::clone(key), span, record });
        self.counters.extend(rows);
    }
}

/// Where a repeat leaves what it brings: the run's directory, or the memory of a measurement that is only printed.
pub trait Sink {
    /// The rows that are kept for the next flush.
    fn rows(&mut self) -> &mut Rows;

    /// Makes what was added since the last flush safe: one segment for each table that has rows.
    ///
    /// # Errors
    /// [`StoreError::DiskFull`], [`StoreError::Io`] or [`StoreError::Encode`], naming the segment. The rows are kept, so
    /// that the flush can be tried again; all earlier segments stay readable.
    fn flush(&mut self) -> Result<(), StoreError>;

    /// The run's directory, if there is one.
    fn directory(&self) -> Option<&RunDirectory>;

    /// The file that keeps what the command of a load prints in one attempt.
    fn load_output_path(&self, key: &RateKey) -> PathBuf;
}

/// Rows of a probe, each with the key of its series, which is part of the key from then on.
fn keyed<R>(
    key: &Arc<RowKey>,
    rows: impl IntoIterator<Item = R>,
    take_series: impl Fn(&mut R) -> Option<String>,
) -> impl Iterator<Item = (Arc<RowKey>, R)> {
    let mut keys = SeriesKeys::new(key);
    rows.into_iter().map(move |mut row| (keys.of(take_series(&mut row).as_deref()), row))
}

/// The keys of a probe's series: the series becomes part of the probe's name.
struct SeriesKeys<'k> {
    probe: &'k Arc<RowKey>,
    series: HashMap<String, Arc<RowKey>>,
}

impl<'k> SeriesKeys<'k> {
    fn new(probe: &'k Arc<RowKey>) -> Self {
        Self { probe, series: HashMap::new() }
    }

    fn of(&mut self, series: Option<&str>) -> Arc<RowKey> {
        let Some(series) = series else { return Arc::clone(self.probe) };
        let known = self.series.entry(series.to_owned()).or_insert_with(|| {
            let probe = SeriesName::in_probe(&self.probe.probe, Some(series)).to_string();
            Arc::new(RowKey { probe, ..RowKey::clone(self.probe) })
        });
        Arc::clone(known)
    }
}

/// One bucket of one interval: a row of `histograms`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BucketRow {
    pub(crate) key: Arc<RowKey>,
    pub(crate) cpu: CpuId,
    pub(crate) start_ns: u64,
    pub(crate) lower_ns: u64,
    pub(crate) count: u64,
}
