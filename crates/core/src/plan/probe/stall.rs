//! The stall probe: a loop that reads the time-stamp counter and records every gap.

use super::{Policy, ProbeFacts, ProbeWords, Samples};
use crate::cpus::CpuSelector;
use crate::plan::Size;
use crate::plan::flag::Flag;
use crate::plan::kinds::KeyError;
use crate::units::{Cycles, Nanos, UnitError, as_text};
use crate::warning::WarningCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The stall probe.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("x-examples" = "\
Examples:
  whylate measure stall --cpu 1 --threshold 1us --duration 10s
  whylate measure stall --cpu isolated --duration 1h --json > gaps.json
  whylate measure stall --cpu 1 --threshold 3100cycles --working-set l2/2
  whylate measure stall --cpu 1 --break 50us      stops at the first gap above 50us

The loop never sleeps and uses all CPU time that the kernel leaves it. At real-time priority whylate
refuses to run the loop on the last housekeeping CPU."))]
pub struct StallPlan {
    /// CPUs to measure; by default the plan's target CPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<CpuSelector>,
    /// Gaps of at least this length are recorded one by one: `1us`, or `3100cycles` of the time-stamp counter.
    pub threshold: Threshold,
    /// Real-time priority, 1 to 99 (`fifo` and `rr` only).
    pub priority: u32,
    /// Scheduling policy of the threads (not `deadline`).
    pub policy: Policy,
    /// Size of a buffer; each iteration of the loop also reads one of its cache lines, so cache misses show as longer
    /// iterations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub working_set: Option<Size>,
    /// Stops the measurement at a gap above this; the exit code is then 2.
    #[serde(rename = "break", skip_serializing_if = "Option::is_none")]
    pub break_above: Option<Nanos>,
    /// Whether `/dev/cpu_dma_latency` is set to 0.
    #[schemars(extend("x-flag" = Flag::idle_states()))]
    pub hold_cpu_dma_latency: bool,
}

impl Default for StallPlan {
    fn default() -> Self {
        Self {
            cpus: None,
            threshold: Threshold::Time(Nanos::from_micros(10)),
            priority: 95,
            policy: Policy::Fifo,
            working_set: None,
            break_above: None,
            hold_cpu_dma_latency: true,
        }
    }
}

impl ProbeWords for StallPlan {
    fn facts(_: Option<&str>) -> ProbeFacts {
        let without_priority = Some(WarningCode::StallWithoutPriority);
        ProbeFacts { counts_turns: true, without_priority, ..ProbeFacts::of(Samples::Gap) }
    }

    fn check(&self) -> Result<(), KeyError> {
        let message = "a loop that never sleeps cannot run as SCHED_DEADLINE; choose fifo, rr or other";
        if self.policy == Policy::Deadline { Err(KeyError::new("policy", message)) } else { Ok(()) }
    }

    fn scheduling(&self) -> (Policy, u32) {
        (self.policy, self.priority)
    }

    fn break_above(&self) -> Option<Nanos> {
        self.break_above
    }

    fn cpus(&self) -> Option<&CpuSelector> {
        self.cpus.as_ref()
    }
}

/// The length from which a gap is recorded one by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threshold {
    /// In time.
    Time(Nanos),
    /// In ticks of the time-stamp counter.
    Cycles(Cycles),
}

impl FromStr for Threshold {
    type Err = UnitError;
    fn from_str(text: &str) -> Result<Self, UnitError> {
        let cycles = text.trim().strip_suffix("cycles").or_else(|| text.trim().strip_suffix("cycle"));
        match cycles.map(|digits| digits.trim().parse()) {
            Some(Ok(cycles)) => Ok(Self::Cycles(Cycles(cycles))),
            Some(Err(_)) => Err(UnitError::NotANumber {
                text: text.to_owned(),
                what: "a threshold",
                example: "1us` or `3100cycles",
            }),
            None => text.parse().map(Self::Time),
        }
    }
}

impl fmt::Display for Threshold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Time(nanos) => nanos.fmt(f),
            Self::Cycles(cycles) => write!(f, "{}cycles", cycles.0),
        }
    }
}

as_text!(Threshold, "1us", "A duration with its unit, or ticks of the time-stamp counter: 3100cycles");
