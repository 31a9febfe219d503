//! The timer probe: a periodic task that sleeps until its next period and measures how late it runs.

use super::{Policy, ProbeFacts, ProbeWords, Samples, check_period};
use crate::cpus::CpuSelector;
use crate::plan::kinds::KeyError;
use crate::units::Nanos;
use crate::words::words;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The timer probe.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TimerPlan {
    /// Where to measure; by default the plan's target CPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<CpuSelector>,
    /// The period.
    pub interval: Nanos,
    /// By how much each further CPU's periods begin later than those of the one before; `0s` is an aligned start.
    pub distance: Nanos,
    /// Real-time priority, 1 to 99 (`fifo` and `rr` only).
    pub priority: u32,
    /// Scheduling policy.
    pub policy: Policy,
    /// What wakes the task.
    pub method: TimerMethod,
    /// A latency above it stops the measurement (and tracing), and the exit code is 2.
    #[serde(rename = "break", skip_serializing_if = "Option::is_none")]
    pub break_above: Option<Nanos>,
    /// Whether `/dev/cpu_dma_latency` is held at 0, which keeps CPUs out of deep idle states.
    pub hold_cpu_dma_latency: bool,
}

impl Default for TimerPlan {
    fn default() -> Self {
        Self {
            cpus: None,
            interval: Nanos::from_micros(200),
            distance: Nanos(0),
            priority: 95,
            policy: Policy::Fifo,
            method: TimerMethod::Nanosleep,
            break_above: None,
            hold_cpu_dma_latency: true,
        }
    }
}

impl ProbeWords for TimerPlan {
    fn facts(_: Option<&str>) -> ProbeFacts {
        ProbeFacts { misses_periods: true, ..ProbeFacts::of(Samples::Lateness) }
    }

    fn check(&self) -> Result<(), KeyError> {
        check_period(self.interval).map_err(|message| KeyError::new("interval", message))
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
}

words! {
    /// What wakes the timer probe's task.
    pub enum TimerMethod: "a timer method" {
        /// `clock_nanosleep` with an absolute time.
        Nanosleep = "nanosleep",
        /// A periodic timerfd, read.
        Timerfd = "timerfd",
        /// A periodic POSIX timer that signals the thread.
        PosixTimer = "posix-timer",
    }
}
