//! `intervals`: a row for each interval of a probe on a CPU, without its histogram.

use super::column::{self, Column, columns};
use super::{RowKey, Rows, Table};
use std::sync::{Arc, LazyLock};
use whylate_core::quantity::TABLE;
use whylate_core::record::Interval;

impl Table for Interval {
    const NAME: &'static str = "intervals";
    type Key = RowKey;
    const COLUMNS: &'static [Column<Self>] = columns![row: Self =>
        Dictionary "cpu" row.cpu.0,
        Delta "start_ns" row.start_ns,
        Delta "end_ns" row.end_ns,
        Delta "samples" row.samples,
        Delta "sum_ns" row.sum_ns,
        Delta "min_ns" row.min_ns,
        Delta "max_ns" row.max_ns,
        Dictionary "spikes_dropped" row.spikes_dropped,
    ];

    /// A column for each quantity that intervals have.
    fn more_columns() -> &'static [Column<Self>] {
        static COLUMNS: LazyLock<Vec<Column<Interval>>> = LazyLock::new(|| {
            let stored = TABLE.iter().enumerate().filter(|(_, row)| row.is_stored());
            stored.map(|(number, row)| column::of_quantity(number, row)).collect()
        });
        &COLUMNS
    }

    fn owned_bytes(&self) -> usize {
        16 * self.histogram.len()
    }
}

impl Rows {
    /// Keeps intervals of a probe, with their histograms, for the next flush.
    pub fn add_intervals(&mut self, key: &Arc<RowKey>, intervals: impl IntoIterator<Item = Interval>) {
        self.intervals.extend(key.of_series(intervals, |interval| interval.series.take()));
    }
}
