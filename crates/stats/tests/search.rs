//! Searches on simulated machines: how often a claim is false, and how often an arm that helps is found.

mod simulated;

use simulated::Machine;
use std::collections::BTreeMap;
use whylate_core::result::FixPhase;
use whylate_stats::random::SplitMix;
use whylate_stats::search::{ClaimEnd, Figure, Rules, Search};
use whylate_testing::says;

/// Runs a search to its end; returns also the repeats after which the first claim was made.
fn searched(mut machine: Machine, seed: u64) -> (Search, u32) {
    let rules = Rules { margin: 0.05, alpha: 0.05, seed, below: None, first: 0, keeps_goal: true };
    let mut search = Search::new(rules, machine.effects.len());
    let mut first = u32::MAX;
    while let Some(trial) = search.next() {
        let figure = machine.measure(&trial.arms);
        search.take(&figure);
        if first == u32::MAX && !search.base().is_empty() {
            first = machine.measured;
        }
        assert!(machine.measured < 2_000, "the search has no end");
    }
    (search, first)
}

#[test]
fn without_helpful_arms_hardly_anything_is_claimed() {
    let searches = 3_000;
    let claims = (0..searches).filter(|seed| {
        let machine = Machine::new(1_000 + seed, 0.15, vec![0.0; 12]);
        !searched(machine, *seed).0.base().is_empty()
    });
    let claims = claims.count();
    assert!(claims <= searches as usize / 20, "{claims} of {searches}");
}

/// The best case for a false claim: effects exactly at the margin.
#[test]
fn effects_of_the_margin_are_not_claimed() {
    let searches = 2_000;
    let effect = -(1.05f64.ln());
    let claims = (0..searches).filter(|seed| {
        let machine = Machine::new(50_000 + seed, 0.15, vec![effect; 4]);
        searched(machine, *seed).0.claims().first().is_some_and(|claim| claim.end == ClaimEnd::Proved)
    });
    let claims = claims.count();
    assert!(claims <= searches as usize / 20, "{claims} of {searches}");
}

fn found(spread: f64, effect: f64, searches: u64) -> (usize, usize) {
    let (mut found, mut superfluous) = (0, 0);
    for seed in 0..searches {
        let mut effects = vec![0.0; 12];
        let good = (seed % 12) as usize;
        effects[good] = effect;
        let (search, first) = searched(Machine::new(9_000 + seed, spread, effects), seed);
        found += usize::from(search.base().contains(&good) && first <= 100);
        superfluous += usize::from(search.base().iter().any(|arm| *arm != good));
    }
    (found, superfluous)
}

#[test]
fn one_good_arm_of_twelve_is_found_within_100_repeats() {
    let (p99, superfluous) = found(0.15, 0.77f64.ln(), 1_000);
    assert!(p99 >= 950, "a 0.99 quantile 23 % lower: {p99} of 1000");
    assert!(superfluous <= 50, "{superfluous} of 1000");
    let (maximum, superfluous) = found(0.5, 0.5f64.ln(), 1_000);
    assert!(maximum >= 900, "a maximum halved: {maximum} of 1000");
    assert!(superfluous <= 50, "{superfluous} of 1000");
}

/// Two arms that help together are both kept; one that only repeats another is removed again.
#[test]
fn parts_that_help_are_kept() {
    let both = (0..200u64).filter(|seed| {
        let mut effects = vec![0.0; 6];
        (effects[1], effects[4]) = (-0.5, -0.4);
        let (search, _) = searched(Machine::new(70_000 + seed, 0.1, effects), *seed);
        let mut base = search.base().to_vec();
        base.sort_unstable();
        base == [1, 4]
    });
    assert!(both.count() >= 180);
}

#[test]
fn a_part_that_others_replace_is_left_out() {
    // Arm 1 helps alone; arm 0 does the same and more.
    let value = |arms: &[usize], noise: f64| {
        let effect = if arms.contains(&0) {
            -0.8
        } else if arms.contains(&1) {
            -0.5
        } else {
            0.0
        };
        Figure { value: (10.0 + effect + noise).exp(), ..Figure::default() }
    };
    let mut random = SplitMix(3);
    let mut searches_with_a_detour = 0;
    for seed in 0..50 {
        let mut search = Search::new(
            Rules { margin: 0.05, alpha: 0.05, seed, below: None, first: 0, keeps_goal: true },
            2,
        );
        let mut screened = 0;
        while let Some(trial) = search.next() {
            screened += 1;
            // The screening is misled: arm 1 looks best.
            let is_misled = trial.phase == FixPhase::Screen && trial.arms == [0];
            let figure = value(&trial.arms, 0.05 * (random.unit() - 0.5));
            search.take(&Figure { value: figure.value * if is_misled { 3.0 } else { 1.0 }, ..figure });
        }
        assert!(screened > 0);
        assert_eq!(search.base(), [0], "{:?}", search.claims());
        searches_with_a_detour +=
            usize::from(search.claims().iter().any(|claim| claim.phase == FixPhase::LeaveOut));
    }
    assert_eq!(searches_with_a_detour, 50);
}

#[test]
fn arms_that_make_something_else_worse_are_refused() {
    let mut search =
        Search::new(Rules { margin: 0.05, alpha: 0.05, seed: 1, below: None, first: 0, keeps_goal: true }, 1);
    while let Some(trial) = search.next() {
        let is_treated = trial.arms == [0];
        let median = if is_treated { 300.0 } else { 200.0 };
        let value = if is_treated { 50.0 } else { 100.0 };
        let others = BTreeMap::from([("timer p50".to_owned(), median)]);
        search.take(&Figure { value, others, ..Figure::default() });
    }
    assert!(search.base().is_empty());
    let end = search.claims()[0].end.clone();
    assert!(matches!(&end, ClaimEnd::Refused(why) if says("timer-p50-larger", why)), "{end:?}");
    // Less load does not count as better latency.
    let mut search =
        Search::new(Rules { margin: 0.05, alpha: 0.05, seed: 1, below: None, first: 0, keeps_goal: true }, 1);
    while let Some(trial) = search.next() {
        let (value, rate) = if trial.arms == [0] { (50.0, 4e9) } else { (100.0, 8e9) };
        let rates = BTreeMap::from([("l3".to_owned(), rate)]);
        search.take(&Figure { value, rates, ..Figure::default() });
    }
    assert!(matches!(&search.claims()[0].end, ClaimEnd::Refused(why) if says("load-l3-does-less", why)));
}

#[test]
fn an_earlier_proof_is_verified_as_one_claim() {
    let rules = Rules { margin: 0.05, alpha: 0.05, seed: 4, below: None, first: 0, keeps_goal: true };
    for helps in [true, false] {
        let mut search = Search::of_whole(rules, 2);
        let mut pairs = 0;
        while let Some(trial) = search.next() {
            assert!(trial.arms.is_empty() || trial.arms == [0, 1]);
            let value = if helps && !trial.arms.is_empty() { 50.0 } else { 100.0 };
            search.take(&Figure { value, ..Figure::default() });
            pairs = trial.block + 1;
        }
        assert_eq!(search.base().len(), if helps { 2 } else { 0 });
        // It needs evidence of 20 instead of 40, because it is one claim.
        assert!(!helps || pairs == 7, "{pairs}");
    }
}

#[test]
fn an_arm_that_cannot_be_measured_is_left_behind() {
    let mut search =
        Search::new(Rules { margin: 0.05, alpha: 0.05, seed: 4, below: None, first: 0, keeps_goal: true }, 5);
    let mut random = SplitMix(4);
    while let Some(trial) = search.next() {
        if trial.arms.contains(&2) {
            search.fail("refused by the kernel");
            continue;
        }
        let value = if trial.arms.contains(&3) { 60.0 } else { 100.0 } + random.unit();
        search.take(&Figure { value, ..Figure::default() });
    }
    assert_eq!(search.base(), [3]);
    assert_eq!(search.arms()[2].failed.as_deref(), Some("refused by the kernel"));
    // A search in which nothing can be measured ends too.
    let mut search =
        Search::new(Rules { margin: 0.05, alpha: 0.05, seed: 4, below: None, first: 0, keeps_goal: true }, 5);
    let mut trials = 0;
    while search.next().is_some() {
        search.fail("no");
        trials += 1;
    }
    assert!(trials < 20 && search.base().is_empty());
}

/// Settings copied over the years: most do nothing, some help, one harms. Claims about each are hardly ever false,
/// and most of the useless ones are found.
#[test]
fn useless_settings_are_found() {
    let rules = |seed| Rules { margin: 0.1, alpha: 0.05, seed, below: None, first: 0, keeps_goal: true };
    let (mut useless, mut found, mut claims, mut false_claims) = (0, 0, 0, 0);
    for seed in 0..150u64 {
        let mut effects = vec![0.0; 12];
        (effects[2], effects[7], effects[9]) = (-0.4, -0.3, 0.3);
        let mut machine = Machine::new(300_000 + seed, 0.1, effects.clone());
        let mut search = Search::of_settings(rules(seed), effects.len());
        while let Some(trial) = search.next() {
            let figure = machine.measure(&trial.arms);
            search.take(&figure);
        }
        for claim in search.claims() {
            let Some(arm) = claim.tested else { continue };
            let truth = match effects[arm] {
                effect if effect < 0.0 => ClaimEnd::Proved,
                effect if effect > 0.0 => ClaimEnd::Worse,
                _ => ClaimEnd::Equal,
            };
            useless += usize::from(truth == ClaimEnd::Equal);
            if claim.end != ClaimEnd::Futile {
                claims += 1;
                found += usize::from(claim.end == truth && truth == ClaimEnd::Equal);
                false_claims += usize::from(claim.end != truth);
            }
        }
        assert!(search.base().contains(&2) && search.base().contains(&7), "{:?}", search.base());
    }
    assert!(found * 10 >= useless * 9, "{found} of {useless} found");
    assert!(false_claims * 20 <= claims, "{false_claims} of {claims} false");
}

/// An effect at the margin is the hardest to judge: it is neither help nor harm, and no other claim is made too
/// often.
#[test]
fn settings_at_the_margin_are_not_called_useful() {
    let rules = |seed| Rules { margin: 0.1, alpha: 0.05, seed, below: None, first: 0, keeps_goal: true };
    let claims = (0..1_000u64).filter(|seed| {
        let mut machine = Machine::new(400_000 + seed, 0.1, vec![-(1.1f64.ln())]);
        let mut search = Search::of_settings(rules(*seed), 1);
        while search.claims().len() < 2
            && let Some(trial) = search.next()
        {
            let figure = machine.measure(&trial.arms);
            search.take(&figure);
        }
        search.claims()[0].end == ClaimEnd::Proved
    });
    let claims = claims.count();
    assert!(claims <= 50, "{claims} of 1000");
}

/// Two settings that replace each other: each alone can be removed, both cannot.
#[test]
fn settings_that_stand_for_each_other_stay() {
    let mut kept = 0;
    for seed in 0..100u64 {
        let mut machine = Machine::new(500_000 + seed, 0.1, vec![0.0; 3]);
        let mut search = Search::of_settings(
            Rules { margin: 0.1, alpha: 0.05, seed, below: None, first: 0, keeps_goal: true },
            3,
        );
        while let Some(trial) = search.next() {
            let mut figure = machine.measure(&trial.arms);
            if trial.arms.contains(&0) || trial.arms.contains(&1) {
                figure.value *= 0.5;
            }
            search.take(&figure);
        }
        kept += usize::from(search.base() == [0, 1, 2]);
        assert!(search.base().contains(&0) || search.base().contains(&1));
    }
    assert!(kept >= 90, "{kept} of 100");
}

/// A setting that cannot be applied does not end the audit of the others.
#[test]
fn settings_that_cannot_be_applied_are_left_behind() {
    let mut machine = Machine::new(9, 0.05, vec![-0.5, 0.0, 0.0]);
    let mut search = Search::of_settings(
        Rules { margin: 0.1, alpha: 0.05, seed: 3, below: None, first: 0, keeps_goal: true },
        3,
    );
    while let Some(trial) = search.next() {
        if trial.arms.contains(&1) {
            search.drop_setting(1, "refused");
            continue;
        }
        let figure = machine.measure(&trial.arms);
        search.take(&figure);
    }
    assert_eq!(search.base(), [0], "{:?}", search.claims());
    assert_eq!(search.arms()[1].failed.as_deref(), Some("refused"));
    let mut search = Search::of_settings(
        Rules { margin: 0.1, alpha: 0.05, seed: 3, below: None, first: 0, keeps_goal: true },
        3,
    );
    let mut trials = 0;
    while search.next().is_some() {
        search.fail("no");
        trials += 1;
    }
    assert!(trials < 20 && search.base() == [0, 1, 2], "{trials}");
}

/// Two arms of twelve answer the cause; the one that helps is among them, or is another one.
#[test]
fn arms_that_answer_the_cause_are_tried_first() {
    let searched = |good: usize, first: usize, seed: u64| {
        let mut effects = vec![0.0; 12];
        effects[good] = 0.5f64.ln();
        let mut machine = Machine::new(600_000 + seed, 0.15, effects);
        let rules = Rules { margin: 0.05, alpha: 0.05, seed, below: None, first, keeps_goal: true };
        let mut search = Search::new(rules, 12);
        let mut proved_after = 2_000;
        while let Some(trial) = search.next() {
            let figure = machine.measure(&trial.arms);
            search.take(&figure);
            if proved_after == 2_000 && !search.base().is_empty() {
                proved_after = machine.measured;
            }
        }
        (search.base() == [good], proved_after)
    };
    let median = |good: usize, first: usize| {
        let mut all: Vec<u32> = (0..200)
            .filter_map(|seed| {
                let (is_right, after) = searched(good, first, seed);
                is_right.then_some(after)
            })
            .collect();
        assert!(all.len() >= 180, "arm {good} of the first {first}: {} of 200", all.len());
        all.sort_unstable();
        all[all.len() / 2]
    };
    let (guided, whole) = (median(1, 2), median(1, 0));
    assert!(guided * 2 < whole, "{guided} repeats, {whole} without the cause");
    // If the cause is misleading, the others are tried next.
    assert!(median(7, 2) > guided);
}

/// One block of the arms that answer a cause is enough if one of them is far below another.
#[test]
fn a_clear_screening_of_causes_is_short() {
    let screened = |values: [f64; 3], first| {
        let rules = Rules { margin: 0.05, alpha: 0.05, seed: 1, below: None, first, keeps_goal: true };
        let mut search = Search::new(rules, 6);
        let mut repeats = 0;
        while let Some(trial) = search.next().filter(|trial| trial.phase == FixPhase::Screen) {
            let value = *values.get(trial.arms[0]).unwrap_or(&60.0);
            search.take(&Figure { value, ..Figure::default() });
            repeats += 1;
        }
        repeats
    };
    assert_eq!(screened([60.0, 10.0, 58.0], 3), 3);
    assert_eq!(screened([60.0, 13.0, 58.0], 3), 2 * 3);
    assert_eq!(screened([60.0, 10.0, 58.0], 0), 2 * 6 + 3 * 3);
}
