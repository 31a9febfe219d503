use super::*;
use crate::permutation::SplitMix;
use proptest::prelude::*;
use whylate_core::CpuId;
use whylate_core::result::{RepeatProbe, RepeatResult};

/// A latency around `center` as repeats show it: many small deviations, and now and then a far larger value.
fn repeat_value(random: &mut SplitMix, center: f64) -> u64 {
    let mut uniform = || (random.next() >> 11) as f64 / (1u64 << 53) as f64;
    let bell = (0..6).map(|_| uniform()).sum::<f64>() - 3.0;
    let outlier = if uniform() < 0.05 { 4.0 } else { 1.0 };
    (center * (0.1 * bell).exp() * outlier) as u64
}

fn group(random: &mut SplitMix, center: f64, repeats: usize) -> Vec<u64> {
    (0..repeats).map(|_| repeat_value(random, center)).collect()
}

/// A cell whose repeats have the given maxima on CPU 1, and half of that elsewhere.
fn cell(name: &str, maxima: &[u64]) -> CellResult {
    let probe = |cpu, max_ns| RepeatProbe {
        probe: "timer".to_owned(),
        cpu: CpuId(cpu),
        samples: 1000,
        quantiles: Some(Quantiles { p50_ns: 1000, p99_ns: max_ns / 2, max_ns, ..Quantiles::default() }),
    };
    let repeat = |(number, max_ns): (usize, &u64)| RepeatResult {
        repeat: number as u32 + 1,
        error: None,
        probes: vec![probe(0, max_ns / 2), probe(1, *max_ns)],
    };
    CellResult {
        name: name.to_owned(),
        repeats: maxima.iter().enumerate().map(repeat).collect(),
        ..CellResult::default()
    }
}

fn outcomes(comparisons: &[Comparison]) -> Vec<(&str, Outcome)> {
    comparisons.iter().map(|comparison| (comparison.statistic.as_str(), comparison.outcome)).collect()
}

#[test]
fn three_repeats_are_too_few_and_four_are_not() {
    assert_eq!(compare(&[1, 2, 3], &[100, 200, 300]), (Outcome::TooFewRepeats, None));
    assert_eq!(compare(&[], &[1, 2, 3, 4, 5]), (Outcome::TooFewRepeats, None));
    let (outcome, p_value) = compare(&[1, 2, 3, 4], &[100, 200, 300, 400]);
    assert_eq!(outcome, Outcome::Worse);
    assert!((p_value.unwrap() - 2.0 / 70.0).abs() < 1e-12);
    assert_eq!(compare(&[100, 200, 300, 400], &[1, 2, 3, 4]).0, Outcome::Better);
    assert_eq!(compare(&[7; 10], &[7; 10]), (Outcome::NoEffect, Some(1.0)));
    assert_eq!(compare(&[7; 40], &[7; 40]), (Outcome::NoEffect, Some(1.0)), "drawn instead of counted");
}

#[test]
fn without_an_effect_false_alarms_are_as_rare_as_promised() {
    let mut random = SplitMix(1);
    let trials = 1000;
    for repeats in [4, 5, 8] {
        let alarms = (0..trials)
            .filter(|_| {
                let (a, b) = (group(&mut random, 30e3, repeats), group(&mut random, 30e3, repeats));
                compare(&a, &b).0 != Outcome::NoEffect
            })
            .count();
        // The test is exact: at most 5 % are expected; three standard deviations of the simulation are allowed.
        assert!(alarms <= 50 + 21, "{alarms} of {trials} with {repeats} repeats");
        assert!(alarms > 0, "a test that never alarms shows nothing");
    }
}

#[test]
fn a_planted_effect_is_found() {
    let mut random = SplitMix(2);
    let found = (0..200)
        .filter(|_| {
            let (a, b) = (group(&mut random, 30e3, 8), group(&mut random, 45e3, 8));
            compare(&a, &b).0 == Outcome::Worse
        })
        .count();
    assert!(found >= 180, "{found} of 200");
}

#[test]
fn the_correction_is_that_of_the_textbook() {
    let mut p_values = [0.04, 0.01, 0.03, 0.005];
    benjamini_hochberg(&mut p_values);
    let expected = [0.04, 0.02, 0.04, 0.02];
    assert!(
        p_values.iter().zip(expected).all(|(got, expected)| (got - expected).abs() < 1e-12),
        "{p_values:?}"
    );
    benjamini_hochberg(&mut []);
}

#[test]
fn cells_are_compared_with_the_first_by_their_worst_cpu() {
    let idle = cell("idle", &[10_000, 11_000, 12_000, 13_000, 14_000]);
    let loaded = cell("l3", &[50_000, 51_000, 52_000, 53_000, 54_000]);
    let result = comparisons(&[idle, loaded]);
    assert_eq!(
        outcomes(&result),
        [("p50", Outcome::NoEffect), ("p99", Outcome::Worse), ("max", Outcome::Worse)]
    );
    let max = &result[2];
    assert_eq!((max.baseline.as_str(), max.cell.as_str(), max.probe.as_str()), ("idle", "l3", "timer"));
    assert_eq!((max.baseline_ns, max.cell_ns), (12_000, 52_000));
    // 2 of 252 choices, second smallest of three comparisons.
    assert!((max.p_value.unwrap() - 2.0 / 252.0 * 3.0 / 2.0).abs() < 1e-12);
}

#[test]
fn incomplete_repeats_and_skipped_cells_do_not_count() {
    let idle = cell("idle", &[10, 11, 12, 13]);
    let mut broken = cell("broken", &[50, 51, 52, 53]);
    broken.repeats[3].error = Some("the load died".to_owned());
    let skipped = CellResult { skipped: Some("no such load".to_owned()), ..cell("skipped", &[1, 2, 3, 4]) };
    let mut silent = cell("silent", &[1, 2, 3, 4]);
    silent.repeats.iter_mut().flat_map(|repeat| &mut repeat.probes).for_each(|probe| probe.quantiles = None);
    let result = comparisons(&[idle.clone(), broken, skipped.clone(), silent]);
    assert!(result.iter().all(|comparison| comparison.cell == "broken"));
    assert!(result.iter().all(|comparison| comparison.outcome == Outcome::TooFewRepeats));
    assert!(result.iter().all(|comparison| comparison.p_value.is_none()));
    assert!(comparisons(&[skipped, idle]).is_empty());
    assert!(comparisons(&[]).is_empty());
}

#[test]
fn many_cells_without_an_effect_rarely_alarm() {
    let mut random = SplitMix(3);
    let runs_with_alarm = (0..200)
        .filter(|_| {
            let cells: Vec<CellResult> =
                (0..8).map(|number| cell(&format!("{number}"), &group(&mut random, 30e3, 6))).collect();
            comparisons(&cells).iter().any(|comparison| comparison.outcome != Outcome::NoEffect)
        })
        .count();
    // Without the correction, a quarter of these runs or more would alarm.
    assert!(runs_with_alarm <= 10 + 10, "{runs_with_alarm} of 200");
}

proptest! {
    #[test]
    fn corrected_values_grow_and_keep_their_order(p_values in prop::collection::vec(0.0..=1.0f64, 0..30)) {
        let mut corrected = p_values.clone();
        benjamini_hochberg(&mut corrected);
        for (a, before_a) in corrected.iter().zip(&p_values) {
            prop_assert!(a >= before_a && *a <= 1.0);
            for (b, before_b) in corrected.iter().zip(&p_values) {
                prop_assert!(before_a > before_b || a <= b);
            }
        }
    }

    #[test]
    fn the_middle_is_the_middle(values in prop::collection::vec(any::<u64>(), 1..30)) {
        let middle = median(&values);
        prop_assert!(values.iter().filter(|value| **value < middle).count() * 2 <= values.len());
        prop_assert!(values.iter().filter(|value| **value > middle).count() * 2 <= values.len());
    }
}
