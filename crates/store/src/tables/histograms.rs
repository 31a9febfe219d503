//! `histograms`: a row for each bucket with samples of an interval.

use super::column::{Column, columns};
use super::{Keyed, RowKey, Table};
use std::collections::HashMap;
use std::sync::Arc;
use whylate_core::CpuId;
use whylate_core::record::Interval;

/// One bucket of one interval.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bucket {
    cpu: CpuId,
    start_ns: u64,
    lower_ns: u64,
    count: u64,
}

impl Table for Bucket {
    const NAME: &'static str = "histograms";
    type Key = RowKey;
    const COLUMNS: &'static [Column<Self>] = columns![row: Self =>
        Dictionary "cpu" row.cpu.0,
        Dictionary "start_ns" row.start_ns,
        Dictionary "lower_ns" row.lower_ns,
        Delta "count" row.count,
    ];
}

/// The buckets of intervals, CPU by CPU and in the order of the edges: neighbouring buckets have similar counts, so
/// that the differences are small.
pub(super) fn buckets(intervals: &[Keyed<Interval, RowKey>]) -> Vec<Keyed<Bucket, RowKey>> {
    let mut sorted: Vec<&Keyed<Interval, RowKey>> = intervals.iter().collect();
    sorted.sort_by(|(a_key, a), (b_key, b)| (a_key, a.cpu, a.start_ns).cmp(&(b_key, b.cpu, b.start_ns)));
    let buckets = sorted.into_iter().flat_map(|(key, Interval { cpu, start_ns, histogram, .. })| {
        histogram.iter().map(move |&(lower_ns, count)| {
            (Arc::clone(key), Bucket { cpu: *cpu, start_ns: *start_ns, lower_ns, count })
        })
    });
    buckets.collect()
}

/// What distinguishes intervals: key, CPU and begin.
type Place = (Arc<RowKey>, CpuId, u64);

/// Intervals and histograms that belong together but were found apart.
#[derive(Default)]
pub(crate) struct Apart {
    /// Intervals with samples but without a histogram: no quantile would include them.
    pub(crate) intervals: Vec<Keyed<Interval, RowKey>>,
    /// The keys of histograms without an interval.
    pub(crate) histograms: Vec<Arc<RowKey>>,
}

/// Gives each interval its histogram; removes those without one.
pub(super) fn join(
    intervals: &mut Vec<Keyed<Interval, RowKey>>,
    buckets: Vec<Keyed<Bucket, RowKey>>,
) -> Apart {
    let mut histograms: HashMap<Place, Vec<(u64, u64)>> = HashMap::new();
    // They come interval by interval: the place is looked up once for each interval, not for each bucket.
    let is_same = |a: &Keyed<Bucket, RowKey>, b: &Keyed<Bucket, RowKey>| {
        Arc::ptr_eq(&a.0, &b.0) && (a.1.cpu, a.1.start_ns) == (b.1.cpu, b.1.start_ns)
    };
    for of_interval in buckets.chunk_by(is_same) {
        let (key, Bucket { cpu, start_ns, .. }) = &of_interval[0];
        let counts = of_interval.iter().map(|(_, bucket)| (bucket.lower_ns, bucket.count));
        histograms.entry((Arc::clone(key), *cpu, *start_ns)).or_default().extend(counts);
    }
    drop(buckets);
    for (key, interval) in &mut *intervals {
        let found = histograms.remove(&(Arc::clone(key), interval.cpu, interval.start_ns));
        interval.histogram = found.unwrap_or_default();
        interval.histogram.sort_unstable();
    }
    let is_whole = |interval: &Interval| interval.samples == 0 || !interval.histogram.is_empty();
    let intervals = intervals.extract_if(.., |(_, interval)| !is_whole(interval)).collect();
    Apart { intervals, histograms: histograms.into_keys().map(|(key, ..)| key).collect() }
}
