//! `tasks`: a row for each watched thread and interval: its identity, and what it did in addition to its samples.

use super::column::{Column, columns};
use super::{RowKey, Rows, Span, Spanned, Table};
use std::sync::Arc;
use whylate_core::record::TaskRecord;

impl Table for Spanned<TaskRecord> {
    const NAME: &'static str = "tasks";
    type Key = RowKey;
    const COLUMNS: &'static [Column<Self>] = columns![row: Self =>
        Dictionary "cpu" row.record.cpu.0,
        Dictionary "thread" row.record.thread,
        Dictionary "process" row.record.process,
        Dictionary "command" row.record.command,
        Dictionary "priority" row.record.priority,
        Dictionary "start_ns" row.span.start_ns,
        Dictionary "end_ns" row.span.end_ns,
        Delta "run_ns" row.record.run_ns,
        Delta "preempted_ns" row.record.preempted_ns,
        Delta "blocked_ns" row.record.blocked_ns,
        Delta "quota_ns" row.record.quota_ns,
        Delta "migrations" row.record.migrations,
        Delta "faults" row.record.faults,
        Delta "counted" row.record.counted,
        Delta "instructions" row.record.instructions,
        Delta "cycles" row.record.cycles,
        Delta "cache_misses" row.record.cache_misses,
        Dictionary "sleeps_in" row.record.sleeps_in,
        Dictionary "woken_by" row.record.woken_by,
    ];
}

impl Rows {
    /// Keeps what watched threads did over `span`, for the next flush.
    pub fn add_tasks(&mut self, key: &Arc<RowKey>, span: Span, tasks: impl IntoIterator<Item = TaskRecord>) {
        let with_key = key.of_series(tasks, |task| task.series.take());
        self.tasks.extend(with_key.map(|(key, record)| (key, Spanned { span, record })));
    }
}
