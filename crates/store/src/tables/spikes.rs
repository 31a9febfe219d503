//! `spikes`: a row for each spike that a probe recorded.

use super::column::{Column, columns};
use super::{RowKey, Rows, Table};
use std::sync::Arc;
use whylate_core::record::SpikeRecord;

impl Table for SpikeRecord {
    const NAME: &'static str = "spikes";
    type Key = RowKey;
    const COLUMNS: &'static [Column<Self>] = columns![row: Self =>
        Dictionary "cpu" row.cpu.0,
        Delta "at_ns" row.at_ns,
        Delta "latency_ns" row.latency_ns,
        Delta "sample" row.sample,
        Dictionary "ended_on" row.ended_on,
    ];
}

impl Rows {
    /// Keeps spikes of a probe for the next flush.
    pub fn add_spikes(&mut self, key: &Arc<RowKey>, spikes: impl IntoIterator<Item = SpikeRecord>) {
        self.spikes.extend(key.of_series(spikes, |spike| spike.series.take()));
    }
}
