//! The buckets of Prometheus' native histograms, made of ours.
//!
//! A native bucket `i` of schema `s` holds the seconds in `(2^((i-1)/2^s), 2^(i/2^s)]`. Each of our buckets goes whole into the
//! one that holds its midpoint: every sample is counted once and none is divided, and a sample is at most 1/256 of itself away
//! from the value by which it was placed.

use crate::Histogram;
use crate::buckets::{index_of, midpoint};

/// Sixteen buckets an octave, each 4.4 % wider than the one below it.
pub const NATIVE_SCHEMA: i32 = 4;

/// A histogram of nanoseconds as a native one of seconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NativeBuckets {
    /// Samples of 0 ns, which no bucket holds.
    pub zeros: u64,
    /// Index and count of each bucket with samples, ascending.
    pub buckets: Vec<(i32, u64)>,
}

impl NativeBuckets {
    /// Of all samples of a histogram.
    pub fn of(histogram: &Histogram) -> Self {
        let mut native = Self::default();
        for (lower_ns, count) in histogram.buckets() {
            if lower_ns == 0 {
                native.zeros += count;
                continue;
            }
            let index = native_index(midpoint(index_of(lower_ns)));
            match native.buckets.last_mut() {
                Some((last, sum)) if *last == index => *sum += count,
                _ => native.buckets.push((index, count)),
            }
        }
        native
    }
}

/// The native bucket that holds that many nanoseconds, which are not 0.
fn native_index(ns: u64) -> i32 {
    let octaves = (ns as f64 / 1e9).log2();
    (octaves * f64::from(1 << NATIVE_SCHEMA)).ceil() as i32
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Edges by their definition, in nanoseconds.
    fn edge_ns(index: i32) -> f64 {
        (f64::from(index) / 16.0).exp2() * 1e9
    }

    #[test]
    fn edges_belong_to_the_bucket_below_them() {
        assert_eq!(
            [1_000_000_000, 1_000_000_001, 500_000_000, 2_000_000_000].map(native_index),
            [0, 1, -16, 16]
        );
        assert_eq!(native_index(1), -478);
    }

    proptest! {
        #[test]
        fn every_sample_is_counted_once_and_near_its_value(values in prop::collection::vec(0_u64..20_000_000_000, 1..300)) {
            let mut histogram = Histogram::new();
            values.iter().for_each(|ns| histogram.record(*ns));
            let native = NativeBuckets::of(&histogram);
            let counted: u64 = native.buckets.iter().map(|(_, count)| count).sum();
            prop_assert_eq!(counted + native.zeros, values.len() as u64);
            prop_assert_eq!(native.zeros, values.iter().filter(|ns| **ns == 0).count() as u64);
            prop_assert!(native.buckets.windows(2).all(|pair| pair[0].0 < pair[1].0));
            // In order, the k-th smallest sample lies in its bucket, or 1/256 of itself beside it.
            let mut sorted: Vec<u64> = values.into_iter().filter(|ns| *ns > 0).collect();
            sorted.sort_unstable();
            let placed = native.buckets.iter().flat_map(|(index, count)| vec![*index; *count as usize]);
            for (ns, index) in sorted.into_iter().zip(placed) {
                let (least, most) = (edge_ns(index - 1), edge_ns(index));
                let slack = ns as f64 / 250.0 + 1e-6;
                prop_assert!(ns as f64 > least - slack && ns as f64 <= most + slack, "{} in {}", ns, index);
            }
        }
    }
}
