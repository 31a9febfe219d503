//! What `whylate runs --json` prints.

use super::{RunState, Verdict};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `format` of [`RunsResult`].
pub const RUNS_FORMAT: &str = "whylate.runs/1";

/// The runs of a folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RunsResult {
    /// [`RUNS_FORMAT`].
    pub format: String,
    /// The folder.
    pub folder: String,
    /// The newest first.
    pub runs: Vec<RunSummary>,
}

/// One run in a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RunSummary {
    /// Its directory.
    pub path: String,
    /// Its plan.
    pub plan: String,
    /// When it began: RFC 3339, UTC.
    pub started_at: String,
    /// How far it came.
    pub state: RunState,
    /// Whether it goes on now; one without an end that does not was killed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub running: bool,
    /// Against its limit; absent where it has no result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
    /// The machine.
    pub host: String,
    /// Its kernel.
    pub kernel: String,
    /// Words of the user.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// A sentence of the user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}
