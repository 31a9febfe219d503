//! What `whylate run --dry-run --json` prints.

use crate::plan::Plan;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `format` of [`PreviewResult`].
pub const PREVIEW_FORMAT: &str = "whylate.preview/1";

/// What a plan means on this machine.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PreviewResult {
    /// [`PREVIEW_FORMAT`].
    pub format: String,
    /// The plan, with every default filled in.
    pub plan: Plan,
    /// The measured CPUs.
    pub target: String,
    /// About how long the run takes.
    pub duration_ns: u64,
    /// The cells, in the plan's order.
    pub cells: Vec<PreviewCell>,
    /// Names of the cells in the order of their repeats; each run draws its own order unless the plan has a seed.
    pub order: Vec<String>,
    /// The statistic that decides.
    pub primary: Option<String>,
    /// Number of comparisons by this statistic.
    pub contrasts: usize,
    /// The changes that can be found, by the spread of the repeats; empty if nothing is compared.
    pub power: Vec<PreviewPower>,
}

/// A cell.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PreviewCell {
    /// The cell's name.
    pub name: String,
    /// Why the cell cannot run here.
    pub skipped: Option<String>,
}

/// The smallest ratio that 8 of 10 runs find.
#[serde_with::skip_serializing_none]
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PreviewPower {
    /// Standard deviation between repeats of one cell, as a share of their value.
    pub spread: f64,
    /// The ratio; absent if even a factor of 10 is not found.
    pub ratio: Option<f64>,
}
