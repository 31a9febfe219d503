//! Which of many treatments helps: a search that says what to measure next and takes one figure for each repeat.
//!
//! The search has two phases. *Screening* halves the arms in blocks; each block has every arm once in an order drawn
//! at random. It claims nothing. Arms that answer a cause can be screened first, and the others only if those do not
//! help. *Confirming* compares the best arm with the control on fresh data: pairs in an order that a coin decides,
//! until the [`evidence`] is enough, or cannot become so within [`PAIRS_MAX`] pairs. A proved arm becomes part of the
//! control. The k-th claim needs 1/(α/2^k), so that all claims together are false with probability α at most. At the
//! end each part of the set is left out once, so that nothing useless stays. Settings that are already in use are
//! examined in the same way.
//!
//! An arm that answers causes of the ledger can be proved in two ways: by the goal's statistic, and by the
//! [removal](removal_evidence) of these causes. Each way has half of the error probability of the claim. An arm that
//! removes its cause is refused if the goal is worse with it.
//!
//! Everything is drawn from the seed, so the same figures make the same search: a killed search continues where its
//! figures end. This module does not know what an arm is, or how a figure is measured.

mod audit;
mod estimate;
mod evidence;
mod outcome;
mod pairs;
mod removal;
mod screen;

pub use evidence::{evidence, interval};
pub use outcome::{LateTimes, answer, failed, felt_figure_of, figure_of, is_outside, late_times, replay};
pub use pairs::{Claim, ClaimEnd, PAIRS_MAX};
pub use removal::{removal_evidence, removed_in};

use crate::random::SplitMix;
use pairs::Pairs;
use screen::Screen;
use std::collections::{BTreeMap, BTreeSet};
use whylate_core::result::FixPhase;

/// Arms of a screening after the first.
const AGAIN_MAX: usize = 6;
/// The most pairs for one setting: it takes more of them to show no difference than to show one.
const SETTING_PAIRS_MAX: u32 = 80;
/// The search ends after this number of confirmations in a row that prove nothing.
const FUTILE_MAX: u32 = 2;
/// Number of ways to prove an arm that answers causes.
const ROUTES: f64 = 2.0;
/// Late time, in ns per s, that counts as none when arms are ranked.
const LATE_FLOOR: f64 = 1e3;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rules {
    /// The smallest relative change that matters.
    pub margin: f64,
    /// Probability of a false claim in the whole search.
    pub alpha: f64,
    /// What orders and coins are drawn from.
    pub seed: u64,
    /// Values below it are small enough: the search then stops.
    pub below: Option<f64>,
    /// The number of first arms that are screened on their own, before the others if none of them helps; 0 to screen
    /// all at once.
    pub first: usize,
    /// Whether an arm that removes its cause is refused while the goal is worse with it.
    pub keeps_goal: bool,
}

/// The most pairs that are measured for a claim of that phase.
pub fn pairs_max(phase: FixPhase) -> u32 {
    if is_of_settings(phase) { SETTING_PAIRS_MAX } else { PAIRS_MAX }
}

/// Whether claims of that phase are about settings in use, each of which may also make no difference.
fn is_of_settings(phase: FixPhase) -> bool {
    matches!(phase, FixPhase::Without | FixPhase::Reduce)
}

/// What one repeat showed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figure {
    /// The goal's statistic; smaller is better.
    pub value: f64,
    /// Other statistics, which must not become worse.
    pub others: BTreeMap<String, f64>,
    pub rates: BTreeMap<String, f64>,
    /// Late time of each cause that an arm answers, in ns per measured second.
    pub causes: BTreeMap<String, f64>,
    /// Reported but not judged: power.
    pub costs: BTreeMap<String, f64>,
}

impl Figure {
    /// The late time of these causes, in ns per s.
    fn late(&self, causes: &BTreeSet<String>) -> f64 {
        causes.iter().filter_map(|name| self.causes.get(name)).sum()
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trial {
    pub phase: FixPhase,
    /// The arms in force, in the order in which they are applied.
    pub arms: Vec<usize>,
    /// Block of the screening or pair of the claim, from 0.
    pub block: u32,
    /// The most repeats of this part of the search, and the repeats that are done.
    pub part: (u32, u32),
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct ArmState {
    /// Its values in the screening, with no other arm applied.
    pub screened: Vec<f64>,
    pub rounds: u32,
    pub failed: Option<String>,
    pub is_measured: bool,
    is_tried: bool,
}

#[derive(Clone, Debug)]
enum Work {
    Screen(Screen),
    Pairs(Pairs),
    Done,
}

#[derive(Clone, Debug)]
pub struct Search {
    rules: Rules,
    random: SplitMix,
    arms: Vec<ArmState>,
    /// The causes that each arm answers, by their names in the ledger.
    removes: Vec<BTreeSet<String>>,
    /// The proved arms, in the order of their proofs.
    base: Vec<usize>,
    /// Untried arms, the best of the newest screening first.
    ranked: Vec<usize>,
    claims: Vec<Claim>,
    /// Claims of help that were begun.
    begun: u32,
    futile: u32,
    /// Arms at the end of `ranked` that no screening has had.
    held_back: usize,
    /// Parts that were left out already.
    examined: usize,
    work: Work,
}

impl Search {
    /// A search among that number of arms whose causes are unknown.
    pub fn new(rules: Rules, arms: usize) -> Self {
        Self::by_cause(rules, vec![BTreeSet::new(); arms])
    }

    /// A search among arms, each with the causes that it answers.
    pub fn by_cause(rules: Rules, removes: Vec<BTreeSet<String>>) -> Self {
        let arms = removes.len();
        let mut search = Self {
            rules,
            random: SplitMix(rules.seed),
            arms: vec![ArmState::default(); arms],
            removes,
            base: Vec::new(),
            ranked: (0..arms).collect(),
            claims: Vec::new(),
            begun: 0,
            futile: 0,
            held_back: 0,
            examined: 0,
            work: Work::Done,
        };
        let first = if rules.first == 0 { arms } else { rules.first.min(arms) };
        search.held_back = arms - first;
        search.screen(first);
        search
    }

    /// Whether that number of arms together still helps: one claim, which spends all of alpha.
    pub fn of_whole(rules: Rules, arms: usize) -> Self {
        Self::of_whole_by_cause(rules, vec![BTreeSet::new(); arms])
    }

    /// The same for arms that each answer these causes.
    pub fn of_whole_by_cause(rules: Rules, removes: Vec<BTreeSet<String>>) -> Self {
        let arms = removes.len();
        let mut search = Self::new(Rules { alpha: 2.0 * rules.alpha, ..rules }, 0);
        search.removes = removes;
        search.arms = vec![ArmState::default(); arms];
        search.base = (0..arms).collect();
        if arms > 0 {
            search.claim(FixPhase::Combine, Vec::new(), search.base.clone(), None);
        }
        search
    }

    /// What to measure next; `None` at its end.
    pub fn next(&self) -> Option<Trial> {
        match &self.work {
            Work::Screen(screen) => Some(screen.trial(&self.base)),
            Work::Pairs(pairs) => Some(pairs.trial()),
            Work::Done => None,
        }
    }

    /// Takes the figure of the trial of [`Self::next`].
    pub fn take(&mut self, figure: &Figure) {
        match &mut self.work {
            Work::Screen(screen) => {
                let judged = screen.causes().map_or(figure.value, |causes| figure.late(causes) + LATE_FLOOR);
                let arm = screen.take(judged, &mut self.random);
                self.arms[arm].is_measured = true;
                if self.base.is_empty() {
                    self.arms[arm].screened.push(figure.value);
                }
                self.screened();
            }
            Work::Pairs(pairs) => {
                pairs.take(figure, &mut self.random);
                if let Some(end) = pairs.end(&self.rules) {
                    self.concluded(end);
                }
            }
            Work::Done => {}
        }
    }

    /// The trial of [`Self::next`] could not be measured.
    pub fn fail(&mut self, why: &str) {
        match &mut self.work {
            Work::Screen(screen) => {
                let arm = screen.drop_current(&mut self.random);
                self.give_up(arm, why);
                self.screened();
            }
            Work::Pairs(pairs) => {
                if pairs.fail(&mut self.random) {
                    return;
                }
                // With settings it is not known which one is to blame.
                if let Some(arm) = pairs.tested().filter(|_| !pairs.is_of_settings()) {
                    self.give_up(arm, why);
                }
                self.concluded(ClaimEnd::Futile);
            }
            Work::Done => {}
        }
    }

    /// Ends the search now: what is not proved yet stays unproved.
    pub fn stop(&mut self) {
        if let Work::Pairs(pairs) = std::mem::replace(&mut self.work, Work::Done) {
            self.claims.push(pairs.claim(pairs.end_of_search(&self.rules)));
        }
    }

    /// The proved arms that are recommended, in the order of their proofs.
    pub fn base(&self) -> &[usize] {
        &self.base
    }

    /// What became of each arm.
    pub fn arms(&self) -> &[ArmState] {
        &self.arms
    }

    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// The claims, including the current one.
    pub fn claims(&self) -> Vec<Claim> {
        let open = match &self.work {
            Work::Pairs(pairs) => Some(pairs.claim(ClaimEnd::Open)),
            _ => None,
        };
        self.claims.iter().cloned().chain(open).collect()
    }

    /// The fewest pairs that a new comparison needs: if the candidate wins every one.
    pub fn pairs_at_least(&self) -> u32 {
        let Work::Pairs(pairs) = &self.work else { return 0 };
        let claim = pairs.claim(ClaimEnd::Open);
        let removed =
            |count: u32| if claim.causes.is_empty() { 0.0 } else { removal::best_evidence(1.0, count) };
        let best = |count: &u32| evidence(*count, *count).max(removed(*count));
        (0..PAIRS_MAX).find(|count| best(count) >= claim.needed).unwrap_or(PAIRS_MAX)
    }

    fn give_up(&mut self, arm: usize, why: &str) {
        self.arms[arm].failed = Some(why.to_owned());
        self.arms[arm].is_tried = true;
        self.ranked.retain(|other| *other != arm);
    }

    /// Starts a screening of that number of the best arms.
    fn screen(&mut self, arms: usize) {
        let chosen: Vec<usize> = self.ranked.iter().copied().take(arms).collect();
        match chosen.as_slice() {
            [] => self.examine(),
            [_] => self.confirm(),
            _ => {
                let all_answer = chosen.iter().all(|arm| !self.removes[*arm].is_empty());
                let causes = all_answer.then(|| self.answered(&chosen));
                let is_of_causes = self.held_back > 0 || all_answer;
                self.work = Work::Screen(Screen::new(chosen, is_of_causes, causes, &mut self.random));
            }
        }
    }

    /// Goes on after a screening's end.
    fn screened(&mut self) {
        let Work::Screen(screen) = &self.work else { return };
        let Some(ranking) = screen.ranking() else { return };
        if self.base.is_empty() {
            ranking.iter().for_each(|(arm, rounds)| self.arms[*arm].rounds = *rounds);
        }
        let ranked: Vec<usize> = ranking.iter().map(|(arm, _)| *arm).collect();
        let left: Vec<usize> = self.ranked.iter().copied().filter(|arm| !ranked.contains(arm)).collect();
        self.ranked = ranked.into_iter().filter(|arm| !self.arms[*arm].is_tried).chain(left).collect();
        self.confirm();
    }

    /// Continues with the arms that no screening has had, if there are any.
    fn screen_held_back(&mut self) {
        let held_back = std::mem::take(&mut self.held_back);
        if held_back == 0 {
            return self.examine();
        }
        self.futile = 0;
        let tried_less = self.ranked.len() - held_back;
        self.ranked.rotate_left(tried_less);
        self.screen(held_back);
    }

    /// Begins to confirm the best untried arm.
    fn confirm(&mut self) {
        if self.ranked.len() <= self.held_back {
            return self.screen_held_back();
        }
        let arm = self.ranked.remove(0);
        self.arms[arm].is_tried = true;
        let candidate: Vec<usize> = self.base.iter().copied().chain([arm]).collect();
        self.claim(FixPhase::Confirm, self.base.clone(), candidate, Some(arm));
    }

    fn claim(&mut self, phase: FixPhase, control: Vec<usize>, candidate: Vec<usize>, tested: Option<usize>) {
        // Leaving a part out can only withdraw a claim, so it spends nothing.
        let spent = if phase == FixPhase::LeaveOut {
            self.rules.alpha
        } else {
            self.begun += 1;
            self.rules.alpha / 2f64.powi(self.begun as i32)
        };
        let causes = self.answered(tested.as_ref().map_or(&candidate[..], std::slice::from_ref));
        let needed = if causes.is_empty() { 1.0 } else { ROUTES } / spent;
        let pairs = Pairs::new(phase, control, candidate, tested, needed, &mut self.random);
        self.work = Work::Pairs(pairs.with_causes(causes));
    }

    /// Leaves out arms whose causes are all removed already.
    fn leave_what_is_gone(&mut self) {
        let is_removal = |it: &&Claim| {
            it.end == ClaimEnd::Proved && it.removal().last().is_some_and(|evidence| *evidence >= it.needed)
        };
        let gone: BTreeSet<&String> =
            self.claims.iter().filter(is_removal).flat_map(|it| &it.causes).collect();
        let removes = &self.removes;
        let has_work =
            |arm: &usize| removes[*arm].is_empty() || removes[*arm].iter().any(|name| !gone.contains(name));
        self.ranked.retain(has_work);
    }

    /// The causes that these arms answer together.
    fn answered(&self, arms: &[usize]) -> BTreeSet<String> {
        arms.iter().filter_map(|arm| self.removes.get(*arm)).flatten().cloned().collect()
    }

    fn concluded(&mut self, end: ClaimEnd) {
        let Work::Pairs(pairs) = std::mem::replace(&mut self.work, Work::Done) else { return };
        let claim = pairs.claim(end);
        let (phase, is_proved) = (claim.phase, claim.end == ClaimEnd::Proved);
        let is_enough = self.rules.below.is_some_and(|below| claim.candidate_max() < below);
        if is_of_settings(phase) {
            return self.audited(claim);
        }
        self.claims.push(claim);
        match phase {
            FixPhase::Confirm | FixPhase::Screen if is_proved => {
                self.base.extend(pairs.tested());
                // Arms that are still held back answer no cause: they come after those that were screened.
                (self.futile, self.held_back) = (0, 0);
                self.leave_what_is_gone();
                if is_enough { self.examine() } else { self.screen(AGAIN_MAX) }
            }
            FixPhase::Confirm | FixPhase::Screen => {
                self.futile += 1;
                if self.futile < FUTILE_MAX { self.confirm() } else { self.screen_held_back() }
            }
            FixPhase::LeaveOut => {
                if is_proved {
                    self.examined += 1;
                } else {
                    self.base.retain(|arm| Some(*arm) != pairs.tested());
                }
                self.examine();
            }
            FixPhase::Combine if !is_proved => {
                // The whole set is what was proved.
                self.base = self.proved();
            }
            FixPhase::Combine | FixPhase::Without | FixPhase::Reduce => {}
        }
    }

    /// Each arm that was proved when it was added.
    fn proved(&self) -> Vec<usize> {
        let proofs =
            self.claims.iter().filter(|it| it.phase == FixPhase::Confirm && it.end == ClaimEnd::Proved);
        proofs.filter_map(|claim| claim.tested).collect()
    }

    /// Leaves out the next part of the set. The last part was proved against the others. A set that lost a part is
    /// compared with no treatment at all, unless exactly that set was proved.
    fn examine(&mut self) {
        let whole = self.proved();
        let last = whole.last().copied();
        let next =
            self.base.get(self.examined).copied().filter(|arm| self.base.len() > 1 && Some(*arm) != last);
        if let Some(arm) = next {
            let without: Vec<usize> = self.base.iter().copied().filter(|other| *other != arm).collect();
            return self.claim(FixPhase::LeaveOut, without, self.base.clone(), Some(arm));
        }
        let is_known = self.base == whole
            || self
                .claims
                .iter()
                .any(|it| it.control.is_empty() && it.candidate == self.base && it.end == ClaimEnd::Proved);
        if is_known || self.base.is_empty() {
            self.work = Work::Done;
        } else {
            self.claim(FixPhase::Combine, Vec::new(), self.base.clone(), None);
        }
    }
}
