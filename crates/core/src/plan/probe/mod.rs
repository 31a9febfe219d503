//! The probes of a plan: one file for each, with its keys, their defaults and checks, and what its samples are.

mod access;
mod chain;
mod condition;
mod dispatch;
mod facts;
mod histograms;
mod mark;
mod preset;
mod roundtrip;
mod stall;
mod task;
mod timer;
mod tracer;
mod trigger;

pub use access::{AGAIN as ACCESS_AGAIN, AccessPlan, FIRST as ACCESS_FIRST};
pub use chain::{Chain, ChainMark, ChainPlan};
pub use condition::{Comparison, Condition, Operand};
pub use dispatch::{DispatchPlan, DispatchSource};
pub use facts::{Judged, MeasuringTask, ProbeFacts, Samples};
pub use histograms::HistogramsPlan;
pub use mark::Mark;
pub use roundtrip::{CpuPair, RoundtripMethod, RoundtripMethods, RoundtripPlan};
pub use stall::{StallPlan, Threshold};
pub use task::{Per, TaskPlan};
pub use timer::{TimerMethod, TimerPlan};
pub use tracer::{Tracer, TracerPlan};
pub use trigger::Trigger;

use super::kinds::{KeyError, kinds};
use crate::cpus::{CpuContext, CpuError, CpuSelector, CpuSet};
use crate::series::SeriesName;
use crate::units::Nanos;
use crate::words::words;

kinds! {
    /// What measures.
    pub enum ProbePlan: ProbeWords, facts ProbeFacts {
        /// how late a periodic task wakes up
        "timer" => Timer(TimerPlan),
        /// how long a task that never sleeps loses the CPU
        "stall" => Stall(StallPlan),
        /// how long after an interrupt the waiting process starts to run
        "dispatch" => Dispatch(DispatchPlan),
        /// how long a message to another CPU and back takes
        "roundtrip" => Roundtrip(RoundtripPlan),
        /// how long a periodic task takes to read its data after other tasks ran, and to read it again immediately
        "access" => Access(AccessPlan),
        /// the kernel's latency histograms of the tasks that the plan names
        "histograms" => Histograms(HistogramsPlan),
        /// what a latency tracer of the kernel measured (hwlat, osnoise, timerlat)
        "tracer" => Tracer(TracerPlan),
        /// how long the user's own threads take from their wake-up to their next sleep
        "task" => Task(TaskPlan),
    }
}

/// What every kind of probe says of itself.
pub trait ProbeWords {
    /// What holds for that series of its samples, parts left out.
    fn facts(series: Option<&str>) -> ProbeFacts
    where
        Self: Sized;

    /// Refuses values that the types allow and that make no sense, the priority left out.
    fn check(&self) -> Result<(), KeyError>;

    /// Scheduling policy and real-time priority of its threads.
    fn scheduling(&self) -> (Policy, u32);

    /// Where it measures; `None` for the plan's target CPUs.
    fn cpus(&self) -> Option<&CpuSelector>;

    /// Where it measures on this machine, given the plan's target CPUs.
    fn resolve_cpus(&self, context: &CpuContext, target: &CpuSet) -> Result<CpuSet, CpuError> {
        let resolve = |cpus: &CpuSelector| cpus.resolve(context, Some(target));
        self.cpus().map_or_else(|| Ok(target.clone()), resolve)
    }

    /// The latency that ends the measurement; `None` if none does.
    fn break_above(&self) -> Option<Nanos> {
        None
    }

    /// Time between two samples of a CPU; `None` without a period.
    fn period(&self) -> Option<Nanos> {
        None
    }

    /// Names of its series, without parts; empty if there is only one.
    fn series(&self) -> Vec<String> {
        Vec::new()
    }

    /// The part of the time in which it looks for gaps on each of that many CPUs, in (0, 1].
    fn watched_share(&self, _cpus: usize) -> f64 {
        1.0
    }
}

impl ProbePlan {
    /// Whether a latency ends the measurement, or only gaps above a threshold count.
    pub fn has_threshold(&self) -> bool {
        let is_gap =
            |name: &String| SeriesName::of(name).facts().is_some_and(|it| it.samples == Samples::Gap);
        self.words().break_above().is_some() || self.series_names().iter().any(is_gap)
    }

    /// Scheduling policy and real-time priority of its threads.
    pub fn scheduling(&self) -> (Policy, u32) {
        self.words().scheduling()
    }

    /// Where it measures, given the plan's target CPUs.
    pub fn cpus(&self, context: &CpuContext, target: &CpuSet) -> Result<CpuSet, CpuError> {
        self.words().resolve_cpus(context, target)
    }

    /// Names of its series, as results have them: `timer`, `roundtrip/futex`.
    pub fn series_names(&self) -> Vec<String> {
        let name = |series: &str| SeriesName::in_probe(self.kind(), Some(series)).to_string();
        let series = self.words().series();
        if series.is_empty() {
            return vec![self.kind().to_owned()];
        }
        series.iter().map(|series| name(series)).collect()
    }

    /// Refuses values that the types allow and that make no sense.
    pub fn check(&self) -> Result<(), KeyError> {
        let (_, priority) = self.scheduling();
        if !(1..=99).contains(&priority) {
            let message = format!("{priority} is out of range; a real-time priority is 1 to 99");
            return Err(KeyError::new("priority", message));
        }
        self.words().check()
    }
}

impl SeriesName<'_> {
    /// What its samples are; `None` for a probe that this version does not know. A part of a sample is a duration.
    pub fn facts(&self) -> Option<ProbeFacts> {
        let whole = facts_of(self.probe, self.series)?;
        Some(if self.part.is_some() { whole.of_part() } else { whole })
    }

    /// Whether it belongs to a thread of the user.
    pub fn is_of_user(&self) -> bool {
        self.facts().is_some_and(|facts| facts.is_of_user())
    }
}

words! {
    /// Scheduling policies.
    pub enum Policy: "a scheduling policy" {
        /// SCHED_FIFO.
        Fifo = "fifo",
        /// SCHED_RR.
        Rr = "rr",
        /// SCHED_OTHER.
        Other = "other",
        /// SCHED_DEADLINE (timer only); most kernels refuse it for a task that is pinned to a CPU.
        Deadline = "deadline",
    }
}

/// Only the timer probe can run as SCHED_DEADLINE.
fn refuse_deadline(policy: Policy) -> Result<(), KeyError> {
    let message = "only the timer probe can run as SCHED_DEADLINE; choose fifo, rr or other";
    if policy == Policy::Deadline { Err(KeyError::new("policy", message)) } else { Ok(()) }
}

/// Without any sample there is nothing to measure.
fn check_samples(samples: Option<u64>) -> Result<(), KeyError> {
    let message = "must be above 0; leave it out for no limit";
    if samples == Some(0) { Err(KeyError::new("samples", message)) } else { Ok(()) }
}

/// The shortest and the longest period.
const PERIOD_MIN: Nanos = Nanos(1_000);
const PERIOD_MAX: Nanos = Nanos::from_secs(3_600);

/// Refuses what cannot be the period of a probe's wake-ups or interrupts.
///
/// # Errors
/// One line that says so: `0s is out of range; a period is 1us to 1h`.
pub fn check_period(interval: Nanos) -> Result<(), String> {
    if (PERIOD_MIN..=PERIOD_MAX).contains(&interval) {
        return Ok(());
    }
    Err(format!("{interval} is out of range; a period is 1us to 1h"))
}
