//! What `whylate explain --json` prints: the spikes of a trace and their causes.
//!
//! Moments are nanoseconds of the trace's own clock, except where a field says otherwise.

use super::{Cause, CauseKind, LogMessage, RunResult, Spike};
use crate::units::CpuId;
use crate::warning::Warning;
use crate::words::words;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `format` of [`ExplainResult`].
pub const EXPLAIN_FORMAT: &str = "whylate.explain/1";

/// What `whylate explain` prints.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ExplainResult {
    /// [`EXPLAIN_FORMAT`].
    pub format: String,
    /// Records of all traces that were read, decoded or not.
    pub events: u64,
    /// Whether the traces show late moments, show none, or cannot tell.
    #[serde(default)]
    pub answer: ExplainAnswer,
    /// Why the traces are not enough and what to record, or what `none` is based on.
    pub answer_reason: Option<String>,
    /// The traces: one for a file, those in `RUN/traces` for a run.
    #[serde(default)]
    pub traces: Vec<ExplainedTrace>,
    /// The spikes, largest latency first.
    pub spikes: Vec<ExplainedSpike>,
    /// The run that was explained, if a run was given.
    pub run: Option<String>,
    /// Facts about this run.
    pub of_run: Option<ExplainedRun>,
    /// Spikes that the run's own probes measured, largest first; times are CLOCK_MONOTONIC.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub measured: Vec<Spike>,
    /// The kernel's messages about latency, the worst first, if a kernel log was read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub messages: Vec<LogMessage>,
    /// What the traces do not show, and what to record to show it.
    #[serde(default)]
    pub warnings: Vec<Warning>,
}

words! {
    /// The answer to the question whether something was late.
    #[derive(Default)]
    pub enum ExplainAnswer: "an answer" {
        /// Latencies above the threshold were found, or the latency that a trace's header states.
        Found = "found",
        /// The trace has every wake-up or sample in question, and none of them is above the threshold.
        None = "none",
        /// The trace does not show whether a task was late.
        #[default]
        CannotTell = "cannot_tell",
        /// The file is a kernel log: `messages` are about latency, but do not show that they made a task late.
        Log = "log",
    }
}

words! {
    /// How a task was late.
    pub enum LateWhat: "a kind of latency" {
        /// Late from its timer or wake-up to the moment at which the task ran.
        Wakeup = "wakeup",
        /// Late because another thread had the CPU while the task was runnable.
        Preempted = "preempted",
        /// Late because the task slept in the middle of its work.
        Blocked = "blocked",
        /// A sample of a tracer.
        Sample = "sample",
    }
}

/// A moment at which a task was late, not explained.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LateTask {
    /// Command of the task; for hardware noise, the tracer's name.
    pub task: String,
    /// The task's thread id, if it is known.
    pub pid: Option<u32>,
    /// The task's priority as the kernel counts, if it is known.
    pub priority: Option<i32>,
    /// The CPU on which the task ran at last.
    pub cpu: CpuId,
    /// How the task was late.
    pub what: LateWhat,
    /// How late the task was.
    pub latency_ns: u64,
    /// When the task ran.
    pub at_ns: u64,
}

words! {
    /// What set the threshold.
    #[derive(Default)]
    pub enum ThresholdFrom: "what set a threshold" {
        /// No setting: the default of 100 us.
        #[default]
        Default = "default",
        /// The user.
        Given = "given",
        /// The task's own break marker.
        Marker = "marker",
        /// The limit at which a tracer stopped the trace: the latency at that moment.
        Stop = "stop",
        /// The tracer's own threshold, which each of its samples exceeds.
        Tracer = "tracer",
        /// The latency in the header of a latency tracer.
        Header = "header",
        /// The late moment for which the trace was kept.
        Kept = "kept",
    }
}

/// The run that was explained: what, where and when.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ExplainedRun {
    /// The name of the run's plan.
    pub plan: String,
    /// The machine's name.
    pub host: String,
    /// Release of the machine's kernel.
    pub kernel: String,
    /// When the run began.
    pub started_at: String,
    /// The cell, if only one is explained.
    pub cell: Option<String>,
}

impl ExplainedRun {
    /// What is explained: that run, or one of its cells.
    pub fn of(run: &RunResult, cell: Option<&str>) -> Self {
        Self {
            plan: run.plan.name.clone(),
            host: run.facts.host.clone(),
            kernel: run.facts.kernel.release.clone(),
            started_at: run.started_at.clone(),
            cell: cell.map(str::to_owned),
        }
    }
}

/// One trace, and how it was read.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ExplainedTrace {
    /// The file; `-` is standard input.
    pub path: String,
    /// The cell of the run in which the trace was kept.
    pub cell: Option<String>,
    /// `tracefs text`, `trace.dat v7`, …
    pub format: String,
    /// The tracer that made the trace, if the file names it.
    pub tracer: Option<String>,
    /// The trace's clock, if the file names it.
    pub clock: Option<String>,
    /// Release of the kernel, if the file states it.
    pub kernel: Option<String>,
    /// The task whose spikes were looked for: a command or a thread id; absent if no task was found.
    pub task: Option<String>,
    /// Why this task was chosen, as half a sentence.
    pub task_reason: String,
    /// The period that was used if no timer shows the expected moment.
    pub period_ns: Option<u64>,
    /// Whether the period was inferred from the task's rhythm; if not, it was given.
    #[serde(default)]
    pub period_inferred: bool,
    /// Latencies up to this one are not spikes.
    pub threshold_ns: u64,
    /// What set the threshold.
    #[serde(default)]
    pub threshold_from: ThresholdFrom,
    /// The answer of this trace alone.
    #[serde(default)]
    pub answer: ExplainAnswer,
    /// Why the trace is not enough and what to record, or what `none` is based on.
    pub answer_reason: Option<String>,
    /// The largest latency of the chosen tasks, above the threshold or not.
    pub worst: Option<LateTask>,
    /// Other tasks that were late by more than the threshold, each with its worst moment, latest first: at most 10, real-time tasks
    /// before others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub also_late: Vec<LateTask>,
    /// How many more tasks were late.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub also_late_more: u64,
    /// How often the chosen tasks ran after a sleep.
    pub wakeups: u64,
    /// Latencies above the threshold, each once; only `--top` of them are explained. The wake-up that ends a counted sleep is
    /// a part of it.
    pub spikes_found: u64,
    /// Wake-ups without a switch to the task that may have been late: there may be more latencies than `spikes_found`.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub wakeups_unseen: u64,
    /// Sleeps above the threshold for which the trace shows no timer of the task, no lock and no page fault. Only
    /// `--what blocked` counts and explains them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub waits_left_out: u64,
    /// How long the trace's events cover; absent if the trace has no times, or if tracing may have been off meanwhile.
    pub covered_ns: Option<u64>,
    /// Events that the kernel lost, if the file says so.
    #[serde(default)]
    pub lost: u64,
}

/// One spike, with its cause.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ExplainedSpike {
    /// Command of the late task; the tracer's own name for hardware noise.
    pub task: String,
    /// The task's thread id, if it is known.
    pub pid: Option<u32>,
    /// The task's priority as the kernel counts (0 to 98 real time, smaller is more urgent), if it is known.
    pub priority: Option<i32>,
    /// The CPU on which the task ran at last.
    pub cpu: CpuId,
    /// When the task should have run.
    pub expected_ns: u64,
    /// When the task ran.
    pub actual_ns: u64,
    /// How late the task was: `actual_ns` less `expected_ns`.
    pub latency_ns: u64,
    /// The task had not run by the end of the recording, which is `actual_ns`: it was late for at least `latency_ns`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unended: bool,
    /// What the expected moment is based on.
    pub expected_from: ExpectedFrom,
    /// By how much the expected moment may be wrong.
    #[serde(default)]
    pub expected_error_ns: u64,
    /// The main cause.
    pub cause: Cause,
    /// The other causes, largest share first.
    #[serde(default)]
    pub also: Vec<Cause>,
    /// What happened between the expected and the actual moment: segments without gap or overlap.
    pub timeline: Vec<TimelineSegment>,
    /// Records of the trace that the explanation is based on, in the order of time.
    #[serde(default)]
    pub evidence: Vec<EvidenceLine>,
    /// The hwlat tracer's sample.
    pub hwlat: Option<HwlatSample>,
    /// Events that were lost on the CPUs of the spike within its window.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub lost: u64,
    /// Index of the spike's trace in `traces`.
    #[serde(default)]
    pub trace: usize,
}

/// A sample of the hwlat tracer, as the tracer recorded it.
#[serde_with::skip_serializing_none]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HwlatSample {
    /// Largest gap between the two clock reads in one turn of the tracer's loop.
    pub inner_ns: u64,
    /// Largest gap between two turns of the loop.
    pub outer_ns: u64,
    /// Gaps above the tracer's threshold in the sample's window.
    pub count: Option<u32>,
    /// Time in non-maskable interrupts.
    pub nmi_ns: Option<u64>,
    /// Number of non-maskable interrupts.
    pub nmi_count: Option<u32>,
    /// The sample's own time, since 1970.
    pub wall_ns: Option<u64>,
}

fn is_zero(value: &u64) -> bool {
    *value == 0
}

/// What the expected moment is based on, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ExpectedFrom {
    /// The expiry of the task's own timer (`hrtimer_start`).
    Timer,
    /// The latency that a tracer printed (timerlat, osnoise, hwlat).
    Tracer,
    /// The latency that the task wrote into the trace when the task stopped the trace (cyclictest's break marker).
    Marker,
    /// The latency that whylate's own probe measured.
    Probe,
    /// The task's last sleep and its period.
    Period,
    /// The moment at which something woke the task; delays before the wake-up are not seen.
    Wakeup,
    /// The moment at which the task was preempted or began to wait in the middle of its work.
    Interrupted,
}

/// A part of the time between the expected and the actual moment.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TimelineSegment {
    /// Start of this part.
    pub from_ns: u64,
    /// End of this part.
    pub to_ns: u64,
    /// The CPU on which this happened.
    pub cpu: CpuId,
    /// What happened, in a few words.
    pub what: String,
    /// The kind of cause to which this part counts; absent for what every wake-up needs (a context switch).
    pub kind: Option<CauseKind>,
    /// The kernel function that ran, if it is known.
    pub function: Option<String>,
}

impl ExplainResult {
    /// Joins the answers of the traces: one trace is enough for late moments, `none` needs all of them.
    pub fn conclude(&mut self) {
        let found = !self.spikes.is_empty() || !self.measured.is_empty();
        let open = self.traces.iter().find(|trace| trace.answer == ExplainAnswer::CannotTell);
        (self.answer, self.answer_reason) = match open {
            _ if found => (ExplainAnswer::Found, None),
            Some(trace) => (ExplainAnswer::CannotTell, trace.answer_reason.clone()),
            None => (ExplainAnswer::None, self.traces.first().and_then(|trace| trace.answer_reason.clone())),
        };
    }
}

/// A record of the trace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EvidenceLine {
    /// When the record was written.
    pub at_ns: u64,
    /// The CPU of the record.
    pub cpu: CpuId,
    /// Byte offset of the record in the file.
    pub offset: u64,
    /// The record, as text.
    pub text: String,
    /// What the record shows.
    pub meaning: String,
}
