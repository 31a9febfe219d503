//! `rates`: a row for each second of a load.

use super::column::{Column, columns};
use super::{RateKey, Rows, Table};
use std::sync::Arc;
use whylate_core::record::RateRecord;

impl Table for RateRecord {
    const NAME: &'static str = "rates";
    type Key = RateKey;
    const COLUMNS: &'static [Column<Self>] = columns![row: Self =>
        Delta "at_ns" row.at_ns,
        Delta "interval_ns" row.interval_ns,
        Plain "value" row.value,
    ];
}

impl Rows {
    /// Keeps rates of a load for the next flush.
    pub fn add_rates(&mut self, key: &Arc<RateKey>, rates: impl IntoIterator<Item = RateRecord>) {
        self.rates.extend(rates.into_iter().map(|rate| (Arc::clone(key), rate)));
    }
}
