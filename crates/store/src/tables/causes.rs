//! `causes`: a row for each cause of a spike, the one with the largest share first.

use super::column::{Column, columns};
use super::{Keyed, Record, RowKey, Rows, Table};
use std::borrow::Cow;
use std::sync::Arc;
use whylate_core::CpuId;
use whylate_core::record::SpikeCauses;
use whylate_core::result::Cause;

/// One cause of a spike.
#[derive(Clone, Debug, Default)]
pub(crate) struct CauseRow {
    cpu: CpuId,
    at_ns: u64,
    latency_ns: u64,
    rank: u32,
    cause: Cause,
    evidence: String,
    /// As JSON.
    parts: Option<String>,
    /// As JSON.
    samples: Option<String>,
    /// As JSON.
    counters: Option<String>,
    lost: u64,
}

impl Table for CauseRow {
    const NAME: &'static str = "causes";
    type Key = RowKey;
    const COLUMNS: &'static [Column<Self>] = columns![row: Self =>
        Dictionary "cpu" row.cpu.0,
        Delta "at_ns" row.at_ns,
        Delta "latency_ns" row.latency_ns,
        Dictionary "rank" row.rank,
        Dictionary "cause" row.cause.kind,
        Dictionary "actor" row.cause.actor,
        Delta "pid" row.cause.pid,
        Dictionary "function" row.cause.function,
        Dictionary "callers" row.cause.callers,
        Delta "from_ns" row.cause.from_ns,
        Delta "to_ns" row.cause.to_ns,
        Plain "share" row.cause.share,
        Plain "confidence" row.cause.confidence,
        Dictionary "evidence" row.evidence,
        Dictionary "lost" row.lost,
        Dictionary "parts" row.parts,
        Dictionary "samples" row.samples,
        Dictionary "counters" row.counters,
    ];
}

/// About how much memory causes take.
pub(super) fn causes_bytes(causes: &[Cause]) -> usize {
    let text = |text: &String| size_of_val(text) + text.len();
    let texts = |cause: &Cause| -> usize {
        let names = cause.actor.iter().chain(&cause.function);
        names.chain(&cause.callers).chain(&cause.evidence).map(text).sum()
    };
    size_of_val(causes) + causes.iter().map(texts).sum::<usize>()
}

impl Record for SpikeCauses {
    type Row = CauseRow;

    fn to_rows(spikes: &[Keyed<Self, RowKey>]) -> Cow<'_, [Keyed<CauseRow, RowKey>]> {
        let rows = spikes.iter().flat_map(|(key, spike)| {
            (0..).zip(&spike.causes).map(move |(rank, cause)| {
                let Self { cpu, at_ns, latency_ns, lost, .. } = *spike;
                let (cause, evidence) = (cause.clone(), cause.evidence.join("\n"));
                let parts =
                    (!cause.parts.is_empty()).then(|| serde_json::to_string(&cause.parts).ok()).flatten();
                let samples = cause.samples.as_ref().and_then(|it| serde_json::to_string(it).ok());
                let counters = cause.counters.as_ref().and_then(|it| serde_json::to_string(it).ok());
                let row = CauseRow {
                    cpu,
                    at_ns,
                    latency_ns,
                    rank,
                    cause,
                    evidence,
                    parts,
                    samples,
                    counters,
                    lost,
                };
                (Arc::clone(key), row)
            })
        });
        rows.collect()
    }

    fn from_rows(rows: Vec<Keyed<CauseRow, RowKey>>) -> Vec<Keyed<Self, RowKey>> {
        let mut spikes: Vec<Keyed<Self, RowKey>> = Vec::new();
        for (key, row) in rows {
            let CauseRow { cpu, at_ns, latency_ns, lost, rank, evidence, parts, samples, counters, cause } =
                row;
            let evidence = evidence.split('\n').filter(|line| !line.is_empty()).map(str::to_owned);
            let parts = parts.and_then(|parts| serde_json::from_str(&parts).ok()).unwrap_or_default();
            let samples = samples.and_then(|samples| serde_json::from_str(&samples).ok());
            let counters = counters.and_then(|counters| serde_json::from_str(&counters).ok());
            let cause = Cause { evidence: evidence.collect(), parts, samples, counters, ..cause };
            let same = |(known, spike): &&mut Keyed<Self, RowKey>| {
                *known == key && (spike.cpu, spike.at_ns) == (cpu, at_ns)
            };
            // Causes of one spike follow each other.
            match spikes.last_mut().filter(same) {
                Some((_, spike)) if rank > 0 => spike.causes.push(cause),
                _ => {
                    let causes = vec![cause];
                    spikes.push((key, Self { cpu, series: None, at_ns, latency_ns, causes, lost }));
                }
            }
        }
        spikes
    }

    fn owned_bytes(&self) -> usize {
        causes_bytes(&self.causes)
    }
}

impl Rows {
    /// Keeps the causes of spikes of a probe for the next flush.
    pub fn add_causes(&mut self, key: &Arc<RowKey>, causes: impl IntoIterator<Item = SpikeCauses>) {
        self.causes.extend(key.of_series(causes, |spike| spike.series.take()));
    }
}
