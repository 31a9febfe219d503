//! Student's t distribution: how far one run may be from another when few runs show how much they differ.

use std::f64::consts::FRAC_PI_2;

const STEPS: u32 = 400;
/// Halvings of the search for a quantile.
const HALVINGS: u32 = 60;

/// Two-sided p-value of `t` with that number of degrees of freedom.
///
/// With t = sqrt(n) tan(a) the density is that of cos(a)^(n - 1), so that no gamma function is needed.
pub(crate) fn two_sided(t: f64, degrees: usize) -> f64 {
    let degrees = degrees.max(1);
    let from = (t.abs() / (degrees as f64).sqrt()).atan();
    (integral(from, degrees) / integral(0.0, degrees)).clamp(0.0, 1.0)
}

/// The t whose two-sided p-value is `p`.
pub(crate) fn quantile(p: f64, degrees: usize) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    while two_sided(high, degrees) > p && high < 1e12 {
        high *= 2.0;
    }
    for _ in 0..HALVINGS {
        let middle = f64::midpoint(low, high);
        if two_sided(middle, degrees) > p { low = middle } else { high = middle }
    }
    high
}

/// The integral of cos(a)^(n - 1) from `from` to a right angle, by Simpson's rule.
fn integral(from: f64, degrees: usize) -> f64 {
    let step = (FRAC_PI_2 - from) / f64::from(STEPS);
    let at = |index: u32| (from + step * f64::from(index)).cos().max(0.0).powi(degrees as i32 - 1);
    let weight = |index: u32| match index {
        0 | STEPS => 1.0,
        odd if odd % 2 == 1 => 4.0,
        _ => 2.0,
    };
    (0..=STEPS).map(|index| weight(index) * at(index)).sum::<f64>() * step / 3.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_tables() {
        for (degrees, p, expected) in
            [(1, 0.05, 12.706), (4, 0.05, 2.776), (4, 0.10, 2.132), (9, 0.01, 3.250), (30, 0.05, 2.042)]
        {
            let found = quantile(p, degrees);
            assert!((found - expected).abs() < 0.002, "{degrees} {p}: {found}");
            assert!((two_sided(found, degrees) - p).abs() < 1e-6);
        }
        assert!((two_sided(0.0, 4) - 1.0).abs() < 1e-9);
    }
}
