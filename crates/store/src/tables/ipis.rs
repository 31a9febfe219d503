//! `ipis`: a row for each function, caller and sender of interrupts that other CPUs sent to a measured CPU.

use super::column::{Column, columns};
use super::{RowKey, Rows, Span, Spanned, Table};
use std::sync::Arc;
use whylate_core::record::IpiRecord;

impl Table for Spanned<IpiRecord> {
    const NAME: &'static str = "ipis";
    type Key = RowKey;
    const COLUMNS: &'static [Column<Self>] = columns![row: Self =>
        Dictionary "cpu" row.record.cpu.0,
        Dictionary "function" row.record.function,
        Dictionary "caller" row.record.caller,
        Delta "from_cpu" row.record.from_cpu,
        Dictionary "from_task" row.record.from_task,
        Dictionary "stack" row.record.stack,
        Dictionary "start_ns" row.span.start_ns,
        Dictionary "end_ns" row.span.end_ns,
        Delta "count" row.record.count,
    ];
}

impl Rows {
    /// Keeps the interrupts that other CPUs sent over `span` while a probe ran, for the next flush.
    pub fn add_ipis(&mut self, key: &Arc<RowKey>, span: Span, ipis: impl IntoIterator<Item = IpiRecord>) {
        self.ipis.extend(key.over(span, ipis));
    }
}
