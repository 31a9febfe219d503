//! The access probe: a periodic task that reads its data, and how long that takes.

use super::{Judged, Policy, ProbeFacts, ProbeWords, Samples, check_period, check_samples, refuse_deadline};
use crate::cpus::CpuSelector;
use crate::plan::Size;
use crate::plan::flag::Flag;
use crate::plan::kinds::KeyError;
use crate::units::Nanos;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The first pass after other tasks have had the CPU.
pub const FIRST: &str = "first";
/// The passes right after it.
pub const AGAIN: &str = "again";

/// The access probe.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("x-examples" = "\
Examples:
  whylate measure access --cpu 1 --working-set l2/2 --duration 10s
  whylate measure access --cpu 1 --working-set llc/2 --interval 10ms --json
  whylate measure access --cpu 1 --working-set llc*4

In each period the task follows a random chain through its data twice. The first pass loads what
other tasks have evicted from the caches since the last period; the second pass shows the time
without evictions. A sample is the time of a pass; the result also has the time of one access."))]
pub struct AccessPlan {
    /// CPUs to measure; by default the plan's target CPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<CpuSelector>,
    /// Size of the data that the task reads.
    pub working_set: Size,
    /// Period of the task; other tasks have the CPU between two periods.
    pub interval: Nanos,
    /// Passes over the data in each period, including the first.
    pub passes: u32,
    /// Largest number of accesses in a pass; by default the whole working set, at most 16384.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accesses: Option<u32>,
    /// Ends early, once a series has this number of samples on a CPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub samples: Option<u64>,
    /// Real-time priority, 1 to 99 (`fifo` and `rr` only).
    pub priority: u32,
    /// Scheduling policy of the task (not `deadline`).
    pub policy: Policy,
    /// Whether `/dev/cpu_dma_latency` is set to 0, which keeps CPUs out of deep idle states.
    #[schemars(extend("x-flag" = Flag::idle_states()))]
    pub hold_cpu_dma_latency: bool,
}

impl Default for AccessPlan {
    fn default() -> Self {
        Self {
            cpus: None,
            working_set: Size::Cache { level: Some(2), times: 1, over: 2 },
            interval: Nanos::from_millis(10),
            passes: 2,
            accesses: None,
            samples: None,
            priority: 95,
            policy: Policy::Fifo,
            hold_cpu_dma_latency: true,
        }
    }
}

impl ProbeWords for AccessPlan {
    fn facts(_: Option<&str>) -> ProbeFacts {
        ProbeFacts {
            judged: Judged::ExcessOverMedian,
            series_title: "pass",
            ..ProbeFacts::of(Samples::Access)
        }
    }

    fn check(&self) -> Result<(), KeyError> {
        refuse_deadline(self.policy)?;
        check_samples(self.samples)?;
        check_period(self.interval).map_err(|message| KeyError::new("interval", message))?;
        if !(1..=1000).contains(&self.passes) {
            return Err(KeyError::new("passes", format!("{} is out of range; give 1 to 1000", self.passes)));
        }
        if self.accesses == Some(0) {
            return Err(KeyError::new("accesses", "must be above 0; leave it out for the whole working set"));
        }
        Ok(())
    }

    fn scheduling(&self) -> (Policy, u32) {
        (self.policy, self.priority)
    }

    fn cpus(&self) -> Option<&CpuSelector> {
        self.cpus.as_ref()
    }

    fn period(&self) -> Option<Nanos> {
        Some(self.interval)
    }

    fn series(&self) -> Vec<String> {
        let again = (self.passes > 1).then(|| AGAIN.to_owned());
        std::iter::once(FIRST.to_owned()).chain(again).collect()
    }
}
