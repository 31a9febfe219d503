//! What `whylate bisect --json` prints.

use crate::plan::SeriesStatistic;
use crate::words::words;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `format` of [`BisectResult`].
pub const BISECT_FORMAT: &str = "whylate.bisect/1";

words! {
    /// The group to which the run belongs.
    #[derive(Default)]
    pub enum BisectOutcome: "an outcome" {
        /// To the runs before the change.
        Good = "good",
        /// To the runs after the change.
        Bad = "bad",
        /// The repeats are not enough to tell.
        #[default]
        CannotTell = "cannot_tell",
    }
}

/// Whether a run is like the good runs or like the bad runs.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BisectResult {
    /// [`BISECT_FORMAT`].
    pub format: String,
    /// The answer.
    pub outcome: BisectOutcome,
    /// The answer in one sentence.
    pub sentence: String,
    /// The statistic that is compared; absent if the run could not be read.
    pub statistic: Option<SeriesStatistic>,
    /// Values above this limit are like those of bad runs: the geometric mean of the medians of both groups.
    pub limit: f64,
    /// The highest probability of a wrong answer, for a kernel whose median is on one side of the limit.
    pub error: f64,
    /// The repeats of the run.
    pub run: BisectGroup,
    /// The repeats of the good runs.
    pub good: BisectGroup,
    /// The repeats of the bad runs.
    pub bad: BisectGroup,
}

/// A number of repeats, and how many of them are above the limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BisectGroup {
    /// Complete repeats.
    pub repeats: u32,
    /// Repeats above the limit.
    pub above: u32,
}
