//! `interrupts`: a row for each interrupt line or softirq and each CPU that handled it.

use super::column::{Column, columns};
use super::{RowKey, Rows, Span, Spanned, Table};
use std::sync::Arc;
use whylate_core::record::InterruptRecord;

impl Table for Spanned<InterruptRecord> {
    const NAME: &'static str = "interrupts";
    type Key = RowKey;
    const COLUMNS: &'static [Column<Self>] = columns![row: Self =>
        Dictionary "cpu" row.record.cpu.0,
        Dictionary "line" row.record.line,
        Dictionary "description" row.record.description,
        Dictionary "start_ns" row.span.start_ns,
        Dictionary "end_ns" row.span.end_ns,
        Delta "count" row.record.count,
    ];
}

impl Rows {
    /// Keeps the interrupts handled over `span` while a probe ran, for the next flush. Counts of 0 are left out.
    pub fn add_interrupts(
        &mut self,
        key: &Arc<RowKey>,
        span: Span,
        interrupts: impl IntoIterator<Item = InterruptRecord>,
    ) {
        let handled = interrupts.into_iter().filter(|record| record.count > 0);
        self.interrupts.extend(key.over(span, handled));
    }
}
