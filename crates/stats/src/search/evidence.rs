//! Evidence from pairs: how strong it is, and an interval that holds whenever measuring stops.

use whylate_core::order::InOrder;
/// The evidence that a side which won `won` of `pairs` wins more often than not: ∫₀¹ (1+λ)^won (1−λ)^lost dλ, the
/// gain of a gambler who bets on it without knowing how often it wins. It is a martingale of mean 1 if each pair is
/// won with probability one half. It therefore ever reaches 1/α with probability α at most (Ville), however often it
/// is examined.
pub fn evidence(won: u32, pairs: u32) -> f64 {
    // By parts: ∫ (1+λ)^w (1−λ)^l = (l ∫ (1+λ)^(w+1) (1−λ)^(l−1) − 1) / (w + 1).
    let lost = pairs.saturating_sub(won);
    let mut value = (2f64.powi(pairs as i32 + 1) - 1.0) / f64::from(pairs + 1);
    for done in 1..=lost {
        let won = f64::from(pairs - done);
        value = (f64::from(done) * value - 1.0) / (won + 1.0);
    }
    value
}

/// The median of `values` with confidence 1 − `alpha`, whenever collecting stops: the medians that two-sided
/// [`evidence`] does not contradict. An end is absent if there are too few values to bound it.
pub fn interval(values: &[f64], alpha: f64) -> (Option<f64>, Option<f64>) {
    let pairs = values.len() as u32;
    let both = |below: u32| f64::midpoint(evidence(below, pairs), evidence(pairs - below, pairs));
    let mut sorted = values.to_vec();
    sorted.order_by(f64::total_cmp);
    let below = (0..=pairs / 2).find(|below| both(*below) < 1.0 / alpha).unwrap_or(0) as usize;
    let low = below.checked_sub(1).and_then(|index| sorted.get(index)).copied();
    (low, sorted.get(sorted.len() - below).copied())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::SplitMix;

    #[test]
    fn evidence_is_the_integral() {
        for (won, pairs) in [(0, 0), (3, 3), (0, 5), (7, 8), (12, 24), (5, 24), (24, 24)] {
            let steps = 200_000;
            let at = |index: u32| {
                let bet = (f64::from(index) + 0.5) / f64::from(steps);
                (1.0 + bet).powi(won) * (1.0 - bet).powi(pairs - won)
            };
            let integral = (0..steps).map(at).sum::<f64>() / f64::from(steps);
            let found = evidence(won as u32, pairs as u32);
            assert!((found - integral).abs() < 1e-6 * integral.max(1.0), "{won}/{pairs}: {found} {integral}");
        }
    }

    /// The mean over all outcomes is 1 at each number of pairs: a fair game.
    #[test]
    fn a_coin_wins_nothing_on_average() {
        for pairs in 1..=24u32 {
            let mut ways = 1.0;
            let mut mean = 0.0;
            for won in 0..=pairs {
                mean += ways * evidence(won, pairs) / 2f64.powi(pairs as i32);
                ways = ways * f64::from(pairs - won) / f64::from(won + 1);
            }
            assert!((mean - 1.0).abs() < 1e-9, "{pairs}: {mean}");
        }
    }

    #[test]
    fn the_interval_holds_at_every_moment() {
        let (mut random, mut missed) = (SplitMix(7), 0);
        for _ in 0..2_000 {
            let mut values = Vec::new();
            let held = (0..24).all(|_| {
                values.push(random.unit() - 0.5);
                let (low, high) = interval(&values, 0.05);
                low.is_none_or(|low| low <= 0.0) && high.is_none_or(|high| high >= 0.0)
            });
            missed += u32::from(!held);
        }
        assert!(missed <= 100, "{missed} of 2000 at 5 %");
        assert_eq!(interval(&[1.0, 2.0], 0.05), (None, None));
    }
}
