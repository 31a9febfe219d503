//! Who took the late time on two sides. The unit is the run, or the repeat where both sides are cells of one run: spikes come
//! in bursts, and are never a draw each.

use crate::by_cause::{CauseContrast, CauseRepeat, CauseTime, by_cause};
use std::collections::BTreeMap;
use whylate_core::result::{CauseDifference, Spike, late_time};

/// A rate that differs by less than this share of all late time is the same.
const SAME_MAX: f64 = 0.05;
const OTHERS: &str = "others";

/// What was measured at once on one side.
#[derive(Clone, Debug, Default)]
pub struct CauseUnit<'a> {
    /// Units are compared within a block alone.
    pub block: u32,
    /// Measured time of all CPUs together, in ns.
    pub measured_ns: u64,
    pub spikes: Vec<&'a Spike>,
}

/// The causes of one series, those that changed first. Empty where no side has spikes.
pub fn cause_differences(
    side: &str,
    probe: &str,
    baseline: &[CauseUnit<'_>],
    units: &[CauseUnit<'_>],
) -> Vec<CauseDifference> {
    let repeats =
        |units: &[CauseUnit<'_>]| -> Vec<CauseRepeat<String>> { units.iter().map(repeat).collect() };
    let (before, now) = (repeats(baseline), repeats(units));
    let (all_before, all_now) = (total(&before), total(&now));
    if all_before + all_now <= 0.0 {
        return Vec::new();
    }
    let share = |rate: f64, all: f64| if all > 0.0 { rate / all } else { 0.0 };
    let row = |it: CauseContrast<String>| CauseDifference {
        side: side.to_owned(),
        probe: probe.to_owned(),
        cause: it.cause.unwrap_or_else(|| OTHERS.to_owned()),
        baseline_share: share(it.first.ns_per_s, all_before),
        share: share(it.second.ns_per_s, all_now),
        baseline_ns_per_s: it.first.ns_per_s,
        ns_per_s: it.second.ns_per_s,
        difference_low: it.difference.0,
        difference_high: it.difference.1,
        p_value: it.p_value,
        change: it.change,
    };
    by_cause(&before, &now, SAME_MAX * all_before.max(all_now)).into_iter().map(row).collect()
}

fn repeat(unit: &CauseUnit<'_>) -> CauseRepeat<String> {
    let mut causes: BTreeMap<String, CauseTime> = BTreeMap::new();
    for spike in &unit.spikes {
        for part in late_time([*spike]) {
            let time = causes.entry(part.name()).or_default();
            time.count += 1;
            time.sum_ns += part.ns;
            time.max_ns = time.max_ns.max(part.ns as u64);
        }
    }
    CauseRepeat { block: unit.block, seconds: unit.measured_ns as f64 / 1e9, causes }
}

/// Late time of all causes, in ns per s.
fn total(repeats: &[CauseRepeat<String>]) -> f64 {
    let seconds: f64 = repeats.iter().map(|repeat| repeat.seconds).sum();
    let ns: f64 = repeats.iter().flat_map(|repeat| repeat.causes.values()).map(|time| time.sum_ns).sum();
    if seconds > 0.0 { ns / seconds } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use whylate_core::CpuId;
    use whylate_core::result::{Cause, CauseChange, CauseKind};

    fn spikes(actors: &[(&str, u64)]) -> Vec<Spike> {
        let spike = |actor: &str| Spike {
            cause: Cause { actor: Some(actor.to_owned()), share: Some(1.0), ..Cause::new(CauseKind::Thread) },
            ..Spike::unexplained(CpuId(0), 0, 1_000)
        };
        actors.iter().flat_map(|(actor, count)| (0..*count).map(|_| spike(actor))).collect()
    }

    fn units<'a>(runs: &'a [Vec<Spike>]) -> Vec<CauseUnit<'a>> {
        let unit = |spikes: &'a Vec<Spike>| CauseUnit {
            block: 0,
            measured_ns: 1_000_000_000,
            spikes: spikes.iter().collect(),
        };
        runs.iter().map(unit).collect()
    }

    fn changes(before: &[Vec<Spike>], now: &[Vec<Spike>]) -> Vec<(String, CauseChange)> {
        let found = cause_differences("B", "timer", &units(before), &units(now));
        found.into_iter().map(|it| (it.cause, it.change)).collect()
    }

    #[test]
    fn the_shares_of_all_rows_add_up() {
        let names: Vec<String> = (0..30).map(|nth| format!("culprit-{nth}")).collect();
        let actors: Vec<(&str, u64)> = names.iter().map(|name| (name.as_str(), 5)).collect();
        let mut all = spikes(&actors);
        all.iter_mut().take(50).for_each(|spike| spike.cause.share = Some(0.5));
        all[0].cause = Cause::new(CauseKind::Throttled);
        let all = [all];
        let found = cause_differences("B", "timer", &units(&all), &units(&all));
        let sum: f64 = found.iter().map(|row| row.share).sum();
        assert!((sum - 1.0).abs() < 1e-9, "{found:?}");
        assert!(found.iter().any(|row| row.cause == OTHERS), "{found:?}");
    }

    #[test]
    fn one_run_of_each_side_claims_nothing_however_many_spikes_it_has() {
        let (before, now) = ([spikes(&[("eth0", 200)])], [spikes(&[("rcuc", 200)])]);
        let found = changes(&before, &now);
        assert!(found.iter().all(|(_, change)| *change == CauseChange::CannotTell), "{found:?}");
        assert!(changes(&[Vec::new()], &[Vec::new()]).is_empty());
    }

    #[test]
    fn runs_tell_which_cause_is_gone_and_which_is_new() {
        let runs = |actor: &str| -> Vec<Vec<Spike>> {
            (0..5).map(|nth| spikes(&[(actor, 20 + nth), ("rcuc", 20)])).collect()
        };
        let found = changes(&runs("irq/31-eth0"), &runs("kworker/1:2"));
        assert!(found.contains(&("thread: irq/31-eth0".to_owned(), CauseChange::Gone)), "{found:?}");
        assert!(found.contains(&("thread: kworker".to_owned(), CauseChange::New)), "{found:?}");
        assert!(found.contains(&("thread: rcuc".to_owned(), CauseChange::Same)), "{found:?}");
    }
}
