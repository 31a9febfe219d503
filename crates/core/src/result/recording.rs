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
    /// The traces, largest latency first; none if no latency was above the limit.
    pub traces: Vec<RecordedTrace>,
    /// What made the task late in each trace.
    pub explained: ExplainResult,
    /// Latencies above the limit that have no trace, because another trace was being saved.
    pub missed: u64,
    /// What was not measured or recorded, or less well than usual.
    pub warnings: Vec<Warning>,
}

/// The trace of one spike.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RecordedTrace {
    /// Path of the trace file (trace.dat format).
    pub path: String,
    /// The CPU that was late.
    pub cpu: CpuId,
    /// When the task ran again, on CLOCK_MONOTONIC, which is also the trace's clock.
    pub at_ns: u64,
    /// How late the task was.
    pub latency_ns: u64,
}
