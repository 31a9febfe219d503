//! How a latency rises with the rate of a load.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Cells that differ only in the rate of one load, and the cell without this load: one curve for each series.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LoadedLatency {
    /// The load of the first cell of the curve.
    pub load: String,
    /// The probe; if it has several series, `PROBE/SERIES`.
    pub probe: String,
    /// Unit of the rates.
    pub unit: String,
    /// The points of the curve, lowest rate first.
    pub points: Vec<LoadedPoint>,
}

/// One cell of a curve. Each repeat gives one value, from its worst CPU.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LoadedPoint {
    /// The cell.
    pub cell: String,
    /// The achieved rate of the load, mean over the repeats; 0 without the load.
    pub rate: f64,
    /// Median over the repeats of the repeat's median.
    pub p50_ns: u64,
    /// The lowest median of a repeat.
    pub p50_low_ns: u64,
    /// The highest median of a repeat.
    pub p50_high_ns: u64,
    /// Median over the repeats of the repeat's 0.99 quantile.
    pub p99_ns: u64,
    /// Time of one access to memory in the median sample; only for the `access` probe.
    pub access_ns: Option<f64>,
    /// Complete repeats.
    pub repeats: u32,
}
