//! Means and variances of a few values.

pub(crate) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// The sum of the squared distances between each value and their mean.
pub(crate) fn squares(values: &[f64]) -> f64 {
    let middle = mean(values);
    values.iter().map(|value| (value - middle).powi(2)).sum()
}

/// The variance of the population from which they are a sample.
pub(crate) fn variance(values: &[f64]) -> f64 {
    squares(values) / (values.len() - 1) as f64
}
