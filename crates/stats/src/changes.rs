//! Where a series of runs changes: Pettitt's test (Applied Statistics 28, 1979) with a p-value from permutations,
//! applied again on both sides of each change.

use crate::contrast::median;
use crate::random::SplitMix;
use whylate_core::order::InOrder;
use whylate_core::result::RUNS_MIN;

/// The highest probability of finding a change in a series without one. Parts are tested at a share of it.
pub const FALSE_ALARMS: f64 = 0.05;
const PERMUTATIONS: u32 = 1999;
/// The least number of runs in a part of a series.
const PART_MIN: usize = 3;

/// A change between two runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Change {
    /// The first value after it.
    pub at: usize,
    /// How often a part without a change looks like this one.
    pub p_value: f64,
    /// Median after it, up to the next one, over the median before it.
    pub ratio: f64,
}

/// The changes in a series, in its order. Values have to be finite.
#[must_use]
pub fn changes(values: &[f64]) -> Vec<Change> {
    let mut found = Vec::new();
    search(values, 0, FALSE_ALARMS, &mut found);
    found.order_by_key(|(at, _)| *at);
    let levels = levels(values, found.iter().map(|(at, _)| *at));
    let change = |((at, p_value), pair): (&(usize, f64), &[f64])| Change {
        at: *at,
        p_value: *p_value,
        ratio: pair[1] / pair[0],
    };
    found.iter().zip(levels.windows(2)).map(change).collect()
}

/// The median of each part between changes, one more than there are changes; `changes` are the first values after them.
#[must_use]
pub fn levels(values: &[f64], changes: impl Iterator<Item = usize>) -> Vec<f64> {
    let edges: Vec<usize> = [0].into_iter().chain(changes).chain([values.len()]).collect();
    let middle = |edges: &[usize]| {
        let mut part = values[edges[0]..edges[1]].to_vec();
        part.order_by(f64::total_cmp);
        median(&part).unwrap_or(f64::NAN)
    };
    edges.windows(2).map(middle).collect()
}

/// Looks for the largest change of a part, then on both sides of it with half of the allowed errors each.
fn search(values: &[f64], offset: usize, allowed: f64, found: &mut Vec<(usize, f64)>) {
    if values.len() < RUNS_MIN {
        return;
    }
    let ranks = ranks(values);
    let (at, size) = largest(&ranks);
    let (mut random, mut permuted) = (SplitMix(values.len() as u64), ranks);
    let as_large = (0..PERMUTATIONS).filter(|_| {
        random.shuffle(&mut permuted);
        largest(&permuted).1 >= size
    });
    let p_value = (1 + as_large.count()) as f64 / f64::from(PERMUTATIONS + 1);
    if p_value > allowed {
        return;
    }
    found.push((offset + at, p_value));
    search(&values[..at], offset, allowed / 2.0, found);
    search(&values[at..], offset + at, allowed / 2.0, found);
}

/// Twice the middle rank of each value, from 2.
fn ranks(values: &[f64]) -> Vec<i64> {
    let below = |value: f64, other: &f64| *other < value;
    let rank = |value: &f64| {
        let smaller = values.iter().filter(|other| below(*value, other)).count();
        let equal = values.iter().filter(|other| *other == value).count();
        (2 * smaller + equal + 1) as i64
    };
    values.iter().map(rank).collect()
}

/// The position at which the ranks before and after differ most, and Pettitt's statistic there.
fn largest(ranks: &[i64]) -> (usize, i64) {
    let count = ranks.len() as i64;
    let mut sum = 0;
    let mut best = (PART_MIN, -1);
    for (index, rank) in ranks.iter().enumerate() {
        sum += rank;
        let before = index + 1;
        let size = (sum - before as i64 * (count + 1)).abs();
        if before >= PART_MIN && before + PART_MIN <= ranks.len() && size > best.1 {
            best = (before, size);
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(random: &mut SplitMix, levels: &[(usize, f64)]) -> Vec<f64> {
        let normal = |random: &mut SplitMix| {
            (-2.0 * random.unit().ln()).sqrt() * (std::f64::consts::TAU * random.unit()).cos()
        };
        let of_level = |&(count, level): &(usize, f64)| vec![level; count];
        levels.iter().flat_map(of_level).map(|level| level * (0.1 * normal(random)).exp()).collect()
    }

    #[test]
    fn a_series_without_a_change_has_one_found_in_at_most_five_percent() {
        let mut random = SplitMix(7);
        let alarms = (0..400).filter(|_| !changes(&series(&mut random, &[(24, 50.0)])).is_empty()).count();
        // At most 20 are expected; 33 is three standard deviations more.
        assert!(alarms <= 33, "{alarms} of 400");
    }

    #[test]
    fn changes_are_found_where_they_are() {
        let mut random = SplitMix(3);
        let mut found = 0;
        for _ in 0..100 {
            let values = series(&mut random, &[(12, 50.0), (12, 65.0), (12, 40.0)]);
            let changes = changes(&values);
            let near = |at: usize| changes.iter().any(|change| change.at.abs_diff(at) <= 2);
            found += usize::from(changes.len() == 2 && near(12) && near(24));
        }
        assert!(found >= 90, "{found} of 100");
        let changes = changes(&series(&mut random, &[(12, 50.0), (12, 100.0)]));
        assert!(changes.len() == 1 && (1.7..2.3).contains(&changes[0].ratio), "{changes:?}");
    }

    #[test]
    fn few_or_equal_values_show_nothing() {
        assert_eq!(changes(&[]), []);
        assert_eq!(changes(&[1.0, 1.0, 1.0, 9.0, 9.0, 9.0, 9.0]), []);
        assert_eq!(changes(&[5.0; 30]), []);
    }
}
