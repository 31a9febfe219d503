//! The histograms probe of a plan: what the kernel counts beside the other probes.

use crate::cpus::CpuSelector;
use crate::result::{HistogramKind, HistogramSource};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The histograms probe: latencies of all tasks that pass its filter, counted while the other probes measure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct HistogramsPlan {
    /// Where to measure; by default the plan's target CPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<CpuSelector>,
    /// The histograms; by default all.
    pub kinds: Vec<HistogramKind>,
    /// Lowest priority of tasks that count: 1 to 99 real time, 100 deadline, below 0 ordinary tasks.
    pub priority_min: i32,
    /// Highest priority of tasks that count.
    pub priority_max: i32,
    /// Only threads of this name; by default all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
    /// Where the kernel's events come from; by default the best that works.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<HistogramSource>,
}

impl Default for HistogramsPlan {
    fn default() -> Self {
        Self {
            cpus: None,
            kinds: HistogramKind::ALL.to_vec(),
            priority_min: 1,
            priority_max: 100,
            task: None,
            source: None,
        }
    }
}
