//! The permutation test of the rank sum when labels were drawn within blocks.
//!
//! The slots of a block run in an order that was drawn at random. Under the hypothesis of no effect, each choice of
//! the slots that a cell got in a block is therefore equally likely, whatever the machine did meanwhile: drift,
//! bursts and periodic disturbances affect both cells alike. The distribution of the rank sum is the convolution of
//! one table per block, so it is exact, and it assumes nothing about how repeats depend on each other (Lehmann,
//! Nonparametrics, 1975, chapter 3; Rosenberger and Lachin, Randomization in Clinical Trials, 2016, chapter 6).

use std::collections::BTreeMap;

/// The value of one repeat.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Observation {
    /// The block in which the repeat ran; no block spans a boot or a resumed run.
    pub block: u32,
    /// The statistic, on the scale on which effects add (the logarithm of a latency).
    pub value: f64,
}

/// Both one-sided p-values of the second group against the first.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Tails {
    /// Probability of a rank sum of the second group at least as small as the observed one, without an effect.
    pub(super) lower: f64,
    /// Probability of one at least as large.
    pub(super) upper: f64,
}

impl Tails {
    pub(super) fn two_sided(self) -> f64 {
        (2.0 * self.lower.min(self.upper)).min(1.0)
    }
}

/// Both groups by block: first group, second group.
type Blocks = BTreeMap<u32, (Vec<f64>, Vec<f64>)>;

/// The observations of two groups, in blocks. Blocks with values of only one group carry no information and are left
/// out.
#[derive(Clone, Debug)]
pub(super) struct Blocked {
    blocks: Vec<(Vec<f64>, Vec<f64>)>,
}

impl Blocked {
    pub(super) fn new(first: &[Observation], second: &[Observation]) -> Self {
        let mut blocks = Blocks::new();
        for one in first {
            blocks.entry(one.block).or_default().0.push(one.value);
        }
        for one in second {
            blocks.entry(one.block).or_default().1.push(one.value);
        }
        let both = blocks.into_values().filter(|(first, second)| !first.is_empty() && !second.is_empty());
        Self { blocks: both.collect() }
    }

    /// Number of values in the smaller group.
    pub(super) fn repeats(&self) -> usize {
        let count = |of: fn(&(Vec<f64>, Vec<f64>)) -> usize| self.blocks.iter().map(of).sum::<usize>();
        count(|block| block.0.len()).min(count(|block| block.1.len()))
    }

    /// The smallest two-sided p-value that these blocks can give.
    pub(super) fn smallest_p(&self) -> f64 {
        let choices: f64 = self.blocks.iter().map(|(a, b)| binomial(a.len() + b.len(), b.len())).product();
        (2.0 / choices).min(1.0)
    }

    /// Differences between every value of the second group and every value of the first in the same block, ascending.
    pub(super) fn differences(&self) -> Vec<f64> {
        let mut all: Vec<f64> = self
            .blocks
            .iter()
            .flat_map(|(first, second)| first.iter().flat_map(move |a| second.iter().map(move |b| b - a)))
            .collect();
        all.sort_by(f64::total_cmp);
        all
    }

    /// Tests whether the second group differs from the first by `shift`.
    pub(super) fn test(&self, shift: f64) -> Tails {
        let ranks = self.ranks(shift);
        let mut sums = vec![1.0f64];
        let mut observed = 0usize;
        let mut next = 0;
        for (first, second) in &self.blocks {
            let all = first.len() + second.len();
            let of_block = &ranks[next..next + all];
            next += all;
            observed += of_block[first.len()..].iter().sum::<usize>();
            sums = convolved(&sums, &choices_by_sum(of_block, second.len()));
        }
        let total: f64 = sums.iter().sum();
        let share = |part: &[f64]| part.iter().sum::<f64>() / total;
        Tails { lower: share(&sums[..=observed]), upper: share(&sums[observed..]) }
    }

    /// Twice the rank of each value among all, block by block, first group first; equal values share the mean of their
    /// ranks.
    fn ranks(&self, shift: f64) -> Vec<usize> {
        let values: Vec<f64> = self
            .blocks
            .iter()
            .flat_map(|(first, second)| first.iter().copied().chain(second.iter().map(|value| value - shift)))
            .map(to_grid)
            .collect();
        let mut order: Vec<usize> = (0..values.len()).collect();
        order.sort_by(|a, b| values[*a].total_cmp(&values[*b]));
        let mut ranks = vec![0; values.len()];
        let mut before = 0;
        for equal in order.chunk_by(|a, b| values[*a] == values[*b]) {
            equal.iter().for_each(|index| ranks[*index] = 2 * before + equal.len() + 1);
            before += equal.len();
        }
        ranks
    }
}

/// Makes values equal that differ only by rounding errors.
fn to_grid(value: f64) -> f64 {
    (value * 1e9).round() / 1e9 + 0.0
}

pub(crate) fn binomial(n: usize, k: usize) -> f64 {
    (1..=k).map(|i| (n - k + i) as f64 / i as f64).product()
}

/// `[sum]`: the number of ways to choose `chosen` of the ranks with that sum.
fn choices_by_sum(ranks: &[usize], chosen: usize) -> Vec<f64> {
    let width = ranks.iter().sum::<usize>() + 1;
    let mut ways = vec![vec![0.0f64; width]; chosen + 1];
    ways[0][0] = 1.0;
    for &rank in ranks {
        for size in (1..=chosen).rev() {
            let (smaller, larger) = ways.split_at_mut(size);
            for (target, source) in larger[0][rank..].iter_mut().zip(&smaller[size - 1]) {
                *target += source;
            }
        }
    }
    ways.swap_remove(chosen)
}

fn convolved(left: &[f64], right: &[f64]) -> Vec<f64> {
    let mut sums = vec![0.0; left.len() + right.len() - 1];
    for (offset, ways) in right.iter().enumerate().filter(|(_, ways)| **ways > 0.0) {
        for (target, source) in sums[offset..].iter_mut().zip(left) {
            *target += source * ways;
        }
    }
    // Only proportions count; without this the numbers of choices of many blocks would overflow.
    let largest = sums.iter().fold(0.0f64, |a, b| a.max(*b));
    sums.iter_mut().for_each(|ways| *ways /= largest);
    sums
}
