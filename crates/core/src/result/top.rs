//! What `whylate top --json` prints: a line for each interval.

use super::{HistogramSource, LatencyRecord, Quantiles, TreatChange};
use crate::record::{InterruptRecord, IpiRecord, SourceRecord};
use crate::units::CpuId;
use crate::warning::Warning;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `format` of [`TopResult`].
pub const TOP_FORMAT: &str = "whylate.top/1";

/// What the CPUs of a machine did in one interval. Counts divided by `interval_ns` are rates.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TopResult {
    /// [`TOP_FORMAT`].
    pub format: String,
    /// Time since the start of the watch.
    pub elapsed_ns: u64,
    /// Length of the interval; with `--quiet`, the last line is one interval over the whole time.
    pub interval_ns: u64,
    /// Where the kernel's events came from.
    pub source: HistogramSource,
    /// The watched CPUs.
    pub cpus: Vec<TopCpu>,
    /// Interrupts (`140`, `LOC`) and softirqs (`softirq:TIMER`) by CPU, the most frequent first.
    pub interrupts: Vec<InterruptRecord>,
    /// Interrupts that CPUs sent to each other, by function and sender, the most frequent first; absent if the kernel does
    /// not report them.
    pub ipis: Option<Vec<IpiRecord>>,
    /// What had the CPUs while counted tasks waited, the longest time first: interrupts, softirqs, functions that
    /// other CPUs requested, and threads of the counted priorities. `gaps` is how often; the time of a thread
    /// includes interrupts that came during this time.
    pub thieves: Vec<SourceRecord>,
    /// Changed settings that are in force.
    pub treatments: Vec<TreatChange>,
    /// Wake-ups and records that are missing from the figures.
    pub lost: u64,
    /// What was not measured, or measured less well; only in the last line.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<Warning>,
}

/// The wake-ups of one CPU.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TopCpu {
    /// The CPU.
    pub cpu: CpuId,
    /// Wake-ups of counted tasks in the interval.
    pub samples: u64,
    /// Time from the wake-up to the decision to run the task; absent without wake-ups. The largest is the lower end
    /// of its bucket (at most 1/128 less), unless it is the largest since the start.
    pub wakeup: Option<Quantiles>,
    /// Time from the programmed expiry of a timer to the decision to run the task, for wake-ups by a timer.
    pub timer: Option<Quantiles>,
    /// The largest latency since the start, and the late task.
    pub max_record: Option<LatencyRecord>,
    /// The largest latencies of the last intervals, oldest first.
    pub strip: Vec<u64>,
}
