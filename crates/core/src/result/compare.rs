//! What `whylate compare --json` prints.

use super::{Comparison, NOT_EXPLAINED, OTHERS, Outcome};
use crate::figure;
use crate::warning::Warning;
use crate::words::words;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `format` of [`CompareResult`].
pub const COMPARE_FORMAT: &str = "whylate.compare/1";

/// A comparison of one or more sides with the first side.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CompareResult {
    /// [`COMPARE_FORMAT`].
    pub format: String,
    /// What was compared; the first is the baseline.
    pub sides: Vec<CompareSide>,
    /// Facts and plan keys that differ, with a value for each side.
    pub differences: Vec<FactDifference>,
    /// Facts and plan keys that only some sides report, so that a difference is possible.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unknown: Vec<FactDifference>,
    /// The contrasts, the worst first.
    pub contrasts: Vec<RunContrast>,
    /// The causes of the late time, on the baseline and on each other side.
    pub causes: Vec<CauseDifference>,
    /// The worst of the deciding contrasts.
    pub outcome: CompareOutcome,
    /// Why, in one sentence.
    pub reason: String,
    /// The basis of the verdicts: runs, a history, or repeats of one run.
    pub basis: String,
    /// Relative effects up to this size do not matter.
    pub margin: f64,
    /// What was not compared, or compared less well.
    pub warnings: Vec<Warning>,
}

words! {
    /// The outcome of a comparison of runs.
    #[derive(Default)]
    pub enum CompareOutcome: "an outcome" {
        /// A deciding statistic is worse: a regression.
        Worse = "worse",
        /// No deciding statistic is worse, and at least one is better.
        Better = "better",
        /// All deciding statistics are equivalent.
        Equivalent = "equivalent",
        /// The runs are not enough to tell.
        #[default]
        CannotTell = "cannot_tell",
        /// The sides have no cell and probe in common.
        Nothing = "nothing",
    }
}

impl From<Outcome> for CompareOutcome {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Worse => Self::Worse,
            Outcome::Better => Self::Better,
            Outcome::Equivalent => Self::Equivalent,
            Outcome::CannotTell => Self::CannotTell,
        }
    }
}

/// One side: a run, a set of runs, a cell, or a result of another tool.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CompareSide {
    /// `A`, `B`, …
    pub name: String,
    /// The runs, cells or files named on the command line.
    pub runs: Vec<String>,
    /// The cell, if only one is compared.
    pub cell: Option<String>,
    /// When the first of the runs began, if this is known.
    pub started_at: Option<String>,
    /// Tags that all runs of the side have.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
}

/// A fact that is not the same on every side.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FactDifference {
    /// The fact or plan key: `kernel.release`, `plan.duration`.
    pub what: String,
    /// The value on each side; absent if it is not known.
    pub values: Vec<Option<String>>,
}

/// One statistic of one probe in one cell on two sides.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunContrast {
    /// The cell that was measured on both sides.
    pub of_cell: String,
    /// The comparison; `baseline` and `cell` are the names of the sides, `repeats` the runs of the smaller side.
    #[serde(flatten)]
    pub comparison: Comparison,
    /// The compared values, one for each run: first those of the baseline, then those of the other side.
    pub values: [Vec<f64>; 2],
    /// How many values of each side are above the end of another tool's histogram, and count with this end.
    #[serde(default, skip_serializing_if = "is_none_above")]
    pub above_histogram: [u32; 2],
}

fn is_none_above(above: &[u32; 2]) -> bool {
    *above == [0, 0]
}

/// The late time that one cause took.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CauseDifference {
    /// The side that is compared with the baseline; a cell in a run.
    pub side: String,
    /// The cell of the baseline; absent if sides of `compare` are compared.
    pub baseline: Option<String>,
    /// The series of the spikes.
    pub probe: String,
    /// Kind, actor and function.
    pub cause: String,
    /// The cause's share of the late time in the baseline, in [0, 1].
    pub baseline_share: f64,
    /// The cause's share of the late time on this side, in [0, 1].
    pub share: f64,
    /// The cause's late time in the baseline, in ns per measured second.
    pub baseline_ns_per_s: f64,
    /// The cause's late time on this side, in ns per measured second.
    pub ns_per_s: f64,
    /// Lower end of the 95 % interval of the rates' difference, in ns per s; absent if the data give no bound.
    pub difference_low: Option<f64>,
    /// Upper end of this interval; absent if the data give no bound.
    pub difference_high: Option<f64>,
    /// Spikes per measured second to which the cause contributed in the baseline.
    #[serde(default)]
    pub baseline_per_s: f64,
    /// Spikes per measured second to which the cause contributed on this side.
    #[serde(default)]
    pub per_s: f64,
    /// The most that the cause took of one spike in the baseline.
    #[serde(default)]
    pub baseline_max_ns: u64,
    /// The most that the cause took of one spike on this side.
    #[serde(default)]
    pub max_ns: u64,
    /// Blocks in which the cause takes more time on this side.
    #[serde(default)]
    pub blocks_larger: u32,
    /// Blocks with repeats of both sides.
    #[serde(default)]
    pub blocks: u32,
    /// About how many more repeats or runs like these would decide the comparison.
    pub more_repeats: Option<u32>,
    /// p-value, corrected for the number of causes and comparisons.
    pub p_value: f64,
    /// What became of the cause.
    pub change: CauseChange,
}

impl CauseDifference {
    /// Whether a claim is made.
    pub fn is_change(&self) -> bool {
        !matches!(self.change, CauseChange::Same | CauseChange::CannotTell)
    }

    /// Whether it is about one cause; rows that are sums are about several.
    pub fn is_named(&self) -> bool {
        self.cause != OTHERS && self.cause != NOT_EXPLAINED
    }

    /// What the side does to the late time of the cause, if a claim is made.
    pub fn verb(&self) -> &'static str {
        if self.ns_per_s > self.baseline_ns_per_s { "adds" } else { "removes" }
    }

    /// `0 → 1.98 ms`, of a second.
    pub fn rates(&self) -> String {
        let rate = |ns_per_s: f64| match ns_per_s {
            none if none < 1.0 => "0".to_owned(),
            rate => figure::nanoseconds_f64(rate),
        };
        format!("{} → {}", rate(self.baseline_ns_per_s), rate(self.ns_per_s))
    }
}

words! {
    /// What became of a cause.
    pub enum CauseChange: "a change" {
        /// The cause took no time before.
        New = "new",
        /// The cause takes no time any more.
        Gone = "gone",
        /// The cause takes more time than before.
        More = "more",
        /// The cause takes less time than before.
        Less = "less",
        /// The cause takes about the same time: the interval of the difference is small.
        Same = "same",
        /// The runs or repeats are not enough to tell.
        CannotTell = "cannot_tell",
    }
}
