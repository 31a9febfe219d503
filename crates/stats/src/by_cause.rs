//! Late time by cause in two groups of repeats: which causes take more in the second group, and which take less.
//!
//! In: for each repeat its block, its measured time and the late time of each cause. Out: for each cause its rates,
//! the interval of their difference, and what may be claimed. The unit is the repeat, never the spike, because spikes
//! come in bursts.
//!
//! The labels were drawn at random within blocks, so every choice of slots is equally likely if nothing differs. The
//! statistic of a cause is the sum of the ranks of the second group's rates, divided by its standard deviation over
//! these choices. A claim is corrected for the number of causes by the distribution of the largest statistic
//! (Westfall and Young, Resampling-Based Multiple Testing, 1993), step by step from the largest. At most 5 % of
//! comparisons without a difference claim anything. Both groups together decide which causes are tested, never the
//! labels.

use crate::contrast::{SIGNIFICANCE, binomial, bound};
use crate::random::SplitMix;
use std::collections::{BTreeMap, BTreeSet};
use whylate_core::result::CauseChange;

/// The most causes that have rows of their own; the others share one row. A claim that separates two groups
/// completely survives the correction for this number.
const TESTED_MAX: usize = 48;
/// Up to this number all choices of labels are enumerated; with more, a sample is drawn.
const CHOICES_MAX: f64 = 20_000.0;
const DRAWN: usize = 9_999;
/// Choices that the search for an interval uses.
const INTERVAL_CHOICES_MAX: usize = 2_000;
/// The standardised statistic that a claim about a dozen causes needs.
const NEEDED: f64 = 3.2;

/// What one cause took in one repeat.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CauseTime {
    pub count: u64,
    pub sum_ns: f64,
    pub max_ns: u64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct CauseRepeat<K> {
    /// The block in which the repeat ran; no block spans a boot.
    pub block: u32,
    /// Measured time of all CPUs together, in seconds.
    pub seconds: f64,
    pub causes: BTreeMap<K, CauseTime>,
}

/// A cause in one group.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CauseRate {
    /// Late time, in ns per measured second.
    pub ns_per_s: f64,
    pub per_s: f64,
    pub max_ns: u64,
    /// Repeats in which it occurred.
    pub repeats: usize,
}

#[derive(Clone, Debug, PartialEq)]
pub struct CauseContrast<K> {
    /// Absent in the row of all other causes.
    pub cause: Option<K>,
    pub first: CauseRate,
    pub second: CauseRate,
    /// 95 % interval of the difference of the rates, in ns per s; an end that the repeats do not bound is absent.
    pub difference: (Option<f64>, Option<f64>),
    /// Corrected for the number of causes.
    pub p_value: f64,
    pub change: CauseChange,
    /// Blocks in which the second group has the larger rate, and all blocks.
    pub larger_in: (usize, usize),
    /// About how many more repeats would decide, if they are like these; absent if a claim is made or no estimate is
    /// possible.
    pub more_repeats: Option<u32>,
}

/// Contrasts every cause of two groups; causes that changed come first. A difference of at most `same_ns_per_s`
/// counts as none. `contrasts` is the number of such contrasts that are made together: claims are corrected for it
/// (Bonferroni). Empty unless a block has repeats of both groups.
pub fn by_cause<K: Ord + Clone>(
    first: &[CauseRepeat<K>],
    second: &[CauseRepeat<K>],
    same_ns_per_s: f64,
    contrasts: usize,
) -> Vec<CauseContrast<K>> {
    let slots = Slots::new(first, second);
    if slots.blocks.is_empty() {
        return Vec::new();
    }
    let tested = tested(first, second);
    let mut rows: Vec<Option<K>> = tested.iter().cloned().map(Some).collect();
    let has_others = first.iter().chain(second).any(|it| it.causes.keys().any(|key| !tested.contains(key)));
    if has_others {
        rows.push(None);
    }
    let rates: Vec<Vec<f64>> = rows.iter().map(|row| slots.rates(row.as_ref(), &tested)).collect();
    let choices = slots.choices();
    let p_values = p_values(&slots, &rates, &choices);
    let mut all: Vec<CauseContrast<K>> = rows
        .into_iter()
        .zip(&rates)
        .zip(p_values)
        .map(|((cause, rates), (p_value, statistic))| {
            let p_value = (p_value * contrasts.max(1) as f64).min(1.0);
            let rate = |repeats: &[CauseRepeat<K>]| rate(repeats, cause.as_ref(), &tested);
            let (before, now) = (rate(first), rate(second));
            let difference = slots.interval(rates, &choices);
            let change = change(before, now, difference, p_value, same_ns_per_s);
            let more_repeats = more_repeats(change, statistic, slots.repeats());
            CauseContrast {
                larger_in: slots.larger_in(rates),
                cause,
                first: before,
                second: now,
                difference,
                p_value,
                change,
                more_repeats,
            }
        })
        .collect();
    let is_open = |change| matches!(change, CauseChange::Same | CauseChange::CannotTell);
    let size = |it: &CauseContrast<K>| (it.second.ns_per_s - it.first.ns_per_s).abs();
    all.sort_by(|a, b| is_open(a.change).cmp(&is_open(b.change)).then(size(b).total_cmp(&size(a))));
    all
}

fn change(
    before: CauseRate,
    now: CauseRate,
    (low, high): (Option<f64>, Option<f64>),
    p_value: f64,
    same_ns_per_s: f64,
) -> CauseChange {
    let is_claimed = p_value <= SIGNIFICANCE;
    match () {
        () if is_claimed && low.is_some_and(|low| low > 0.0) => {
            if before.repeats == 0 {
                CauseChange::New
            } else {
                CauseChange::More
            }
        }
        () if is_claimed && high.is_some_and(|high| high < 0.0) => {
            if now.repeats == 0 {
                CauseChange::Gone
            } else {
                CauseChange::Less
            }
        }
        () if [low, high].iter().all(|end| end.is_some_and(|end| end.abs() <= same_ns_per_s)) => {
            CauseChange::Same
        }
        () => CauseChange::CannotTell,
    }
}

/// A standardised statistic grows with the root of the number of repeats.
fn more_repeats(change: CauseChange, statistic: f64, repeats: usize) -> Option<u32> {
    if change != CauseChange::CannotTell || statistic < 0.5 {
        return None;
    }
    let needed = repeats as f64 * (NEEDED / statistic).powi(2);
    Some(((needed - repeats as f64).max(2.0) / 2.0).ceil() as u32 * 2)
}

/// The causes that have rows of their own: those in most repeats, those with the most late time, and always the one
/// with the longest spike. A cause of one group alone is in half of the repeats, behind every cause that is always
/// present: therefore late time counts as much as repeats.
fn tested<K: Ord + Clone>(first: &[CauseRepeat<K>], second: &[CauseRepeat<K>]) -> BTreeSet<K> {
    let mut all: BTreeMap<&K, (usize, f64, u64)> = BTreeMap::new();
    for repeat in first.iter().chain(second).filter(|repeat| repeat.seconds > 0.0) {
        for (cause, time) in repeat.causes.iter().filter(|(_, time)| time.count > 0) {
            let (repeats, rate, max_ns) = all.entry(cause).or_default();
            *repeats += 1;
            *rate += time.sum_ns / repeat.seconds;
            *max_ns = time.max_ns.max(*max_ns);
        }
    }
    let longest = all.iter().max_by_key(|(_, it)| it.2).map(|(cause, _)| (*cause).clone());
    let mut order: Vec<(&K, (usize, f64, u64))> = all.into_iter().collect();
    let half = (TESTED_MAX - 1) / 2;
    order.sort_by(|(_, a), (_, b)| b.1.total_cmp(&a.1));
    let mut chosen: BTreeSet<K> = order.iter().take(half).map(|(cause, _)| (*cause).clone()).collect();
    order.sort_by(|(_, a), (_, b)| b.0.cmp(&a.0).then(b.1.total_cmp(&a.1)));
    let rest = order.iter().map(|(cause, _)| (*cause).clone()).filter(|cause| !chosen.contains(cause));
    let rest: Vec<K> = rest.take(TESTED_MAX - 1 - chosen.len()).chain(longest).collect();
    chosen.extend(rest);
    chosen
}

/// What a row took in one repeat.
fn time_of<K: Ord>(repeat: &CauseRepeat<K>, row: Option<&K>, tested: &BTreeSet<K>) -> CauseTime {
    let add = |sum: CauseTime, time: &CauseTime| CauseTime {
        count: sum.count + time.count,
        sum_ns: sum.sum_ns + time.sum_ns,
        max_ns: sum.max_ns.max(time.max_ns),
    };
    match row {
        Some(cause) => repeat.causes.get(cause).copied().unwrap_or_default(),
        None => {
            let others = repeat.causes.iter().filter(|(cause, _)| !tested.contains(cause));
            others.fold(CauseTime::default(), |sum, (_, time)| add(sum, time))
        }
    }
}

fn rate<K: Ord>(repeats: &[CauseRepeat<K>], row: Option<&K>, tested: &BTreeSet<K>) -> CauseRate {
    let seconds: f64 = repeats.iter().map(|repeat| repeat.seconds).sum();
    let times: Vec<CauseTime> = repeats.iter().map(|repeat| time_of(repeat, row, tested)).collect();
    if seconds <= 0.0 {
        return CauseRate::default();
    }
    CauseRate {
        ns_per_s: times.iter().map(|time| time.sum_ns).sum::<f64>() / seconds,
        per_s: times.iter().map(|time| time.count).sum::<u64>() as f64 / seconds,
        max_ns: times.iter().map(|time| time.max_ns).max().unwrap_or_default(),
        repeats: times.iter().filter(|time| time.count > 0).count(),
    }
}

/// The repeats of both groups, block by block, those of the first group first.
struct Slots<'a, K> {
    repeats: Vec<&'a CauseRepeat<K>>,
    /// `(start, all, of the second group)` of each block that has repeats of both groups.
    blocks: Vec<(usize, usize, usize)>,
}

impl<'a, K: Ord> Slots<'a, K> {
    fn new(first: &'a [CauseRepeat<K>], second: &'a [CauseRepeat<K>]) -> Self {
        let mut groups: BTreeMap<u32, [Vec<&CauseRepeat<K>>; 2]> = BTreeMap::new();
        for (group, repeats) in [first, second].into_iter().enumerate() {
            for repeat in repeats.iter().filter(|repeat| repeat.seconds > 0.0) {
                groups.entry(repeat.block).or_default()[group].push(repeat);
            }
        }
        let mut slots = Slots { repeats: Vec::new(), blocks: Vec::new() };
        for [first, second] in groups.into_values() {
            if !first.is_empty() && !second.is_empty() {
                slots.blocks.push((slots.repeats.len(), first.len() + second.len(), second.len()));
                slots.repeats.extend(first.into_iter().chain(second));
            }
        }
        slots
    }

    /// Repeats of the smaller group.
    fn repeats(&self) -> usize {
        let second: usize = self.blocks.iter().map(|(_, _, second)| second).sum();
        second.min(self.repeats.len() - second)
    }

    /// The rates of a row in ns per s, in the order of the slots.
    fn rates(&self, row: Option<&K>, tested: &BTreeSet<K>) -> Vec<f64> {
        self.repeats.iter().map(|repeat| time_of(repeat, row, tested).sum_ns / repeat.seconds).collect()
    }

    /// Whether each slot belongs to the second group, as it was measured.
    fn labels(&self) -> Vec<bool> {
        let of_block = |(_, all, second): &(usize, usize, usize)| {
            std::iter::repeat_n(false, all - second).chain(std::iter::repeat_n(true, *second))
        };
        self.blocks.iter().flat_map(of_block).collect()
    }

    /// Choices of labels, all equally likely; the first is the measured one.
    fn choices(&self) -> Vec<Vec<bool>> {
        let count: f64 = self.blocks.iter().map(|(_, all, second)| binomial(*all, *second)).product();
        let measured = self.labels();
        if count <= CHOICES_MAX {
            let mut all = vec![Vec::new()];
            for (_, size, second) in &self.blocks {
                let of_block = combinations(*size, *second);
                all = all
                    .iter()
                    .flat_map(|before: &Vec<bool>| {
                        of_block.iter().map(move |it| [before.as_slice(), it].concat())
                    })
                    .collect();
            }
            let place = all.iter().position(|choice| *choice == measured).unwrap_or_default();
            all.swap(0, place);
            return all;
        }
        let mut random = SplitMix(1);
        let mut drawn = vec![measured.clone()];
        drawn.extend((0..DRAWN).map(|_| {
            let mut labels = measured.clone();
            for (start, all, _) in &self.blocks {
                random.shuffle(&mut labels[*start..start + all]);
            }
            labels
        }));
        drawn
    }

    /// The standardised rank sum of the second group, for each choice.
    fn statistics(&self, rates: &[f64], choices: &[Vec<bool>]) -> Vec<f64> {
        let ranks = ranks(rates);
        let (mut expected, mut variance) = (0.0, 0.0);
        for (start, all, second) in &self.blocks {
            let of_block = &ranks[*start..start + all];
            let (n, k) = (*all as f64, *second as f64);
            let mean = of_block.iter().sum::<f64>() / n;
            expected += k * mean;
            let squares: f64 = of_block.iter().map(|rank| (rank - mean).powi(2)).sum();
            variance += k * (n - k) / (n * (n - 1.0)) * squares;
        }
        if variance <= 0.0 {
            return vec![0.0; choices.len()];
        }
        let sum = |labels: &Vec<bool>| -> f64 {
            ranks.iter().zip(labels).filter(|(_, is_second)| **is_second).map(|(rank, _)| rank).sum()
        };
        // Rounded, so that equal choices stay equal.
        let standard = |sum: f64| ((sum - expected) / variance.sqrt() * 1e9).round() / 1e9;
        choices.iter().map(|labels| standard(sum(labels))).collect()
    }

    /// The difference of the mean rates, block by block, for one choice of labels.
    fn difference(&self, rates: &[f64], labels: &[bool]) -> f64 {
        let (mut sum, mut weight) = (0.0, 0.0);
        for (start, all, second) in &self.blocks {
            let mut sums = [0.0; 2];
            for slot in *start..start + all {
                sums[usize::from(labels[slot])] += rates[slot];
            }
            sum += (sums[1] / *second as f64 - sums[0] / (all - second) as f64) * *second as f64;
            weight += *second as f64;
        }
        sum / weight
    }

    /// The differences that a permutation test with 2.5 % on each side does not reject.
    fn interval(&self, rates: &[f64], choices: &[Vec<bool>]) -> (Option<f64>, Option<f64>) {
        let step = choices.len().div_ceil(INTERVAL_CHOICES_MAX);
        let used: Vec<&Vec<bool>> = choices.iter().step_by(step).collect();
        let measured = used[0];
        let observed = self.difference(rates, measured);
        // The difference of the rates less a shift of the second group is linear in the shift.
        let ones: Vec<f64> = measured.iter().map(|is_second| f64::from(u8::from(*is_second))).collect();
        let lines: Vec<(f64, f64)> = used
            .iter()
            .map(|labels| (self.difference(rates, labels), self.difference(&ones, labels)))
            .collect();
        let tails = |shift: f64| {
            let at = observed - shift;
            let slack = 1e-9 * (observed.abs() + shift.abs() + 1.0);
            let above = lines.iter().filter(|(rate, one)| rate - shift * one >= at - slack).count();
            let below = lines.iter().filter(|(rate, one)| rate - shift * one <= at + slack).count();
            (above as f64 / lines.len() as f64, below as f64 / lines.len() as f64)
        };
        let largest = rates.iter().fold(0.0f64, |a, b| a.max(*b));
        let far = 4.0 * largest + 1.0;
        let low = bound(observed - far, observed, |shift| tails(shift).0 > SIGNIFICANCE / 2.0);
        let high = bound(observed + far, observed, |shift| tails(shift).1 > SIGNIFICANCE / 2.0);
        (low, high)
    }

    fn larger_in(&self, rates: &[f64]) -> (usize, usize) {
        let is_larger = |(start, all, second): &&(usize, usize, usize)| {
            let (first, later) = rates[*start..start + all].split_at(all - second);
            let mean = |rates: &[f64]| rates.iter().sum::<f64>() / rates.len() as f64;
            mean(later) > mean(first)
        };
        (self.blocks.iter().filter(is_larger).count(), self.blocks.len())
    }
}

/// For each row its corrected p-value and its statistic without sign.
fn p_values<K: Ord>(slots: &Slots<'_, K>, rates: &[Vec<f64>], choices: &[Vec<bool>]) -> Vec<(f64, f64)> {
    let statistics: Vec<Vec<f64>> = rates
        .iter()
        .map(|rates| slots.statistics(rates, choices).into_iter().map(f64::abs).collect())
        .collect();
    let mut order: Vec<usize> = (0..rates.len()).collect();
    order.sort_by(|a, b| statistics[*b][0].total_cmp(&statistics[*a][0]));
    let mut found = vec![(1.0, 0.0); rates.len()];
    let mut at_least = 0.0f64;
    for (place, row) in order.iter().enumerate() {
        let left = &order[place..];
        let observed = statistics[*row][0];
        let reaches = |choice: &usize| left.iter().any(|other| statistics[*other][*choice] >= observed);
        let count = (0..choices.len()).filter(reaches).count();
        at_least = at_least.max(count as f64 / choices.len() as f64);
        found[*row] = (at_least, observed);
    }
    found
}

/// The rank of each value among all, from 1; equal values share the mean of their ranks.
fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|a, b| values[*a].total_cmp(&values[*b]));
    let mut ranks = vec![0.0; values.len()];
    let mut before = 0;
    for equal in order.chunk_by(|a, b| values[*a] == values[*b]) {
        equal.iter().for_each(|index| ranks[*index] = before as f64 + (equal.len() as f64 + 1.0) / 2.0);
        before += equal.len();
    }
    ranks
}

/// All ways to choose `chosen` of `all` places.
fn combinations(all: usize, chosen: usize) -> Vec<Vec<bool>> {
    if chosen > all {
        return Vec::new();
    }
    if all == 0 {
        return vec![Vec::new()];
    }
    let with = |is_chosen: bool, rest: Vec<Vec<bool>>| {
        rest.into_iter().map(move |rest| [&[is_chosen], rest.as_slice()].concat())
    };
    let first = if chosen > 0 { combinations(all - 1, chosen - 1) } else { Vec::new() };
    with(true, first).chain(with(false, combinations(all - 1, chosen))).collect()
}

#[cfg(test)]
mod tests;
