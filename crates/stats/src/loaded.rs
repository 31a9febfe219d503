//! Latency over the rate of a load: which cells are points of one curve, and their figures.

use crate::comparisons::values_of;
use crate::contrast::{Observation, median};
use std::collections::{BTreeMap, BTreeSet};
use whylate_core::order::InOrder;
use whylate_core::plan::{Plan, Statistic};
use whylate_core::quantity::ACCESSES;
use whylate_core::result::{CellResult, LoadedLatency, LoadedPoint, RateResult};

/// Cells that differ only in the rate of one load, and what they have in common.
struct Family<'r> {
    load: &'r str,
    kind: serde_json::Value,
    others: Vec<&'r str>,
    treatments: Vec<&'r str>,
    /// Each with the name that the load has in it; `None` in the cell without the load.
    cells: Vec<(&'r CellResult, Option<&'r str>)>,
}

/// A cell of a family, at its place on the axis.
struct Member<'r> {
    cell: &'r CellResult,
    rate: f64,
    values: BTreeMap<(&'r str, Statistic), Vec<Observation>>,
}

/// The curves of a run: one for each load that cells have at several rates, and each series.
pub fn loaded_latency(plan: &Plan, cells: &[CellResult]) -> Vec<LoadedLatency> {
    let cells: Vec<&CellResult> = cells.iter().filter(|cell| cell.skipped.is_none()).collect();
    let mut families: Vec<Family<'_>> = Vec::new();
    for cell in &cells {
        for load in &cell.loads {
            add(&mut families, plan, cell, load);
        }
    }
    families.retain(|family| family.cells.len() > 1);
    for family in &mut families {
        let without = cells.iter().find(|cell| {
            sorted(&cell.loads, None) == family.others && sorted(&cell.treatments, None) == family.treatments
        });
        family.cells.extend(without.map(|cell| (*cell, None)));
    }
    families.iter().flat_map(curves).collect()
}

fn sorted<'r>(names: &'r [String], left_out: Option<&str>) -> Vec<&'r str> {
    let mut names: Vec<&str> = names.iter().map(String::as_str).filter(|it| Some(*it) != left_out).collect();
    names.order();
    names
}

fn add<'r>(families: &mut Vec<Family<'r>>, plan: &Plan, cell: &'r CellResult, load: &'r str) {
    let Some(kind) = plan.load(load).and_then(|load| load.kind.without_rate()) else { return };
    let (others, treatments) = (sorted(&cell.loads, Some(load)), sorted(&cell.treatments, None));
    let is_same =
        |it: &&mut Family<'_>| (&it.kind, &it.others, &it.treatments) == (&kind, &others, &treatments);
    match families.iter_mut().find(is_same) {
        Some(family) => family.cells.push((cell, Some(load))),
        None => families.push(Family { load, kind, others, treatments, cells: vec![(cell, Some(load))] }),
    }
}

/// The rate of the load in a cell of its family.
fn rate<'r>((cell, load): &(&'r CellResult, Option<&str>)) -> Option<&'r RateResult> {
    let load = (*load)?;
    cell.rates.iter().find(|rate| rate.load == load)
}

fn curves<'r>(family: &Family<'r>) -> Vec<LoadedLatency> {
    let Some(unit) = family.cells.iter().find_map(rate).map(|rate| rate.unit.clone()) else {
        return Vec::new();
    };
    let member = |member: &(&'r CellResult, Option<&str>)| {
        // A cell without a measured rate has no place on the axis.
        let rate = if member.1.is_some() { rate(member)?.mean } else { 0.0 };
        Some(Member { cell: member.0, rate, values: values_of(member.0, &|_, _| false) })
    };
    let members: Vec<Member<'_>> = family.cells.iter().filter_map(member).collect();
    let names: BTreeSet<&str> =
        members.iter().flat_map(|member| member.values.keys().map(|(series, _)| *series)).collect();
    let curve = |probe: &str| {
        let mut points: Vec<LoadedPoint> = members.iter().filter_map(|it| point(it, probe)).collect();
        points.order_by(|one, next| one.rate.total_cmp(&next.rate));
        let (load, probe, unit) = (family.load.to_owned(), probe.to_owned(), unit.clone());
        (points.len() > 1).then_some(LoadedLatency { load, probe, unit, points })
    };
    names.into_iter().filter_map(curve).collect()
}

fn point(member: &Member<'_>, probe: &str) -> Option<LoadedPoint> {
    let Member { cell, rate, values: all } = member;
    let values = |statistic| {
        let mut values: Vec<f64> = all.get(&(probe, statistic))?.iter().map(|one| one.value).collect();
        values.order_by(f64::total_cmp);
        Some(values)
    };
    let medians = values(Statistic::Median)?;
    let p50 = median(&medians)?;
    let accesses = cell
        .probes
        .iter()
        .flat_map(|probe| &probe.cpus)
        .find_map(|cpu| cpu.get(ACCESSES))
        .filter(|accesses| probe.starts_with("access") && *accesses > 0);
    Some(LoadedPoint {
        cell: cell.name.clone(),
        rate: *rate,
        p50_ns: p50 as u64,
        p50_low_ns: *medians.first()? as u64,
        p50_high_ns: *medians.last()? as u64,
        p99_ns: median(&values(Statistic::P99)?)? as u64,
        access_ns: accesses.map(|accesses| p50 / accesses as f64),
        repeats: medians.len() as u32,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use whylate_core::CpuId;
    use whylate_core::plan::Source;
    use whylate_core::result::{Quantiles, RepeatProbe, RepeatResult};

    const PLAN: &str = r#"
name = "curve"
[target]
cpus = "1"
[[probe]]
kind = "access"
[[load]]
name = "slow"
kind = "copy"
cpus = "0"
rate = "1GB/s"
[[load]]
name = "fast"
kind = "copy"
cpus = "0"
[[load]]
name = "other"
kind = "copy"
cpus = "0"
method = "sse2-nt"
[[cell]]
[[cell]]
loads = ["slow"]
[[cell]]
loads = ["fast"]
[[cell]]
loads = ["other"]
"#;

    fn cell(name: &str, rate: f64, medians: &[u64]) -> CellResult {
        let loads = if name == "idle" { Vec::new() } else { vec![name.to_owned()] };
        let repeat = |(index, p50_ns): (usize, &u64)| RepeatResult {
            repeat: index as u32 + 1,
            probes: vec![RepeatProbe {
                probe: "access/first".to_owned(),
                cpu: CpuId(1),
                samples: 100,
                quantiles: Some(Quantiles { p50_ns: *p50_ns, p99_ns: p50_ns * 2, ..Quantiles::default() }),
                ..RepeatProbe::default()
            }],
            ..RepeatResult::default()
        };
        let achieved = RateResult {
            load: name.to_owned(),
            mean: rate,
            unit: "bytes_per_s".to_owned(),
            ..RateResult::default()
        };
        CellResult {
            name: name.to_owned(),
            rates: loads.iter().map(|_| achieved.clone()).collect(),
            loads,
            repeats: medians.iter().enumerate().map(repeat).collect(),
            ..CellResult::default()
        }
    }

    fn curves_of(cells: &[CellResult]) -> Vec<LoadedLatency> {
        let plan = Plan::parse(&Source { name: "curve", text: PLAN }, &[]).unwrap();
        loaded_latency(&plan, cells)
    }

    #[test]
    fn cells_that_differ_in_the_rate_alone_are_one_curve_from_no_load_on() {
        let cells = [
            cell("fast", 9e9, &[300, 500, 400]),
            cell("idle", 0.0, &[100, 90, 120]),
            cell("other", 5e9, &[999, 999, 999]),
            cell("slow", 1e9, &[200, 210, 190]),
        ];
        let curves = curves_of(&cells);
        assert_eq!(curves.len(), 1, "another method is another load: {curves:?}");
        let curve = &curves[0];
        assert_eq!((curve.probe.as_str(), curve.unit.as_str()), ("access/first", "bytes_per_s"));
        let shown: Vec<_> =
            curve.points.iter().map(|it| (it.cell.as_str(), it.rate, it.p50_ns, it.p99_ns)).collect();
        assert_eq!(shown, [("idle", 0.0, 100, 200), ("slow", 1e9, 200, 400), ("fast", 9e9, 400, 800)]);
        let last = &curve.points[2];
        assert_eq!((last.p50_low_ns, last.p50_high_ns, last.repeats), (300, 500, 3));
    }

    #[test]
    fn one_rate_makes_no_curve_and_a_skipped_cell_no_point() {
        let skipped = CellResult { skipped: Some("no".to_owned()), ..cell("fast", 9e9, &[300]) };
        assert!(curves_of(&[cell("idle", 0.0, &[100]), cell("slow", 1e9, &[200]), skipped]).is_empty());
    }
}
