//! `own`: how samples of a bucket become the machine's own latency.

use super::column::{Column, columns};
use super::{RowKey, Rows, Span, Spanned, Table};
use std::sync::Arc;
use whylate_core::record::OwnRecord;

impl Table for Spanned<OwnRecord> {
    const NAME: &'static str = "own";
    type Key = RowKey;
    const COLUMNS: &'static [Column<Self>] = columns![row: Self =>
        Dictionary "cpu" row.record.cpu.0,
        Dictionary "start_ns" row.span.start_ns,
        Dictionary "end_ns" row.span.end_ns,
        Delta "lower_ns" row.record.lower_ns,
        Delta "removed" row.record.removed,
        Delta "added" row.record.added,
        Delta "max_ns" row.record.max_ns,
        Delta "taken_ns" row.record.taken_ns,
    ];
}

impl Rows {
    /// Keeps the time that the hypervisor and the firmware took from samples over `span`, for the next flush.
    pub fn add_own(&mut self, key: &Arc<RowKey>, span: Span, own: impl IntoIterator<Item = OwnRecord>) {
        self.own.extend(key.over(span, own));
    }
}
