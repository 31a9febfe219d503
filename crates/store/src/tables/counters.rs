//! `counters`: a row for each CPU with the kernel's counts there.

use super::column::{Column, columns};
use super::{RowKey, Rows, Span, Spanned, Table};
use std::sync::Arc;
use whylate_core::record::CounterRecord;

impl Table for Spanned<CounterRecord> {
    const NAME: &'static str = "counters";
    type Key = RowKey;
    const COLUMNS: &'static [Column<Self>] = columns![row: Self =>
        Dictionary "cpu" row.record.cpu.0,
        Dictionary "start_ns" row.span.start_ns,
        Dictionary "end_ns" row.span.end_ns,
        Delta "steal_ns" row.record.steal_ns,
        Delta "smis" row.record.smis,
        Delta "involuntary_switches" row.record.involuntary_switches,
        Delta "page_faults" row.record.page_faults,
        Delta "wakeups_seen" row.record.wakeups_seen,
    ];
}

impl Rows {
    /// Keeps the kernel's counters over `span` while a probe ran, for the next flush.
    pub fn add_counters(
        &mut self,
        key: &Arc<RowKey>,
        span: Span,
        counters: impl IntoIterator<Item = CounterRecord>,
    ) {
        self.counters.extend(key.over(span, counters));
    }
}
