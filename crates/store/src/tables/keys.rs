//! The keys of rows.

use super::column::{Column, columns};
use super::{Key, Keyed};
use std::collections::HashMap;
use std::sync::Arc;
use whylate_core::SeriesName;

/// The key of a probe's row.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RowKey {
    pub cell: String,
    /// Number of the repeat, from 1.
    pub repeat: u32,
    /// Number of the attempt at that repeat, from 1.
    pub attempt: u32,
    /// The probe, joined with its series if it has several (`timer`, `roundtrip/futex`); or [`NOISE_FLOOR`].
    pub probe: String,
}

/// Name under which the rows of the noise-floor check are stored.
pub const NOISE_FLOOR: &str = "noise-floor";

/// The key of a load's row.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RateKey {
    pub cell: String,
    /// Number of the repeat, from 1.
    pub repeat: u32,
    /// Number of the attempt at that repeat, from 1.
    pub attempt: u32,
    /// Name of the load in the plan.
    pub load: String,
    /// Unit of the rate: `bytes_per_s`, or the plan's own name.
    pub unit: String,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span {
    pub start_ns: u64,
    pub end_ns: u64,
}

/// A record counted over a span of time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spanned<R> {
    pub span: Span,
    pub record: R,
}

impl Key for RowKey {
    const COLUMNS: &'static [Column<Self>] = columns![key: Self =>
        Dictionary "cell" key.cell,
        Dictionary "repeat" key.repeat,
        Dictionary "attempt" key.attempt,
        Dictionary "probe" key.probe,
    ];

    fn attempt(&self) -> (&str, u32, u32) {
        (&self.cell, self.repeat, self.attempt)
    }
}

impl Key for RateKey {
    const COLUMNS: &'static [Column<Self>] = columns![key: Self =>
        Dictionary "cell" key.cell,
        Dictionary "repeat" key.repeat,
        Dictionary "attempt" key.attempt,
        Dictionary "load" key.load,
        Dictionary "unit" key.unit,
    ];

    fn attempt(&self) -> (&str, u32, u32) {
        (&self.cell, self.repeat, self.attempt)
    }
}

impl RowKey {
    /// Whether the row belongs to the noise-floor check, and so to no probe of the plan.
    pub(crate) fn is_noise_floor(&self) -> bool {
        self.probe == NOISE_FLOOR
    }

    /// Records of the probe, each with the key of its series: the series becomes part of the probe's name.
    pub(super) fn of_series<R>(
        self: &Arc<Self>,
        records: impl IntoIterator<Item = R>,
        take_series: impl Fn(&mut R) -> Option<String>,
    ) -> impl Iterator<Item = Keyed<R, Self>> {
        let mut keys: HashMap<String, Arc<Self>> = HashMap::new();
        let with_key = move |mut record: R| match take_series(&mut record) {
            None => (Arc::clone(self), record),
            Some(series) => {
                let probe = SeriesName::in_probe(&self.probe, Some(&series)).to_string();
                let key = keys.entry(series).or_insert_with(|| Arc::new(Self { probe, ..Self::clone(self) }));
                (Arc::clone(key), record)
            }
        };
        records.into_iter().map(with_key)
    }

    /// Records counted over `span` while the probe ran.
    pub(super) fn over<R>(
        self: &Arc<Self>,
        span: Span,
        records: impl IntoIterator<Item = R>,
    ) -> impl Iterator<Item = Keyed<Spanned<R>, Self>> {
        records.into_iter().map(move |record| (Arc::clone(self), Spanned { span, record }))
    }
}
