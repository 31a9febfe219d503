//! No verdict contradicts its interval: over ten thousand random contrasts, with and without a difference.

use whylate_core::plan::{Plan, Source};
use whylate_core::result::{CellResult, Outcome, Quantiles, RepeatProbe, RepeatResult};
use whylate_stats::random::SplitMix;

const PLAN: &str = "name = \"x\"\nduration = \"1s\"\nmargin = 0.05\n[target]\ncpus = \"0\"\n[[probe]]\nkind = \"timer\"\n\
    [[load]]\nname = \"l\"\nkind = \"memory\"\nworking_set = \"1MiB\"\n[[cell]]\n[[cell]]\nloads = [\"l\"]\n";

fn cell(random: &mut SplitMix, name: &str, repeats: u32, median: f64, spread: f64) -> CellResult {
    let repeat = |nth: u32, random: &mut SplitMix| {
        let normal = (0..12).map(|_| random.unit()).sum::<f64>() - 6.0;
        let value = (median * (spread * normal).exp()).max(1.0) as u64;
        let quantiles = Quantiles {
            p50_ns: value,
            p99_ns: value * 2,
            p999_ns: value * 3,
            max_ns: value * 9,
            ..Quantiles::default()
        };
        let probe =
            RepeatProbe { probe: "timer".to_owned(), quantiles: Some(quantiles), ..RepeatProbe::default() };
        RepeatResult { repeat: nth + 1, block: nth / 2, probes: vec![probe], ..RepeatResult::default() }
    };
    let loads = if name == "idle" { Vec::new() } else { vec!["l".to_owned()] };
    CellResult {
        name: name.to_owned(),
        loads,
        repeats: (0..repeats).map(|nth| repeat(nth, random)).collect(),
        ..CellResult::default()
    }
}

#[test]
fn verdict_ratio_and_interval_agree() {
    let plan = Plan::parse(&Source { name: "x", text: PLAN }, &[]).unwrap();
    let mut random = SplitMix(5);
    let mut seen = std::collections::BTreeMap::new();
    for _ in 0..2_500 {
        let repeats = 2 + 2 * random.below(4) as u32;
        let (effect, spread) = ((random.unit() - 0.5) * 2.0, 0.005 + 0.3 * random.unit());
        let effect = if random.below(3) == 0 { 0.0 } else { effect };
        let cells = [
            cell(&mut random, "idle", repeats, 10_000.0, spread),
            cell(&mut random, "l", repeats, 10_000.0 * effect.exp(), spread),
        ];
        for it in whylate_stats::comparisons(&cells, &plan) {
            *seen.entry(it.outcome).or_insert(0) += 1;
            let ratio = it.ratio.unwrap();
            let (low, high) = (it.ratio_low.unwrap_or(0.0), it.ratio_high.unwrap_or(f64::INFINITY));
            assert!(low <= ratio * 1.000_01 && ratio <= high * 1.000_01, "{it:?}");
            let agrees = match it.outcome {
                Outcome::Worse => ratio > 1.05 && low > 1.0 && it.p_value <= 0.05,
                Outcome::Better => ratio < 1.0 / 1.05 && high < 1.0 && it.p_value <= 0.05,
                Outcome::Equivalent => {
                    (1.0 / 1.050_01..=1.050_01).contains(&ratio) && low <= 1.05 && high >= 1.0 / 1.05
                }
                Outcome::CannotTell => true,
            };
            assert!(agrees, "{it:?}");
        }
    }
    assert_eq!(seen.len(), 4, "each outcome was met: {seen:?}");
}
