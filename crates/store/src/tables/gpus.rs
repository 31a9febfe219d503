//! `gpus`: a row for each figure of a graphics device at each reading.

use super::column::{Column, columns};
use super::{RowKey, Rows, Table};
use std::sync::Arc;
use whylate_core::record::GpuRecord;

impl Table for GpuRecord {
    const NAME: &'static str = "gpus";
    type Key = RowKey;
    const COLUMNS: &'static [Column<Self>] = columns![row: Self =>
        Dictionary "device" row.device,
        Dictionary "quantity" row.quantity,
        Delta "at_ns" row.at_ns,
        Delta "interval_ns" row.interval_ns,
        Plain "value" row.value,
    ];
}

impl Rows {
    /// Keeps figures of graphics devices for the next flush.
    pub fn add_gpus(&mut self, key: &Arc<RowKey>, records: impl IntoIterator<Item = GpuRecord>) {
        self.gpus.extend(records.into_iter().map(|record| (Arc::clone(key), record)));
    }
}
