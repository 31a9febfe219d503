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
    /// The probe's figures, the traced spikes among them.
    #[serde(flatten)]
    pub probe: ProbeResult,
    /// The traces, largest latency first; none when nothing was late enough.
    pub traces: Vec<RecordedTrace>,
    /// What made the task late in each of them.
    pub explained: ExplainResult,
    /// Latencies above the limit that have no trace because another one was being saved.
    pub missed: u64,
    /// What was not measured or recorded, or less well.
    pub warnings: Vec<Warning>,
}

/// The trace of one spike.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RecordedTrace {
    /// The file: a trace.dat.
    pub path: String,
    /// The CPU that was late.
    pub cpu: CpuId,
    /// When the task ran again: CLOCK_MONOTONIC, which is the trace's clock too.
    pub at_ns: u64,
    /// How late it was.
    pub latency_ns: u64,
}
