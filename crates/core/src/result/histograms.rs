//! In-kernel latency histograms: what is measured, and the record of the largest latency.

use crate::facts::Facts;
use crate::record::IpiRecord;
use crate::units::CpuId;
use crate::warning::Warning;
use crate::words::words;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

words! {
    /// What a histogram measures, in the order of a wake-up's stages. All histograms count the tasks that the filter
    /// selects (by default real-time tasks).
    pub enum HistogramKind: "a histogram" {
        /// From the programmed expiry of a timer to the wake-up of its task in the timer's handler.
        MissedTimerOffsets = "missed_timer_offsets",
        /// From the wake-up to the decision to run the task.
        Wakeup = "wakeup",
        /// `missed_timer_offsets` and `wakeup` together: from the programmed expiry to the decision to run the task.
        TimerAndWakeup = "timerandwakeup",
        /// From the decision to run the task to the end of the switch, when the task runs.
        SwitchOff = "switchoff",
        /// All stages together, the preemption latency: from the programmed expiry until the task runs.
        TimerWakeupSwitch = "timerwakeupswitch",
        /// Like `wakeup`, for wake-ups that waited for a task of equal or higher priority. As this is not the
        /// kernel's fault, of the other histograms only `missed_timer_offsets` and `switchoff` count these wake-ups.
        SharedPriority = "sharedprio",
    }
}

/// The largest latency since the last reset, with its parts, the late task and the task that ran before. Priorities
/// are as tools print them, which is 99 minus the kernel's number: 1 to 99 for real-time tasks, 100 for deadline
/// tasks, -1 to -40 for ordinary tasks (-21 is nice 0).
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LatencyRecord {
    /// Thread id of the late task.
    pub pid: u32,
    /// Priority of the late task.
    pub priority: i32,
    /// The latency.
    pub latency_ns: u64,
    /// From the programmed expiry to the wake-up; absent when no timer woke the task.
    pub timer_offset_ns: Option<u64>,
    /// From the wake-up to the decision to run the task; absent if this time is not part of the latency.
    pub wakeup_ns: Option<u64>,
    /// From the decision until the task runs; absent if this time is not part of the latency.
    pub switch_ns: Option<u64>,
    /// Name of the late task.
    pub command: String,
    /// Thread id of the task that ran before (0: the idle task).
    pub previous_pid: u32,
    /// Priority of the task that ran before.
    pub previous_priority: i32,
    /// Name of the task that ran before.
    pub previous_command: String,
    /// When the latency ended, on CLOCK_MONOTONIC.
    pub at_ns: u64,
    /// The system call of the late task; absent for kernel threads, and if the kernel does not report the call.
    pub syscall: Option<String>,
}

/// One histogram of one CPU since the last reset.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct KernelHistogram {
    /// What the histogram measures.
    pub kind: HistogramKind,
    /// Number of latencies.
    pub samples: u64,
    /// Quantiles of the latencies; absent without samples.
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
    /// One entry for each enabled kind.
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
    /// How long latencies were counted.
    pub duration_ns: u64,
    /// The enabled histograms, CPU by CPU.
    pub cpus: Vec<CpuHistograms>,
    /// Interrupts that other CPUs sent to the measured CPUs; absent unless requested.
    pub ipis: Option<Vec<IpiRecord>>,
    /// What became of the counted tasks' wake-ups, on all CPUs.
    pub wakeups: WakeupTotals,
    /// Wake-ups that are missing from the histograms; with tracefs, events that the kernel dropped.
    pub lost: u64,
    /// What was not measured, or measured less well.
    pub warnings: Vec<Warning>,
}

words! {
    /// Where the kernel's events come from.
    #[derive(Default)]
    pub enum HistogramSource: "a source of events" {
        /// BPF programs, which count in the kernel.
        #[default]
        Bpf = "bpf",
        /// A separate trace buffer, which whylate reads and counts.
        Tracefs = "tracefs",
    }
}

/// What became of the counted tasks' wake-ups. A wake-up that is neither in the histograms `wakeup` and `sharedprio`
/// nor in these counts is still waiting, or was lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WakeupTotals {
    /// Wake-ups seen.
    pub seen: u64,
    /// Wake-ups of tasks that were already or still running: these have no latency.
    pub without_switch: u64,
    /// Wake-ups that ended on a CPU that is not measured.
    pub elsewhere: u64,
}
