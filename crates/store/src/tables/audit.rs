//! `audit`: a row for each finding of an audit, watched thread and interval.

use super::column::{Column, columns};
use super::{RowKey, Rows, Span, Spanned, Table};
use std::sync::Arc;
use whylate_core::result::AuditRecord;

impl Table for Spanned<AuditRecord> {
    const NAME: &'static str = "audit";
    type Key = RowKey;
    const COLUMNS: &'static [Column<Self>] = columns![row: Self =>
        Dictionary "cpu" row.record.cpu.0,
        Dictionary "finding" row.record.kind,
        Dictionary "call" row.record.call,
        Dictionary "object" row.record.object,
        Dictionary "start_ns" row.span.start_ns,
        Dictionary "end_ns" row.span.end_ns,
        Delta "count" row.record.count,
        Delta "runs" row.record.runs,
        Delta "of_runs" row.record.of_runs,
        Delta "took_ns" row.record.took_ns,
        Delta "longest_ns" row.record.longest_ns,
        Dictionary "place" row.record.place,
        Dictionary "allowed" row.record.allowed,
    ];
}

impl Rows {
    /// Keeps what an audit found over `span`, for the next flush.
    pub fn add_audit(&mut self, key: &Arc<RowKey>, span: Span, found: impl IntoIterator<Item = AuditRecord>) {
        let with_key = key.of_series(found, |one| one.series.take());
        self.audit.extend(with_key.map(|(key, record)| (key, Spanned { span, record })));
    }
}
