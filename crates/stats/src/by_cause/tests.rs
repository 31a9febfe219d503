use super::*;

type Repeats = Vec<CauseRepeat<&'static str>>;

const NAMES: [&str; 14] = [
    "steal", "late", "rustc", "eth0", "rcu", "ahci", "cc1", "timer", "usb", "kworker", "net", "pam", "ssh",
    "log",
];

fn times(count: u64, each_ns: f64) -> CauseTime {
    CauseTime { count, sum_ns: count as f64 * each_ns, max_ns: each_ns as u64 }
}

/// Whether a burst of one cause falls into the repeat: 3 in 10 repeats have 3 to 8 spikes of it.
fn noise(random: &mut SplitMix, level: f64) -> BTreeMap<&'static str, CauseTime> {
    let mut causes = BTreeMap::new();
    for (nth, name) in NAMES.into_iter().enumerate() {
        if random.unit() < 0.3 {
            let each_ns = 200_000.0 * (1.0 + nth as f64) * random.unit().powf(-0.5) * level;
            causes.insert(name, times(3 + random.below(6), each_ns));
        }
    }
    // The host's cause, which every repeat has.
    causes.insert("host", times(4 + random.below(9), 1_000_000.0 * random.unit().powf(-0.4) * level));
    causes
}

/// Two cells, interleaved in blocks of two repeats of each, as in a run. `plant` adds to the second cell's repeats.
fn run(
    random: &mut SplitMix,
    repeats: u32,
    drift: f64,
    plant: impl Fn(&mut SplitMix) -> Option<CauseTime>,
) -> (Repeats, Repeats) {
    let (mut first, mut second): (Repeats, Repeats) = (Vec::new(), Vec::new());
    for block in 0..repeats / 2 {
        let mut cells = [false, false, true, true];
        random.shuffle(&mut cells);
        for (place, is_second) in cells.into_iter().enumerate() {
            let at = f64::from(block) * 4.0 + place as f64;
            let level = 1.0 + drift * at / f64::from(repeats * 2);
            let mut causes = noise(random, level);
            if is_second && let Some(time) = plant(random) {
                causes.insert("planted", time);
            }
            let group = if is_second { &mut second } else { &mut first };
            group.push(CauseRepeat { block, seconds: 2.0, causes });
        }
    }
    (first, second)
}

fn claims(found: &[CauseContrast<&'static str>]) -> Vec<(&'static str, CauseChange)> {
    let is_claim = |it: &&CauseContrast<_>| !matches!(it.change, CauseChange::Same | CauseChange::CannotTell);
    found.iter().filter(is_claim).map(|it| (it.cause.unwrap_or("others"), it.change)).collect()
}

/// A number of events with that mean (Knuth).
fn poisson(random: &mut SplitMix, mean: f64) -> u64 {
    let (limit, mut product, mut count) = ((-mean).exp(), random.unit(), 0);
    while product > limit {
        product *= random.unit();
        count += 1;
    }
    count
}

#[test]
fn without_a_difference_at_most_one_in_twenty_claims_something() {
    for (seed, drift) in [(1, 0.0), (2, 1.0), (3, 5.0)] {
        let mut random = SplitMix(seed);
        let runs = 300;
        let false_claims = (0..runs)
            .filter(|_| {
                let (first, second) = run(&mut random, 8, drift, |_| None);
                !claims(&by_cause(&first, &second, 0.0, 1)).is_empty()
            })
            .count();
        // 5 % of 300 are 15; above 25 is below 1 % by chance.
        assert!(false_claims <= 25, "{false_claims} of {runs} with drift {drift}");
    }
}

#[test]
fn a_planted_cause_is_found_and_no_other_is_claimed() {
    for (per_s, each_ns) in [(3.0, 100_000.0), (10.0, 50_000.0), (50.0, 500_000.0)] {
        let mut random = SplitMix(11);
        let runs = 100;
        let (mut found, mut others, mut reversed) = (0, 0, 0);
        for _ in 0..runs {
            let plant = |random: &mut SplitMix| {
                let count = poisson(random, per_s * 2.0);
                (count > 0).then(|| times(count, each_ns))
            };
            let (first, second) = run(&mut random, 8, 0.3, plant);
            let said = claims(&by_cause(&first, &second, 0.0, 1));
            found += usize::from(said.contains(&("planted", CauseChange::New)));
            others += usize::from(said.iter().any(|(name, _)| *name != "planted"));
            let back = claims(&by_cause(&second, &first, 0.0, 1));
            reversed += usize::from(back.contains(&("planted", CauseChange::Gone)));
        }
        assert!(
            found >= 95 && reversed >= 95 && others <= 5,
            "{per_s}/s: {found}, {reversed}, others {others}"
        );
    }
}

#[test]
fn a_cause_of_one_cell_is_found_among_many_constant_ones() {
    let mut random = SplitMix(3);
    let mut run = |is_planted: bool| -> Vec<CauseRepeat<u32>> {
        let mut repeat = |nth: u32| {
            let mut causes: BTreeMap<u32, CauseTime> =
                (1..70).map(|cause| (cause, times(1 + random.below(4), 20_000.0))).collect();
            if is_planted {
                causes.insert(0, times(10 + random.below(9), 100_000.0));
            }
            CauseRepeat { block: nth / 2, seconds: 1.0, causes }
        };
        (0..8).map(&mut repeat).collect()
    };
    let (first, second) = (run(false), run(true));
    let found = by_cause(&first, &second, 0.0, 1);
    assert_eq!((found[0].cause, found[0].change), (Some(0), CauseChange::New), "{:?}", found[0]);
}

#[test]
fn rates_intervals_and_blocks_are_those_of_the_repeats() {
    let repeat = |block, ns: f64| {
        let causes = if ns > 0.0 { BTreeMap::from([("irq", times(2, ns / 2.0))]) } else { BTreeMap::new() };
        CauseRepeat { block, seconds: 2.0, causes }
    };
    let first: Repeats = (0..8).map(|nth| repeat(nth / 2, 0.0)).collect();
    let second: Repeats = (0..8).map(|nth| repeat(nth / 2, 4_000.0 + f64::from(nth) * 100.0)).collect();
    let [row] = &by_cause(&first, &second, 0.0, 1)[..] else { panic!("one cause") };
    assert_eq!((row.change, row.larger_in, row.more_repeats), (CauseChange::New, (4, 4), None));
    assert_eq!((row.first, row.second.repeats), (CauseRate::default(), 8));
    assert!((row.second.ns_per_s - 2_175.0).abs() < 1e-6 && (row.second.per_s - 1.0).abs() < 1e-9);
    assert!((row.p_value - 2.0 / 1296.0).abs() < 1e-9, "{}", row.p_value);
    let (low, high) = (row.difference.0.unwrap(), row.difference.1.unwrap());
    assert!(low > 2_000.0 && low < 2_175.0 && high > 2_175.0 && high < 2_350.0, "{low} to {high}");
    assert_eq!(by_cause(&second, &second, 500.0, 1)[0].change, CauseChange::Same);
}

#[test]
fn few_repeats_claim_nothing_and_say_how_many_would_tell() {
    let mut random = SplitMix(5);
    let (first, second) = run(&mut random, 2, 0.0, |_| Some(times(20, 100_000.0)));
    let found = by_cause(&first, &second, 0.0, 1);
    assert!(claims(&found).is_empty());
    let planted = found.iter().find(|row| row.cause == Some("planted")).unwrap();
    assert!(planted.more_repeats.is_some_and(|more| (2..=10).contains(&more)), "{planted:?}");
    assert!(by_cause(&first, &[], 0.0, 1).is_empty());
}

#[test]
fn causes_without_a_row_are_one_row_and_nothing_is_lost() {
    let causes: BTreeMap<u32, CauseTime> =
        (0..100).map(|nth| (nth, times(1, 1_000.0 + f64::from(nth)))).collect();
    let repeats: Vec<CauseRepeat<u32>> =
        (0..4).map(|nth| CauseRepeat { block: nth / 2, seconds: 1.0, causes: causes.clone() }).collect();
    let found = by_cause(&repeats, &repeats, 0.0, 1);
    assert!((TESTED_MAX - 1..=TESTED_MAX + 1).contains(&found.len()), "{}", found.len());
    let longest = found.iter().find(|row| row.cause == Some(99));
    assert!(longest.is_some(), "the longest spike has its row");
    let sum: f64 = found.iter().map(|row| row.first.ns_per_s).sum();
    assert!((sum - causes.values().map(|time| time.sum_ns).sum::<f64>()).abs() < 1e-6);
    assert_eq!(found.iter().filter(|row| row.cause.is_none()).count(), 1);
}
