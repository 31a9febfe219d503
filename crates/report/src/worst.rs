//! One figure for a cell: that of its worst CPU.

use whylate_core::SeriesName;
use whylate_core::plan::{Samples, Statistic};
use whylate_core::quantity::{GAPS, LOST_NS, LOST_SHARE, THROTTLED};
use whylate_core::result::{CellResult, CpuResult, Quantiles, RunResult, Spike};

/// A series of a probe in one cell, over its CPUs.
pub(crate) struct CellSeries<'r> {
    pub(crate) cell: &'r CellResult,
    /// The series: `timer`, `roundtrip/futex`.
    pub(crate) name: String,
    pub(crate) cpus: Vec<&'r CpuResult>,
}

/// Every series of a run: probe by probe, cells in the plan's order.
pub(crate) fn series(run: &RunResult) -> Vec<(String, Vec<CellSeries<'_>>)> {
    let mut all: Vec<(String, Vec<CellSeries<'_>>)> = Vec::new();
    for cell in &run.cells {
        for probe in &cell.probes {
            for cpu in &probe.cpus {
                let name = SeriesName::in_probe(&probe.probe, cpu.series.as_deref()).to_string();
                let at = all.iter().position(|(known, _)| *known == name).unwrap_or_else(|| {
                    all.push((name.clone(), Vec::new()));
                    all.len() - 1
                });
                let of_cells = &mut all[at].1;
                if of_cells.last().is_none_or(|last| last.cell.name != cell.name) {
                    of_cells.push(CellSeries { cell, name, cpus: Vec::new() });
                }
                if let Some(last) = of_cells.last_mut() {
                    last.cpus.push(cpu);
                }
            }
        }
    }
    all
}

/// The middle of the repeats of a cell, of which the ratios are made; `None` where nothing is compared with it.
pub(crate) fn middle(run: &RunResult, cell: &CellSeries<'_>, statistic: Statistic) -> Option<f64> {
    let mut of_series =
        run.comparisons.iter().filter(|it| it.probe == cell.name && it.statistic == statistic);
    of_series.find_map(|it| match &cell.cell.name {
        name if *name == it.cell => Some(it.cell_value),
        name if *name == it.baseline => Some(it.baseline_value),
        _ => None,
    })
}

impl<'r> CellSeries<'r> {
    pub(crate) fn samples(&self) -> Option<Samples> {
        SeriesName::of(&self.name).facts().map(|facts| facts.samples)
    }

    /// The CPU with the largest sample.
    pub(crate) fn worst(&self) -> Option<&'r CpuResult> {
        self.cpus.iter().copied().max_by_key(|cpu| cpu.judged_max_ns())
    }

    pub(crate) fn max_ns(&self) -> Option<u64> {
        self.cpus.iter().filter_map(|cpu| cpu.judged_max_ns()).max()
    }

    /// The largest value of a quantile.
    pub(crate) fn quantile(&self, of: fn(&Quantiles) -> u64) -> Option<u64> {
        self.cpus.iter().filter_map(|cpu| cpu.judged_quantiles().map(of)).max()
    }

    /// The largest share of the time that gaps took, without those of the scheduler.
    pub(crate) fn lost_share(&self) -> Option<f64> {
        self.cpus.iter().filter_map(|cpu| gaps(cpu).1).max_by(f64::total_cmp)
    }
}

/// The same over all probes and CPUs of a cell.
pub(crate) fn largest_in_ns(cell: &CellResult) -> Option<u64> {
    cell.probes.iter().flat_map(|probe| &probe.cpus).filter_map(CpuResult::judged_max_ns).max()
}

/// Gaps, and their share of the time, without those that the scheduler makes.
pub(crate) fn gaps(cpu: &CpuResult) -> (Option<u64>, Option<f64>) {
    let Some(throttled) = cpu.get(THROTTLED) else { return (cpu.get(GAPS), cpu.get(LOST_SHARE)) };
    let kept = 1.0 - throttled.lost_ns as f64 / cpu.get(LOST_NS).unwrap_or(0).max(1) as f64;
    (
        cpu.get(GAPS).map(|all| all.saturating_sub(throttled.gaps)),
        cpu.get(LOST_SHARE).map(|share| share * kept.max(0.0)),
    )
}

/// The largest spikes of a series in a cell: from the cell's list, or, if longer ones of other series fill that list,
/// its own.
pub(crate) fn spikes<'c>(cell: &'c CellResult, series: &str) -> Vec<&'c Spike> {
    let of_series = |spike: &&'c Spike| spike.probe.as_deref() == Some(series);
    let among_all: Vec<&Spike> = cell.spikes.iter().filter(of_series).collect();
    if among_all.is_empty() {
        return cell.probes.iter().flat_map(|probe| &probe.spikes).filter(of_series).collect();
    }
    among_all
}

#[cfg(test)]
mod tests {
    use super::*;
    use whylate_core::CpuId;
    use whylate_core::result::ProbeResult;

    #[test]
    fn a_series_has_its_own_spikes_where_others_are_longer() {
        let spike = |thread: &str, latency_ns| Spike {
            probe: Some(format!("task/{thread}")),
            ..Spike::unexplained(CpuId(1), 9, latency_ns)
        };
        let probe = ProbeResult {
            spikes: vec![spike("logger", 900), spike("logger", 800), spike("audio", 70), spike("audio", 60)],
            ..ProbeResult::default()
        };
        let all = vec![spike("logger", 900), spike("logger", 800)];
        let cell = CellResult { spikes: all, probes: vec![probe], ..CellResult::default() };
        let of =
            |series: &str| -> Vec<u64> { spikes(&cell, series).iter().map(|it| it.latency_ns).collect() };
        assert_eq!(of("task/audio"), [70, 60]);
        assert_eq!(of("task/logger"), [900, 800]);
        assert_eq!(of("task/unknown"), [0_u64; 0]);
    }
}
