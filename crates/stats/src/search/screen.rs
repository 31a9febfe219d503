//! Successive halving: every arm runs once in each block, and the better half goes on.

use super::Trial;
use crate::random::SplitMix;
use std::collections::{BTreeMap, BTreeSet};
use whylate_core::order::InOrder;
use whylate_core::result::FixPhase;

/// Blocks of the rounds; further rounds have as many as the last.
const BLOCKS: [u32; 3] = [2, 3, 4];
/// With this number of arms or fewer in a screening only the best one goes on.
const LAST: usize = 3;
/// The same for arms that answer a cause, which are likely to help.
const LAST_OF_CAUSES: usize = 6;
/// If the worst of the arms that answer a cause has this multiple of the best one's value, one block is enough.
const CLEAR_FACTOR: f64 = 5.0;

#[derive(Clone, Debug)]
pub(super) struct Screen {
    arms: Vec<usize>,
    /// The arms that were left behind, best first, with the rounds that each survived.
    behind: Vec<(usize, u32)>,
    round: u32,
    /// Blocks of this round: done, and all.
    block: u32,
    blocks: u32,
    /// What is still to be measured in this block, the next one last.
    order: Vec<usize>,
    /// Sum of the logarithms of each arm's values: all that are left were in the same blocks.
    sums: BTreeMap<usize, f64>,
    done: u32,
    /// Whether all of them answer a cause.
    is_of_causes: bool,
    /// The causes by whose late time arms are ranked; `None` to rank by the goal's statistic.
    causes: Option<BTreeSet<String>>,
    is_over: bool,
}

impl Screen {
    pub(super) fn new(
        arms: Vec<usize>,
        is_of_causes: bool,
        causes: Option<BTreeSet<String>>,
        random: &mut SplitMix,
    ) -> Self {
        let sums = arms.iter().map(|arm| (*arm, 0.0)).collect();
        let mut screen = Self {
            order: Vec::new(),
            behind: Vec::new(),
            round: 0,
            block: 0,
            blocks: 0,
            sums,
            done: 0,
            is_over: false,
            is_of_causes,
            causes,
            arms,
        };
        screen.shuffle(random);
        screen
    }

    pub(super) fn causes(&self) -> Option<&BTreeSet<String>> {
        self.causes.as_ref()
    }

    /// With this number of arms or fewer only the best one goes on.
    fn last(&self) -> usize {
        if self.is_of_causes { LAST_OF_CAUSES } else { LAST }
    }

    fn shuffle(&mut self, random: &mut SplitMix) {
        self.order.clone_from(&self.arms);
        random.shuffle(&mut self.order);
    }

    pub(super) fn trial(&self, base: &[usize]) -> Trial {
        let arms = base.iter().copied().chain(self.order.last().copied()).collect();
        Trial {
            phase: FixPhase::Screen,
            arms,
            block: self.blocks,
            part: (self.done + self.left(), self.done),
        }
    }

    /// Repeats that are still to come.
    fn left(&self) -> u32 {
        let blocks = |round: u32| *BLOCKS.get(round as usize).unwrap_or(&BLOCKS[BLOCKS.len() - 1]);
        let (mut arms, mut round) = (self.arms.len(), self.round);
        let here = blocks(round).saturating_sub(self.block + 1);
        let mut left = self.order.len() as u32 + here * arms as u32;
        while arms > self.last() {
            (arms, round) = (kept(arms), round + 1);
            left += blocks(round) * arms as u32;
        }
        left
    }

    /// Takes the value of the current arm and returns that arm.
    pub(super) fn take(&mut self, value: f64, random: &mut SplitMix) -> usize {
        let arm = self.order.pop().unwrap_or_default();
        *self.sums.entry(arm).or_default() += super::pairs::logarithm(value);
        self.done += 1;
        self.go_on(random);
        arm
    }

    /// Continues without the current arm and returns that arm.
    pub(super) fn drop_current(&mut self, random: &mut SplitMix) -> usize {
        let arm = self.order.pop().unwrap_or_default();
        self.arms.retain(|other| *other != arm);
        self.go_on(random);
        arm
    }

    fn go_on(&mut self, random: &mut SplitMix) {
        if self.arms.len() < 2 && self.order.is_empty() {
            self.is_over = true;
        }
        if !self.order.is_empty() || self.is_over {
            return;
        }
        (self.block, self.blocks) = (self.block + 1, self.blocks + 1);
        if self.is_clear()
            || self.block >= *BLOCKS.get(self.round as usize).unwrap_or(&BLOCKS[BLOCKS.len() - 1])
        {
            self.halve();
        }
        if !self.is_over {
            self.shuffle(random);
        }
    }

    /// Whether one block of arms that answer a cause is enough: the best is so far below the worst that a second
    /// block would hardly choose another arm. A wrong choice claims nothing and costs a few pairs.
    fn is_clear(&self) -> bool {
        let sums = || self.arms.iter().filter_map(|arm| self.sums.get(arm).copied());
        let (least, most) = (sums().fold(f64::INFINITY, f64::min), sums().fold(f64::NEG_INFINITY, f64::max));
        self.is_of_causes && self.blocks == 1 && least < most - CLEAR_FACTOR.ln()
    }

    fn halve(&mut self) {
        let sum = |arm: &usize| self.sums.get(arm).copied().unwrap_or_default();
        self.arms.order_by(|a, b| sum(a).total_cmp(&sum(b)));
        let keep = if self.arms.len() <= self.last() { 1 } else { kept(self.arms.len()) };
        let left: Vec<(usize, u32)> =
            self.arms.drain(keep.min(self.arms.len())..).map(|it| (it, self.round)).collect();
        self.behind.splice(0..0, left);
        (self.round, self.block) = (self.round + 1, 0);
        self.is_over = self.arms.len() <= 1;
    }

    /// The arms from best to worst with the rounds that each survived, once it is over.
    pub(super) fn ranking(&self) -> Option<Vec<(usize, u32)>> {
        let best = self.arms.iter().map(|arm| (*arm, self.round));
        self.is_over.then(|| best.chain(self.behind.iter().copied()).collect())
    }
}

fn kept(arms: usize) -> usize {
    arms.div_ceil(2)
}
