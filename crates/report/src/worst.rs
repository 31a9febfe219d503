//! One figure for a cell: that of its worst CPU.

use whylate_core::SeriesName;
use whylate_core::figure::count;
use whylate_core::plan::{Chain, Samples, Statistic};
use whylate_core::quantity::{CORRECTED, GAPS, LOST_NS, LOST_SHARE, OVERRUNS, THROTTLED};
use whylate_core::result::{
    CellResult, CpuResult, LateResponses, LateTime, ProbeResult, Quantiles, RunResult, Spike, late_time,
};

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

    /// Whether the quantiles are corrected for missed periods.
    pub(crate) fn is_corrected(&self) -> bool {
        let has_missed = |cpu: &CpuResult| cpu.get(OVERRUNS).is_some_and(|missed| missed > 0);
        self.cpus.iter().any(|cpu| cpu.get(CORRECTED).is_some() && has_missed(cpu))
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

/// The late time of a series in some cells by cause, and what it rests on.
pub(crate) struct LateBy {
    pub(crate) found: Vec<LateTime>,
    /// `all 42 late responses of audio`, `the 16 largest timer spikes`.
    pub(crate) basis: String,
    /// The number of spikes.
    pub(crate) spikes: u64,
}

/// From all late responses that were explained, if the series has a deadline; otherwise from the largest spikes.
pub(crate) fn late_by(cells: &[CellResult], series: &str) -> LateBy {
    let is_own = |late: &&LateResponses| late.probe == series;
    let probes = || cells.iter().flat_map(|cell| &cell.probes);
    let late: Vec<&LateResponses> = probes().flat_map(|probe| &probe.late_responses).filter(is_own).collect();
    let sum = |of: fn(&LateResponses) -> u64| late.iter().map(|it| of(it)).sum::<u64>();
    let (explained, all) = (sum(|it| it.explained), sum(|it| it.late));
    if explained > 0 {
        let basis = of_responses(&count(explained), (explained, all), "late ", series);
        return LateBy { found: LateResponses::late_time(late.iter().copied()), basis, spikes: explained };
    }
    let spikes: Vec<&Spike> = cells.iter().flat_map(|cell| spikes(cell, series)).collect();
    let number = spikes.len() as u64;
    let basis = if SeriesName::of(series).is_of_user() {
        let own = || {
            let is_own = |probe: &ProbeResult, cpu: &&CpuResult| {
                SeriesName::in_probe(&probe.probe, cpu.series.as_deref()).to_string() == series
            };
            probes().flat_map(move |probe| probe.cpus.iter().filter(move |cpu| is_own(probe, cpu)))
        };
        let missed: u64 = own().filter_map(|cpu| cpu.get(OVERRUNS)).sum();
        let samples = own().map(|cpu| cpu.samples).sum::<u64>().max(number);
        let (all, late) = if missed >= number.max(1) { (missed, "late ") } else { (samples, "") };
        of_responses(&format!("the {number} longest"), (number, all), late, series)
    } else if number == 1 {
        format!("the only {series} spike")
    } else {
        format!("the {number} largest {series} spikes")
    };
    LateBy { found: late_time(spikes.iter().copied()), basis, spikes: number }
}

/// `40 of 1,203 late responses of audio`; `some` names the part if it is not the whole.
fn of_responses(some: &str, (part, all): (u64, u64), late: &str, series: &str) -> String {
    let series = SeriesName::of(series).series.unwrap_or(series);
    let noun = |one: bool| match (Chain::of_series(series), one) {
        (Some(chain), true) => format!("{late}instance of chain `{chain}`"),
        (Some(chain), false) => format!("{late}instances of chain `{chain}`"),
        (None, true) => format!("{late}response of {series}"),
        (None, false) => format!("{late}responses of {series}"),
    };
    match (part >= all, all) {
        (true, 1) => format!("the only {}", noun(true)),
        (true, _) => format!("all {} {}", count(all), noun(false)),
        (false, _) => format!("{some} of {} {}", count(all), noun(false)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use whylate_core::CpuId;
    use whylate_core::quantity::Quantities;
    use whylate_core::result::{Cause, CauseKind, LateSum};

    #[test]
    fn causes_say_of_which_responses_they_are() {
        let spike = |actor: &str| {
            let cause =
                Cause { actor: Some(actor.to_owned()), share: Some(1.0), ..Cause::new(CauseKind::Thread) };
            let spike = Spike::unexplained(CpuId(1), 9, 900);
            Spike { probe: Some("task/audio".to_owned()), cause, ..spike }
        };
        let cpu = |missed: u64| {
            let quantities = Quantities::default().with(OVERRUNS, missed);
            CpuResult { series: Some("audio".to_owned()), samples: 9_000, quantities, ..CpuResult::default() }
        };
        let cell = |missed: u64, explained: u64| {
            let mut sum = LateSum::default();
            (0..explained).for_each(|_| sum.add(&spike("logger")));
            let late = LateResponses::new("task/audio".to_owned(), missed, sum);
            let late_responses = if explained > 0 { vec![late] } else { Vec::new() };
            let (cpus, probe) = (vec![cpu(missed)], "task".to_owned());
            let spikes = vec![spike("backup"); 2];
            let probes = vec![ProbeResult { probe, cpus, late_responses, ..ProbeResult::default() }];
            CellResult { spikes, probes, ..CellResult::default() }
        };
        let by = |missed, explained| {
            let by = late_by(&[cell(missed, explained)], "task/audio");
            (by.found[0].name(), by.basis)
        };
        let of = |who: &str, basis: &str| (format!("thread: {who}"), basis.to_owned());
        assert_eq!(by(1_203, 1_203), of("logger", "all 1,203 late responses of audio"));
        assert_eq!(by(1_203, 40), of("logger", "40 of 1,203 late responses of audio"));
        assert_eq!(by(1, 1), of("logger", "the only late response of audio"));
        assert_eq!(by(1_203, 0), of("backup", "the 2 longest of 1,203 late responses of audio"));
        assert_eq!(by(0, 0), of("backup", "the 2 longest of 9,000 responses of audio"));
    }

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
