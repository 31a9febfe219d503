//! What `whylate compare --json` prints.

use super::{Comparison, NOT_EXPLAINED, OTHERS, Outcome};
use crate::figure;
use crate::warning::Warning;
use crate::words::words;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `format` of [`CompareResult`].
pub const COMPARE_FORMAT: &str = "whylate.compare/1";

/// Two or more sides against the first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CompareResult {
    /// [`COMPARE_FORMAT`].
    pub format: String,
    /// What was compared; the first is the baseline.
    pub sides: Vec<CompareSide>,
    /// What differs between the machines and the plans: a value for each side.
    pub differences: Vec<FactDifference>,
    /// What only some of the sides say, so that it is not known whether it differs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unknown: Vec<FactDifference>,
    /// The contrasts, the worst first.
    pub contrasts: Vec<RunContrast>,
    /// Who took the late time, on the baseline and on each other side.
    pub causes: Vec<CauseDifference>,
    /// The worst of the deciding contrasts.
    pub outcome: CompareOutcome,
    /// Why, in one sentence.
    pub reason: String,
    /// What the verdicts rest on: runs, a history, repeats of one run.
    pub basis: String,
    /// Effects up to this share do not matter.
    pub margin: f64,
    /// What was not compared, or less well.
    pub warnings: Vec<Warning>,
}

words! {
    /// The outcome of a comparison of runs.
    #[derive(Default)]
    pub enum CompareOutcome: "an outcome" {
        /// A deciding statistic is worse: a regression.
        Worse = "worse",
        /// None is worse, and one is better.
        Better = "better",
        /// All of them are equivalent.
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
    /// What was named on the command line.
    pub runs: Vec<String>,
    /// The cell, if only one is compared.
    pub cell: Option<String>,
    /// When the first of them began, if that is known.
    pub started_at: Option<String>,
    /// Words of the user that all its runs have.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
}

/// A fact that is not the same on every side.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FactDifference {
    /// Its place in the facts or the plan: `kernel.release`, `plan.duration`.
    pub what: String,
    /// Its value on each side; absent if it is not known.
    pub values: Vec<Option<String>>,
}

/// One statistic of one probe in one cell on two sides.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunContrast {
    /// The cell in which both were measured.
    pub of_cell: String,
    /// The comparison; `baseline` and `cell` are the names of the sides, `repeats` the runs of the smaller one.
    #[serde(flatten)]
    pub comparison: Comparison,
    /// The values that were compared, one per run: of the baseline, of the other side.
    pub values: [Vec<f64>; 2],
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
    /// Its share in the baseline, in [0, 1].
    pub baseline_share: f64,
    /// Its share on this side.
    pub share: f64,
    /// Its late time in the baseline, in ns per measured second.
    pub baseline_ns_per_s: f64,
    /// Its late time on this side, in ns per measured second.
    pub ns_per_s: f64,
    /// 95 % interval of the difference of the two rates, in ns per s; an end that the runs or repeats do not bound is
    /// absent.
    pub difference_low: Option<f64>,
    /// Its upper end.
    pub difference_high: Option<f64>,
    /// Spikes to which it contributed, per measured second in the baseline.
    #[serde(default)]
    pub baseline_per_s: f64,
    /// The same on this side.
    #[serde(default)]
    pub per_s: f64,
    /// The most that it took of one spike in the baseline.
    #[serde(default)]
    pub baseline_max_ns: u64,
    /// The same on this side.
    #[serde(default)]
    pub max_ns: u64,
    /// Blocks in which it takes more on this side.
    #[serde(default)]
    pub blocks_larger: u32,
    /// Blocks with repeats of both.
    #[serde(default)]
    pub blocks: u32,
    /// About how many more repeats, or runs, would decide it, if they are like these.
    pub more_repeats: Option<u32>,
    /// Corrected for the number of causes and contrasts.
    pub p_value: f64,
    /// What became of it.
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
    /// What became of a culprit.
    pub enum CauseChange: "a change" {
        /// It took nothing before.
        New = "new",
        /// It takes no time any more.
        Gone = "gone",
        /// It takes more than before.
        More = "more",
        /// It takes less than before.
        Less = "less",
        /// About the same: the interval of the difference is small.
        Same = "same",
        /// The runs or repeats are not enough to tell.
        CannotTell = "cannot_tell",
    }
}
