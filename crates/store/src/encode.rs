//! Rows into columns.

use crate::rows::{BucketRow, RowKey, Rows};
use crate::table::{Batch, Values};
use parquet::data_type::ByteArray;
use std::sync::Arc;
use whylate_core::CpuId;
use whylate_core::record::SpikeCauses;
use whylate_core::result::Cause;

/// Moments and counts that do not fit 63 bits cannot occur (292 years of nanoseconds); should one come all the
/// same it is kept as the largest number rather than as a negative one.
fn int(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
fn ints(values: impl Iterator<Item = u64>) -> Values {
    Values::Int64(values.map(int).collect())
}
fn optionals(values: impl Iterator<Item = Option<u64>>) -> Values {
    Values::OptionalInt64(values.map(|value| value.map(int)).collect())
}
fn numbers(values: impl Iterator<Item = u32>) -> Values {
    Values::Int32(values.map(|value| i32::try_from(value).unwrap_or(i32::MAX)).collect())
}
fn texts<'t>(values: impl Iterator<Item = &'t str>) -> Values {
    let mut last: Option<(&str, ByteArray)> = None;
    let shared = |text: &'t str| match &last {
        // Neighbours mostly say the same: they share one copy.
        Some((known, bytes)) if *known == text => bytes.clone(),
        _ => {
            let bytes = ByteArray::from(text);
            last = Some((text, bytes.clone()));
            bytes
        }
    };
    Values::Text(values.map(shared).collect())
}

fn optional_texts<'t>(values: impl Iterator<Item = Option<&'t str>>) -> Values {
    Values::OptionalText(values.map(|value| value.map(ByteArray::from)).collect())
}

/// The columns that tables of probes begin with.
fn probe_columns<'k>(
    run: &str,
    count: usize,
    rows: impl Iterator<Item = (&'k RowKey, CpuId)> + Clone,
) -> Vec<Values> {
    vec![
        texts(std::iter::repeat_n(run, count)),
        texts(rows.clone().map(|(key, _)| key.cell.as_str())),
        numbers(rows.clone().map(|(key, _)| key.repeat)),
        numbers(rows.clone().map(|(key, _)| key.attempt)),
        texts(rows.clone().map(|(key, _)| key.probe.as_str())),
        numbers(rows.map(|(_, cpu)| cpu.0)),
    ]
}

impl Rows {
    /// Each bucket as a row of its own, CPU by CPU and in the order of the edges: counts of neighbouring buckets
    /// resemble each other, so that their differences are small.
    fn buckets(&self) -> Vec<BucketRow> {
        let mut buckets: Vec<BucketRow> = Vec::new();
        for (key, interval) in &self.intervals {
            buckets.extend(interval.histogram.iter().map(|&(lower_ns, count)| BucketRow {
                key: Arc::clone(key),
                cpu: interval.cpu,
                start_ns: interval.start_ns,
                lower_ns,
                count,
            }));
        }
        buckets.sort_by(|a, b| {
            let order = |row: &BucketRow| (row.cpu, row.start_ns, row.lower_ns);
            a.key.cmp(&b.key).then_with(|| order(a).cmp(&order(b)))
        });
        buckets
    }

    pub(crate) fn histogram_batch(&self, run: &str) -> Batch {
        let rows = self.buckets();
        let mut columns = probe_columns(run, rows.len(), rows.iter().map(|row| (row.key.as_ref(), row.cpu)));
        columns.push(ints(rows.iter().map(|row| row.start_ns)));
        columns.push(ints(rows.iter().map(|row| row.lower_ns)));
        columns.push(ints(rows.iter().map(|row| row.count)));
        Batch { columns }
    }

    pub(crate) fn interval_batch(&self, run: &str) -> Batch {
        let rows = &self.intervals;
        let mut columns =
            probe_columns(run, rows.len(), rows.iter().map(|(key, row)| (key.as_ref(), row.cpu)));
        let rows = || rows.iter().map(|(_, row)| row);
        columns.push(ints(rows().map(|row| row.start_ns)));
        columns.push(ints(rows().map(|row| row.end_ns)));
        columns.push(ints(rows().map(|row| row.samples)));
        columns.push(ints(rows().map(|row| row.sum_ns)));
        columns.push(optionals(rows().map(|row| row.min_ns)));
        columns.push(optionals(rows().map(|row| row.max_ns)));
        columns.push(optionals(rows().map(|row| row.overruns)));
        columns.push(optionals(rows().map(|row| row.gaps)));
        columns.push(optionals(rows().map(|row| row.lost_ns)));
        columns.push(ints(rows().map(|row| row.spikes_dropped)));
        columns.push(optionals(rows().map(|row| row.peer_cpu.map(|cpu| u64::from(cpu.0)))));
        columns.push(optionals(rows().map(|row| row.counter_hz)));
        Batch { columns }
    }

    pub(crate) fn spike_batch(&self, run: &str) -> Batch {
        let rows = &self.spikes;
        let mut columns =
            probe_columns(run, rows.len(), rows.iter().map(|(key, row)| (key.as_ref(), row.cpu)));
        columns.push(ints(rows.iter().map(|(_, row)| row.at_ns)));
        columns.push(ints(rows.iter().map(|(_, row)| row.latency_ns)));
        columns.push(ints(rows.iter().map(|(_, row)| row.sample)));
        Batch { columns }
    }

    pub(crate) fn rate_batch(&self, run: &str) -> Batch {
        let rows = &self.rates;
        let columns = vec![
            texts(std::iter::repeat_n(run, rows.len())),
            texts(rows.iter().map(|(key, _)| key.cell.as_str())),
            numbers(rows.iter().map(|(key, _)| key.repeat)),
            numbers(rows.iter().map(|(key, _)| key.attempt)),
            texts(rows.iter().map(|(key, _)| key.load.as_str())),
            texts(rows.iter().map(|(key, _)| key.unit.as_str())),
            ints(rows.iter().map(|(_, row)| row.at_ns)),
            ints(rows.iter().map(|(_, row)| row.interval_ns)),
            Values::Double(rows.iter().map(|(_, row)| row.value).collect()),
        ];
        Batch { columns }
    }

    pub(crate) fn interrupt_batch(&self, run: &str) -> Batch {
        let rows = &self.interrupts;
        let mut columns =
            probe_columns(run, rows.len(), rows.iter().map(|row| (row.key.as_ref(), row.record.cpu)));
        columns.push(texts(rows.iter().map(|row| row.record.line.as_str())));
        columns.push(texts(rows.iter().map(|row| row.record.description.as_str())));
        columns.push(ints(rows.iter().map(|row| row.span.start_ns)));
        columns.push(ints(rows.iter().map(|row| row.span.end_ns)));
        columns.push(ints(rows.iter().map(|row| row.record.count)));
        Batch { columns }
    }

    pub(crate) fn counter_batch(&self, run: &str) -> Batch {
        let rows = &self.counters;
        let mut columns =
            probe_columns(run, rows.len(), rows.iter().map(|row| (row.key.as_ref(), row.record.cpu)));
        columns.push(ints(rows.iter().map(|row| row.span.start_ns)));
        columns.push(ints(rows.iter().map(|row| row.span.end_ns)));
        columns.push(optionals(rows.iter().map(|row| row.record.steal_ns)));
        columns.push(optionals(rows.iter().map(|row| row.record.smis)));
        columns.push(optionals(rows.iter().map(|row| row.record.involuntary_switches)));
        columns.push(optionals(rows.iter().map(|row| row.record.page_faults)));
        Batch { columns }
    }

    pub(crate) fn cause_batch(&self, run: &str) -> Batch {
        // A row for each contributor.
        let all = self.causes.iter().flat_map(|(key, spike)| {
            spike.causes.iter().enumerate().map(move |(rank, cause)| (key.as_ref(), spike, rank, cause))
        });
        let rows: Vec<(&RowKey, &SpikeCauses, usize, &Cause)> = all.collect();
        let mut columns =
            probe_columns(run, rows.len(), rows.iter().map(|(key, spike, ..)| (*key, spike.cpu)));
        let callers: Vec<String> = rows.iter().map(|(.., cause)| cause.callers.join(" ")).collect();
        let evidence: Vec<String> = rows.iter().map(|(.., cause)| cause.evidence.join("\n")).collect();
        let causes = || rows.iter().map(|(.., cause)| *cause);
        columns.extend([
            ints(rows.iter().map(|(_, spike, ..)| spike.at_ns)),
            ints(rows.iter().map(|(_, spike, ..)| spike.latency_ns)),
            numbers(rows.iter().map(|(_, _, rank, _)| *rank as u32)),
            texts(causes().map(|cause| cause.kind.name())),
            optional_texts(causes().map(|cause| cause.actor.as_deref())),
            optionals(causes().map(|cause| cause.pid.map(u64::from))),
            optional_texts(causes().map(|cause| cause.function.as_deref())),
            texts(callers.iter().map(String::as_str)),
            optionals(causes().map(|cause| cause.from_ns)),
            optionals(causes().map(|cause| cause.to_ns)),
            Values::OptionalDouble(causes().map(|cause| cause.share).collect()),
            Values::OptionalDouble(causes().map(|cause| cause.confidence).collect()),
            texts(evidence.iter().map(String::as_str)),
            ints(rows.iter().map(|(_, spike, ..)| spike.lost)),
        ]);
        Batch { columns }
    }

    pub(crate) fn ipi_batch(&self, run: &str) -> Batch {
        let rows = &self.ipis;
        let mut columns =
            probe_columns(run, rows.len(), rows.iter().map(|row| (row.key.as_ref(), row.record.cpu)));
        let stacks: Vec<String> = rows.iter().map(|row| row.record.stack.join(" ")).collect();
        columns.extend([
            texts(rows.iter().map(|row| row.record.function.as_str())),
            optional_texts(rows.iter().map(|row| row.record.caller.as_deref())),
            optionals(rows.iter().map(|row| row.record.from_cpu.map(|cpu| u64::from(cpu.0)))),
            optional_texts(rows.iter().map(|row| row.record.from_task.as_deref())),
            texts(stacks.iter().map(String::as_str)),
            ints(rows.iter().map(|row| row.span.start_ns)),
            ints(rows.iter().map(|row| row.span.end_ns)),
            ints(rows.iter().map(|row| row.record.count)),
        ]);
        Batch { columns }
    }
}
