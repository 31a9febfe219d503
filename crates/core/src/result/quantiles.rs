//! What is kept of a latency distribution in addition to its histogram.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Quantiles of a latency distribution. Clamped to [min, max]; relative error at most 1/256 (exact below 256 ns).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Quantiles {
    /// Smallest sample, exact.
    pub min_ns: u64,
    /// Mean, exact.
    pub mean_ns: f64,
    /// Median.
    pub p50_ns: u64,
    /// 0.99 quantile.
    pub p99_ns: u64,
    /// 0.999 quantile.
    pub p999_ns: u64,
    /// 0.9999 quantile.
    pub p9999_ns: u64,
    /// Largest sample, exact.
    pub max_ns: u64,
}

/// The extremes of a latency distribution, and its mean.
#[serde_with::skip_serializing_none]
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Extremes {
    /// Smallest sample.
    pub min_ns: Option<u64>,
    /// Mean.
    pub mean_ns: Option<f64>,
    /// Largest sample.
    pub max_ns: Option<u64>,
}
