//! `triggers`: a row for each trigger and interval. `moments`: a row for each thread of an explained trigger.

use super::causes::causes_bytes;
use super::column::{Column, columns};
use super::{Keyed, Record, RowKey, Rows, Span, Spanned, Table};
use std::borrow::Cow;
use std::sync::Arc;
use whylate_core::result::{Cause, TriggerMoment, TriggerRecord, TriggerThread};

/// A row has this many causes of its thread: its text is limited.
const CAUSES_KEPT: usize = 8;

impl Table for Spanned<TriggerRecord> {
    const NAME: &'static str = "triggers";
    type Key = RowKey;
    const COLUMNS: &'static [Column<Self>] = columns![row: Self =>
        Dictionary "trigger" row.record.trigger,
        Dictionary "start_ns" row.span.start_ns,
        Dictionary "end_ns" row.span.end_ns,
        Delta "count" row.record.count,
        Delta "shared" row.record.shared,
        Delta "unexplained" row.record.unexplained,
    ];
}

/// One thread of a moment; a moment without a thread has one row.
#[derive(Clone, Debug, Default)]
pub(crate) struct MomentRow {
    moment: TriggerMoment,
    /// One per line.
    others: String,
    rank: u32,
    thread: Option<String>,
    of_thread: TriggerThread,
    /// The first cause.
    cause: Option<String>,
    actor: Option<String>,
    /// All causes, as JSON.
    causes: Option<String>,
}

impl Table for MomentRow {
    const NAME: &'static str = "moments";
    type Key = RowKey;
    const COLUMNS: &'static [Column<Self>] = columns![row: Self =>
        Delta "at_ns" row.moment.at_ns,
        Dictionary "trigger" row.moment.trigger,
        Dictionary "text" row.moment.text,
        Dictionary "others" row.others,
        Delta "count" row.moment.count,
        Dictionary "rank" row.rank,
        Dictionary "thread" row.thread,
        Delta "due_ns" row.of_thread.due_ns,
        Delta "response_ns" row.of_thread.response_ns,
        Delta "wait_max_ns" row.of_thread.wait_max_ns,
        Delta "typical_ns" row.of_thread.typical_ns,
        Dictionary "late" row.of_thread.late,
        Dictionary "unended" row.of_thread.unended,
        Delta "lost" row.of_thread.lost,
        Dictionary "cause" row.cause,
        Dictionary "actor" row.actor,
        Dictionary "causes" row.causes,
    ];
}

impl Record for TriggerMoment {
    type Row = MomentRow;

    fn to_rows(moments: &[Keyed<Self, RowKey>]) -> Cow<'_, [Keyed<MomentRow, RowKey>]> {
        let rows = moments.iter().flat_map(|(key, moment)| {
            let without = Self { threads: Vec::new(), ..moment.clone() };
            let others = moment.others.join("\n");
            let row = MomentRow { moment: without, others, ..MomentRow::default() };
            let of_thread = |(rank, of_thread): (u32, &TriggerThread)| {
                let first = of_thread.causes.first();
                let kept = &of_thread.causes[..of_thread.causes.len().min(CAUSES_KEPT)];
                MomentRow {
                    rank,
                    thread: Some(of_thread.thread.clone()),
                    cause: first.map(|it| it.kind.name().to_owned()),
                    actor: first.and_then(|it| it.actor.clone()),
                    causes: serde_json::to_string(kept).ok(),
                    of_thread: of_thread.clone(),
                    ..row.clone()
                }
            };
            let mut rows: Vec<MomentRow> = (0..).zip(&moment.threads).map(of_thread).collect();
            if rows.is_empty() {
                rows.push(row);
            }
            rows.into_iter().map(|row| (Arc::clone(key), row))
        });
        rows.collect()
    }

    fn from_rows(rows: Vec<Keyed<MomentRow, RowKey>>) -> Vec<Keyed<Self, RowKey>> {
        let mut moments: Vec<Keyed<Self, RowKey>> = Vec::new();
        for (key, row) in rows {
            let MomentRow { moment, others, rank, thread, of_thread, causes, .. } = row;
            let causes: Vec<Cause> = causes.and_then(|it| serde_json::from_str(&it).ok()).unwrap_or_default();
            let thread = thread.map(|thread| TriggerThread { thread, causes, ..of_thread });
            let same = |(known, it): &&mut Keyed<Self, RowKey>| {
                *known == key && (it.at_ns, &it.trigger) == (moment.at_ns, &moment.trigger)
            };
            // The threads of one moment follow each other.
            match moments.last_mut().filter(same) {
                Some((_, known)) if rank > 0 => known.threads.extend(thread),
                _ => {
                    let others = others.lines().map(str::to_owned).collect();
                    moments.push((key, Self { others, threads: thread.into_iter().collect(), ..moment }));
                }
            }
        }
        moments
    }

    fn owned_bytes(&self) -> usize {
        let threads = self.threads.iter().map(|it| size_of_val(it) + causes_bytes(&it.causes));
        threads.sum()
    }
}

impl Rows {
    /// Keeps how often triggers came in `span`, and those that were explained, for the next flush.
    pub fn add_triggers(
        &mut self,
        key: &Arc<RowKey>,
        span: Span,
        records: impl IntoIterator<Item = TriggerRecord>,
        moments: impl IntoIterator<Item = TriggerMoment>,
    ) {
        let row = |record| (Arc::clone(key), Spanned { span, record });
        self.triggers.extend(records.into_iter().map(row));
        self.moments.extend(moments.into_iter().map(|moment| (Arc::clone(key), moment)));
    }
}
