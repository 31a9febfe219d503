//! One statistic of two groups of repeats: the difference, how certain it is, and what may be claimed.
//!
//! In: one value per repeat and the block in which it ran. Out: an effect with its intervals, a p-value, and, with
//! the p-values of the plan's other contrasts, better, worse, equivalent or cannot tell. docs/METHODOLOGY.md derives
//! the rules. This module does not know which groups are worth comparing, or what a value means.

mod adjust;
mod blocks;
mod power;
pub(crate) mod student;

pub use adjust::{benjamini_hochberg, holm};
pub use blocks::Observation;
pub use power::detectable;

use blocks::Blocked;
pub(crate) use blocks::binomial;
use whylate_core::result::Outcome;

/// A claim of better or worse has at most this probability of being false.
pub const SIGNIFICANCE: f64 = 0.05;

/// How far beyond the largest difference a bound of an interval is searched (log scale).
const BEYOND: f64 = 1.0;
/// Halvings of the search for a bound: to 1e-6 of its range.
const HALVINGS: u32 = 24;

/// What the repeats of two groups show about the second compared with the first. Effects are differences on the scale
/// of the values: logarithms of ratios if the values are logarithms.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Study {
    /// Two-sided p-value of no difference.
    pub p_value: f64,
    /// The smallest that the blocks could give.
    pub smallest_p: f64,
    /// The median of all differences within blocks (Hodges and Lehmann 1963).
    pub effect: f64,
    /// 95 % interval of the effect; an end that the repeats do not bound is absent. Equivalent means that all of it
    /// lies within the margin, so the interval itself shows why.
    pub interval_95: (Option<f64>, Option<f64>),
    pub repeats: usize,
}

/// Studies two groups; `None` without a block that has values of both.
pub fn study(first: &[Observation], second: &[Observation]) -> Option<Study> {
    let blocked = Blocked::new(first, second);
    let differences = blocked.differences();
    let middle = median(&differences)?;
    Some(Study {
        p_value: blocked.test(0.0).two_sided(),
        smallest_p: blocked.smallest_p(),
        effect: middle,
        interval_95: interval(&blocked, &differences, 0.025),
        repeats: blocked.repeats(),
    })
}

impl Study {
    /// What may be claimed with `adjusted_p` instead of the p-value, corrected for `contrasts` in all. An effect of
    /// at most `margin` (not negative, on the scale of the values) does not matter.
    pub fn outcome(&self, adjusted_p: f64, contrasts: usize, margin: f64) -> Outcome {
        let said = outcome(adjusted_p, self.effect, self.interval_95, margin);
        let can_show = self.smallest_p * contrasts as f64 <= SIGNIFICANCE;
        if said == Outcome::Equivalent && !can_show { Outcome::CannotTell } else { said }
    }

    /// About how many more repeats would decide, if they are like these; `None` if no estimate is possible.
    ///
    /// The half-width of an interval falls with the root of the number of repeats. To decide, it has to be smaller
    /// than the effect, or fit between the effect and the margin.
    pub fn more_repeats(&self, margin: f64) -> Option<u32> {
        let half = (self.interval_95.1? - self.interval_95.0?) / 2.0;
        let effect = self.effect.abs();
        let needed_half = if effect > margin { effect } else { (margin - effect).max(margin / 4.0) };
        let needed = self.repeats as f64 * (half / needed_half).powi(2);
        let more = (needed - self.repeats as f64).max(2.0);
        // Blocks have two rounds.
        (more < 10_000.0).then(|| (more / 2.0).ceil() as u32 * 2)
    }
}

/// What may be claimed about an effect with its p-value and interval, when at most `margin` of it (not negative) does
/// not matter. An effect below 0 is an improvement.
pub(crate) fn outcome(
    p_value: f64,
    effect: f64,
    interval_95: (Option<f64>, Option<f64>),
    margin: f64,
) -> Outcome {
    let within = |bound: Option<f64>| bound.is_some_and(|bound| bound.abs() <= margin);
    match () {
        () if p_value <= SIGNIFICANCE && effect < -margin => Outcome::Better,
        () if p_value <= SIGNIFICANCE && effect > margin => Outcome::Worse,
        () if within(interval_95.0) && within(interval_95.1) => Outcome::Equivalent,
        () => Outcome::CannotTell,
    }
}

/// The differences that a test of size `tail` on each side does not reject.
fn interval(blocked: &Blocked, differences: &[f64], tail: f64) -> (Option<f64>, Option<f64>) {
    let (Some(least), Some(most)) = (differences.first(), differences.last()) else { return (None, None) };
    let (least, most) = (least - BEYOND, most + BEYOND);
    let low = bound(least, most, |shift| blocked.test(shift).upper > tail);
    let high = bound(most, least, |shift| blocked.test(shift).lower > tail);
    (low, high)
}

/// Where the predicate begins to hold between `outside` and `inside`; `None` if it holds already at `outside`.
pub(crate) fn bound(outside: f64, inside: f64, holds: impl Fn(f64) -> bool) -> Option<f64> {
    if holds(outside) {
        return None;
    }
    let (mut outside, mut inside) = (outside, inside);
    for _ in 0..HALVINGS {
        let middle = outside.midpoint(inside);
        if holds(middle) {
            inside = middle;
        } else {
            outside = middle;
        }
    }
    Some(outside)
}

/// The middle value of sorted ones, or the mean of the two middle ones; `None` without any.
pub(crate) fn median(sorted: &[f64]) -> Option<f64> {
    let high = *sorted.get(sorted.len() / 2)?;
    let low = *sorted.get((sorted.len() - 1) / 2)?;
    Some(low.midpoint(high))
}

#[cfg(test)]
mod tests;
