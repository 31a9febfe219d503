//! A latency histogram: bucket counts, and the exact smallest value, largest value and sum.
//!
//! Nothing is cut off: every `u64` has a bucket (see [`crate::buckets`]). The order of the samples is not kept.

use crate::StatsError;
use crate::buckets::{index_of, is_lower_edge, last_value, lower_edge, midpoint, width};
use std::collections::BTreeMap;
use whylate_core::record::{Interval, OwnRecord};
use whylate_core::result::Quantiles;

/// Counts of values in nanoseconds.
///
/// Memory grows with the largest value, not with the number of samples: at most 59 KiB.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    /// Count of each bucket, up to the last one with samples.
    counts: Vec<u64>,
    count: u64,
    min: Option<u64>,
    max: Option<u64>,
    sum: u128,
}

impl Histogram {
    /// An empty histogram.
    pub fn new() -> Self {
        Self::default()
    }

    /// What was recorded in one interval, with the exact extremes and sum that were recorded next to the buckets.
    ///
    /// The measuring thread goes on while it is read, so a sample may be in the buckets of one interval and in the
    /// extremes of the next. An extreme therefore never narrows the buckets, and the merged intervals are exact.
    ///
    /// # Errors
    /// [`StatsError::NotALowerEdge`] for the first row whose edge is not one.
    pub fn from_interval(interval: &Interval) -> Result<Self, StatsError> {
        let mut histogram = Self::new();
        for &(lower_edge_ns, count) in &interval.histogram {
            histogram.add_count(checked_index(lower_edge_ns)?, count);
        }
        let first = histogram.indexed().next().map(|(index, _)| index);
        let last = histogram.indexed().last().map(|(index, _)| index);
        let smallest = first.map(|index| interval.min_ns.unwrap_or(midpoint(index)).min(last_value(index)));
        let largest = last.map(|index| interval.max_ns.unwrap_or(midpoint(index)).max(lower_edge(index)));
        for extreme in [smallest, largest, interval.min_ns, interval.max_ns].into_iter().flatten() {
            histogram.widen(extreme);
        }
        histogram.sum = u128::from(interval.sum_ns);
        Ok(histogram)
    }

    /// Counts one value.
    pub fn record(&mut self, value: u64) {
        self.record_n(value, 1);
    }

    /// Counts `count` samples of the same value.
    pub fn record_n(&mut self, value: u64, count: u64) {
        if count > 0 {
            self.add_count(index_of(value), count);
            self.widen(value);
            self.add_sum(u128::from(value).saturating_mul(u128::from(count)));
        }
    }

    /// Adds all samples of `other`.
    pub fn merge(&mut self, other: &Self) {
        for (index, count) in other.indexed() {
            self.add_count(index, count);
        }
        for extreme in [other.min, other.max].into_iter().flatten() {
            self.widen(extreme);
        }
        self.add_sum(other.sum);
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    /// Whether there is no sample.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Smallest sample, exact; `None` without samples.
    pub fn min(&self) -> Option<u64> {
        self.min
    }

    /// Largest sample, exact; `None` without samples.
    pub fn max(&self) -> Option<u64> {
        self.max
    }

    /// Sum of all samples, exact.
    pub fn sum(&self) -> u128 {
        self.sum
    }

    /// Mean, exact up to the resolution of `f64`; `None` without samples.
    pub fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum as f64 / self.count as f64)
    }

    /// The sample that at least the share `q` of all samples does not exceed: the one of rank `ceil(q * count)`.
    ///
    /// The first and the last rank are exact; others are the midpoint of their bucket, clamped to
    /// [smallest, largest]: within 1/256 of the sample. `None` without samples or with `q` outside [0, 1].
    pub fn quantile(&self, q: f64) -> Option<u64> {
        if !(0.0..=1.0).contains(&q) || self.count == 0 {
            return None;
        }
        let (min, max) = self.min.zip(self.max)?;
        let rank = rank_of(q, self.count);
        Some(if rank == 1 {
            min
        } else if rank == self.count {
            max
        } else {
            midpoint(self.bucket_of_rank(rank).0).clamp(min, max)
        })
    }

    /// Median with a resolution finer than a bucket. The samples of the middle bucket count as spread evenly over it
    /// (the median of grouped data), where a bucket of width 1 at `v` reaches from `v - 0.5` to `v + 0.5`.
    ///
    /// For very regular values that whole nanoseconds resolve too coarsely, such as the turns of a measuring loop.
    /// `None` without samples.
    pub fn median_interpolated(&self) -> Option<f64> {
        let (min, max) = self.min.zip(self.max)?;
        if self.count == 0 {
            return None;
        }
        let (index, before, inside) = self.bucket_of_rank(self.count.div_ceil(2));
        let share = (self.count as f64 / 2.0 - before as f64) / inside as f64;
        let value = lower_edge(index) as f64 - 0.5 + width(index) as f64 * share;
        Some(value.clamp(min as f64, max as f64))
    }

    /// The quantiles that results carry; `None` without samples.
    pub fn quantiles(&self) -> Option<Quantiles> {
        Some(Quantiles {
            min_ns: self.min?,
            mean_ns: self.mean()?,
            p50_ns: self.quantile(0.5)?,
            p99_ns: self.quantile(0.99)?,
            p999_ns: self.quantile(0.999)?,
            p9999_ns: self.quantile(0.9999)?,
            max_ns: self.max?,
        })
    }

    /// `(lower edge, count)` of every bucket with samples, ascending.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.indexed().map(|(index, count)| (lower_edge(index), count))
    }

    /// `(index, count)` of every bucket with samples, ascending.
    pub(crate) fn indexed(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        self.counts.iter().copied().enumerate().filter(|(_, count)| *count > 0)
    }

    /// Adds to a bucket without touching extremes and sum. Counts of damaged files saturate.
    pub(crate) fn add_count(&mut self, index: usize, count: u64) {
        if count == 0 {
            return;
        }
        if index >= self.counts.len() {
            self.counts.resize(index + 1, 0);
        }
        self.counts[index] = self.counts[index].saturating_add(count);
        self.count = self.count.saturating_add(count);
    }

    /// Makes the extremes hold `value`.
    pub(crate) fn widen(&mut self, value: u64) {
        self.min = Some(self.min.map_or(value, |min| min.min(value)));
        self.max = Some(self.max.map_or(value, |max| max.max(value)));
    }

    /// Adds to the sum of all samples.
    pub(crate) fn add_sum(&mut self, sum: u128) {
        self.sum = self.sum.saturating_add(sum);
    }

    /// The histogram with samples moved to the buckets of the machine's own latency; `None` without samples, and if
    /// rows are damaged. The smallest value stays. The largest is exact if it was not moved, or if the last bucket
    /// holds only moved samples; otherwise it is the last value of that bucket.
    pub(crate) fn moved(&self, rows: &[OwnRecord]) -> Option<Self> {
        let (min, max) = self.min.zip(self.max)?;
        let mut moved = self.clone();
        let mut came: BTreeMap<usize, OwnRecord> = BTreeMap::new();
        for row in rows {
            let index = checked_index(row.lower_ns).ok()?;
            let total = came.entry(index).or_default();
            total.added = total.added.saturating_add(row.added);
            total.removed = total.removed.saturating_add(row.removed);
            total.max_ns = total.max_ns.max(row.max_ns);
            moved.sum = moved.sum.saturating_sub(u128::from(row.taken_ns));
            moved.add_count(index, row.added);
        }
        for (index, total) in &came {
            if let Some(count) = moved.counts.get_mut(*index) {
                *count = count.saturating_sub(total.removed);
            }
        }
        moved.count = moved.counts.iter().fold(0, |sum, count| count.saturating_add(sum));
        let last = moved.indexed().last().map(|(index, _)| index)?;
        let total = came.get(&last).copied().unwrap_or_default();
        let own_max = match total.max_ns {
            Some(largest) if moved.counts[last] == total.added => largest,
            _ if index_of(max) == last && total.removed == 0 => max,
            _ => last_value(last),
        };
        moved.max = Some(own_max.clamp(min, max));
        Some(moved)
    }

    /// Index of the bucket that holds the sample of that rank (from 1), samples before it, samples in it.
    fn bucket_of_rank(&self, rank: u64) -> (usize, u64, u64) {
        let mut before = 0u64;
        let mut last = (0, 0, 1);
        for (index, count) in self.indexed() {
            last = (index, before, count);
            before = before.saturating_add(count);
            if before >= rank {
                break;
            }
        }
        last
    }
}

/// The rank of quantile `q` among `count` samples, from 1.
fn rank_of(q: f64, count: u64) -> u64 {
    // 0.07 * 100 is 7.000000000000001 in binary: that must remain rank 7.
    let rank = (q * count as f64 * (1.0 - 2.0 * f64::EPSILON)).ceil();
    (rank as u64).clamp(1, count.max(1))
}

fn checked_index(lower_edge_ns: u64) -> Result<usize, StatsError> {
    if is_lower_edge(lower_edge_ns) {
        Ok(index_of(lower_edge_ns))
    } else {
        Err(StatsError::NotALowerEdge { lower_edge_ns })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn recorded(values: &[u64]) -> Histogram {
        let mut histogram = Histogram::new();
        values.iter().for_each(|value| histogram.record(*value));
        histogram
    }

    /// Latencies of every magnitude up to hours.
    fn latencies() -> impl Strategy<Value = Vec<u64>> {
        prop::collection::vec((0u64..1 << 45, 0u32..45).prop_map(|(value, shift)| value >> shift), 1..300)
    }

    #[test]
    fn an_empty_histogram_has_no_figures() {
        let empty = Histogram::new();
        assert_eq!((empty.min(), empty.max(), empty.mean(), empty.quantile(0.5)), (None, None, None, None));
        assert_eq!(empty.quantiles(), None);
        assert_eq!(empty.median_interpolated(), None);
        assert_eq!(empty.buckets().count(), 0);
    }

    #[test]
    fn samples_are_moved_to_their_remaining_value() {
        let row = |lower: u64, removed, added, max_ns, taken_ns| OwnRecord {
            lower_ns: lower_edge(index_of(lower)),
            removed,
            added,
            max_ns,
            taken_ns,
            ..OwnRecord::default()
        };
        let raw = recorded(&[5_000, 6_000, 7_000, 1_000_000, 9_000_000]);
        let own = raw
            .moved(&[row(9_000_000, 1, 0, None, 8_800_000), row(200_000, 0, 1, Some(200_000), 0)])
            .unwrap();
        assert_eq!((own.count(), own.min()), (5, Some(5_000)));
        assert!(
            own.max().is_some_and(|max| (1_000_000..1_008_000).contains(&max)),
            "the last value of its bucket"
        );
        assert_eq!(own.sum(), raw.sum() - 8_800_000);
        let both = [row(9_000_000, 1, 0, None, 8_800_000), row(1_000_000, 1, 0, None, 999_000)];
        let own = raw.moved(
            &[&both[..], &[row(200_000, 0, 1, Some(200_001), 0), row(1_000, 0, 1, Some(1_000), 0)]].concat(),
        );
        assert_eq!(own.unwrap().max(), Some(200_001), "with moved samples alone the largest is exact");
        assert_eq!(
            raw.moved(&[row(0, 0, 0, None, 0)]).unwrap().quantiles(),
            raw.quantiles(),
            "looked at, and nothing taken"
        );
        assert_eq!(Histogram::new().moved(&[]), None);
        assert!(raw.moved(&[OwnRecord { lower_ns: 1_000_001, ..OwnRecord::default() }]).is_none());
    }

    #[test]
    fn quantiles_outside_the_unit_interval_are_refused() {
        let histogram = recorded(&[1, 2, 3]);
        assert_eq!([-0.1, 1.1, f64::NAN].map(|q| histogram.quantile(q)), [None; 3]);
    }

    #[test]
    fn extremes_beyond_the_buckets_are_kept_and_never_narrow_them() {
        let interval =
            |min_ns, max_ns| Interval { min_ns, max_ns, histogram: vec![(1000, 2)], ..Default::default() };
        let seen = |min, max| {
            let histogram = Histogram::from_interval(&interval(min, max)).unwrap();
            (histogram.min().unwrap(), histogram.max().unwrap())
        };
        assert_eq!(seen(Some(1001), Some(1002)), (1001, 1002));
        assert_eq!(seen(Some(10), Some(9000)), (10, 9000));
        assert_eq!(seen(None, None), (1001, 1001));
        assert_eq!(seen(Some(2000), Some(2000)), (1003, 2000));
        assert_eq!(seen(Some(1000), Some(500)), (500, 1000), "a damaged file does not panic");
    }

    #[test]
    fn counts_of_damaged_files_saturate() {
        let mut histogram = Histogram::new();
        for _ in 0..3 {
            histogram.record_n(u64::MAX, u64::MAX);
        }
        assert_eq!(histogram.count(), u64::MAX);
        assert_eq!(histogram.quantile(0.5), Some(u64::MAX));
    }

    #[test]
    fn the_interpolated_median_is_finer_than_a_bucket() {
        let mut histogram = Histogram::new();
        histogram.record_n(14, 400);
        histogram.record_n(15, 600);
        // The 500th of 1000 samples: a sixth of the way through the bucket from 14.5 to 15.5.
        assert!((histogram.median_interpolated().unwrap() - (14.5 + 1.0 / 6.0)).abs() < 1e-9);
        assert_eq!(recorded(&[14, 14, 14]).median_interpolated(), Some(14.0));
    }

    proptest! {
        #[test]
        fn each_rank_is_within_a_bucket(values in latencies()) {
            let histogram = recorded(&values);
            let mut sorted = values;
            sorted.sort_unstable();
            for (position, &exact) in sorted.iter().enumerate() {
                let q = (position + 1) as f64 / sorted.len() as f64;
                let got = histogram.quantile(q).unwrap();
                prop_assert!(got.abs_diff(exact) * 256 <= exact, "q {}: {} for {}", q, got, exact);
                prop_assert!(exact >= 256 || got == exact);
            }
        }

        #[test]
        fn extremes_and_mean_are_exact(values in latencies()) {
            let quantiles = recorded(&values).quantiles().unwrap();
            prop_assert_eq!(Some(&quantiles.min_ns), values.iter().min());
            prop_assert_eq!(Some(&quantiles.max_ns), values.iter().max());
            let mean = values.iter().map(|value| *value as f64).sum::<f64>() / values.len() as f64;
            prop_assert!((quantiles.mean_ns - mean).abs() <= 1e-9 * mean);
            let ordered = [
                quantiles.min_ns, quantiles.p50_ns, quantiles.p99_ns, quantiles.p999_ns, quantiles.p9999_ns,
                quantiles.max_ns,
            ];
            prop_assert!(ordered.is_sorted());
        }

        #[test]
        fn merging_is_recording_together(a in latencies(), b in latencies()) {
            let mut merged = recorded(&a);
            merged.merge(&recorded(&b));
            prop_assert_eq!(merged, recorded(&[a, b].concat()));
        }

        #[test]
        fn an_interval_gives_back_what_was_recorded(values in latencies()) {
            let histogram = recorded(&values);
            let interval = Interval {
                samples: histogram.count(),
                sum_ns: histogram.sum() as u64,
                min_ns: histogram.min(),
                max_ns: histogram.max(),
                histogram: histogram.buckets().collect(),
                ..Default::default()
            };
            prop_assert_eq!(Histogram::from_interval(&interval).unwrap(), histogram);
        }

        #[test]
        fn the_interpolated_median_is_in_the_median_bucket(values in latencies()) {
            let histogram = recorded(&values);
            let mut sorted = values;
            sorted.sort_unstable();
            let exact = sorted[(sorted.len() - 1) / 2];
            let got = histogram.median_interpolated().unwrap();
            prop_assert!((got - exact as f64).abs() <= width(index_of(exact)) as f64);
        }

        #[test]
        fn ranks_of_simple_fractions_are_exact(count in 1u64..100_000, share in 0.0..1.0f64) {
            let rank = ((count as f64 * share) as u64).clamp(1, count);
            prop_assert_eq!(rank_of(rank as f64 / count as f64, count), rank);
        }
    }
}
