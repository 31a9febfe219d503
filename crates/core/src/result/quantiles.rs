//! What is kept of a latency distribution in addition to its histogram.

use super::{CpuResult, PartResult, TimelinePoint, is_zero};
use crate::quantity::Quantities;
use crate::units::CpuId;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Quantiles of a latency distribution. Clamped to [min, max]; relative error at most 1/256 (exact below 256 ns).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Quantiles {
    /// Smallest sample, exact.
    pub min_ns: u64,
    /// Mean, exact.
    pub mean_ns: f64,
    /// Median. As recorded; `corrected` and `own` count missed periods, too.
    pub p50_ns: u64,
    /// 0.99 quantile. As recorded; `corrected` and `own` count missed periods, too.
    pub p99_ns: u64,
    /// 0.999 quantile. As recorded; `corrected` and `own` count missed periods, too.
    pub p999_ns: u64,
    /// 0.9999 quantile. As recorded; `corrected` and `own` count missed periods, too.
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

/// The quantiles of a result in JSON, without those that are only known to be above the end of a tool's histogram.
#[serde_with::skip_serializing_none]
#[derive(Serialize, Deserialize)]
struct KnownQuantiles {
    min_ns: u64,
    mean_ns: f64,
    p50_ns: Option<u64>,
    p99_ns: Option<u64>,
    p999_ns: Option<u64>,
    p9999_ns: Option<u64>,
    max_ns: u64,
}

/// A result in JSON: its fields are described at [`CpuResult`].
#[serde_with::skip_serializing_none]
#[derive(Serialize)]
struct ShownCpu<'r> {
    cpu: CpuId,
    series: Option<&'r str>,
    samples: u64,
    #[serde(flatten)]
    quantiles: Option<KnownQuantiles>,
    #[serde(flatten)]
    quantities: &'r Quantities,
    max_at_ns: Option<u64>,
    #[serde(skip_serializing_if = "is_zero")]
    measured_ns: u64,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    parts: &'r [PartResult],
    #[serde(skip_serializing_if = "is_zero")]
    spikes_dropped: u64,
    histogram: &'r [(u64, u64)],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    timeline: &'r [TimelinePoint],
}

impl Serialize for CpuResult {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let known = |part: f64, ns: u64| self.knows_quantile(part).then_some(ns);
        let quantiles = self.quantiles.map(|it| KnownQuantiles {
            min_ns: it.min_ns,
            mean_ns: it.mean_ns,
            p50_ns: known(0.5, it.p50_ns),
            p99_ns: known(0.99, it.p99_ns),
            p999_ns: known(0.999, it.p999_ns),
            p9999_ns: known(0.9999, it.p9999_ns),
            max_ns: it.max_ns,
        });
        let shown = ShownCpu {
            cpu: self.cpu,
            series: self.series.as_deref(),
            samples: self.samples,
            quantiles,
            quantities: &self.quantities,
            max_at_ns: self.max_at_ns,
            measured_ns: self.measured_ns,
            parts: &self.parts,
            spikes_dropped: self.spikes_dropped,
            histogram: &self.histogram,
            timeline: &self.timeline,
        };
        shown.serialize(serializer)
    }
}

/// Reads quantiles as [`CpuResult`] writes them: one that is absent is at most the largest sample.
pub(super) fn known<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Quantiles>, D::Error> {
    let read = Option::<KnownQuantiles>::deserialize(deserializer)?;
    Ok(read.map(|it| Quantiles {
        min_ns: it.min_ns,
        mean_ns: it.mean_ns,
        p50_ns: it.p50_ns.unwrap_or(it.max_ns),
        p99_ns: it.p99_ns.unwrap_or(it.max_ns),
        p999_ns: it.p999_ns.unwrap_or(it.max_ns),
        p9999_ns: it.p9999_ns.unwrap_or(it.max_ns),
        max_ns: it.max_ns,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quantity::{ABOVE_HISTOGRAM, HISTOGRAM_END_NS};

    #[test]
    fn a_quantile_above_the_histogram_of_a_tool_is_absent_in_json() {
        let figures = Quantiles { p50_ns: 5_000, p99_ns: 300_000, p999_ns: 400_383, ..Quantiles::default() };
        let figures = Quantiles { p9999_ns: 400_383, max_ns: 900_000, ..figures };
        let quantities = Quantities::default().with(ABOVE_HISTOGRAM, 9).with(HISTOGRAM_END_NS, 400_000);
        let cpu = CpuResult { samples: 1_000, quantiles: Some(figures), quantities, ..CpuResult::default() };
        let json = serde_json::to_value(&cpu).unwrap();
        assert_eq!(
            (&json["p99_ns"], json.get("p999_ns"), json.get("p9999_ns")),
            (&300_000.into(), None, None)
        );
        let again: CpuResult = serde_json::from_value(json).unwrap();
        let largest = Quantiles { p999_ns: 900_000, p9999_ns: 900_000, ..figures };
        assert_eq!(again, CpuResult { quantiles: Some(largest), ..cpu });
        let whole = CpuResult { quantities: Quantities::default(), ..again };
        let json = serde_json::to_value(&whole).unwrap();
        assert_eq!(json["p999_ns"], 900_000);
        assert_eq!(serde_json::from_value::<CpuResult>(json).unwrap(), whole);
    }
}
