//! What the kernel can report on this machine: what `whylate check --tracing` prints.

use crate::facts::Facts;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `format` of [`TracingResult`].
pub const TRACING_FORMAT: &str = "whylate.tracing/1";

/// What `whylate check --tracing` prints.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TracingResult {
    /// [`TRACING_FORMAT`].
    pub format: String,
    /// The machine.
    pub facts: Facts,
    /// The facilities that were tried, in the order of reports.
    pub facilities: Vec<TracingFacility>,
}

/// Something that the kernel may report, and whether it can be used.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TracingFacility {
    /// What is reported, or the facility that reports it.
    pub name: String,
    /// Whether the facility works, as just tried.
    pub works: bool,
    /// The source: events of the kernel, or files.
    pub source: Option<String>,
    /// Why the facility does not work.
    pub reason: Option<String>,
    /// What is not measured without the facility.
    pub effect: Option<String>,
    /// How to make the facility work; absent if this is not possible on this machine.
    pub fix: Option<String>,
}
