//! The traces that a run keeps of its largest spikes.

use super::ExplainResult;
use crate::units::CpuId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The trace of one spike of a run.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SpikeTrace {
    /// The file, a trace.dat, below the run directory: `traces/idle-1-1-1.dat`.
    pub path: String,
    /// The cell.
    pub cell: String,
    /// The repeat that it belongs to, from 1.
    pub repeat: u32,
    /// The attempt at that repeat, from 1.
    pub attempt: u32,
    /// The probe that saw the spike, joined to its series with a `/` if it has several.
    pub probe: String,
    /// Command of the measured task, as the trace names it, if it is known.
    pub task: Option<String>,
    /// The CPU that was late.
    pub cpu: CpuId,
    /// When the task ran again: CLOCK_MONOTONIC, which is the trace's clock too.
    pub at_ns: u64,
    /// How late it was.
    pub latency_ns: u64,
    /// Whether the machine was a virtual one; absent in runs of earlier versions.
    pub guest: Option<bool>,
    /// The causes of the latency; absent until the trace was explained.
    pub explained: Option<ExplainResult>,
    /// Why it could not be explained.
    pub error: Option<String>,
}
