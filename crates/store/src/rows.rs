//! Rows of the tables as the rest of the program knows them.

use std::sync::Arc;
use whylate_core::CpuId;
use whylate_core::record::{
    CounterRecord, InterruptRecord, Interval, IpiRecord, RateRecord, SpikeCauses, SpikeRecord,
};

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
