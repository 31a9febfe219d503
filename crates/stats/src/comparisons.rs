//! Which cells are compared, by which statistics, and the result for each pair.
//!
//! The unit is the repeat. Samples within a repeat depend on each other, so tests over samples would find differences
//! that do not exist. A repeat gives one value per statistic, that of its worst CPU. One statistic decides, and its
//! comparisons are corrected together (Holm); all others are exploratory (Benjamini and Hochberg).

use crate::contrast::{Observation, Study, benjamini_hochberg, holm, median, study};
use std::collections::{BTreeMap, HashMap};
use whylate_core::SeriesName;
use whylate_core::order::InOrder;
use whylate_core::plan::{Plan, ProbeFacts, Samples, SeriesStatistic, Statistic};
use whylate_core::result::{CellResult, Comparison, Outcome, RepeatProbe, RunContrast};

/// A load that achieved less than this part of its baseline rate disturbs less: `better` is refused.
const RATE_KEPT_MIN: f64 = 0.9;

/// Pairs of cells (baseline, cell) that differ in one thing.
///
/// With `baseline` in the plan, all cells against that one. Otherwise each cell against those with one treatment
/// fewer and the same loads, and against those with one load fewer and the same treatments. If the plan has no such
/// cell, against the one without any loads or without any treatments. A cell with the same loads and treatments as an
/// earlier one is compared with that one.
pub fn contrasts(plan: &Plan) -> Vec<(usize, usize)> {
    let cells = &plan.cell;
    if let Some(baseline) = &plan.baseline {
        let position = cells.iter().position(|cell| cell.name() == *baseline);
        return position.map_or_else(Vec::new, |baseline| {
            (0..cells.len()).filter(|cell| *cell != baseline).map(|cell| (baseline, cell)).collect()
        });
    }
    // The first cell with these loads and treatments, in any order.
    let mut first: HashMap<[Vec<&str>; 2], usize> = HashMap::new();
    for (index, cell) in cells.iter().enumerate() {
        first.entry([sorted(&cell.loads), sorted(&cell.treatments)]).or_insert(index);
    }
    let mut pairs = Vec::new();
    for (index, cell) in cells.iter().enumerate() {
        let of = |loads: &[String], treatments: &[String]| {
            first.get(&[sorted(loads), sorted(treatments)]).copied()
        };
        let twin = of(&cell.loads, &cell.treatments).filter(|twin| *twin < index);
        pairs.extend(twin.map(|twin| (twin, index)));
        let fewer_treatments = baselines(&cell.treatments, |fewer| of(&cell.loads, fewer));
        let fewer_loads = baselines(&cell.loads, |fewer| of(fewer, &cell.treatments));
        pairs.extend(fewer_treatments.into_iter().chain(fewer_loads).map(|baseline| (baseline, index)));
    }
    pairs
}

/// Cells with one of `names` fewer; if there is none, the cell with none of them.
fn baselines(names: &[String], find: impl Fn(&[String]) -> Option<usize>) -> Vec<usize> {
    let without = |left_out: &String| -> Vec<String> {
        names.iter().filter(|name| *name != left_out).cloned().collect()
    };
    let mut found: Vec<usize> = names.iter().filter_map(|name| find(&without(name))).collect();
    if found.is_empty() && !names.is_empty() {
        found.extend(find(&[]));
    }
    found
}

fn sorted(names: &[String]) -> Vec<&str> {
    let mut names: Vec<&str> = names.iter().map(String::as_str).collect();
    names.order();
    names
}

/// A comparison that is not corrected yet.
struct Draft {
    comparison: Comparison,
    study: Study,
    margin: f64,
}

/// Compares the cells of a run by the rules of its plan.
///
/// Only complete repeats count (a shorter one has a smaller maximum). Cells that were skipped, and probes without
/// samples on either side, are left out.
pub fn comparisons(cells: &[CellResult], plan: &Plan) -> Vec<Comparison> {
    let primary = plan.primary_statistic();
    let mut drafts = Vec::new();
    for (baseline, cell) in contrasts(plan) {
        let (Some(baseline), Some(cell)) = (cells.get(baseline), cells.get(cell)) else { continue };
        let is_primary = |series: &str, statistic: Statistic| {
            primary.as_ref().is_some_and(|primary| primary.statistic == statistic && primary.is_of(series))
        };
        drafts.extend(drafts_of(baseline, cell, plan.margin.0, &is_primary));
    }
    let (mut primary, mut exploratory): (Vec<Draft>, Vec<Draft>) =
        drafts.into_iter().partition(|draft| draft.comparison.primary);
    correct(&mut primary, holm);
    correct(&mut exploratory, benjamini_hochberg);
    primary.into_iter().chain(exploratory).map(|draft| draft.comparison).collect()
}

/// One comparison on its own: two cells, one statistic.
pub(crate) fn comparison_between(
    baseline: &CellResult,
    cell: &CellResult,
    wanted: &SeriesStatistic,
    margin: f64,
) -> Option<Comparison> {
    let is_primary =
        |series: &str, statistic: Statistic| wanted.statistic == statistic && wanted.is_of(series);
    let mut drafts = drafts_of(baseline, cell, margin, &is_primary);
    drafts.retain(|draft| draft.comparison.primary);
    correct(&mut drafts, holm);
    drafts.into_iter().map(|draft| draft.comparison).next()
}

/// Every statistic of two cells of one run, whose repeats were interleaved; `names` stand for the cells.
pub fn contrasts_of_cells(
    (baseline_name, baseline): (&str, &CellResult),
    (name, cell): (&str, &CellResult),
    margin: f64,
    primary: Option<&SeriesStatistic>,
) -> Vec<RunContrast> {
    let is_primary = |series: &str, statistic: Statistic| {
        primary.is_some_and(|primary| primary.statistic == statistic && primary.is_of(series))
    };
    let drafts = drafts_of(baseline, cell, margin, &is_primary);
    let (mut primary, mut others): (Vec<Draft>, Vec<Draft>) =
        drafts.into_iter().partition(|draft| draft.comparison.primary);
    correct(&mut primary, holm);
    correct(&mut others, benjamini_hochberg);
    let values = |cell: &CellResult, comparison: &Comparison| -> Vec<f64> {
        let all = values_of(cell, &is_primary);
        let found = all.get(&(comparison.probe.as_str(), comparison.statistic));
        found.into_iter().flatten().map(|one| one.value).collect()
    };
    let contrast = |draft: Draft| {
        let comparison = draft.comparison;
        let values = [values(baseline, &comparison), values(cell, &comparison)];
        let comparison =
            Comparison { baseline: baseline_name.to_owned(), cell: name.to_owned(), ..comparison };
        RunContrast { of_cell: String::new(), comparison, values, above_histogram: [0, 0] }
    };
    primary.into_iter().chain(others).map(contrast).collect()
}

fn correct(drafts: &mut [Draft], correction: fn(&mut [f64])) {
    let contrasts = drafts.len();
    let mut p_values: Vec<f64> = drafts.iter().map(|draft| draft.study.p_value).collect();
    correction(&mut p_values);
    for (draft, p_value) in drafts.iter_mut().zip(p_values) {
        let Draft { comparison, study, margin } = draft;
        comparison.p_value = p_value;
        comparison.outcome = study.outcome(p_value, contrasts, *margin);
        if comparison.outcome == Outcome::Better && comparison.refused.is_some() {
            comparison.outcome = Outcome::CannotTell;
        } else {
            comparison.refused = None;
        }
        comparison.more_repeats = (comparison.outcome == Outcome::CannotTell && comparison.refused.is_none())
            .then(|| study.more_repeats(*margin))
            .flatten();
    }
}

fn drafts_of(
    baseline: &CellResult,
    cell: &CellResult,
    margin: f64,
    is_primary: &dyn Fn(&str, Statistic) -> bool,
) -> Vec<Draft> {
    if baseline.skipped.is_some() || cell.skipped.is_some() {
        return Vec::new();
    }
    let refused = less_load(baseline, cell);
    let cell_values = values_of(cell, is_primary);
    let mut drafts = Vec::new();
    for ((series, statistic), first) in values_of(baseline, is_primary) {
        let Some(second) = cell_values.get(&(series, statistic)) else { continue };
        let Some((study, is_log)) = studied(&first, second) else { continue };
        let ratio = |effect: f64| is_log.then(|| effect.exp());
        let in_ns = |value: f64| (statistic.unit() == "ns").then_some(value as u64);
        let comparison = Comparison {
            baseline: baseline.name.clone(),
            cell: cell.name.clone(),
            probe: series.to_owned(),
            statistic,
            primary: is_primary(series, statistic),
            baseline_ns: in_ns(median_of(&first)),
            cell_ns: in_ns(median_of(second)),
            baseline_value: median_of(&first),
            cell_value: median_of(second),
            unit: statistic.unit().to_owned(),
            ratio: ratio(study.effect),
            ratio_of: None,
            ratio_low: study.interval_95.0.and_then(ratio),
            ratio_high: study.interval_95.1.and_then(ratio),
            outcome: Outcome::CannotTell,
            p_value: 1.0,
            repeats: study.repeats as u32,
            more_repeats: None,
            refused: refused.clone(),
        };
        let comparison = comparison.explained();
        drafts.push(Draft { comparison, study, margin: if is_log { margin.ln_1p() } else { 0.0 } });
    }
    drafts
}

/// The study of two groups, and whether it uses logarithms: values of 0 have none.
fn studied(first: &[Observation], second: &[Observation]) -> Option<(Study, bool)> {
    let is_log = first.iter().chain(second).all(|one| one.value > 0.0);
    let scaled = |group: &[Observation]| -> Vec<Observation> {
        let value = |value: f64| if is_log { value.ln() } else { value };
        group.iter().map(|one| Observation { value: value(one.value), ..*one }).collect()
    };
    Some((study(&scaled(first), &scaled(second))?, is_log))
}

/// The load that did less in the cell than in the baseline, if any.
fn less_load(baseline: &CellResult, cell: &CellResult) -> Option<String> {
    cell.rates.iter().find_map(|rate| {
        let before = baseline.rates.iter().find(|before| before.load == rate.load)?;
        (rate.mean < before.mean * RATE_KEPT_MIN).then(|| {
            let less = (1.0 - rate.mean / before.mean) * 100.0;
            format!("the rate of load {} was {less:.0} % lower than in {}", rate.load, baseline.name)
        })
    })
}

/// The statistics by which a series is compared.
fn statistics(facts: &ProbeFacts) -> &'static [Statistic] {
    match facts.samples {
        Samples::Gap => &[Statistic::LostShare, Statistic::GapRate, Statistic::Max],
        Samples::Lateness => {
            &[Statistic::Median, Statistic::P99, Statistic::P999, Statistic::Max, Statistic::SpikeRate]
        }
        _ => &[Statistic::Median, Statistic::P99, Statistic::P999, Statistic::Max],
    }
}

/// The value of a repeat on one CPU: corrected for missed periods if those are known, and without the gaps that the
/// scheduler makes. A tracer that recorded no gap has a largest gap of 0.
fn value_of(probe: &RepeatProbe, facts: &ProbeFacts, statistic: Statistic) -> Option<f64> {
    let seconds = probe.measured_ns as f64 / 1e9;
    let of_scheduler = probe.throttled.filter(|_| seconds > 0.0);
    let quantiles = probe.corrected.as_ref().or(probe.quantiles.as_ref());
    let quantile = |of: fn(&whylate_core::result::Quantiles) -> u64| quantiles.map(|it| of(it) as f64);
    match statistic {
        Statistic::Median => quantile(|it| it.p50_ns),
        Statistic::P99 => quantile(|it| it.p99_ns),
        Statistic::P999 => quantile(|it| it.p999_ns),
        Statistic::P9999 => quantile(|it| it.p9999_ns),
        Statistic::Max => match of_scheduler {
            Some(throttled) => Some(throttled.other_max_ns as f64),
            None if facts.samples == Samples::Gap && probe.gaps_per_s == Some(0.0) && !facts.counts_turns => {
                Some(0.0)
            }
            None => quantile(|it| it.max_ns),
        },
        Statistic::LostShare => {
            let lost = of_scheduler.map_or(0.0, |it| it.lost_ns as f64 / 1e9 / seconds);
            probe.lost_share.map(|share| (share - lost).max(0.0))
        }
        Statistic::GapRate => {
            let gaps = of_scheduler.map_or(0.0, |it| it.gaps as f64 / seconds);
            probe.gaps_per_s.map(|rate| (rate - gaps).max(0.0))
        }
        Statistic::SpikeRate => probe.spikes_per_h,
        Statistic::TriggerRate => probe.triggers_per_h,
        Statistic::OwnP99 => probe.own.map(|it| it.p99_ns as f64),
        Statistic::OwnP999 => probe.own.map(|it| it.p999_ns as f64),
        Statistic::OwnMax => probe.own.map(|it| it.max_ns as f64),
    }
}

/// For each series and statistic the values of the complete repeats; each value is that of the worst CPU.
pub(crate) fn values_of<'c>(
    cell: &'c CellResult,
    is_primary: &dyn Fn(&str, Statistic) -> bool,
) -> BTreeMap<(&'c str, Statistic), Vec<Observation>> {
    let mut values: BTreeMap<(&'c str, Statistic), Vec<Observation>> = BTreeMap::new();
    for repeat in cell.repeats.iter().filter(|repeat| repeat.error.is_none()) {
        let mut worst: BTreeMap<(&str, Statistic), f64> = BTreeMap::new();
        for probe in &repeat.probes {
            let Some(facts) = SeriesName::of(&probe.probe).facts() else { continue };
            let usual = statistics(&facts);
            let is_wanted = |it: &Statistic| usual.contains(it) || is_primary(&probe.probe, *it);
            for statistic in Statistic::ALL.into_iter().filter(is_wanted) {
                let Some(value) = value_of(probe, &facts, statistic) else { continue };
                let entry = worst.entry((probe.probe.as_str(), statistic)).or_insert(value);
                *entry = entry.max(value);
            }
        }
        for (key, value) in worst {
            values.entry(key).or_default().push(Observation { block: repeat.block, value });
        }
    }
    values
}

/// The middle value, or the mean of the two middle ones; 0 for none.
fn median_of(observations: &[Observation]) -> f64 {
    let mut values: Vec<f64> = observations.iter().map(|one| one.value).collect();
    values.order_by(f64::total_cmp);
    median(&values).unwrap_or_default()
}

#[cfg(test)]
mod tests;
