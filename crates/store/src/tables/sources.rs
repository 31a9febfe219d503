//! `sources`: a row for each thing that took time from a loop that never sleeps.

use super::column::{Column, columns};
use super::{RowKey, Rows, Span, Spanned, Table};
use std::sync::Arc;
use whylate_core::record::SourceRecord;

impl Table for Spanned<SourceRecord> {
    const NAME: &'static str = "sources";
    type Key = RowKey;
    const COLUMNS: &'static [Column<Self>] = columns![row: Self =>
        Dictionary "cpu" row.record.cpu.0,
        Dictionary "cause" row.record.kind,
        Dictionary "actor" row.record.actor,
        Dictionary "function" row.record.function,
        Dictionary "start_ns" row.span.start_ns,
        Dictionary "end_ns" row.span.end_ns,
        Delta "gaps" row.record.gaps,
        Delta "total_ns" row.record.total_ns,
        Delta "max_ns" row.record.max_ns,
    ];
}

impl Rows {
    /// Keeps the sources of time lost by a probe over `span`, for the next flush.
    pub fn add_sources(
        &mut self,
        key: &Arc<RowKey>,
        span: Span,
        sources: impl IntoIterator<Item = SourceRecord>,
    ) {
        self.sources.extend(key.over(span, sources));
    }

    /// As [`Self::add_sources`], for several series of the probe.
    pub fn add_sources_of_series(
        &mut self,
        key: &Arc<RowKey>,
        span: Span,
        sources: impl IntoIterator<Item = (Option<String>, SourceRecord)>,
    ) {
        let with_key = key.of_series(sources, |(series, _)| series.take());
        self.sources.extend(with_key.map(|(key, (_, record))| (key, Spanned { span, record })));
    }
}
