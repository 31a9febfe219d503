//! In-kernel latency histograms: what is measured, and the record of the largest latency.

use crate::facts::Facts;
use crate::record::IpiRecord;
use crate::units::CpuId;
use crate::warning::Warning;
use crate::words::words;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

words! {
    /// What a histogram measures. All count tasks that pass the filter (real-time tasks by default), in the order in
    /// which a wake-up passes through them.
    pub enum HistogramKind: "a histogram" {
        /// From the programmed expiry of a timer to the wake-up of its task in the timer's handler.
        MissedTimerOffsets = "missed_timer_offsets",
        /// From the wake-up to the decision to run the task.
        Wakeup = "wakeup",
        /// Both together: from the programmed expiry to the decision to run the task.
        TimerAndWakeup = "timerandwakeup",
        /// From the decision to run the task to the end of the switch, when it runs.
        SwitchOff = "switchoff",
        /// All together, the preemption latency: from the programmed expiry to the task that runs.
        TimerWakeupSwitch = "timerwakeupswitch",
        /// As `wakeup`, for wake-ups that waited for a task of equal or higher priority. The kernel is not responsible
        /// for that latency, so they are in no other histogram but `missed_timer_offsets` and `switchoff`.
        SharedPriority = "sharedprio",
    }
}

/// The largest latency since the last reset: of which task, its parts, and which task ran before.
///
/// Priorities are as tools print them: 1 to 99 for real-time tasks, 100 for deadline tasks, -1 to -40 for ordinary
/// ones (-21 is nice 0), all of them 99 minus the kernel's own number.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LatencyRecord {
    /// Thread id of the late task.
    pub pid: u32,
    /// Its priority.
    pub priority: i32,
    /// The latency.
    pub latency_ns: u64,
    /// From the programmed expiry to the wake-up; absent when no timer woke the task.
    pub timer_offset_ns: Option<u64>,
    /// From the wake-up to the decision to run it; absent when it is not part of the latency.
    pub wakeup_ns: Option<u64>,
    /// From the decision to the task that runs; absent when it is not part of the latency.
    pub switch_ns: Option<u64>,
    /// Its name.
    pub command: String,
    /// Thread id of the task that ran before (0: the idle task).
    pub previous_pid: u32,
    /// Priority of that task.
    pub previous_priority: i32,
    /// Name of that task.
    pub previous_command: String,
    /// When the latency ended, on CLOCK_MONOTONIC.
    pub at_ns: u64,
    /// The system call that the late task was in; absent for kernel threads and if the kernel does not report it.
    pub syscall: Option<String>,
}

/// One histogram of one CPU since the last reset.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct KernelHistogram {
    /// What it measures.
    pub kind: HistogramKind,
    /// Number of latencies.
    pub samples: u64,
    /// Its quantiles; absent without samples.
    #[serde(flatten)]
    pub quantiles: Option<super::Quantiles>,
    /// The record of the largest latency; absent without samples.
    pub max_record: Option<LatencyRecord>,
    /// `[lower edge in ns, count]` of every bucket with samples, ascending.
    pub histogram: Vec<(u64, u64)>,
}

/// The histograms of one CPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CpuHistograms {
    /// The CPU.
    pub cpu: CpuId,
    /// One entry for each kind that is enabled.
    pub histograms: Vec<KernelHistogram>,
}

/// `format` of [`HistogramsResult`].
pub const HISTOGRAMS_FORMAT: &str = "whylate.histograms/1";

/// What `whylate histograms` prints.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HistogramsResult {
    /// [`HISTOGRAMS_FORMAT`].
    pub format: String,
    /// The machine.
    pub facts: Facts,
    /// Where the kernel's events came from.
    pub source: HistogramSource,
    /// How long it was counted.
    pub duration_ns: u64,
    /// The histograms that are on, CPU by CPU.
    pub cpus: Vec<CpuHistograms>,
    /// Interrupts that other CPUs sent to the measured ones; absent unless asked for.
    pub ipis: Option<Vec<IpiRecord>>,
    /// Where the wake-ups of the tasks that count went, on all CPUs.
    pub wakeups: WakeupTotals,
    /// Wake-ups that are missing in the histograms; with tracefs, events that the kernel dropped.
    pub lost: u64,
    /// What was not measured, or less well.
    pub warnings: Vec<Warning>,
}

words! {
    /// Where the kernel's events come from.
    #[derive(Default)]
    pub enum HistogramSource: "a source of events" {
        /// Programs in the kernel, which count there.
        #[default]
        Bpf = "bpf",
        /// A trace buffer of its own, read and counted by whylate.
        Tracefs = "tracefs",
    }
}

/// Where the wake-ups of the tasks that count went. A wake-up that is neither in the histograms `wakeup` and
/// `sharedprio` nor in these counts is still waiting, or was lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WakeupTotals {
    /// Wake-ups seen.
    pub seen: u64,
    /// Wake-ups of tasks that were running already, or still: there was no latency.
    pub without_switch: u64,
    /// Wake-ups that ended on a CPU where nothing is measured.
    pub elsewhere: u64,
}
