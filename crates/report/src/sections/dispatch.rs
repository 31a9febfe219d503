//! Dispatch latency in its customary form: one line of extremes, then rows of 10 us with a bar of stars.
//!
//! Rows are sums of the histogram's buckets by their lower edges: a sample may be counted up to 1/128 of its length
//! too low. Empty rows are left out; no sample is.

use crate::section::{Block, Depth, Section};
use whylate_core::result::{CpuResult, MeasureResult, ProbeResult, RunResult};

/// Length of the bar of all samples.
const STARS: u64 = 50;

/// The rows: upper edges in microseconds; the last has none.
const ROWS: [Option<u64>; 12] = [
    Some(10),
    Some(20),
    Some(30),
    Some(40),
    Some(50),
    Some(60),
    Some(70),
    Some(80),
    Some(90),
    Some(100),
    Some(150),
    None,
];

/// The rows of every cell, source and CPU.
pub(super) fn of_run(run: &RunResult) -> Vec<Section> {
    let probes = run.cells.iter().flat_map(|cell| cell.probes.iter().map(move |probe| (cell, probe)));
    let all = section(probes.flat_map(|(cell, probe)| of_probe(probe, &format!("{}, ", cell.name))));
    all.into_iter().map(|section| section.depth(Depth::Detail)).collect()
}

pub(super) fn of_measure(measure: &MeasureResult) -> Vec<Section> {
    section(of_probe(&measure.probe, ""))
}

fn section(all: impl Iterator<Item = Vec<String>>) -> Vec<Section> {
    let section = Section::new("dispatch", "Dispatch latency, 10 us per row").depth(Depth::Folded);
    section.with_all(all.map(Block::Lines)).unless_empty()
}

/// The lines of each CPU of a dispatch probe; empty for another probe.
fn of_probe<'r>(probe: &'r ProbeResult, place: &str) -> impl Iterator<Item = Vec<String>> + use<'r> {
    let cpus = probe.cpus.iter().filter(|_| probe.facts().is_some_and(|facts| facts.in_rows));
    let place = place.to_owned();
    cpus.filter_map(move |cpu| lines(cpu, &place))
}

fn lines(cpu: &CpuResult, place: &str) -> Option<Vec<String>> {
    let figures = cpu.quantiles?;
    let us = |ns: f64| format!("{:.1}", ns / 1e3);
    let source = cpu.series.as_deref().map(|source| format!(", {source}")).unwrap_or_default();
    let mut lines = vec![format!(
        "dispatch latency ({place}CPU {}{source}, {} samples): {}, {}, {} us min/avg/max",
        cpu.cpu,
        cpu.samples,
        us(figures.min_ns as f64),
        us(figures.mean_ns),
        us(figures.max_ns as f64)
    )];
    let mut lower = 0;
    let counts = counts(&cpu.histogram);
    let all = counts.iter().sum::<u64>().max(1);
    for (upper, count) in ROWS.iter().zip(counts) {
        if count > 0 {
            let bar = "*".repeat((count.saturating_mul(STARS) / all).max(1) as usize);
            let upper = upper.map(|upper| upper.to_string()).unwrap_or_default();
            lines.push(format!("{lower:>5} .. {upper:>3} : {count:>9} {bar}"));
        }
        lower = upper.map_or(lower, |upper| upper + 1);
    }
    Some(lines)
}

/// Samples in each row.
fn counts(histogram: &[(u64, u64)]) -> [u64; ROWS.len()] {
    let mut counts = [0u64; ROWS.len()];
    for (edge, count) in histogram {
        let row = ROWS.iter().position(|upper| upper.is_none_or(|upper| *edge <= upper * 1_000));
        if let Some(sum) = row.and_then(|row| counts.get_mut(row)) {
            *sum = sum.saturating_add(*count);
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;
    use whylate_core::CpuId;
    use whylate_core::result::Quantiles;

    #[test]
    fn rows_of_ten_microseconds_and_two_wider_ones() {
        let cpu = CpuResult {
            cpu: CpuId(1),
            series: Some("timerfd".to_owned()),
            samples: 60_000,
            quantiles: Some(Quantiles {
                min_ns: 8_040,
                mean_ns: 12_000.4,
                max_ns: 987_654,
                ..Quantiles::default()
            }),
            histogram: vec![(8_032, 25_948), (15_000, 34_000), (99_840, 50), (105_000, 1), (987_136, 1)],
            ..CpuResult::default()
        };
        let probe = ProbeResult { probe: "dispatch".to_owned(), cpus: vec![cpu], ..ProbeResult::default() };
        let expected = [
            "dispatch latency (CPU 1, timerfd, 60000 samples): 8.0, 12.0, 987.7 us min/avg/max",
            "    0 ..  10 :     25948 *********************",
            "   11 ..  20 :     34000 ****************************",
            "   91 .. 100 :        50 *",
            "  101 .. 150 :         1 *",
            "  151 ..     :         1 *",
        ];
        assert_eq!(of_probe(&probe, "").collect::<Vec<_>>(), [expected]);
        let timer = ProbeResult { probe: "timer".to_owned(), ..probe };
        assert!(of_probe(&timer, "").next().is_none());
    }
}
