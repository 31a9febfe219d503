//! The traces that a run keeps of its largest spikes.

use super::ExplainResult;
use crate::units::CpuId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The trace of one spike of a run.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SpikeTrace {
    /// Path of the trace file below the run directory: `traces/idle-1-1-1.dat`.
    pub path: String,
    /// The cell.
    pub cell: String,
    /// The repeat of the cell, from 1.
    pub repeat: u32,
    /// The attempt at this repeat, from 1.
    pub attempt: u32,
    /// The probe that saw the spike; if it has several series, `PROBE/SERIES`.
    pub probe: String,
    /// Command of the measured task, as the trace names it, if it is known.
    pub task: Option<String>,
    /// The CPU that was late.
    pub cpu: CpuId,
    /// When the task ran again, on CLOCK_MONOTONIC, which is also the trace's clock.
    pub at_ns: u64,
    /// How late the task was.
    pub latency_ns: u64,
    /// The task had not run again when the recording ended, at `at_ns`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unended: bool,
    /// Whether the machine was virtual; absent in runs of earlier whylate versions.
    pub guest: Option<bool>,
    /// The causes of the latency; absent until the trace was explained.
    pub explained: Option<ExplainResult>,
    /// Why the trace could not be explained.
    pub error: Option<String>,
}
