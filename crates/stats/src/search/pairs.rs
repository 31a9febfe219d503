//! Pairs of a control and a candidate, measured until it is known whether the candidate is better by more than the
//! margin.

use super::removal::best_evidence;
use super::{Figure, Rules, Trial, evidence, interval, pairs_max, removal_evidence};
use crate::contrast::median;
use crate::random::SplitMix;
use std::collections::{BTreeMap, BTreeSet};
use whylate_core::order::InOrder;
use whylate_core::result::FixPhase;

/// The most pairs that are measured for one claim.
pub const PAIRS_MAX: u32 = 24;
/// At most this many repeats of one claim may fail.
const FAILED_MAX: u32 = 2;
/// Evidence from which another statistic counts as worse.
const WORSE: f64 = 10.0;
/// Error probability of the interval by which the goal is credibly worse.
const CREDIBLE: f64 = 0.05;
/// A load that does less than this part of its former rate disturbs less: better latencies then prove nothing.
const RATE_KEPT_MIN: f64 = 0.9;

/// The logarithm of a value that may be 0: a count of misses.
pub(super) fn logarithm(value: f64) -> f64 {
    value.max(1e-9).ln()
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClaimEnd {
    /// The candidate is better by more than the margin.
    Proved,
    /// It is better, but something else is worse.
    Refused(String),
    /// Its causes are removed, but the goal is worse.
    GoalWorse,
    /// The candidate is worse by more than the margin; tested only if either side may be better.
    Worse,
    /// Neither side is better by more than the margin; tested only if either side may be better.
    Equal,
    /// A proof is no longer possible.
    Futile,
    /// The search ended before.
    Open,
}

/// A comparison of two sets of arms.
#[derive(Clone, Debug, PartialEq)]
pub struct Claim {
    pub phase: FixPhase,
    pub control: Vec<usize>,
    pub candidate: Vec<usize>,
    /// The arm in which they differ; `None` if it is more than one.
    pub tested: Option<usize>,
    /// The evidence that each way to a proof needs.
    pub needed: f64,
    /// The causes that the difference of the sets answers; without any there is only one way to a proof.
    pub causes: BTreeSet<String>,
    pub pairs: Vec<[Figure; 2]>,
    pub end: ClaimEnd,
}

impl Claim {
    /// The largest value of the candidate.
    pub fn candidate_max(&self) -> f64 {
        self.pairs.iter().map(|[_, candidate]| candidate.value).fold(0.0, f64::max)
    }

    /// Logarithms of the ratios candidate / control.
    pub fn effects(&self) -> Vec<f64> {
        self.pairs.iter().map(|[control, it]| logarithm(it.value) - logarithm(control.value)).collect()
    }

    /// Evidence after each pair that the candidate is better by more than the margin.
    pub fn evidence(&self, margin: f64) -> Vec<f64> {
        let mut won = 0;
        let mut count = |(index, effect): (usize, &f64)| {
            won += u32::from(*effect < -margin.ln_1p());
            evidence(won, index as u32 + 1)
        };
        self.effects().iter().enumerate().map(&mut count).collect()
    }

    /// Late time of its causes in each pair, in ns per s.
    pub fn late(&self) -> Vec<[f64; 2]> {
        self.pairs.iter().map(|pair| [0, 1].map(|side| pair[side].late(&self.causes))).collect()
    }

    /// Evidence after each pair that its causes are removed; empty without causes.
    pub fn removal(&self) -> Vec<f64> {
        if self.causes.is_empty() { Vec::new() } else { removal_evidence(&self.late()) }
    }

    /// The other statistics that both sides of every pair have, with the logarithms of their ratios.
    pub fn others(&self) -> Vec<(&str, Vec<f64>)> {
        self.ratios(|figure| &figure.others)
    }

    /// The same for its costs.
    pub fn costs(&self) -> Vec<(&str, Vec<f64>)> {
        self.ratios(|figure| &figure.costs)
    }

    fn ratios(&self, of: fn(&Figure) -> &BTreeMap<String, f64>) -> Vec<(&str, Vec<f64>)> {
        let Some([first, _]) = self.pairs.first() else { return Vec::new() };
        let has = |name: &str| self.pairs.iter().flatten().all(|it| of(it).contains_key(name));
        let complete = of(first).keys().map(String::as_str).filter(|name| has(name));
        let ratios = |name: &str| -> Vec<f64> {
            self.pairs.iter().map(|[a, b]| logarithm(of(b)[name]) - logarithm(of(a)[name])).collect()
        };
        complete.map(|name| (name, ratios(name))).collect()
    }

    /// The rate of each load with the candidate, as a part of its rate without.
    pub fn rates(&self) -> Vec<(&str, f64)> {
        let Some([first, _]) = self.pairs.first() else { return Vec::new() };
        let sum = |side: usize, name: &str| -> f64 {
            self.pairs.iter().filter_map(|pair| pair[side].rates.get(name)).sum()
        };
        let rate = |name: &'_ String| (sum(0, name) > 0.0).then(|| sum(1, name) / sum(0, name));
        first.rates.keys().filter_map(|name| Some((name.as_str(), rate(name)?))).collect()
    }

    /// A load that does less with the candidate.
    fn lost_rate(&self) -> Option<String> {
        let (name, rate) = self.rates().into_iter().find(|(_, rate)| *rate < RATE_KEPT_MIN)?;
        let by = (1.0 - rate) * 100.0;
        Some(format!("the rate of load {name} is {by:.0} % lower with this treatment"))
    }

    /// Another statistic that is worse with the candidate although it is better.
    fn larger(&self, margin: f64) -> Option<String> {
        self.others().into_iter().find_map(|(name, effects)| {
            let by = (middle(&effects).exp() - 1.0) * 100.0;
            is_larger(&effects, margin).then(|| format!("{name} is {by:.0} % larger with this treatment"))
        })
    }

    /// Whether an arm that removes its cause raises the goal; `None` while only its median ratio does.
    fn raises_goal(&self, rules: &Rules) -> Option<bool> {
        let effects = self.effects();
        let is_credible = interval(&effects, CREDIBLE).0.is_some_and(|low| low > 0.0);
        match () {
            () if is_larger(&effects, rules.margin) => Some(true),
            () if !rules.keeps_goal => Some(false),
            () if is_credible => Some(true),
            () => (middle(&effects) <= rules.margin.ln_1p()).then_some(false),
        }
    }

    /// Whether the removal of its causes is proved, whatever the goal does.
    pub fn is_removed(&self) -> bool {
        self.removal().last().is_some_and(|evidence| *evidence >= self.needed)
    }
}

/// Whether these logarithms of ratios show that a statistic is larger by more than the margin.
fn is_larger(effects: &[f64], margin: f64) -> bool {
    let lost = effects.iter().filter(|effect| **effect > margin.ln_1p()).count() as u32;
    evidence(lost, effects.len() as u32) >= WORSE
}

fn middle(effects: &[f64]) -> f64 {
    let mut effects = effects.to_vec();
    effects.order_by(f64::total_cmp);
    median(&effects).unwrap_or_default()
}

#[derive(Clone, Debug)]
pub(super) struct Pairs {
    claim: Claim,
    /// Whether the candidate comes first in this pair.
    is_reversed: bool,
    /// What the first of this pair showed.
    first: Option<Figure>,
    failed: u32,
}

impl Pairs {
    pub(super) fn new(
        phase: FixPhase,
        control: Vec<usize>,
        candidate: Vec<usize>,
        tested: Option<usize>,
        needed: f64,
        random: &mut SplitMix,
    ) -> Self {
        let (pairs, causes) = (Vec::new(), BTreeSet::new());
        let claim = Claim { phase, control, candidate, tested, needed, causes, pairs, end: ClaimEnd::Open };
        Self { claim, is_reversed: coin(random), first: None, failed: 0 }
    }

    /// Adds the second way to a proof.
    pub(super) fn with_causes(mut self, causes: BTreeSet<String>) -> Self {
        self.claim.causes = causes;
        self
    }

    fn is_candidate(&self) -> bool {
        self.first.is_some() != self.is_reversed
    }

    pub(super) fn trial(&self) -> Trial {
        let arms = if self.is_candidate() { &self.claim.candidate } else { &self.claim.control };
        let pairs = self.claim.pairs.len() as u32;
        let done = 2 * pairs + u32::from(self.first.is_some());
        Trial {
            phase: self.claim.phase,
            arms: arms.clone(),
            block: pairs,
            part: (2 * pairs_max(self.claim.phase), done),
        }
    }

    pub(super) fn tested(&self) -> Option<usize> {
        self.claim.tested
    }

    /// Whether either side may be better.
    pub(super) fn is_of_settings(&self) -> bool {
        super::is_of_settings(self.claim.phase)
    }

    pub(super) fn take(&mut self, figure: &Figure, random: &mut SplitMix) {
        let Some(first) = self.first.take() else {
            self.first = Some(figure.clone());
            return;
        };
        let pair = if self.is_reversed { [figure.clone(), first] } else { [first, figure.clone()] };
        self.claim.pairs.push(pair);
        self.is_reversed = coin(random);
    }

    /// Gives the pair up and starts it again; `false` when that happened too often.
    pub(super) fn fail(&mut self, random: &mut SplitMix) -> bool {
        (self.first, self.is_reversed, self.failed) = (None, coin(random), self.failed + 1);
        self.failed <= FAILED_MAX
    }

    /// How it ends, when it does.
    pub(super) fn end(&self, rules: &Rules) -> Option<ClaimEnd> {
        if self.first.is_some() {
            return None;
        }
        let (claim, margin) = (&self.claim, rules.margin);
        let effects = claim.effects();
        let pairs = effects.len() as u32;
        let won = effects.iter().filter(|effect| **effect < -margin.ln_1p()).count() as u32;
        if self.is_of_settings() {
            return self.end_of_either(&effects, won, margin);
        }
        let by_goal = evidence(won, pairs) >= claim.needed;
        if by_goal || claim.is_removed() {
            // A needed part is not refused for costs of the whole set.
            if claim.phase == FixPhase::LeaveOut {
                return Some(ClaimEnd::Proved);
            }
            // An arm that removes its cause may still raise the goal.
            let raises_goal = if by_goal { Some(false) } else { claim.raises_goal(rules) };
            let refused = |why: Option<String>| why.map(ClaimEnd::Refused);
            return match (refused(claim.lost_rate()), raises_goal, refused(claim.larger(margin))) {
                (Some(end), ..) => Some(end),
                (None, Some(true), _) => Some(ClaimEnd::GoalWorse),
                (None, _, Some(end)) => Some(end),
                (None, Some(false), None) => Some(ClaimEnd::Proved),
                // More pairs may tell.
                (None, None, None) => (pairs >= PAIRS_MAX).then_some(ClaimEnd::GoalWorse),
            };
        }
        let removed = claim.removal().last().copied();
        let best = (pairs..=PAIRS_MAX).map(|later| evidence(won + later - pairs, later)).fold(0.0, f64::max);
        let by_cause = best_evidence(removed.unwrap_or(1.0), PAIRS_MAX.saturating_sub(pairs));
        let best = if claim.causes.is_empty() { best } else { best.max(by_cause) };
        (best < claim.needed || pairs >= PAIRS_MAX).then_some(ClaimEnd::Futile)
    }

    /// How it ends if the search ends now.
    pub(super) fn end_of_search(&self, rules: &Rules) -> ClaimEnd {
        let is_undecided = self.claim.is_removed() && self.claim.raises_goal(rules).is_none();
        let is_refused = is_undecided && self.claim.phase != FixPhase::LeaveOut && !self.is_of_settings();
        if is_refused { ClaimEnd::GoalWorse } else { ClaimEnd::Open }
    }

    /// How a comparison ends if either side may be better.
    fn end_of_either(&self, effects: &[f64], won: u32, margin: f64) -> Option<ClaimEnd> {
        let (pairs, needed) = (effects.len() as u32, self.claim.needed);
        let lost = effects.iter().filter(|effect| **effect > margin.ln_1p()).count() as u32;
        let within = |end: Option<f64>| end.is_some_and(|end| end.abs() <= margin.ln_1p());
        let (low, high) = interval(effects, 2.0 / needed);
        match () {
            () if evidence(won, pairs) >= needed => Some(ClaimEnd::Proved),
            () if evidence(lost, pairs) >= needed => Some(ClaimEnd::Worse),
            () if within(low) && within(high) => Some(ClaimEnd::Equal),
            () => (pairs >= pairs_max(self.claim.phase)).then_some(ClaimEnd::Futile),
        }
    }

    pub(super) fn claim(&self, end: ClaimEnd) -> Claim {
        Claim { end, ..self.claim.clone() }
    }
}

fn coin(random: &mut SplitMix) -> bool {
    random.below(2) == 1
}
