//! Corrects coordinated omission: what a periodic task would have seen if it had been woken in every period.
//!
//! A task that is late by several periods skips the wake-ups in between. One large sample is recorded although each
//! of the missed periods was late too, and every quantile is too good. Each sample of lateness `L` therefore stands
//! for `floor(L / period)` further samples of `L - period`, `L - 2 * period`, …, down to the last one that is not
//! negative. Their number is the number of missed periods that the probe counts as overruns (up to the width of a
//! bucket, since only the largest lateness is known exactly).

use crate::Histogram;
use crate::buckets::{BUCKETS, index_of, last_value, midpoint};
use whylate_core::Nanos;

/// `histogram` with the samples that a task of this period missed; unchanged with a period of zero.
///
/// Samples count as their bucket's midpoint, the largest one exactly. The work depends on the number of buckets, not
/// on the number of missed periods: stalls of hours cost no more than stalls of a second.
pub fn corrected(histogram: &Histogram, period: Nanos) -> Histogram {
    let mut result = histogram.clone();
    let (Some(min), Some(max)) = (histogram.min(), histogram.max()) else {
        return result;
    };
    if period.0 == 0 {
        return result;
    }
    for (index, count) in histogram.indexed() {
        let lateness = midpoint(index).clamp(min, max);
        if index == index_of(max) {
            add_missed(&mut result, max, 1, period.0);
            add_missed(&mut result, lateness, count - 1, period.0);
        } else {
            add_missed(&mut result, lateness, count, period.0);
        }
    }
    result
}

/// Adds what `count` samples of this lateness hid: for each, the values `lateness - period`, `- 2 * period`, …
fn add_missed(result: &mut Histogram, lateness: u64, count: u64, period: u64) {
    let missed = lateness / period;
    if missed == 0 || count == 0 {
        return;
    }
    let (smallest, largest) = (lateness % period, lateness - period);
    if missed <= BUCKETS as u64 {
        for step in 0..missed {
            result.add_count(index_of(smallest + step * period), count);
        }
    } else {
        let mut below = 0;
        for index in index_of(smallest)..=index_of(largest) {
            let up_to = members_up_to(last_value(index).min(largest), smallest, period);
            result.add_count(index, count.saturating_mul(up_to - below));
            below = up_to;
        }
    }
    result.widen(smallest);
    result.widen(largest);
    let pair = u128::from(smallest) + u128::from(largest);
    result
        .add_sum(pair.saturating_mul(u128::from(missed)).saturating_div(2).saturating_mul(u128::from(count)));
}

/// How many of `smallest`, `smallest + period`, … are at most `value`.
fn members_up_to(value: u64, smallest: u64, period: u64) -> u64 {
    value.checked_sub(smallest).map_or(0, |distance| distance / period + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn by_hand(values: &[u64], period: u64) -> Histogram {
        let mut histogram = Histogram::new();
        for &value in values {
            let mut lateness = Some(value);
            while let Some(late) = lateness {
                histogram.record(late);
                lateness = late.checked_sub(period);
            }
        }
        histogram
    }

    fn recorded(values: &[u64]) -> Histogram {
        let mut histogram = Histogram::new();
        values.iter().for_each(|value| histogram.record(*value));
        histogram
    }

    #[test]
    fn a_stall_of_several_periods_shows_in_the_quantiles() {
        let mut histogram = Histogram::new();
        histogram.record_n(28_000, 99_800);
        histogram.record(40_000_000);
        let fixed = corrected(&histogram, Nanos::from_micros(200));
        assert_eq!(fixed.count(), histogram.count() + 200);
        assert_eq!(fixed.max(), Some(40_000_000));
        assert_eq!(fixed.min(), Some(0), "the last missed period was not late at all");
        assert!(histogram.quantile(0.9999).unwrap() < 29_000);
        assert!(fixed.quantile(0.9999).unwrap() > 30_000_000);
    }

    #[test]
    fn hours_cost_no_more_than_seconds() {
        let mut histogram = Histogram::new();
        for hours in 1..2000u64 {
            histogram.record_n(hours * 3_600_000_000_000, 1000);
        }
        let fixed = corrected(&histogram, Nanos::from_micros(200));
        // 18 million missed periods an hour; every sample but the largest is known to 1/256.
        let missed = (fixed.count() - histogram.count()) as f64;
        let expected = 1999.0 * 2000.0 / 2.0 * 18e6 * 1000.0;
        assert!((missed / expected - 1.0).abs() < 1.0 / 256.0, "{missed} for {expected}");
    }

    #[test]
    fn the_extremes_of_the_number_range_do_not_panic() {
        let mut histogram = Histogram::new();
        histogram.record_n(u64::MAX, 3);
        let fixed = corrected(&histogram, Nanos(1));
        assert_eq!((fixed.min(), fixed.max()), (Some(0), Some(u64::MAX)));
        assert_eq!(corrected(&histogram, Nanos(0)), histogram);
        assert_eq!(corrected(&Histogram::new(), Nanos(1)), Histogram::new());
    }

    proptest! {
        #[test]
        fn exact_values_give_the_definition(
            values in prop::collection::vec(0u64..256, 1..100), period in 1u64..300,
        ) {
            prop_assert_eq!(corrected(&recorded(&values), Nanos(period)), by_hand(&values, period));
        }

        #[test]
        fn one_stall_is_exact_at_any_length(stall in 0u64..200_000, period in 1u64..200) {
            // Periods of a few nanoseconds make more missed periods than there are buckets.
            prop_assert_eq!(corrected(&recorded(&[stall]), Nanos(period)), by_hand(&[stall], period));
        }

        #[test]
        fn midpoints_give_the_definition(
            rows in prop::collection::vec((0usize..1300, 1u64..4), 1..20), period in 200u64..5000,
        ) {
            let values: Vec<u64> =
                rows.iter().flat_map(|&(index, count)| vec![midpoint(index); count as usize]).collect();
            prop_assert_eq!(corrected(&recorded(&values), Nanos(period)), by_hand(&values, period));
        }

        #[test]
        fn the_number_of_missed_periods_is_that_of_the_overruns(
            values in prop::collection::vec(0u64..100_000_000, 1..50), period in 100_000u64..1_000_000,
        ) {
            let histogram = recorded(&values);
            let missed = corrected(&histogram, Nanos(period)).count() - histogram.count();
            let overruns: u64 = values.iter().map(|value| value / period).sum();
            // A bucket's midpoint may be on the other side of a multiple of the period.
            let tolerance = overruns / 256 + values.len() as u64;
            prop_assert!(missed.abs_diff(overruns) <= tolerance, "{} missed, {} overruns", missed, overruns);
        }
    }
}
