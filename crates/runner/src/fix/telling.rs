//! What is said of a search while it goes on: what is measured next and why, how long it takes at most, and what things are called.

use super::Steps;
use crate::experiment::RunInProgress;
use whylate_core::figure::nanoseconds;
use whylate_core::result::FixPhase;
use whylate_stats::search::{Trial, pairs_max};

impl Steps {
    /// What a repeat took on average.
    pub(super) fn each_ns(&self) -> u64 {
        self.took_ns / (self.steps.len() as u64).max(1)
    }

    /// Why a comparison is not begun: even if every pair were won, the budget ends before the proof.
    pub(super) fn no_proof_within_budget(&self, trial: &Trial) -> Option<String> {
        let needed = 2 * u64::from(self.search.pairs_at_least()) * self.each_ns();
        let budget = self.registration.budget.0;
        let is_first = trial.phase == FixPhase::Confirm && trial.part.1 == 0;
        (is_first && self.took_ns + needed > budget).then(|| {
            format!(
                "{} of the budget are left, and a proof takes {} at least: what is not proved stays open; a search with \
                 `--budget {}s` could prove it",
                nanoseconds(budget.saturating_sub(self.took_ns)),
                nanoseconds(needed),
                (self.took_ns + needed).div_ceil(1_000_000_000) * 2
            )
        })
    }

    pub(super) fn names(&self, arms: &[usize]) -> Vec<String> {
        arms.iter().map(|arm| self.registration.arms[*arm].treatment.name.clone()).collect()
    }

    /// All settings that are used, or all but those that are left out.
    pub(super) fn name_of_settings(&self, control: &str, used: &[String]) -> String {
        let all = self.registration.arms.iter().map(|arm| &arm.treatment.name);
        let missing: Vec<&str> = all.filter(|name| !used.contains(name)).map(String::as_str).collect();
        if missing.is_empty() {
            format!("{control}+all")
        } else {
            format!("{control}+all-{}", missing.join("-"))
        }
    }

    /// Says what is tried next and why, once for each part of the search.
    pub(super) fn tell(&mut self, run: &mut RunInProgress<'_>, trial: &Trial) {
        let claims = self.search.claims();
        let arms = match (trial.phase, claims.last()) {
            (FixPhase::Screen, _) | (_, None) => Vec::new(),
            (FixPhase::Without, Some(claim)) => claim.tested.into_iter().collect(),
            (_, Some(claim)) => claim.candidate.clone(),
        };
        if self.told.replace((trial.phase, arms.clone())) == Some((trial.phase, arms.clone())) {
            return;
        }
        let each = self.each_ns();
        let each = if each == 0 { run.experiment.plan.repeat_duration().0 } else { each };
        let at_most = nanoseconds(each * u64::from(trial.part.0.saturating_sub(trial.part.1)));
        let names = self.names(&arms).join(" + ");
        let reason = arms.last().map(|arm| self.registration.arms[*arm].reason.clone()).unwrap_or_default();
        let line = match trial.phase {
            FixPhase::Screen => {
                let count = self.registration.arms.len();
                format!("screening: which of {count} treatments looks best (about {at_most})")
            }
            FixPhase::Confirm => format!(
                "confirming `{names}` on fresh data, since {reason}: at most {} pairs ({at_most})",
                pairs_max(trial.phase)
            ),
            FixPhase::LeaveOut => {
                format!("looking whether each part of `{names}` is needed (at most {at_most})")
            }
            FixPhase::Without => {
                format!("looking whether `{names}` helps beside the others (at most {at_most})")
            }
            FixPhase::Reduce if arms.is_empty() => {
                format!("looking whether it is as good without all of them (at most {at_most})")
            }
            FixPhase::Reduce => format!("looking whether `{names}` are as good as all (at most {at_most})"),
            FixPhase::Combine => format!("confirming what is left: `{names}` (at most {at_most})"),
        };
        run.audience.said(&line);
    }
}
