//! Heat maps for many CPUs: a line per CPU, its samples by latency, and its largest sample over time.
//!
//! A line is a text with one character per column: a blank is nothing, `0` to `z` are 36 steps of a logarithmic scale.

use crate::charts::{Chart, Clock, PanelKey, bin_edges, on_axis, panel_cpus};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use whylate_core::CpuId;
use whylate_core::result::{CellResult, CpuResult, RunResult};

/// Columns of a map over time.
const TIME_COLUMNS: usize = 160;
/// Bins of latency that share a column.
const BINS_PER_COLUMN: usize = 4;
const STEPS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";

/// CPU × latency of the cell with the largest sample, and CPU × time of all cells.
pub(crate) fn maps(run: &RunResult, key: PanelKey<'_>, clock: Clock) -> Vec<Chart> {
    let largest = |cell: &&CellResult| panel_cpus(cell, key).filter_map(CpuResult::judged_max_ns).max();
    let Some(worst) = run.cells.iter().max_by_key(largest) else { return Vec::new() };
    let by_latency = by_latency(&panel_cpus(worst, key).collect::<Vec<_>>());
    let over_time = over_time(run, key, clock);
    let chart = |(caption, hint, data): (String, &str, Option<Value>)| {
        let label = format!("{}: {caption}, one row per CPU", key.probe);
        Some(Chart { caption, hint: hint.to_owned(), label, is_wide: true, data: on_axis(run, data?) })
    };
    let by_latency = (
        format!("Number of samples by CPU and latency in cell {}", worst.name),
        "darker means more samples",
        by_latency,
    );
    let over_time = (
        "Largest sample of each CPU over time, for all cells of the plan".to_owned(),
        "darker means a larger maximum",
        over_time,
    );
    [by_latency, over_time].into_iter().filter_map(chart).collect()
}

fn by_latency(cpus: &[&CpuResult]) -> Option<Value> {
    let edges = || cpus.iter().flat_map(|cpu| &cpu.histogram).map(|(edge, _)| *edge);
    let bins = bin_edges(edges().min()?.max(1), edges().max()?.max(1));
    let edges: Vec<u64> = bins.into_iter().step_by(BINS_PER_COLUMN).collect();
    let column = |edge: u64| edges.partition_point(|bin| *bin <= edge).saturating_sub(1);
    let mut lines: BTreeMap<CpuId, Vec<u64>> = BTreeMap::new();
    for cpu in cpus {
        let line = lines.entry(cpu.cpu).or_insert_with(|| vec![0; edges.len()]);
        for (edge, count) in &cpu.histogram {
            line[column(*edge)] += count;
        }
    }
    Some(
        json!({ "kind": "heat", "edges": edges, "cpus": names(&lines), "lines": texts(&lines), "is_count": true,
        "scale": scale(&lines) }),
    )
}

fn over_time(run: &RunResult, key: PanelKey<'_>, clock: Clock) -> Option<Value> {
    let cpus = || run.cells.iter().flat_map(|cell| panel_cpus(cell, key));
    let end =
        cpus().flat_map(|cpu| &cpu.timeline).map(|point| clock.seconds(point.end_ns)).fold(0.0, f64::max);
    let mut lines: BTreeMap<CpuId, Vec<u64>> = BTreeMap::new();
    for cpu in cpus() {
        let line = lines.entry(cpu.cpu).or_insert_with(|| vec![0; TIME_COLUMNS]);
        for point in &cpu.timeline {
            let at = clock.seconds(point.start_ns) / end.max(1e-3) * TIME_COLUMNS as f64;
            let slot = &mut line[(at as usize).min(TIME_COLUMNS - 1)];
            *slot = point.max_ns.unwrap_or(0).max(*slot);
        }
    }
    (end > 0.0).then(|| {
        json!({ "kind": "heat", "seconds": end, "cpus": names(&lines), "lines": texts(&lines), "is_count": false,
            "scale": scale(&lines) })
    })
}

fn names(lines: &BTreeMap<CpuId, Vec<u64>>) -> Vec<u32> {
    lines.keys().map(|cpu| cpu.0).collect()
}

/// The values of the first and the last step.
fn scale(lines: &BTreeMap<CpuId, Vec<u64>>) -> (u64, u64) {
    let values = || lines.values().flatten().copied().filter(|value| *value > 0);
    (values().min().unwrap_or(1), values().max().unwrap_or(1))
}

fn texts(lines: &BTreeMap<CpuId, Vec<u64>>) -> Vec<String> {
    let (least, most) = scale(lines);
    let range = (most as f64 / least as f64).ln().max(1e-9);
    let step = |value: &u64| match value {
        0 => ' ',
        value => {
            let place = (*value as f64 / least as f64).ln() / range * (STEPS.len() - 1) as f64;
            char::from(STEPS[(place.round() as usize).min(STEPS.len() - 1)])
        }
    };
    lines.values().map(|line| line.iter().map(step).collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_outlier_is_seen_and_nothing_is_blank_that_has_a_sample() {
        let cpu = |cpu, histogram: &[(u64, u64)]| CpuResult {
            cpu: CpuId(cpu),
            histogram: histogram.to_vec(),
            ..CpuResult::default()
        };
        let one = cpu(0, &[(1_000, 1_000_000)]);
        let other = cpu(7, &[(1_000, 999_999), (5_000_000, 1)]);
        let map = by_latency(&[&one, &other]).unwrap();
        assert_eq!(map["cpus"], json!([0, 7]));
        let marks = |line: &Value| line.as_str().unwrap().chars().filter(|c| *c != ' ').collect::<String>();
        assert_eq!(marks(&map["lines"][0]), "z");
        assert_eq!(marks(&map["lines"][1]), "z0");
        assert_eq!(map["scale"], json!([1, 1_000_000]));
    }
}
