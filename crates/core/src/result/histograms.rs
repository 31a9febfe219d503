//! In-kernel latency histograms: what is measured, and the record of the largest latency.

use crate::facts::Facts;
use crate::record::IpiRecord;
use crate::units::CpuId;
use crate::warning::Warning;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a histogram measures. All are of tasks that pass the filter (real-time tasks unless told otherwise).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum HistogramKind {
    /// From the programmed expiry of a timer to the wake-up of its task in the timer's handler.
    MissedTimerOffsets,
    /// From the wake-up to the decision to run the task.
    Wakeup,
    /// Both together: from the programmed expiry to the decision to run the task.
    #[serde(rename = "timerandwakeup")]
    TimerAndWakeup,
    /// From the decision to run the task to the end of the switch, when it runs.
    #[serde(rename = "switchoff")]
    SwitchOff,
    /// All together, the preemption latency: from the programmed expiry to the task that runs.
    #[serde(rename = "timerwakeupswitch")]
    TimerWakeupSwitch,
    /// As `wakeup`, of wake-ups that waited for a task of equal or higher priority: no latency of the kernel, so
    /// they are in no other histogram but `missed_timer_offsets` and `switchoff`.
    #[serde(rename = "sharedprio")]
    SharedPriority,
}

impl HistogramKind {
    /// All kinds, in the order in which a wake-up passes through them.
    pub const ALL: [Self; 6] = [
        Self::MissedTimerOffsets,
        Self::Wakeup,
        Self::TimerAndWakeup,
        Self::SwitchOff,
        Self::TimerWakeupSwitch,
        Self::SharedPriority,
    ];

    /// The name in commands, in results and in the file tree.
    pub fn name(self) -> &'static str {
        match self {
            Self::MissedTimerOffsets => "missed_timer_offsets",
            Self::Wakeup => "wakeup",
            Self::TimerAndWakeup => "timerandwakeup",
            Self::SwitchOff => "switchoff",
            Self::TimerWakeupSwitch => "timerwakeupswitch",
            Self::SharedPriority => "sharedprio",
        }
    }

    /// The kind of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

impl std::fmt::Display for HistogramKind {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(self.name())
    }
}

/// The largest latency since the last reset: who, what it consists of, and who ran before.
///
/// Priorities are as tools print them: 1 to 99 for real-time tasks, 100 for deadline tasks, -1 to -40 for ordinary
/// ones (-21 is nice 0), all of them 99 minus the kernel's own number.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LatencyRecord {
    /// Thread id of the late task.
    pub pid: u32,
    /// Its priority.
    pub priority: i32,
    /// The latency.
    pub latency_ns: u64,
    /// From the programmed expiry to the wake-up; absent when no timer woke the task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timer_offset_ns: Option<u64>,
    /// From the wake-up to the decision to run it; absent when it is no part of the latency.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wakeup_ns: Option<u64>,
    /// From the decision to the task that runs; absent when it is no part of the latency.
    #[serde(default, skip_serializing_if = "Option::is_none")]
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
    /// The system call that the late task was in; absent for kernel threads and where the kernel does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub syscall: Option<String>,
}

/// One histogram of one CPU since the last reset.
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
    #[serde(default, skip_serializing_if = "Option::is_none")]
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
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipis: Option<Vec<IpiRecord>>,
    /// Where the wake-ups of the tasks that count have gone, on all CPUs.
    pub wakeups: WakeupTotals,
    /// Wake-ups that should be in the histograms and are not; with tracefs, events that the kernel dropped.
    pub lost: u64,
    /// What was not measured, or less well.
    pub warnings: Vec<Warning>,
}

/// Where the kernel's events come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum HistogramSource {
    /// Programs in the kernel, which count there.
    #[default]
    Bpf,
    /// A trace buffer of its own, read and counted by whylate.
    Tracefs,
}

impl HistogramSource {
    /// Its name in commands and results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bpf => "bpf",
            Self::Tracefs => "tracefs",
        }
    }
}

impl std::fmt::Display for HistogramSource {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(self.name())
    }
}

impl std::str::FromStr for HistogramSource {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let known = [Self::Bpf, Self::Tracefs].into_iter().find(|source| source.name() == text);
        known.ok_or_else(|| format!("`{text}` is not a source of events; choose bpf or tracefs"))
    }
}

/// Where the wake-ups of the tasks that count have gone. What is in none of the histograms `wakeup` and `sharedprio` and
/// none of these counts is still waiting, or was lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WakeupTotals {
    /// Wake-ups seen.
    pub seen: u64,
    /// Of tasks that were running already, or still: there was no latency.
    pub without_switch: u64,
    /// That ended on a CPU where nothing is measured.
    pub elsewhere: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_has_one_name_everywhere() {
        for kind in HistogramKind::ALL {
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.name());
            assert_eq!(HistogramKind::from_name(kind.name()), Some(kind));
        }
        assert_eq!(HistogramKind::from_name("switch"), None);
    }
}
