//! The histograms probe: what the kernel counts of every task while the other probes measure.

use super::{Policy, ProbeFacts, ProbeWords, Samples};
use crate::cpus::CpuSelector;
use crate::plan::kinds::KeyError;
use crate::result::{HistogramKind, HistogramSource};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The histograms probe: latencies of all tasks that its filter selects, counted while the other probes measure.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct HistogramsPlan {
    /// CPUs to measure; by default the plan's target CPUs.
    pub cpus: Option<CpuSelector>,
    /// Histograms to count; by default all.
    pub kinds: Vec<HistogramKind>,
    /// Lowest priority of the counted tasks: 1 to 99 real time, 100 deadline, below 0 ordinary tasks.
    pub priority_min: i32,
    /// Highest priority of the counted tasks.
    pub priority_max: i32,
    /// Name of the threads to count; by default all threads.
    pub task: Option<String>,
    /// Source of the kernel's events: `bpf` or `tracefs`; by default `bpf`, if it works here.
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

impl ProbeWords for HistogramsPlan {
    fn facts(_: Option<&str>) -> ProbeFacts {
        let duration = ProbeFacts::of(Samples::Duration);
        ProbeFacts { companion: true, keeps_largest: true, series_title: "histogram", ..duration }
    }

    fn check(&self) -> Result<(), KeyError> {
        if self.kinds.is_empty() {
            return Err(KeyError::new("kinds", "is empty; name histograms, or leave it out for all"));
        }
        if self.priority_min > self.priority_max {
            let message = format!("is above priority_max, which is {}", self.priority_max);
            return Err(KeyError::new("priority_min", message));
        }
        Ok(())
    }

    /// It has no measuring thread.
    fn scheduling(&self) -> (Policy, u32) {
        (Policy::Other, 1)
    }

    fn cpus(&self) -> Option<&CpuSelector> {
        self.cpus.as_ref()
    }

    fn series(&self) -> Vec<String> {
        self.kinds.iter().map(|kind| kind.name().to_owned()).collect()
    }
}
