//! The two-sided permutation test of the rank sum (Wilcoxon, Mann and Whitney), exact with ties.
//!
//! Under the hypothesis that a group's values do not differ from the other's, each choice of the group out of all
//! values is equally likely: the p-value is the share of choices whose rank sum is at least as far from its mean
//! as the observed one. Nothing is assumed about the shape of the distributions.

/// Up to this many values in both groups together, every choice is counted.
const EXACT_MAX: usize = 64;
/// Choices drawn when there are more values.
const DRAWS: u32 = 20_000;
/// Seed of the draws: the same data always gives the same p-value.
const SEED: u64 = 0x77_68_79_6c_61_74_65;

/// What the test says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct RankSum {
    /// Probability of a rank sum at least this far from the mean if the groups do not differ.
    pub(crate) p_value: f64,
    /// Whether the second group's ranks are above (`Greater`) or below the first group's.
    pub(crate) second: std::cmp::Ordering,
}

/// Compares two groups of values; both must have at least one (with an empty one, p is 1).
pub(crate) fn rank_sum(first: &[u64], second: &[u64]) -> RankSum {
    let (ranks, groups) = doubled_ranks(first, second);
    let total: u64 = ranks.iter().sum();
    let sum_of_first: u64 =
        ranks.iter().zip(&groups).filter(|(_, first)| **first).map(|(rank, _)| rank).sum();
    let far = Distance { count: ranks.len() as u64, expected: first.len() as u64 * total };
    let observed = far.of(sum_of_first);
    let p_value = if first.is_empty() || second.is_empty() {
        1.0
    } else if ranks.len() <= EXACT_MAX {
        exact(&ranks, first.len(), &far, observed)
    } else {
        drawn(ranks, first.len(), &far, observed)
    };
    RankSum { p_value: p_value.min(1.0), second: far.expected.cmp(&(sum_of_first * far.count)) }
}

/// Number of ways to choose the first group out of all values; the smallest p-value is 2 over it.
pub(crate) fn choices(first: usize, second: usize) -> f64 {
    (1..=first).map(|k| (second + k) as f64 / k as f64).product()
}

/// Distance of a rank sum from its mean, times the number of values so that it stays a whole number.
struct Distance {
    count: u64,
    expected: u64,
}

impl Distance {
    fn of(&self, rank_sum: u64) -> u64 {
        (rank_sum * self.count).abs_diff(self.expected)
    }
}

/// Twice the rank of each value in ascending order (equal values share the mean of their ranks, which may be
/// a half), and whether it is of the first group.
fn doubled_ranks(first: &[u64], second: &[u64]) -> (Vec<u64>, Vec<bool>) {
    let mut values: Vec<(u64, bool)> = first.iter().map(|value| (*value, true)).collect();
    values.extend(second.iter().map(|value| (*value, false)));
    values.sort_unstable();
    let mut ranks = Vec::with_capacity(values.len());
    for equal in values.chunk_by(|a, b| a.0 == b.0) {
        let (begin, length) = (ranks.len() as u64, equal.len() as u64);
        ranks.extend(std::iter::repeat_n(2 * begin + length + 1, equal.len()));
    }
    (ranks, values.into_iter().map(|(_, is_first)| is_first).collect())
}

/// Counts the choices by size and rank sum, value by value.
fn exact(ranks: &[u64], chosen: usize, far: &Distance, observed: u64) -> f64 {
    let width = ranks.iter().sum::<u64>() as usize + 1;
    // ways[size * width + sum]: choices of that size with that rank sum among the values seen so far.
    let mut ways = vec![0.0f64; (chosen + 1) * width];
    ways[0] = 1.0;
    for &rank in ranks {
        let rank = rank as usize;
        for size in (1..=chosen).rev() {
            let (smaller, larger) = ways.split_at_mut(size * width);
            let without = &smaller[(size - 1) * width..];
            for (target, source) in larger[rank..width].iter_mut().zip(without) {
                *target += source;
            }
        }
    }
    let of_size = &ways[chosen * width..];
    let all: f64 = of_size.iter().sum();
    let as_far: f64 = of_size
        .iter()
        .enumerate()
        .filter(|(sum, _)| far.of(*sum as u64) >= observed)
        .map(|(_, ways)| ways)
        .sum();
    as_far / all
}

/// Draws choices; the observed one counts as drawn too, so that p is never 0 and never too small.
fn drawn(mut ranks: Vec<u64>, chosen: usize, far: &Distance, observed: u64) -> f64 {
    let mut random = SplitMix(SEED);
    let mut as_far = 1u32;
    for _ in 0..DRAWS {
        for position in 0..chosen {
            let other = position + random.below((ranks.len() - position) as u64) as usize;
            ranks.swap(position, other);
        }
        as_far += u32::from(far.of(ranks[..chosen].iter().sum()) >= observed);
    }
    f64::from(as_far) / f64::from(DRAWS + 1)
}

/// The SplitMix64 generator (Steele, Lea, Flood 2014): small, and good enough to shuffle ranks.
pub(crate) struct SplitMix(pub(crate) u64);

impl SplitMix {
    /// The next number.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number in `0..bound`; the bias is below `bound / 2^64`.
    fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::cmp::Ordering;

    /// Every choice, one by one.
    fn by_enumeration(first: &[u64], second: &[u64]) -> f64 {
        let (ranks, groups) = doubled_ranks(first, second);
        let mean = ranks.iter().sum::<u64>() as f64 * first.len() as f64 / ranks.len() as f64;
        let distance = |chosen: u32| {
            let members = (0..ranks.len()).filter(|position| chosen >> position & 1 == 1);
            (members.map(|position| ranks[position] as f64).sum::<f64>() - mean).abs()
        };
        let observed = groups.iter().enumerate().map(|(position, first)| u32::from(*first) << position).sum();
        let choices = (0..1u32 << ranks.len()).filter(|chosen| chosen.count_ones() as usize == first.len());
        let (mut all, mut as_far) = (0u32, 0u32);
        for chosen in choices {
            all += 1;
            as_far += u32::from(distance(chosen) >= distance(observed) - 1e-9);
        }
        f64::from(as_far) / f64::from(all)
    }

    #[test]
    fn separated_groups_have_the_smallest_p() {
        let result = rank_sum(&[1, 2, 3, 4], &[5, 6, 7, 8]);
        assert!((result.p_value - 2.0 / 70.0).abs() < 1e-12);
        assert_eq!(result.second, Ordering::Greater);
        assert_eq!(rank_sum(&[5, 6, 7, 8], &[1, 2, 3, 4]).second, Ordering::Less);
        assert_eq!(choices(4, 4), 70.0);
        assert!((choices(10, 20) - 30_045_015.0).abs() < 1e-3);
        assert_eq!(2.0 / choices(3000, 3000), 0.0, "too many to count is not too few");
    }

    #[test]
    fn equal_values_tell_nothing() {
        let result = rank_sum(&[5; 6], &[5; 6]);
        assert_eq!((result.p_value, result.second), (1.0, Ordering::Equal));
        assert_eq!(rank_sum(&[], &[1]).p_value, 1.0);
    }

    #[test]
    fn drawing_agrees_with_counting() {
        let mut random = SplitMix(7);
        let first: Vec<u64> = (0..15).map(|_| random.below(1000)).collect();
        let second: Vec<u64> = (0..15).map(|_| random.below(1000) + 200).collect();
        let (ranks, groups) = doubled_ranks(&first, &second);
        let total: u64 = ranks.iter().sum();
        let sum = ranks.iter().zip(&groups).filter(|(_, first)| **first).map(|(rank, _)| rank).sum();
        let far = Distance { count: 30, expected: 15 * total };
        let by_draws = drawn(ranks.clone(), 15, &far, far.of(sum));
        let by_count = exact(&ranks, 15, &far, far.of(sum));
        assert!((by_draws - by_count).abs() < 0.01, "{by_draws} and {by_count}");
    }

    #[test]
    fn many_values_are_drawn() {
        let low: Vec<u64> = (0..50).collect();
        let high: Vec<u64> = (40..90).collect();
        let result = rank_sum(&low, &high);
        assert!(result.p_value < 1e-4 && result.p_value > 0.0);
        assert_eq!(result, rank_sum(&low, &high), "the same data gives the same p");
    }

    proptest! {
        #[test]
        fn counting_agrees_with_enumeration(
            first in prop::collection::vec(0u64..20, 1..7), second in prop::collection::vec(0u64..20, 1..7),
        ) {
            let p_value = rank_sum(&first, &second).p_value;
            prop_assert!((p_value - by_enumeration(&first, &second)).abs() < 1e-9);
        }

        #[test]
        fn the_order_of_the_groups_does_not_matter(
            first in prop::collection::vec(0u64..100, 1..20), second in prop::collection::vec(0u64..100, 1..20),
        ) {
            let (forth, back) = (rank_sum(&first, &second), rank_sum(&second, &first));
            prop_assert!((forth.p_value - back.p_value).abs() < 1e-9);
            prop_assert_eq!(forth.second, back.second.reverse());
        }
    }
}
