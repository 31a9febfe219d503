//! The size of effect that a plan can show, computed before it is measured.

use super::{Observation, SIGNIFICANCE, blocks::Blocked, median};
use crate::order::ROUNDS_PER_BLOCK;
use crate::random::SplitMix;

/// Runs that are simulated for each size of effect.
const RUNS: u64 = 100;
/// The part of them that has to find it.
const FOUND: u64 = 80;
/// Steps of the search for the size.
const STEPS: u32 = 7;
/// The largest effect that is looked for, as a ratio.
const LARGEST: f64 = 10.0;

/// The ratio that 8 of 10 runs find, with that number of repeats of each cell and of contrasts that decide, if the
/// values of repeats of one cell differ by `spread` (standard deviation of their logarithms). `None` if not even a
/// factor of ten is found.
///
/// Simulated with normal noise from a fixed seed.
pub fn detectable(repeats: u32, contrasts: usize, spread: f64) -> Option<f64> {
    let is_found = |effect: f64| {
        let mut random = SplitMix(1);
        let found = (0..RUNS).filter(|_| one_run(&mut random, repeats, contrasts, effect, spread)).count();
        found as u64 >= FOUND
    };
    let (mut low, mut high) = (0.0, LARGEST.ln());
    if !is_found(high) {
        return None;
    }
    for _ in 0..STEPS {
        let middle = f64::midpoint(low, high);
        if is_found(middle) { high = middle } else { low = middle }
    }
    Some(high.exp())
}

fn one_run(random: &mut SplitMix, repeats: u32, contrasts: usize, effect: f64, spread: f64) -> bool {
    let mut group = |effect: f64| -> Vec<Observation> {
        let value = |random: &mut SplitMix| effect + spread * normal(random);
        (0..repeats).map(|nth| Observation { block: nth / ROUNDS_PER_BLOCK, value: value(random) }).collect()
    };
    let (first, second) = (group(0.0), group(effect));
    let blocked = Blocked::new(&first, &second);
    let is_up = median(&blocked.differences()).is_some_and(|middle| middle > 0.0);
    is_up && blocked.test(0.0).two_sided() * contrasts as f64 <= SIGNIFICANCE
}

/// A number of the standard normal distribution (Box and Muller 1958).
fn normal(random: &mut SplitMix) -> f64 {
    let (radius, angle) = (random.unit(), random.unit());
    (-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * angle).cos()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_repeats_find_smaller_effects() {
        let found: Vec<f64> = [6, 8, 16, 32].map(|repeats| detectable(repeats, 1, 0.1).unwrap()).into();
        assert!(found.is_sorted_by(|a, b| a > b), "{found:?}");
        // The t test with 8 values a side has 80 % power at 1.5 standard deviations; ranks within blocks need a
        // little more.
        assert!((1.14..1.30).contains(&found[1]), "{found:?}");
    }

    #[test]
    fn too_few_repeats_find_nothing() {
        // Two blocks of two rounds have 36 arrangements, none of them rare enough.
        assert_eq!(detectable(4, 2, 0.1), None);
        assert_eq!(detectable(0, 1, 0.1), None);
    }
}
