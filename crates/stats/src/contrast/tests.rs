use super::*;
use proptest::prelude::*;

fn observations(blocks: &[&[f64]]) -> Vec<Observation> {
    let of_block = |(block, values): (usize, &&[f64])| {
        values.iter().map(move |value| Observation { block: block as u32, value: *value }).collect::<Vec<_>>()
    };
    blocks.iter().enumerate().flat_map(of_block).collect()
}

/// Every choice of labels within blocks, one by one: the share with a rank sum at least as large, and as small.
fn by_enumeration(first: &[&[f64]], second: &[&[f64]]) -> (f64, f64) {
    let blocks: Vec<Vec<f64>> =
        first.iter().zip(second).map(|(a, b)| a.iter().chain(*b).copied().collect()).collect();
    let flat: Vec<f64> = blocks.iter().flatten().copied().collect();
    let rank = |value: f64| {
        let below = flat.iter().filter(|other| **other < value).count();
        let equal = flat.iter().filter(|other| **other == value).count();
        below as f64 + (equal as f64 + 1.0) / 2.0
    };
    let mut sums = vec![0.0];
    let mut observed = 0.0;
    for (block, b) in blocks.iter().zip(second) {
        let ranks: Vec<f64> = block.iter().map(|value| rank(*value)).collect();
        observed += ranks[ranks.len() - b.len()..].iter().sum::<f64>();
        let masks = (0u32..1 << ranks.len()).filter(|mask| mask.count_ones() as usize == b.len());
        let of_block: Vec<f64> = masks
            .map(|mask| (0..ranks.len()).filter(|bit| mask >> bit & 1 == 1).map(|bit| ranks[bit]).sum())
            .collect();
        sums = sums.iter().flat_map(|sum| of_block.iter().map(move |more| sum + more)).collect();
    }
    let share = |as_far: &dyn Fn(f64) -> bool| {
        sums.iter().filter(|sum| as_far(**sum)).count() as f64 / sums.len() as f64
    };
    (share(&|sum| sum >= observed - 1e-9), share(&|sum| sum <= observed + 1e-9))
}

#[test]
fn separated_groups_reach_the_smallest_p() {
    let first = observations(&[&[1.0, 1.1], &[1.2, 1.3], &[1.5, 1.4], &[1.05, 1.15]]);
    let second = observations(&[&[1.6, 1.7], &[1.8, 1.9], &[2.1, 2.2], &[1.65, 1.75]]);
    let study = study(&first, &second).unwrap();
    assert_eq!(study.repeats, 8);
    assert!((study.p_value - 2.0 / 1296.0).abs() < 1e-12, "{study:?}");
    assert!((study.p_value - study.smallest_p).abs() < 1e-12);
    assert_eq!(study.outcome(study.p_value, 1, 0.05), Outcome::Worse);
    let (low, high) = study.interval_95;
    assert!(low.unwrap() < study.effect && study.effect < high.unwrap(), "{study:?}");
    assert!(low.unwrap() > 0.0, "{study:?}");
}

#[test]
fn one_block_of_two_cannot_tell() {
    let first = observations(&[&[1.0, 1.1]]);
    let second = observations(&[&[9.0, 9.1]]);
    let study = study(&first, &second).unwrap();
    assert!((study.smallest_p - 1.0 / 3.0).abs() < 1e-12);
    assert_eq!(study.outcome(study.p_value, 1, 0.05), Outcome::CannotTell);
}

#[test]
fn blocks_with_one_group_alone_do_not_count() {
    let first = observations(&[&[1.0], &[2.0]]);
    let second = observations(&[&[], &[2.5]]);
    assert_eq!(study(&first, &second).unwrap().repeats, 1);
    assert!(study(&first, &observations(&[&[], &[]])).is_none());
}

#[test]
fn equal_repeats_are_equivalent_when_there_are_enough() {
    let block: &[f64] = &[1.0, 1.001];
    let few = observations(&[block; 1]);
    let many = observations(&[block; 4]);
    let shown = study(&many, &many).unwrap();
    assert_eq!(shown.outcome(shown.p_value, 1, 0.05), Outcome::Equivalent, "{shown:?}");
    let shown = study(&few, &few).unwrap();
    assert!(shown.outcome(1.0, 1, 0.05) == Outcome::CannotTell, "{shown:?}");
}

#[test]
fn a_significant_difference_within_the_margin_is_not_worse() {
    let first = observations(&[&[1.0, 1.0][..]; 5]);
    let second = observations(&[&[1.02, 1.02][..]; 5]);
    let shown = study(&first, &second).unwrap();
    assert!(shown.p_value < 0.01);
    assert_eq!(shown.outcome(shown.p_value, 1, 0.05), Outcome::Equivalent);
    assert_eq!(shown.outcome(shown.p_value, 1, 0.01), Outcome::Worse);
}

#[test]
fn corrections_by_hand() {
    let mut p = [0.01, 0.04, 0.03];
    holm(&mut p);
    let close = |a: [f64; 3], b: [f64; 3]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-12);
    assert!(close(p, [0.03, 0.06, 0.06]), "{p:?}");
    let mut p = [0.01, 0.04, 0.03];
    benjamini_hochberg(&mut p);
    assert!(close(p, [0.03, 0.04, 0.04]), "{p:?}");
}

proptest! {
    #[test]
    fn convolution_agrees_with_enumeration(
        blocks in prop::collection::vec((prop::collection::vec(0u8..9, 1..4), prop::collection::vec(0u8..9, 1..4)), 1..4),
    ) {
        let floats = |values: &Vec<u8>| values.iter().map(|value| f64::from(*value)).collect::<Vec<f64>>();
        let first: Vec<Vec<f64>> = blocks.iter().map(|(a, _)| floats(a)).collect();
        let second: Vec<Vec<f64>> = blocks.iter().map(|(_, b)| floats(b)).collect();
        let a: Vec<&[f64]> = first.iter().map(Vec::as_slice).collect();
        let b: Vec<&[f64]> = second.iter().map(Vec::as_slice).collect();
        let (upper, lower) = by_enumeration(&a, &b);
        let tails = Blocked::new(&observations(&a), &observations(&b)).test(0.0);
        prop_assert!((tails.upper - upper).abs() < 1e-9, "{} {}", tails.upper, upper);
        prop_assert!((tails.lower - lower).abs() < 1e-9, "{} {}", tails.lower, lower);
    }

    #[test]
    fn swapping_the_groups_turns_the_effect_round(
        values in prop::collection::vec((0u32..1000, 0u32..1000, 0u32..1000, 0u32..1000), 4),
    ) {
        let group = |pick: fn(&(u32, u32, u32, u32)) -> [u32; 2]| -> Vec<Observation> {
            values.iter().enumerate()
                .flat_map(|(block, four)| pick(four).map(|value| Observation {
                    block: block as u32, value: f64::from(value) / 1000.0,
                }))
                .collect()
        };
        let (a, b) = (group(|four| [four.0, four.1]), group(|four| [four.2, four.3]));
        let (forth, back) = (study(&a, &b).unwrap(), study(&b, &a).unwrap());
        prop_assert!((forth.p_value - back.p_value).abs() < 1e-9);
        prop_assert!((forth.effect + back.effect).abs() < 1e-9);
    }
}
