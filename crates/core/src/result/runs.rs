//! What `whylate runs --json` prints.

use super::{RunState, Verdict};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `format` of [`RunsResult`].
pub const RUNS_FORMAT: &str = "whylate.runs/1";

/// Fewer runs cannot show a change at the usual evidence.
pub const RUNS_MIN: usize = 8;

/// The runs of a folder.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunsResult {
    /// [`RUNS_FORMAT`].
    pub format: String,
    /// The folder.
    pub folder: String,
    /// The newest first.
    pub runs: Vec<RunSummary>,
    /// The trend of a statistic over these runs, if it was asked for.
    pub series: Option<RunSeries>,
}

/// A statistic of one cell over runs of one plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunSeries {
    /// The plan.
    pub plan: String,
    /// The cell.
    pub cell: String,
    /// The statistic: `timer p99.9`.
    pub statistic: String,
    /// The oldest first; runs without the value are left out.
    pub points: Vec<RunPoint>,
    /// The changes, the oldest first.
    pub changes: Vec<RunChange>,
    /// The median of each part between changes, one more than there are changes.
    #[serde(default)]
    pub levels: Vec<f64>,
}

/// The statistic of one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunPoint {
    /// Its directory.
    pub path: String,
    /// When it began: RFC 3339, UTC.
    pub started_at: String,
    /// Its kernel.
    pub kernel: String,
    /// Words of the user.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// The median over its repeats, for the worst CPU, in the unit of the statistic.
    pub value: f64,
}

/// A change between two runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunChange {
    /// The first point after it, from 0.
    pub point: usize,
    /// The probability that a series without a change looks like this.
    pub p_value: f64,
    /// Median after it over the median before it.
    pub ratio: f64,
}

/// One run in a list.
#[serde_with::skip_serializing_none]
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
    /// Whether it is still running; a run that has no end and is not running was killed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub running: bool,
    /// The verdict against its limit; absent if it has no result.
    pub verdict: Option<Verdict>,
    /// The machine.
    pub host: String,
    /// Its kernel.
    pub kernel: String,
    /// Words of the user.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// A sentence of the user.
    pub note: Option<String>,
}
