//! What a search says while it runs: what is measured next and why, how long it takes at most, and the names of
//! things.

use super::Steps;
use crate::campaign::boot_of;
use crate::experiment::RunInProgress;
use whylate_core::figure::nanoseconds;
use whylate_core::result::{FixMode, FixPhase, FixRegistration};
use whylate_stats::search::{Search, Trial, pairs_max};

impl Steps {
    /// Says how long the search will take, by what a repeat took until now. Boots are not included: none has been
    /// timed yet.
    pub(super) fn tell_estimate(&self, run: &mut RunInProgress<'_>, each_ns: u64) {
        let has_boots = self.registration.arms.iter().any(|arm| boot_of(arm).is_some());
        let each_ns = if self.steps.is_empty() { each_ns } else { self.each_ns() };
        if !has_boots && self.search.next().is_some() {
            run.audience.said(&estimate(&self.search, &self.registration, each_ns, self.took_ns));
        }
    }

    /// What a repeat took on average.
    pub(super) fn each_ns(&self) -> u64 {
        self.took_ns / (self.steps.len() as u64).max(1)
    }

    /// Why a comparison is not started: even if every pair were won, the budget would end before the proof.
    pub(super) fn no_proof_within_budget(&self, trial: &Trial) -> Option<String> {
        let needed = 2 * u64::from(self.search.pairs_at_least()) * self.each_ns();
        let budget = self.registration.budget.0;
        let is_first = trial.phase == FixPhase::Confirm && trial.part.1 == 0;
        (is_first && self.took_ns + needed > budget).then(|| {
            format!(
                "{} of the budget is left, but a proof takes at least {}: treatments that are not proved yet remain undecided; a search with \
                 `--budget {}s` could prove more",
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
        if self.shown.replace((trial.phase, arms.clone())) == Some((trial.phase, arms.clone())) {
            return;
        }
        let each = self.each_ns();
        let each = if each == 0 { run.experiment.plan.repeat_duration().0 } else { each };
        let left_ns = self.registration.budget.0.saturating_sub(self.took_ns);
        let at_most = each * u64::from(trial.part.0.saturating_sub(trial.part.1));
        let at_most = nanoseconds(at_most.min(left_ns));
        let names = self.names(&arms).join(" + ");
        let reason = arms.last().map(|arm| self.registration.arms[*arm].reason.clone()).unwrap_or_default();
        let line = match trial.phase {
            FixPhase::Screen => {
                let count = self.registration.arms.len();
                format!("screening: which of {count} treatments looks best (about {at_most})")
            }
            FixPhase::Confirm => format!(
                "confirming `{names}` on new data, because {reason}: at most {} pairs ({at_most})",
                pairs_max(trial.phase)
            ),
            FixPhase::LeaveOut => {
                format!("checking whether each part of `{names}` is needed (at most {at_most})")
            }
            FixPhase::Without => {
                format!("checking whether `{names}` helps on top of the other settings (at most {at_most})")
            }
            FixPhase::Reduce if arms.is_empty() => {
                format!("checking whether none of the settings is needed (at most {at_most})")
            }
            FixPhase::Reduce => {
                format!("checking whether `{names}` are as good as all settings together (at most {at_most})")
            }
            FixPhase::Combine => {
                format!("confirming the remaining treatments: `{names}` (at most {at_most})")
            }
        };
        run.audience.said(&line);
    }
}

/// `12 treatments, about 3 s per repeat: the search takes 4 min to 9 min, …`.
fn estimate(search: &Search, registration: &FixRegistration, each_ns: u64, took_ns: u64) -> String {
    let left_ns = registration.budget.0.saturating_sub(took_ns);
    let left = nanoseconds(left_ns);
    let time_ns = |repeats: u32| u64::from(repeats).saturating_mul(each_ns);
    let (least, most) = search.repeats_left_between();
    let count = registration.arms.len();
    let what = match registration.mode {
        FixMode::Audit => "settings",
        _ => "treatments",
    };
    let each = format!("{count} {what}, about {} per repeat", nanoseconds(each_ns));
    if time_ns(least) >= left_ns {
        return format!(
            "{each}: the search takes at least {}, and ends after {left}, its budget",
            nanoseconds(time_ns(least))
        );
    }
    let most = nanoseconds(time_ns(most).min(left_ns));
    let least = nanoseconds(time_ns(least));
    format!(
        "{each}: the search takes {least} to {most}, longest if several of them help; never more than {left}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use whylate_core::Nanos;
    use whylate_core::plan::builtin::find;
    use whylate_core::plan::{Plan, Share, Source};
    use whylate_core::result::FixArm;
    use whylate_stats::search::replay;
    use whylate_testing::says;

    fn registration(arms: usize) -> FixRegistration {
        let arm = |index: usize| {
            let text = format!("{{\"name\":\"a{index}\",\"kind\":\"ksm\",\"reason\":\"\",\"answers\":[]}}");
            serde_json::from_str::<FixArm>(&text).unwrap()
        };
        FixRegistration {
            mode: FixMode::Search,
            goal: "timer p99".parse().unwrap(),
            margin: Share(0.05),
            alpha: 0.05,
            seed: 1,
            budget: Nanos::from_secs(1_800),
            cell: None,
            causes: Vec::new(),
            arms: (0..arms).map(arm).collect(),
            first: 0,
            left_out: Vec::new(),
            yes: Vec::new(),
            never: Vec::new(),
            keeps_goal: true,
            begun: true,
        }
    }

    #[test]
    fn the_estimate_is_repeats_times_their_length_within_the_budget() {
        let registration = registration(12);
        let search = replay(&registration, &[]).unwrap();
        let (least, most) = search.repeats_left_between();
        let expected = |repeats: u32| nanoseconds(u64::from(repeats) * 3_000_000_000);
        let said = estimate(&search, &registration, 3_000_000_000, 0);
        assert_eq!(
            said,
            format!(
                "12 treatments, about 3.00 s per repeat: the search takes {} to {}, longest if several of them help; never more than 30.0 min",
                expected(least),
                expected(most)
            )
        );
        let said = estimate(&search, &registration, 60_000_000_000, 600_000_000_000);
        assert!(says("about-min-where-one", &said), "{said}");
    }

    /// Twelve treatments with the probes of `quick`.
    #[test]
    fn twelve_treatments_with_the_quick_plan_take_less_than_35_minutes() {
        let registration = registration(12);
        let search = replay(&registration, &[]).unwrap();
        let quick = find("quick").unwrap();
        let plan = Plan::parse(&Source { name: quick.name, text: quick.text }, &[]).unwrap();
        let each_ns = plan.repeat_duration().0;
        for helping in [0, 1] {
            let time = Nanos(u64::from(search.repeats_left(helping)) * each_ns);
            assert!(time <= Nanos::from_secs(35 * 60), "{time}");
        }
    }
}
