//! Which causes took the late time in two cells of a run, or on the two sides of `compare`. The unit is the repeat or
//! the run: spikes come in bursts and are not independent.

use crate::by_cause::{CauseContrast, CauseRepeat, CauseTime, by_cause};
use crate::comparisons::contrasts;
use std::collections::BTreeMap;
use whylate_core::SeriesName;
use whylate_core::order::InOrder;
use whylate_core::plan::Plan;
use whylate_core::result::{CauseDifference, CellResult, LedgerRow, OTHERS, RepeatResult, Spike, late_time};

/// A rate that differs by less than this share of all late time is the same.
const SAME_MAX: f64 = 0.05;

/// One unit of one side: a repeat or a run.
#[derive(Clone, Debug, Default)]
pub struct CauseUnit {
    /// Units are compared only within a block.
    pub block: u32,
    /// Measured time of all CPUs together, in ns.
    pub measured_ns: u64,
    pub causes: BTreeMap<String, CauseTime>,
}

/// Where the late time of a series comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CauseBasis {
    /// All spikes above the plan's threshold.
    Ledger,
    /// The spikes that were kept, if there is no ledger.
    Spikes,
    /// All responses after the deadline, with the task's own work.
    LateResponses,
}

impl CauseUnit {
    /// Adds the late responses of a watched thread or chain; `add` counts the measured time.
    pub fn add_late_responses(&mut self, cell: &CellResult, series: &str) {
        let late = cell.probes.iter().flat_map(|probe| &probe.late_responses);
        let rows = late.filter(|it| it.probe == series).flat_map(|it| &it.causes);
        rows.for_each(|row| self.add_time(row.name(), time_of(row)));
    }

    /// Adds a repeat of a series.
    pub fn add(&mut self, cell: &CellResult, repeat: &RepeatResult, series: &str, basis: CauseBasis) {
        // The ledger has one account for all series of a probe, which measure at the same time.
        let is_part = |name: &str| {
            name.strip_prefix(series).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let own = repeat.probes.iter().filter(|it| is_part(&it.probe));
        self.measured_ns += own.map(|it| it.measured_ns).max().unwrap_or(0);
        if basis == CauseBasis::LateResponses {
            return;
        }
        if basis == CauseBasis::Ledger {
            let own = repeat.ledger.iter().filter(|row| row.probe == series);
            own.for_each(|row| self.add_time(row.name(), time_of(row)));
            return;
        }
        let is_own =
            |spike: &&Spike| spike.repeat == Some(repeat.repeat) && spike.probe.as_deref() == Some(series);
        for spike in cell.spikes.iter().filter(is_own) {
            for part in late_time([spike]) {
                self.add_time(part.name(), CauseTime { count: 1, sum_ns: part.ns, max_ns: part.ns as u64 });
            }
        }
    }

    fn add_time(&mut self, name: String, time: CauseTime) {
        let known = self.causes.entry(name).or_default();
        known.count += time.count;
        known.sum_ns += time.sum_ns;
        known.max_ns = known.max_ns.max(time.max_ns);
    }
}

fn time_of(row: &LedgerRow) -> CauseTime {
    CauseTime { count: row.spikes, sum_ns: row.total_ns as f64, max_ns: row.max_ns }
}

/// The causes of one series, changed ones first, corrected for that number of contrasts together. Empty if neither
/// side has late time.
pub fn cause_differences(
    side: &str,
    probe: &str,
    baseline: &[CauseUnit],
    units: &[CauseUnit],
    contrasts: usize,
) -> Vec<CauseDifference> {
    let repeats = |units: &[CauseUnit]| -> Vec<CauseRepeat<String>> { units.iter().map(repeat).collect() };
    let (before, now) = (repeats(baseline), repeats(units));
    let (all_before, all_now) = (total(&before), total(&now));
    if all_before + all_now <= 0.0 {
        return Vec::new();
    }
    let share = |rate: f64, all: f64| if all > 0.0 { rate / all } else { 0.0 };
    let row = |it: CauseContrast<String>| CauseDifference {
        side: side.to_owned(),
        baseline: None,
        probe: probe.to_owned(),
        cause: it.cause.unwrap_or_else(|| OTHERS.to_owned()),
        baseline_share: share(it.first.ns_per_s, all_before),
        share: share(it.second.ns_per_s, all_now),
        baseline_ns_per_s: it.first.ns_per_s,
        ns_per_s: it.second.ns_per_s,
        difference_low: it.difference.0,
        difference_high: it.difference.1,
        baseline_per_s: it.first.per_s,
        per_s: it.second.per_s,
        baseline_max_ns: it.first.max_ns,
        max_ns: it.second.max_ns,
        blocks_larger: it.larger_in.0 as u32,
        blocks: it.larger_in.1 as u32,
        more_repeats: it.more_repeats,
        p_value: it.p_value,
        change: it.change,
    };
    by_cause(&before, &now, SAME_MAX * all_before.max(all_now), contrasts).into_iter().map(row).collect()
}

/// The causes of the late time in cells that differ in one thing, from their ledgers. Only complete repeats count,
/// and only cells in which whylate looked for causes.
pub fn cause_contrasts(cells: &[CellResult], plan: &Plan) -> Vec<CauseDifference> {
    let looked = |at: usize| cells.get(at).filter(|cell| plan.looks_for_causes(&cell.name));
    let cells = |(baseline, cell): (usize, usize)| Some((looked(baseline)?, looked(cell)?));
    contrasted(&contrasts(plan).into_iter().filter_map(cells).collect::<Vec<_>>())
}

/// The causes of the late time in each pair (baseline, cell).
pub(crate) fn contrasted(cells: &[(&CellResult, &CellResult)]) -> Vec<CauseDifference> {
    let mut pairs = Vec::new();
    for &(baseline, cell) in cells {
        let mut series: Vec<&str> =
            [baseline, cell].iter().flat_map(|it| &it.ledger).map(|row| row.probe.as_str()).collect();
        series.retain(|series| SeriesName::of(series).facts().is_some_and(|facts| facts.has_ledger()));
        series.order();
        series.dedup();
        pairs.extend(series.into_iter().map(|series| (baseline, cell, series)));
    }
    let of_pair = |&(baseline, cell, series): &(&CellResult, &CellResult, &str)| {
        let found = cause_differences(
            &cell.name,
            series,
            &units_of(baseline, series),
            &units_of(cell, series),
            pairs.len(),
        );
        let named = |it| CauseDifference { baseline: Some(baseline.name.clone()), ..it };
        found.into_iter().map(named).collect::<Vec<_>>()
    };
    pairs.iter().flat_map(of_pair).collect()
}

fn units_of(cell: &CellResult, series: &str) -> Vec<CauseUnit> {
    let complete = cell.repeats.iter().filter(|repeat| repeat.error.is_none());
    let unit = |repeat: &RepeatResult| {
        let mut unit = CauseUnit { block: repeat.block, ..CauseUnit::default() };
        unit.add(cell, repeat, series, CauseBasis::Ledger);
        unit
    };
    complete.map(unit).collect()
}

fn repeat(unit: &CauseUnit) -> CauseRepeat<String> {
    CauseRepeat { block: unit.block, seconds: unit.measured_ns as f64 / 1e9, causes: unit.causes.clone() }
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
    use whylate_core::result::{Cause, CauseChange, CauseKind, RepeatProbe};

    fn spikes(actors: &[(&str, u64)]) -> Vec<Spike> {
        let spike = |actor: &str| Spike {
            cause: Cause { actor: Some(actor.to_owned()), share: Some(1.0), ..Cause::new(CauseKind::Thread) },
            ..Spike::unexplained(CpuId(0), 0, 1_000)
        };
        actors.iter().flat_map(|(actor, count)| (0..*count).map(|_| spike(actor))).collect()
    }

    fn units(runs: &[Vec<Spike>]) -> Vec<CauseUnit> {
        let unit = |spikes: &Vec<Spike>| {
            let named =
                |spike: &Spike| Spike { probe: Some("timer".to_owned()), repeat: Some(1), ..spike.clone() };
            let cell = CellResult { spikes: spikes.iter().map(named).collect(), ..CellResult::default() };
            let mut unit = CauseUnit { measured_ns: 1_000_000_000, ..CauseUnit::default() };
            unit.add(
                &cell,
                &RepeatResult { repeat: 1, ..RepeatResult::default() },
                "timer",
                CauseBasis::Spikes,
            );
            unit
        };
        runs.iter().map(unit).collect()
    }

    fn changes(before: &[Vec<Spike>], now: &[Vec<Spike>]) -> Vec<(String, CauseChange)> {
        let found = cause_differences("B", "timer", &units(before), &units(now), 1);
        found.into_iter().map(|it| (it.cause, it.change)).collect()
    }

    #[test]
    fn the_shares_of_all_rows_add_up() {
        let names: Vec<String> = (0..100).map(|nth| format!("culprit-{nth}")).collect();
        let actors: Vec<(&str, u64)> = names.iter().map(|name| (name.as_str(), 5)).collect();
        let mut all = spikes(&actors);
        all.iter_mut().take(50).for_each(|spike| spike.cause.share = Some(0.5));
        all[0].cause = Cause::new(CauseKind::Throttled);
        let all = [all];
        let found = cause_differences("B", "timer", &units(&all), &units(&all), 1);
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

    #[test]
    fn a_load_that_adds_a_cause_is_found_in_the_ledgers_under_noise_of_ten_times_its_size() {
        let row = |actor: &str, total_ns: u64| LedgerRow {
            probe: "timer".to_owned(),
            kind: Some(CauseKind::Thread),
            actor: Some(actor.to_owned()),
            spikes: 3,
            total_ns,
            max_ns: total_ns / 2,
            ..LedgerRow::default()
        };
        let repeat = |nth: u32, rows: Vec<LedgerRow>| RepeatResult {
            repeat: nth + 1,
            block: nth / 2,
            probes: vec![RepeatProbe {
                probe: "timer".to_owned(),
                measured_ns: 2_000_000_000,
                ..RepeatProbe::default()
            }],
            ledger: rows,
            ..RepeatResult::default()
        };
        let noise = |nth: u32| row("host", 3_000_000 + u64::from(nth * 7 % 5) * 2_000_000);
        let cell = |name: &str, added: bool| {
            let rows = |nth: u32| {
                let own = added.then(|| row("drawing", 300_000 + u64::from(nth) * 10_000));
                std::iter::once(noise(nth)).chain(own).collect()
            };
            let repeats: Vec<RepeatResult> = (0..8).map(|nth| repeat(nth, rows(nth))).collect();
            let ledger = repeats.iter().flat_map(|it| it.ledger.clone()).collect();
            CellResult { name: name.to_owned(), repeats, ledger, ..CellResult::default() }
        };
        let text = "name = \"x\"\ncauses = true\n[[probe]]\nkind = \"timer\"\n[[load]]\nname = \"draw\"\nkind = \"memory\"\nworking_set = \"1 MiB\"\n[[cell]]\n[[cell]]\nloads = [\"draw\"]";
        let plan = Plan::parse(&whylate_core::plan::Source { name: "x", text }, &[]).unwrap();
        let found = cause_contrasts(&[cell("idle", false), cell("draw", true)], &plan);
        assert_eq!(found[0].cause, "thread: drawing");
        assert_eq!((found[0].change, found[0].blocks_larger, found[0].blocks), (CauseChange::New, 4, 4));
        assert_eq!(
            (found[0].baseline.as_deref(), found[0].side.as_str(), found[0].max_ns),
            (Some("idle"), "draw", 185_000)
        );
        assert!(
            found[1..].iter().all(|it| matches!(it.change, CauseChange::Same | CauseChange::CannotTell)),
            "{found:?}"
        );
        let null = cause_contrasts(&[cell("idle", true), cell("draw", true)], &plan);
        assert!(
            null.iter().all(|it| matches!(it.change, CauseChange::Same | CauseChange::CannotTell)),
            "{null:?}"
        );
        let text = format!("{text}\ncauses = false");
        let plan = Plan::parse(&whylate_core::plan::Source { name: "x", text: &text }, &[]).unwrap();
        let found = cause_contrasts(&[cell("idle", true), cell("draw", false)], &plan);
        assert!(found.is_empty(), "causes were not looked for in one of them: {found:?}");
    }

    #[test]
    fn the_account_of_a_probe_with_several_series_covers_the_time_of_each() {
        let probe = |name: &str| RepeatProbe {
            probe: name.to_owned(),
            measured_ns: 2_000_000_000,
            ..RepeatProbe::default()
        };
        let repeat = RepeatResult {
            probes: vec![probe("dispatch/timerfd"), probe("dispatch/eventfd"), probe("dispatcher")],
            ..RepeatResult::default()
        };
        let mut unit = CauseUnit::default();
        unit.add(&CellResult::default(), &repeat, "dispatch", CauseBasis::Ledger);
        assert_eq!(unit.measured_ns, 2_000_000_000);
    }
}
