//! `chains`: a row for each chain and interval. `paths`: a row for each part of an explained instance.

use super::column::{Column, columns};
use super::{Keyed, Record, RowKey, Rows, Span, Spanned, Table};
use std::borrow::Cow;
use std::sync::Arc;
use whylate_core::CpuId;
use whylate_core::result::{ChainPart, ChainPath, ChainRecord};

impl Table for Spanned<ChainRecord> {
    const NAME: &'static str = "chains";
    type Key = RowKey;
    const COLUMNS: &'static [Column<Self>] = columns![row: Self =>
        Dictionary "chain" row.record.name,
        Dictionary "start_ns" row.span.start_ns,
        Dictionary "end_ns" row.span.end_ns,
        Dictionary "deadline_ns" row.record.deadline_ns,
        Delta "instances" row.record.instances,
        Delta "late" row.record.late,
        Delta "dropped" row.record.dropped,
        Delta "overtaken" row.record.overtaken,
        Delta "ends_alone" row.record.ends_alone,
        Delta "uncertain" row.record.uncertain,
        Delta "unexplained" row.record.unexplained,
    ];
}

/// One part of a path; a path without parts has one row.
#[derive(Clone, Debug, Default)]
pub(crate) struct PathRow {
    chain: String,
    at_ns: u64,
    latency_ns: u64,
    is_whole: bool,
    nth: u32,
    part: ChainPart,
    on_cpu: Option<u64>,
    by_thread: Option<u64>,
}

impl Table for PathRow {
    const NAME: &'static str = "paths";
    type Key = RowKey;
    const COLUMNS: &'static [Column<Self>] = columns![row: Self =>
        Dictionary "chain" row.chain,
        Dictionary "at_ns" row.at_ns,
        Dictionary "latency_ns" row.latency_ns,
        Dictionary "whole" row.is_whole,
        Delta "part" row.nth,
        Dictionary "thread" row.part.thread,
        Dictionary "thread_id" row.part.pid,
        Dictionary "on_cpu" row.on_cpu,
        Dictionary "what" row.part.what,
        Delta "from_ns" row.part.from_ns,
        Delta "to_ns" row.part.to_ns,
        Dictionary "by" row.part.by,
        Dictionary "by_thread_id" row.by_thread,
    ];
}

impl Record for ChainPath {
    type Row = PathRow;

    fn to_rows(paths: &[Keyed<Self, RowKey>]) -> Cow<'_, [Keyed<PathRow, RowKey>]> {
        let rows = paths.iter().flat_map(|(key, path)| {
            let row = PathRow {
                chain: path.name.clone(),
                at_ns: path.at_ns,
                latency_ns: path.latency_ns,
                is_whole: path.is_whole,
                ..PathRow::default()
            };
            let of_part = |(nth, part): (u32, &ChainPart)| PathRow {
                nth,
                on_cpu: part.cpu.map(|cpu| cpu.0.into()),
                by_thread: part.by_pid.map(u64::from),
                part: part.clone(),
                ..row.clone()
            };
            let mut rows: Vec<PathRow> = (0..).zip(&path.parts).map(of_part).collect();
            if rows.is_empty() {
                rows.push(row);
            }
            rows.into_iter().map(|row| (Arc::clone(key), row))
        });
        rows.collect()
    }

    fn from_rows(rows: Vec<Keyed<PathRow, RowKey>>) -> Vec<Keyed<Self, RowKey>> {
        let mut paths: Vec<Keyed<Self, RowKey>> = Vec::new();
        for (key, row) in rows {
            let PathRow { chain: name, at_ns, latency_ns, is_whole, nth, part, on_cpu, by_thread } = row;
            let cpu = on_cpu.and_then(|cpu| u32::try_from(cpu).ok()).map(CpuId);
            let by_pid = by_thread.and_then(|pid| u32::try_from(pid).ok());
            let part = ChainPart { cpu, by_pid, ..part };
            let same = |(known, it): &&mut Keyed<Self, RowKey>| {
                *known == key && (it.at_ns, &it.name) == (at_ns, &name)
            };
            // The parts of one path follow each other.
            match paths.last_mut().filter(same) {
                Some((_, known)) if nth > 0 => known.parts.push(part),
                _ => {
                    let parts = if part.to_ns > 0 { vec![part] } else { Vec::new() };
                    paths.push((key, Self { name, at_ns, latency_ns, is_whole, parts }));
                }
            }
        }
        paths
    }

    fn owned_bytes(&self) -> usize {
        let parts = self.parts.iter().map(|part| size_of_val(part) + part.thread.len());
        parts.sum()
    }
}

impl Rows {
    /// Keeps what came of chains in `span`, and the instances that were explained, for the next flush.
    pub fn add_chains(
        &mut self,
        key: &Arc<RowKey>,
        span: Span,
        records: impl IntoIterator<Item = ChainRecord>,
        paths: impl IntoIterator<Item = ChainPath>,
    ) {
        let row = |record| (Arc::clone(key), Spanned { span, record });
        self.chains.extend(records.into_iter().map(row));
        self.paths.extend(paths.into_iter().map(|path| (Arc::clone(key), path)));
    }
}
