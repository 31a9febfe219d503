//! The probes of a plan.

use crate::cpus::{CpuContext, CpuError, CpuSelector, CpuSet};
use crate::plan::{DispatchPlan, HistogramsPlan, RoundtripPlan, Size, TracerPlan};
use crate::units::{Cycles, Nanos, UnitError, as_text};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

/// What measures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum ProbePlan {
    /// A periodic task that sleeps until its next period and measures how late it runs.
    Timer(TimerPlan),
    /// A loop that reads the time-stamp counter and records every gap.
    Stall(StallPlan),
    /// A process that waits for an interrupt, from the interrupt's programmed moment to its first instruction.
    Dispatch(DispatchPlan),
    /// A message from one CPU to another and back.
    Roundtrip(RoundtripPlan),
    /// What the kernel counts of every task, beside the other probes.
    Histograms(HistogramsPlan),
    /// A measuring tracer of the kernel.
    Tracer(TracerPlan),
}

impl ProbePlan {
    /// The names of the probes there are.
    pub const KINDS: [&str; 6] = ["timer", "stall", "dispatch", "roundtrip", "histograms", "tracer"];

    /// `timer`, `stall`, `dispatch`, `roundtrip`, `histograms` or `tracer`.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Timer(_) => "timer",
            Self::Stall(_) => "stall",
            Self::Dispatch(_) => "dispatch",
            Self::Roundtrip(_) => "roundtrip",
            Self::Histograms(_) => "histograms",
            Self::Tracer(_) => "tracer",
        }
    }

    /// Scheduling policy and real-time priority of its threads.
    pub fn scheduling(&self) -> (Policy, u32) {
        match self {
            Self::Timer(timer) => (timer.policy, timer.priority),
            Self::Stall(stall) => (stall.policy, stall.priority),
            Self::Dispatch(dispatch) => (dispatch.policy, dispatch.priority),
            Self::Roundtrip(roundtrip) => (roundtrip.policy, roundtrip.priority),
            // It has no measuring thread.
            Self::Histograms(_) => (Policy::Other, 1),
            // Without a priority of the plan the kernel chooses what its threads run as.
            Self::Tracer(tracer) => tracer.priority.map_or((Policy::Other, 1), |it| (Policy::Fifo, it)),
        }
    }

    /// Where it measures, given the plan's target CPUs.
    ///
    /// # Errors
    /// As [`CpuSelector::resolve`].
    pub fn cpus(&self, context: &CpuContext, target: &CpuSet) -> Result<CpuSet, CpuError> {
        let selector = match self {
            Self::Timer(timer) => &timer.cpus,
            Self::Stall(stall) => &stall.cpus,
            Self::Dispatch(dispatch) => &dispatch.cpus,
            Self::Histograms(histograms) => &histograms.cpus,
            Self::Tracer(tracer) => &tracer.cpus,
            Self::Roundtrip(roundtrip) => return Ok(roundtrip.pair(context, target)?.cpus()),
        };
        selector.as_ref().map_or_else(|| Ok(target.clone()), |cpus| cpus.resolve(context, Some(target)))
    }
}

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

/// The stall probe.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct StallPlan {
    /// Where to measure; by default the plan's target CPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<CpuSelector>,
    /// Gaps at least this long are recorded one by one: `1us`, or `3100cycles` of the time-stamp counter.
    pub threshold: Threshold,
    /// Real-time priority, 1 to 99 (`fifo` and `rr` only).
    pub priority: u32,
    /// Scheduling policy.
    pub policy: Policy,
    /// Each turn of the loop also reads one cache line of a buffer of this size: disturbed caches show as longer
    /// turns.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub working_set: Option<Size>,
    /// Whether `/dev/cpu_dma_latency` is held at 0.
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
            hold_cpu_dma_latency: true,
        }
    }
}

/// Scheduling policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Policy {
    /// SCHED_FIFO.
    Fifo,
    /// SCHED_RR.
    Rr,
    /// SCHED_OTHER.
    Other,
    /// SCHED_DEADLINE (timer only); most kernels refuse it for a task that is pinned to a CPU.
    Deadline,
}

impl FromStr for Policy {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "fifo" => Ok(Self::Fifo),
            "rr" => Ok(Self::Rr),
            "other" => Ok(Self::Other),
            "deadline" => Ok(Self::Deadline),
            _ => Err(format!("`{text}` is not a scheduling policy; choose fifo, rr, other or deadline")),
        }
    }
}

/// What wakes the timer probe's task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum TimerMethod {
    /// `clock_nanosleep` with an absolute time.
    Nanosleep,
    /// A periodic timerfd, read.
    Timerfd,
    /// A periodic POSIX timer that signals the thread.
    PosixTimer,
}

impl FromStr for TimerMethod {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "nanosleep" => Ok(Self::Nanosleep),
            "timerfd" => Ok(Self::Timerfd),
            "posix-timer" => Ok(Self::PosixTimer),
            _ => Err(format!("`{text}` is not a timer method; choose nanosleep, timerfd or posix-timer")),
        }
    }
}

/// From which length on a gap is recorded one by one.
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

/// The shortest and the longest period.
const PERIOD_MIN: Nanos = Nanos(1_000);
const PERIOD_MAX: Nanos = Nanos::from_secs(3_600);

/// Refuses what no probe can have as the period of its wake-ups or interrupts.
///
/// # Errors
/// One line that says so: `0s is out of range; a period is 1us to 1h`.
pub fn check_period(interval: Nanos) -> Result<(), String> {
    if (PERIOD_MIN..=PERIOD_MAX).contains(&interval) {
        return Ok(());
    }
    Err(format!("{interval} is out of range; a period is 1us to 1h"))
}
