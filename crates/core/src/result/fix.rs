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
    /// What it changes; its name is the stable id of the recommendation.
    #[serde(flatten)]
    pub treatment: TreatmentPlan,
    /// Why it may help, in one sentence.
    pub reason: String,
    /// The causes (`irq`) and findings (`deep-idle-states`) that it answers.
    pub answers: Vec<String>,
    /// The rows of the ledger that it may remove, by name. If there are any, it is judged by their late time too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub removes: Vec<String>,
    /// The systemd service of the process that it is about, if it has one.
    pub service: Option<String>,
}

/// A treatment that was not tried.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FixLeftOut {
    /// Its id.
    pub id: String,
    /// Why it was considered.
    pub reason: String,
    /// Why it was not tried.
    pub why: String,
}

/// A cause of the spikes before anything was changed.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FixCause {
    /// `irq`, `idle_exit`, …
    pub kind: String,
    /// Who.
    pub actor: Option<String>,
    /// Spikes of which it was the main cause.
    pub spikes: u32,
    /// Its part of the late time of all spikes, in [0, 1].
    pub share: f64,
}

words! {
    /// What a search is for.
    #[derive(Default)]
    pub enum FixMode: "a mode" {
        /// Which treatments help.
        #[default]
        Search = "search",
        /// Whether what was proved earlier still helps.
        Verify = "verify",
        /// Which of the settings that are used help.
        Audit = "audit",
    }
}

/// The rules of a search, in `run.json` before it measures.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FixRegistration {
    /// What it is for.
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
    /// The cell that is treated; chosen after the first measurement, before the search.
    pub cell: Option<String>,
    /// The causes of its spikes.
    #[serde(default)]
    pub causes: Vec<FixCause>,
    /// What is tried; empty until it is known.
    #[serde(default)]
    pub arms: Vec<FixArm>,
    /// How many of the first arms answer causes and are screened before the others; 0: all are screened at once.
    #[serde(default)]
    pub first: u32,
    /// Whether a treatment that removes its cause is refused while the goal is worse; absent in earlier searches, which
    /// accepted it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub keeps_goal: bool,
    /// What is not tried, and why.
    #[serde(default)]
    pub left_out: Vec<FixLeftOut>,
    /// What the user agreed to beforehand: ids of treatments, or `all`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub yes: Vec<String>,
    /// What the user forbade.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub never: Vec<String>,
    /// Whether the arms are chosen: the search has begun.
    #[serde(default)]
    pub begun: bool,
}

words! {
    /// What a repeat of a search is for.
    pub enum FixPhase: "a phase" {
        /// Which treatment looks best; claims nothing.
        Screen = "screen",
        /// Whether the best one helps, on fresh data.
        Confirm = "confirm",
        /// Whether a part of the proved set is needed in it.
        LeaveOut = "leave_out",
        /// Whether what is left of the set helps.
        Combine = "combine",
        /// Whether a setting helps in addition to the others that are used.
        Without = "without",
        /// Whether the settings that help are as good as all of them.
        Reduce = "reduce",
    }
}

/// One repeat of a search: a line of `fix.jsonl`.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FixStep {
    /// What it was for.
    pub phase: FixPhase,
    /// The treatments in force, by id.
    pub treatments: Vec<String>,
    /// The cell of the run, and its repeat.
    pub cell: String,
    /// The repeat of that cell, from 1.
    pub repeat: u32,
    /// The goal's statistic; absent when the repeat failed.
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
    /// What it cost in addition: `power` in watts, where the processor counts it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub costs: BTreeMap<String, f64>,
    /// Why it failed.
    pub error: Option<String>,
    /// How long it took.
    pub took_ns: u64,
}

words! {
    /// What is known of a treatment after a search.
    pub enum FixOutcome: "an outcome" {
        /// Shown to help by more than the margin; part of the recommendation.
        Proved = "proved",
        /// Shown to help by more than the margin in addition to the other settings.
        Helps = "helps",
        /// Proved, and not needed in addition to the others.
        NotNeeded = "not_needed",
        /// Shown to help, and refused: something else, or the goal itself, got worse.
        Refused = "refused",
        /// Makes no difference larger than the margin.
        Equivalent = "equivalent",
        /// Makes it worse by more than the margin.
        Harms = "harms",
        /// Was confirmed, and nothing is shown.
        CannotTell = "cannot_tell",
        /// Others looked better; it was not tested on fresh data.
        NotConfirmed = "not_confirmed",
        /// Was not measured: the search ended before.
        NotTried = "not_tried",
        /// It could not be applied, or not be measured.
        Failed = "failed",
    }
}

/// A treatment of a search.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FixArmResult {
    /// Its id.
    pub id: String,
    /// What is known of it.
    pub outcome: FixOutcome,
    /// Why it was refused, is not proved, or failed.
    pub why: Option<String>,
    /// The goal's statistic in each repeat of the first screening.
    #[serde(default)]
    pub screened: Vec<f64>,
    /// Rounds of the first screening that it survived.
    pub rounds: u32,
}

/// What the pairs of a claim show for the causes that its treatments answer.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FixRemoval {
    /// The causes, by their names in the ledger.
    pub causes: Vec<String>,
    /// Their late time in the pairs, in ns per measured second: control, candidate.
    pub pairs: Vec<[f64; 2]>,
    /// Evidence after each pair that at least half of it is gone.
    pub evidence: Vec<f64>,
    /// Whether that is proved, whatever the goal does.
    pub proved: bool,
    /// Pairs in which at least half of it was gone.
    pub removed_in: u32,
    /// Pairs with such late time on a side.
    pub tells_in: u32,
    /// Median of the late time without the treatments, in ns per s.
    pub before_ns_per_s: f64,
    /// The same with them.
    pub after_ns_per_s: f64,
}

/// A comparison of two sets of treatments on data that did not choose them.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FixClaim {
    /// What it was for.
    pub phase: FixPhase,
    /// The treatments that were in force on both sides.
    pub control: Vec<String>,
    /// The treatments of the other side.
    pub candidate: Vec<String>,
    /// Values of the pairs: control, candidate.
    pub pairs: Vec<[f64; 2]>,
    /// Evidence after each pair.
    pub evidence: Vec<f64>,
    /// The evidence from which it is proved; with a `removal`, in each of the two ways.
    pub needed: f64,
    /// Whether the goal's statistic is proved to be lower by more than the margin; absent for claims that are not
    /// proved.
    pub lowers_goal: Option<bool>,
    /// The causes that its treatments answer; absent if the ledger has none.
    pub removal: Option<FixRemoval>,
    /// What is shown.
    pub outcome: FixOutcome,
    /// Median ratio candidate / control.
    pub ratio: Option<f64>,
    /// Lower end of its 95 % confidence sequence; absent if the pairs do not bound it.
    pub ratio_low: Option<f64>,
    /// Upper end.
    pub ratio_high: Option<f64>,
    /// Other statistics, rates of loads and power: median ratio candidate / control.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub others: BTreeMap<String, f64>,
    /// Why a proof is refused.
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
        /// A set of treatments is proved.
        Proved = "proved",
        /// The goal is met as the machine is.
        NothingNeeded = "nothing_needed",
        /// Nothing is proved.
        NothingProved = "nothing_proved",
        /// Nothing can be tried here.
        NothingToTry = "nothing_to_try",
        /// Each setting that is used was looked at.
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
    /// Where it belongs: `/etc/sysctl.d/90-whylate.conf`.
    pub path: String,
    /// Its text.
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
    /// How far it came.
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
    /// What is known of each.
    pub results: Vec<FixArmResult>,
    /// The comparisons on fresh data.
    pub claims: Vec<FixClaim>,
    /// Repeats that were measured for the search.
    pub repeats: u32,
    /// How long they took.
    pub took_ns: u64,
    /// What installs the recommended treatments.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<FixFile>,
    /// Recommended treatments that no file can install, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub by_hand: Vec<FixLeftOut>,
    /// Whether the machine is as it was; absent while that is not known.
    pub restored: Option<bool>,
    /// What was not measured, or less well.
    #[serde(default)]
    pub warnings: Vec<Warning>,
}
