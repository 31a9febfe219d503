//! Who took the late time on two sides: shares with the interval of their difference, by resampling the spikes.
//!
//! Shares are of the spikes that were recorded, which are the largest; each is one draw.

use crate::random::SplitMix;
use std::collections::{BTreeMap, BTreeSet};
use whylate_core::result::{CauseChange, CauseDifference, Spike, late_time};

const RESAMPLES: usize = 400;
/// With fewer spikes a side is not judged.
const SPIKES_MIN: usize = 5;
/// A share that differs by less is the same.
const SAME_MAX: f64 = 0.05;
/// The most culprits that are listed; the rest is one row.
const TOLD_MAX: usize = 11;
const OTHERS: &str = "others";

type Shares = BTreeMap<String, f64>;

/// The culprits of one series, those that changed most first. Empty where a side has too few spikes.
pub fn cause_differences(
    side: &str,
    probe: &str,
    baseline: &[&Spike],
    spikes: &[&Spike],
) -> Vec<CauseDifference> {
    if baseline.len() < SPIKES_MIN || spikes.len() < SPIKES_MIN {
        return Vec::new();
    }
    let told = told(&shares(baseline, None), &shares(spikes, None));
    let shares = |spikes: &[&Spike]| shares(spikes, Some(&told));
    let (before, now) = (shares(baseline), shares(spikes));
    let mut names: Vec<&String> = before.keys().chain(now.keys()).collect();
    names.sort();
    names.dedup();
    let mut random = SplitMix(1);
    let mut resampled = |spikes: &[&Spike]| -> Vec<Shares> {
        let one = |random: &mut SplitMix| -> Vec<&Spike> {
            spikes.iter().map(|_| spikes[random.below(spikes.len() as u64) as usize]).collect()
        };
        (0..RESAMPLES).map(|_| shares(&one(&mut random))).collect()
    };
    let (of_before, of_now) = (resampled(baseline), resampled(spikes));
    let of = |shares: &Shares, name: &String| shares.get(name).copied().unwrap_or_default();
    let difference = |name: &String| {
        let mut all: Vec<f64> =
            of_before.iter().zip(&of_now).map(|(a, b)| of(b, name) - of(a, name)).collect();
        all.sort_by(f64::total_cmp);
        let tail = RESAMPLES / 40;
        let (low, high) = (all[tail], all[RESAMPLES - 1 - tail]);
        let (baseline_share, share) = (of(&before, name), of(&now, name));
        CauseDifference {
            side: side.to_owned(),
            probe: probe.to_owned(),
            cause: name.clone(),
            baseline_share,
            share,
            difference_low: low,
            difference_high: high,
            change: change(baseline_share, share, low, high),
        }
    };
    let mut all: Vec<CauseDifference> = names.into_iter().map(difference).collect();
    let is_open = |change| matches!(change, CauseChange::Same | CauseChange::CannotTell);
    let size = |it: &CauseDifference| (it.share - it.baseline_share).abs();
    all.sort_by(|a, b| (is_open(a.change)).cmp(&is_open(b.change)).then(size(b).total_cmp(&size(a))));
    all
}

/// The culprits that have a row of their own: those with the largest shares.
fn told(before: &Shares, now: &Shares) -> BTreeSet<String> {
    let share = |name: &String| {
        before.get(name).copied().unwrap_or_default().max(now.get(name).copied().unwrap_or_default())
    };
    let mut names: Vec<&String> = before.keys().chain(now.keys()).collect();
    names.sort_by(|a, b| share(b).total_cmp(&share(a)).then(a.cmp(b)));
    names.dedup();
    names.into_iter().take(TOLD_MAX).cloned().collect()
}

fn change(before: f64, now: f64, low: f64, high: f64) -> CauseChange {
    match (low > 0.0, high < 0.0) {
        (true, _) if before == 0.0 => CauseChange::New,
        (true, _) => CauseChange::More,
        (_, true) if now == 0.0 => CauseChange::Gone,
        (_, true) => CauseChange::Less,
        _ if low.abs().max(high.abs()) <= SAME_MAX => CauseChange::Same,
        _ => CauseChange::CannotTell,
    }
}

/// By who took it; known culprits that are not listed count with the others. They add up to 1.
fn shares(spikes: &[&Spike], told: Option<&BTreeSet<String>>) -> Shares {
    let mut shares = Shares::new();
    for one in late_time(spikes.iter().copied()) {
        let name = one.name();
        let is_told = one.is_nobodys() || told.is_none_or(|told| told.contains(&name));
        *shares.entry(if is_told { name } else { OTHERS.to_owned() }).or_insert(0.0) += one.share;
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;
    use whylate_core::CpuId;
    use whylate_core::result::{Cause, CauseKind};

    fn spikes(actors: &[(&str, u64)]) -> Vec<Spike> {
        let spike = |actor: &str| Spike {
            cause: Cause { actor: Some(actor.to_owned()), share: Some(1.0), ..Cause::new(CauseKind::Thread) },
            ..Spike::unexplained(CpuId(0), 0, 1_000)
        };
        actors.iter().flat_map(|(actor, count)| (0..*count).map(|_| spike(actor))).collect()
    }

    #[test]
    fn the_shares_of_all_rows_add_up() {
        let names: Vec<String> = (0..30).map(|nth| format!("culprit-{nth}")).collect();
        let actors: Vec<(&str, u64)> = names.iter().map(|name| (name.as_str(), 5)).collect();
        let mut all = spikes(&actors);
        all.iter_mut().take(50).for_each(|spike| spike.cause.share = Some(0.5));
        all[0].cause = Cause::new(CauseKind::Throttled);
        let all: Vec<&Spike> = all.iter().collect();
        let found = cause_differences("B", "timer", &all, &all);
        let has = |name: &str| found.iter().any(|row| row.cause == name && row.share > 0.0);
        assert!(has(OTHERS) && has("throttled") && has("not explained"), "{found:?}");
        let sum: f64 = found.iter().map(|row| row.share).sum();
        assert!((sum - 1.0).abs() < 1e-9 && found.len() <= TOLD_MAX + 3, "{found:?}");
    }

    #[test]
    fn one_is_gone_and_another_is_new() {
        let (before, now) =
            (spikes(&[("irq/31-eth0", 20), ("rcuc", 20)]), spikes(&[("kworker/1:2", 20), ("rcuc", 20)]));
        let found = cause_differences(
            "B",
            "timer",
            &before.iter().collect::<Vec<_>>(),
            &now.iter().collect::<Vec<_>>(),
        );
        let told: Vec<(&str, CauseChange)> = found.iter().map(|it| (it.cause.as_str(), it.change)).collect();
        assert!(told.contains(&("thread: irq/31-eth0", CauseChange::Gone)), "{told:?}");
        assert!(told.contains(&("thread: kworker", CauseChange::New)), "{told:?}");
        // As large before as now, as far as so few spikes tell.
        assert!(told.contains(&("thread: rcuc", CauseChange::CannotTell)), "{told:?}");
        assert_eq!(change(0.5, 0.51, -0.02, 0.04), CauseChange::Same);
    }
}
