//! Audits settings that are already in use: each is left out once while all others stay, until it is known whether it
//! helps, harms or makes no difference. At the end all settings that do not help are left out together, since one may
//! replace another.

use super::pairs::{Claim, ClaimEnd};
use super::{Rules, Search, Work};
use whylate_core::result::FixPhase;

impl Search {
    /// Audits that number of settings one after another; a claim about one setting is false with probability alpha at
    /// most.
    pub fn of_settings(rules: Rules, arms: usize) -> Self {
        let mut search = Self::of_whole(rules, 0);
        search.rules = rules;
        search.arms = vec![super::ArmState::default(); arms];
        search.base = (0..arms).collect();
        search.next_setting();
        search
    }

    /// A setting cannot be applied: the current comparison starts again without it.
    pub fn drop_setting(&mut self, arm: usize, why: &str) {
        if let Work::Pairs(pairs) = &self.work
            && let Some(tested) = pairs.tested()
        {
            self.arms[tested].is_tried = false;
        }
        self.give_up(arm, why);
        self.next_setting();
    }

    /// Compares all settings with all but the next one.
    fn next_setting(&mut self) {
        let whole: Vec<usize> = (0..self.arms.len()).filter(|arm| self.arms[*arm].failed.is_none()).collect();
        let Some(arm) = whole.iter().copied().find(|arm| !self.arms[*arm].is_tried) else {
            return self.without_the_useless(whole);
        };
        self.arms[arm].is_tried = true;
        let without = whole.iter().copied().filter(|other| *other != arm).collect();
        self.either(FixPhase::Without, without, whole, Some(arm));
    }

    fn without_the_useless(&mut self, whole: Vec<usize>) {
        let is_useless = |arm: &usize| {
            let of_arm = |claim: &&Claim| claim.phase == FixPhase::Without && claim.tested == Some(*arm);
            let end = self.claims.iter().find(of_arm).map(|claim| &claim.end);
            matches!(end, Some(ClaimEnd::Equal | ClaimEnd::Worse))
        };
        let kept: Vec<usize> = whole.iter().copied().filter(|arm| !is_useless(arm)).collect();
        self.base = whole.clone();
        self.work = Work::Done;
        if kept.len() < whole.len() {
            self.either(FixPhase::Reduce, whole, kept, None);
        }
    }

    /// Starts to compare two sets, either of which may be better.
    fn either(&mut self, phase: FixPhase, control: Vec<usize>, candidate: Vec<usize>, tested: Option<usize>) {
        let needed = 2.0 / self.rules.alpha;
        let pairs = super::Pairs::new(phase, control, candidate, tested, needed, &mut self.random);
        self.work = Work::Pairs(pairs);
    }

    /// Continues after the comparison of one setting, or of all that are left out together.
    pub(super) fn audited(&mut self, claim: Claim) {
        let (phase, end, kept) = (claim.phase, claim.end.clone(), claim.candidate.clone());
        self.claims.push(claim);
        match phase {
            FixPhase::Without => self.next_setting(),
            _ if matches!(end, ClaimEnd::Equal | ClaimEnd::Proved) => self.base = kept,
            _ => {}
        }
    }
}
