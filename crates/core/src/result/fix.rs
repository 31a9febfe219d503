//! What `whylate fix` registers before it searches, notes down during the search, and prints.

use super::fix_goal::FixGoal;
use super::run::RunState;
use crate::plan::{Share, TreatmentPlan};
use crate::units::Nanos;
use crate::warning::Warning;
use crate::words::words;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// `format` of [`FixResult`].
pub const FIX_FORMAT: &str = "whylate.fix/1";

/// One treatment that is tried.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FixArm {
    /// The treatment; its name is the stable id of the recommendation.
    #[serde(flatten)]
    pub treatment: TreatmentPlan,
    /// Why the treatment may help, in one sentence.
    pub reason: String,
    /// The causes (`irq`) and findings (`deep-idle-states`) that the treatment answers.
    pub answers: Vec<String>,
    /// Names of the ledger's rows that the treatment may remove; their late time also judges the treatment.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub removes: Vec<String>,
    /// The systemd service of the process that the treatment changes, if there is one.
    pub service: Option<String>,
}

/// A treatment that was not tried.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FixLeftOut {
    /// The treatment's id.
    pub id: String,
    /// Why the treatment was considered.
    pub reason: String,
    /// Why the treatment was not tried.
    pub why: String,
}

/// A cause of the spikes before anything was changed.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FixCause {
    /// `irq`, `idle_exit`, …
    pub kind: String,
    /// Who caused the delay.
    pub actor: Option<String>,
    /// Spikes of which this was the main cause; for watched threads with a deadline, their late responses.
    pub spikes: u32,
    /// The cause's part of the late time of all spikes, in [0, 1].
    pub share: f64,
}

words! {
    /// What the search is for.
    #[derive(Default)]
    pub enum FixMode: "a mode" {
        /// To find which treatments help.
        #[default]
        Search = "search",
        /// To check whether the treatments that were proved earlier still help.
        Verify = "verify",
        /// To find which of the settings in use help.
        Audit = "audit",
    }
}

/// The rules of a search; `run.json` has them before the search measures.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FixRegistration {
    /// What the search is for.
    #[serde(default)]
    pub mode: FixMode,
    /// The statistic to lower.
    pub goal: FixGoal,
    /// The smallest relative change that matters.
    pub margin: Share,
    /// Probability of one false claim or more in the whole search.
    pub alpha: f64,
    /// The seed of orders and coins.
    pub seed: u64,
    /// How long the search may take.
    pub budget: Nanos,
    /// The cell with the treatments; chosen after the first measurement, before the search.
    pub cell: Option<String>,
    /// The causes of this cell's spikes.
    #[serde(default)]
    pub causes: Vec<FixCause>,
    /// The treatments to try; empty until they are chosen.
    #[serde(default)]
    pub arms: Vec<FixArm>,
    /// How many of the first `arms` answer causes and are screened before the rest; 0: all are screened together.
    #[serde(default)]
    pub first: u32,
    /// Whether a treatment that removes its cause is refused while the goal is worse; absent in earlier searches, which
    /// accepted it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub keeps_goal: bool,
    /// Treatments that are not tried, and why.
    #[serde(default)]
    pub left_out: Vec<FixLeftOut>,
    /// Treatments that the user agreed to beforehand: their ids, or `all`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub yes: Vec<String>,
    /// Treatments that the user forbade, by id.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub never: Vec<String>,
    /// Whether `arms` are chosen and the search has begun.
    #[serde(default)]
    pub begun: bool,
}

words! {
    /// What a repeat of the search is for.
    pub enum FixPhase: "a phase" {
        /// To see which treatment looks best; this proves nothing.
        Screen = "screen",
        /// To check on fresh data whether the best treatment helps.
        Confirm = "confirm",
        /// To check whether each treatment of the proved set is needed.
        LeaveOut = "leave_out",
        /// To check whether the rest of the set helps.
        Combine = "combine",
        /// To check whether a setting helps in addition to the other settings in use.
        Without = "without",
        /// To check whether the settings that help are together as good as all settings.
        Reduce = "reduce",
    }
}

/// One repeat of a search: a line of `fix.jsonl`.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FixStep {
    /// The phase of the search.
    pub phase: FixPhase,
    /// The treatments in force, by id.
    pub treatments: Vec<String>,
    /// The cell of the run, and its repeat.
    pub cell: String,
    /// The repeat of that cell, from 1.
    pub repeat: u32,
    /// The statistic to lower; absent if the repeat failed.
    pub value: Option<f64>,
    /// Other statistics, by name (`timer p50`).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub others: BTreeMap<String, f64>,
    /// What the loads achieved, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub rates: BTreeMap<String, f64>,
    /// Late time of each cause that a treatment may remove, in ns per measured second.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub causes: BTreeMap<String, f64>,
    /// Other costs: `power` in watts, if the processor counts it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub costs: BTreeMap<String, f64>,
    /// Why the repeat failed.
    pub error: Option<String>,
    /// How long the repeat took.
    pub took_ns: u64,
}

words! {
    /// What the search shows about a treatment.
    pub enum FixOutcome: "an outcome" {
        /// Shown to help by more than the margin; part of the recommendation.
        Proved = "proved",
        /// Shown to help by more than the margin in addition to the other settings.
        Helps = "helps",
        /// Proved, but not needed in addition to the other treatments.
        NotNeeded = "not_needed",
        /// Shown to help, and refused: something else, or the goal itself, got worse.
        Refused = "refused",
        /// Makes no difference larger than the margin.
        Equivalent = "equivalent",
        /// Makes the statistic worse by more than the margin.
        Harms = "harms",
        /// Tested on fresh data, without a clear result.
        CannotTell = "cannot_tell",
        /// Not tested on fresh data, because other treatments looked better.
        NotConfirmed = "not_confirmed",
        /// Not measured: the search ended first.
        NotTried = "not_tried",
        /// Could not be applied or measured.
        Failed = "failed",
    }
}

/// A treatment of a search.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FixArmResult {
    /// The treatment's id.
    pub id: String,
    /// What the search shows about the treatment.
    pub outcome: FixOutcome,
    /// Why the treatment was refused, is not proved, or failed.
    pub why: Option<String>,
    /// The goal's statistic in each repeat of the first screening.
    #[serde(default)]
    pub screened: Vec<f64>,
    /// Rounds of the first screening that the treatment passed.
    pub rounds: u32,
}

/// What the pairs of a claim show about the causes that its treatments should remove.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FixRemoval {
    /// The causes, by their names in the ledger.
    pub causes: Vec<String>,
    /// Their late time in the pairs, in ns per measured second: control, candidate.
    pub pairs: Vec<[f64; 2]>,
    /// Evidence, after each pair, that at least half of this late time is gone.
    pub evidence: Vec<f64>,
    /// Whether at least half of the late time is proved to be gone, whatever the goal does.
    pub proved: bool,
    /// Pairs in which at least half of the late time was gone.
    pub removed_in: u32,
    /// Pairs in which at least one side had this late time.
    pub tells_in: u32,
    /// Median of the late time without the treatments, in ns per s.
    pub before_ns_per_s: f64,
    /// Median of the late time with the treatments, in ns per s.
    pub after_ns_per_s: f64,
}

/// A comparison of two sets of treatments on fresh data.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FixClaim {
    /// The phase of the search.
    pub phase: FixPhase,
    /// The treatments that were in force on both sides.
    pub control: Vec<String>,
    /// The treatments that were in force only on the candidate's side.
    pub candidate: Vec<String>,
    /// Values of the pairs: control, candidate.
    pub pairs: Vec<[f64; 2]>,
    /// Evidence after each pair.
    pub evidence: Vec<f64>,
    /// The evidence that a proof needs; with a `removal`, each of the two proofs needs it.
    pub needed: f64,
    /// Whether the goal's statistic is proved to be lower by more than the margin; absent for claims that are not
    /// proved.
    pub lowers_goal: Option<bool>,
    /// The causes that its treatments answer; absent if the ledger has none.
    pub removal: Option<FixRemoval>,
    /// What the comparison shows.
    pub outcome: FixOutcome,
    /// Median ratio candidate / control.
    pub ratio: Option<f64>,
    /// Lower end of the ratio's 95 % confidence sequence; absent if the pairs give no bound.
    pub ratio_low: Option<f64>,
    /// Upper end of the ratio's 95 % confidence sequence.
    pub ratio_high: Option<f64>,
    /// Other statistics, rates of loads and power: median ratio candidate / control.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub others: BTreeMap<String, f64>,
    /// Why the proof is refused.
    pub refused: Option<String>,
}

impl FixClaim {
    /// Whether this claim is about that treatment.
    pub fn tells_of(&self, id: &str) -> bool {
        let has = |side: &[String]| side.iter().any(|it| it == id);
        match self.phase {
            FixPhase::Confirm => self.candidate.last().is_some_and(|last| last == id),
            FixPhase::Without => has(&self.candidate) && !has(&self.control),
            FixPhase::Screen | FixPhase::LeaveOut | FixPhase::Combine | FixPhase::Reduce => false,
        }
    }
}

words! {
    /// What a search answers.
    pub enum FixAnswer: "an answer" {
        /// A set of treatments is proved to help.
        Proved = "proved",
        /// The machine meets the goal without a treatment.
        NothingNeeded = "nothing_needed",
        /// No treatment is proved to help.
        NothingProved = "nothing_proved",
        /// Nothing can be tried here.
        NothingToTry = "nothing_to_try",
        /// Each setting in use was tested.
        Audited = "audited",
        /// Proposals only: nothing was tried.
        Advised = "advised",
        /// The search is not over.
        Unfinished = "unfinished",
    }
}

/// A file that installs what was proved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FixFile {
    /// Path of the file: `/etc/sysctl.d/90-whylate.conf`.
    pub path: String,
    /// Content of the file.
    pub text: String,
}

/// What `whylate fix` prints.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FixResult {
    /// [`FIX_FORMAT`].
    pub format: String,
    /// The run directory; empty without one.
    pub run: String,
    /// How far the search came.
    pub state: RunState,
    /// The answer.
    pub answer: FixAnswer,
    /// The answer in one sentence.
    pub sentence: String,
    /// The rules, the causes and what was tried.
    #[serde(flatten)]
    pub registration: FixRegistration,
    /// The treatments that are recommended, by id.
    pub recommended: Vec<String>,
    /// Whether the goal's limit was kept in all repeats of the recommended treatments, as measured; absent without a limit, or
    /// without a recommendation.
    pub reached: Option<bool>,
    /// What the search shows about each treatment.
    pub results: Vec<FixArmResult>,
    /// The comparisons on fresh data.
    pub claims: Vec<FixClaim>,
    /// Repeats that were measured for the search.
    pub repeats: u32,
    /// How long these repeats took.
    pub took_ns: u64,
    /// Files that install the recommended treatments.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<FixFile>,
    /// Recommended treatments that no file can install, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub by_hand: Vec<FixLeftOut>,
    /// Whether the machine has its former settings; absent while this is not known.
    pub restored: Option<bool>,
    /// What was not measured, or measured less well.
    #[serde(default)]
    pub warnings: Vec<Warning>,
}
