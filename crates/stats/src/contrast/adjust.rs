//! Corrections for several p-values at once.

/// Replaces p-values by those of Holm (1979): the probability that any of those at most `x` is false is at most `x`,
/// whatever the dependence between them.
pub fn holm(p_values: &mut [f64]) {
    let count = p_values.len();
    let mut largest = 0.0f64;
    for (position, index) in ascending(p_values).into_iter().enumerate() {
        largest = largest.max(p_values[index] * (count - position) as f64).min(1.0);
        p_values[index] = largest;
    }
}

/// Replaces p-values by those of Benjamini and Hochberg (1995): among those at most `x`, the expected share of false
/// ones is at most `x`.
pub fn benjamini_hochberg(p_values: &mut [f64]) {
    let count = p_values.len();
    let mut smallest = 1.0f64;
    for (position, index) in ascending(p_values).into_iter().enumerate().rev() {
        smallest = smallest.min(p_values[index] * (count as f64 / (position + 1) as f64));
        p_values[index] = smallest;
    }
}

fn ascending(p_values: &[f64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..p_values.len()).collect();
    order.sort_by(|a, b| p_values[*a].total_cmp(&p_values[*b]));
    order
}
