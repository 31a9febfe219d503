//! One statistic of two groups of repeats: what the difference is, how sure it is, and what may be said of it.
//!
//! In: one value per repeat and the block in which it ran. Out: a ratio with its intervals, a p-value, and, with the p-values
//! of the other contrasts of the plan, better, worse, equivalent or cannot tell. docs/METHODOLOGY.md derives the rules.
//! Not known here: which groups are worth comparing, and what a value means.

mod adjust;
mod blocks;

pub use adjust::{benjamini_hochberg, holm};
pub use blocks::Observation;

use blocks::Blocked;

/// A claim of better or worse has at most this probability of being false.
pub const SIGNIFICANCE: f64 = 0.05;

/// Half the width of the interval in which a bound of an interval is searched, beyond the largest difference (log scale).
const BEYOND: f64 = 1.0;
/// Halvings of the search for a bound: to 1e-6 of its range.
const HALVINGS: u32 = 24;

/// What the repeats of two groups show of the second against the first. Ratios are of the second to the first.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Study {
    /// Two-sided p-value of no difference.
    pub p_value: f64,
    /// The smallest that the blocks could give.
    pub smallest_p: f64,
    /// The ratio: the median of all ratios within blocks (Hodges and Lehmann 1963).
    pub ratio: f64,
    /// 95 % interval of the ratio; an end that the repeats do not bound is absent.
    pub interval_95: (Option<f64>, Option<f64>),
    /// 90 % interval: equivalent means that all of it lies within the margin (Schuirmann 1987).
    pub interval_90: (Option<f64>, Option<f64>),
    /// Repeats of the smaller group.
    pub repeats: usize,
}

/// What may be said of a contrast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finding {
    /// Lower by more than the margin.
    Better,
    /// Higher by more than the margin.
    Worse,
    /// Any difference is within the margin.
    Equivalent,
    /// None of these is shown.
    CannotTell {
        /// About how many repeats more would tell, if the next ones are as these; absent where nothing can be said.
        more_repeats: Option<u32>,
    },
}

/// Studies two groups; `None` without a block that has values of both.
pub fn study(first: &[Observation], second: &[Observation]) -> Option<Study> {
    let blocked = Blocked::new(first, second);
    let differences = blocked.differences();
    let middle = median(&differences)?;
    Some(Study {
        p_value: blocked.test(0.0).two_sided(),
        smallest_p: blocked.smallest_p(),
        ratio: middle.exp(),
        interval_95: interval(&blocked, &differences, 0.025),
        interval_90: interval(&blocked, &differences, 0.05),
        repeats: blocked.repeats(),
    })
}

impl Study {
    /// What may be said with `adjusted_p` in place of the p-value, corrected for `contrasts` in all; `margin` is the
    /// smallest relative change that matters.
    pub fn finding(&self, adjusted_p: f64, contrasts: usize, margin: f64) -> Finding {
        let edge = margin.ln_1p();
        let effect = self.ratio.ln();
        if adjusted_p <= SIGNIFICANCE && effect.abs() > edge {
            return if effect < 0.0 { Finding::Better } else { Finding::Worse };
        }
        let can_show = self.smallest_p * contrasts as f64 <= SIGNIFICANCE;
        let within = |bound: Option<f64>| bound.is_some_and(|ratio| ratio.ln().abs() <= edge);
        if can_show && within(self.interval_90.0) && within(self.interval_90.1) {
            return Finding::Equivalent;
        }
        Finding::CannotTell { more_repeats: self.more_repeats(effect, edge) }
    }

    /// The half-width of an interval falls with the root of the number of repeats. To tell, it has to be smaller than the
    /// distance of the effect from 1, or to fit between the effect and the margin.
    fn more_repeats(&self, effect: f64, edge: f64) -> Option<u32> {
        let (low, high) = (self.interval_95.0?.ln(), self.interval_95.1?.ln());
        let half = (high - low) / 2.0;
        let needed_half = if effect.abs() > edge { effect.abs() } else { edge - effect.abs() };
        let needed = self.repeats as f64 * (half / needed_half.max(edge / 4.0)).powi(2);
        let more = (needed - self.repeats as f64).max(2.0);
        // Blocks have two rounds.
        (more < 10_000.0).then(|| (more / 2.0).ceil() as u32 * 2)
    }
}

/// The shifts that a test of size `tail` on each side does not refuse, as ratios.
fn interval(blocked: &Blocked, differences: &[f64], tail: f64) -> (Option<f64>, Option<f64>) {
    let (Some(least), Some(most)) = (differences.first(), differences.last()) else { return (None, None) };
    let (least, most) = (least - BEYOND, most + BEYOND);
    let low = bound(least, most, |shift| blocked.test(shift).upper > tail);
    let high = bound(most, least, |shift| blocked.test(shift).lower > tail);
    (low.map(f64::exp), high.map(f64::exp))
}

/// Where between `outside` and `inside` the predicate begins to hold; `None` when it holds already at `outside`.
fn bound(outside: f64, inside: f64, holds: impl Fn(f64) -> bool) -> Option<f64> {
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

fn median(sorted: &[f64]) -> Option<f64> {
    let high = *sorted.get(sorted.len() / 2)?;
    let low = *sorted.get((sorted.len() - 1) / 2)?;
    Some(low.midpoint(high))
}

#[cfg(test)]
mod tests;
