//! What `whylate trace record --json` prints.

use super::{ExplainResult, ProbeResult};
use crate::facts::Facts;
use crate::units::CpuId;
use crate::warning::Warning;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `format` of [`RecordingResult`].
pub const RECORDING_FORMAT: &str = "whylate.recording/1";

/// What `whylate trace record` measured and saved.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RecordingResult {
    /// [`RECORDING_FORMAT`].
    pub format: String,
    /// The machine.
    pub facts: Facts,
    /// The probe's figures, with the traced spikes.
    #[serde(flatten)]
    pub probe: ProbeResult,
    /// The traces: first those of triggers in their order, then the largest latency first; none if no latency was above the
    /// limit, and no trigger came.
    pub traces: Vec<RecordedTrace>,
    /// What made the task late in each trace.
    pub explained: ExplainResult,
    /// Why a latency above the limit may have been missed; absent if a trace was kept, or if there was certainly none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cannot_tell: Option<String>,
    /// Latencies above the limit, and triggers, that have no trace, because another trace was being saved.
    pub missed: u64,
    /// What was not measured or recorded, or less well than usual.
    pub warnings: Vec<Warning>,
}

/// The trace of one spike, or of one trigger.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RecordedTrace {
    /// Path of the trace file (trace.dat format).
    pub path: String,
    /// The CPU that was late; absent for a trigger, and for a watched thread that did not wait for a CPU.
    pub cpu: Option<CpuId>,
    /// When the task ran again, when the response of a watched thread ended, or when the trigger came: on CLOCK_MONOTONIC,
    /// which is also the trace's clock. With `unended`: when the recording ended.
    pub at_ns: u64,
    /// How late the task was, or how long a watched thread took; absent for a trigger.
    pub latency_ns: Option<u64>,
    /// The response had not ended when the recording did: `latency_ns` is its length until then.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unended: bool,
    /// The watched thread that was late; absent for whylate's own task.
    pub thread: Option<String>,
    /// The trigger, as given.
    pub trigger: Option<String>,
    /// The line that matched, or the text that came with the trigger.
    pub text: Option<String>,
    /// The first cause, as the kernel's records of the watched threads show it.
    pub why: Option<String>,
}
