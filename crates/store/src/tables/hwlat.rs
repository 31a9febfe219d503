//! `hwlat`: a row for each sample of the hwlat tracer, as the tracer recorded it.

use super::column::{Column, columns};
use super::{RowKey, Rows, Table};
use std::sync::Arc;
use whylate_core::plan::Tracer;
use whylate_core::record::HwlatRecord;

impl Table for HwlatRecord {
    const NAME: &'static str = "hwlat";
    type Key = RowKey;
    const COLUMNS: &'static [Column<Self>] = columns![row: Self =>
        Dictionary "cpu" row.cpu.0,
        Delta "at_ns" row.at_ns,
        Delta "inner_ns" row.sample.inner_ns,
        Delta "outer_ns" row.sample.outer_ns,
        Delta "count" row.sample.count,
        Delta "nmi_ns" row.sample.nmi_ns,
        Delta "nmi_count" row.sample.nmi_count,
        Delta "wall_ns" row.sample.wall_ns,
    ];
}

impl Rows {
    /// Keeps samples of the hwlat tracer for the next flush.
    pub fn add_hwlat(&mut self, key: &Arc<RowKey>, samples: impl IntoIterator<Item = HwlatRecord>) {
        self.hwlat.extend(key.of_series(samples, |_| Some(Tracer::Hwlat.name().to_owned())));
    }
}
