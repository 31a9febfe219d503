//! The timer probe: a periodic task that sleeps until its next period and measures how late it runs.

use super::{Policy, ProbeFacts, ProbeWords, Samples, check_period, check_samples};
use crate::cpus::CpuSelector;
use crate::plan::flag::Flag;
use crate::plan::kinds::KeyError;
use crate::units::Nanos;
use crate::words::words;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The timer probe.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("x-examples" = "\
Examples:
  whylate measure timer -a 1 -p 95 -i 200us -D 10s
  whylate measure timer --cpu 2-3 --duration 1h --json > night.json
  whylate measure timer -a 1 -b 100us --on-threshold 'cat /proc/interrupts'

The short flags are those of cyclictest (-a -i -D -p -b -l -d -t -S -m -q), and numbers without a
unit have cyclictest's units; -h is help.
A latency above --break ends the measurement with exit code 2; --tracemark then also marks and
stops a trace that you record in tracefs. `whylate trace record` records a trace itself."))]
pub struct TimerPlan {
    /// CPUs to measure; by default the plan's target CPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<CpuSelector>,
    /// Period of the task.
    pub interval: Nanos,
    /// Offset between the periods of successive CPUs; with `0s` the periods of all CPUs begin together.
    pub distance: Nanos,
    /// Ends early, once a CPU has this number of samples.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub samples: Option<u64>,
    /// Real-time priority, 1 to 99 (`fifo` and `rr` only).
    pub priority: u32,
    /// Scheduling policy of the task.
    pub policy: Policy,
    /// What wakes the task.
    pub method: TimerMethod,
    /// Stops the measurement at a latency above this; the exit code is then 2.
    #[serde(rename = "break", skip_serializing_if = "Option::is_none")]
    pub break_above: Option<Nanos>,
    /// Whether `/dev/cpu_dma_latency` is set to 0, which keeps CPUs out of deep idle states.
    #[schemars(extend("x-flag" = Flag::idle_states()))]
    pub hold_cpu_dma_latency: bool,
}

impl Default for TimerPlan {
    fn default() -> Self {
        Self {
            cpus: None,
            interval: Nanos::from_micros(200),
            distance: Nanos(0),
            samples: None,
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
        check_period(self.interval).map_err(|message| KeyError::new("interval", message))?;
        check_samples(self.samples)
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

    fn period(&self) -> Option<Nanos> {
        Some(self.interval)
    }
}

words! {
    /// What wakes the timer probe's task.
    pub enum TimerMethod: "a timer method" {
        /// `clock_nanosleep` with an absolute time.
        Nanosleep = "nanosleep",
        /// `read` of a periodic timerfd.
        Timerfd = "timerfd",
        /// A periodic POSIX timer that signals the thread.
        PosixTimer = "posix-timer",
    }
}
