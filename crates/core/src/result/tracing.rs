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
    /// Each thing that was tried, in the order of reports.
    pub facilities: Vec<TracingFacility>,
}

/// Something that the kernel may report, and whether it does.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TracingFacility {
    /// What it reports, or the facility that reports it.
    pub name: String,
    /// Whether it works, tried a moment ago.
    pub works: bool,
    /// The source of that knowledge: events of the kernel, files.
    pub source: Option<String>,
    /// Why it does not.
    pub reason: Option<String>,
    /// What is not measured without it.
    pub effect: Option<String>,
    /// What to do about it; absent if nothing can be done on this machine.
    pub fix: Option<String>,
}
