//! The table of a result: one line per cell, probe and CPU, as text, the same for every format.

use crate::figure::{count, nanoseconds, nanoseconds_f64, rate, share};
use whylate_core::plan::Samples;
use whylate_core::result::{CellResult, CpuResult, ProbeResult, Quantiles, RateResult, RunResult};
use whylate_core::{CpuId, CpuSet, Nanos, SeriesName};

/// A column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Field {
    Cell,
    /// The method of a round trip, what interrupts in a dispatch, or a part of either.
    Series,
    Cpu,
    Samples,
    Min,
    Mean,
    Median,
    P99,
    P999,
    P9999,
    Max,
    /// Median in ticks of the time-stamp counter.
    Cycles,
    /// Missed periods of `timer`, gaps of `stall`.
    Missed,
    /// Share of the time that went into gaps.
    Lost,
    LoadRate,
    Steal,
    Interrupts,
}

impl Field {
    /// From left to right.
    pub(crate) const ALL: [Self; 17] = [
        Self::Cell,
        Self::Series,
        Self::Cpu,
        Self::Samples,
        Self::Min,
        Self::Mean,
        Self::Median,
        Self::P99,
        Self::P999,
        Self::P9999,
        Self::Max,
        Self::Cycles,
        Self::Missed,
        Self::Lost,
        Self::LoadRate,
        Self::Steal,
        Self::Interrupts,
    ];

    fn title(self, probe: &str) -> &'static str {
        let facts = SeriesName::of(probe).facts();
        match self {
            Self::Cell => "cell",
            Self::Series => facts.map_or("source", |facts| facts.series_title),
            Self::Cpu => "CPU",
            Self::Samples => "samples",
            Self::Min => "min",
            Self::Mean => "mean",
            Self::Median => "median",
            Self::P99 => "p99",
            Self::P999 => "p99.9",
            Self::P9999 => "p99.99",
            Self::Max => "max",
            Self::Cycles => "median cycles",
            Self::Missed if facts.is_some_and(|facts| facts.samples == Samples::Gap) => "gaps",
            Self::Missed => "missed",
            Self::Lost => "lost",
            Self::LoadRate => "load rate",
            Self::Steal => "steal",
            Self::Interrupts => "interrupts",
        }
    }

    /// Where there is no room for every column, those with the smallest number go first; 9 never goes.
    pub(crate) fn importance(self) -> u8 {
        match self {
            Self::Cell | Self::Series | Self::Cpu | Self::Max | Self::P99 | Self::Median => 9,
            Self::P999 | Self::Cycles => 8,
            Self::Missed => 7,
            Self::Samples => 6,
            Self::Min => 5,
            Self::LoadRate => 4,
            Self::Steal => 3,
            Self::Interrupts => 2,
            Self::Lost => 1,
            Self::Mean | Self::P9999 => 0,
        }
    }

    /// Columns that say something of the whole cell, not of one probe.
    pub(crate) fn of_whole_cell(self) -> bool {
        matches!(self, Self::Steal | Self::Interrupts)
    }
}

/// What the figures of a line are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LineKind {
    /// As recorded.
    Recorded,
    /// Coordinated omission undone.
    Corrected,
    /// A part of the samples of the line before.
    Part,
}

/// One line.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) kind: LineKind,
    /// As [`Field::ALL`]; `None` where there is no figure.
    pub(crate) cells: Vec<Option<String>>,
    /// Whether the largest latency is above the plan's limit.
    pub(crate) over_limit: bool,
}

/// The lines of one probe.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub(crate) probe: String,
    /// What the first column holds.
    first_title: &'static str,
    pub(crate) lines: Vec<Line>,
}

impl Group {
    /// Whether some figures are corrected for coordinated omission.
    pub(crate) fn has_corrected(&self) -> bool {
        self.lines.iter().any(|line| line.kind == LineKind::Corrected)
    }

    /// What stands above the column.
    pub(crate) fn title(&self, field: Field) -> &'static str {
        match field {
            Field::Cell => self.first_title,
            field => field.title(&self.probe),
        }
    }

    /// Whether the column holds anything.
    pub(crate) fn uses(&self, field: Field) -> bool {
        self.lines.iter().any(|line| line.cells.get(field as usize).is_some_and(Option::is_some))
    }
}

/// The columns that hold anything in any of the groups.
pub(crate) fn used_fields(groups: &[Group]) -> Vec<Field> {
    Field::ALL.into_iter().filter(|field| groups.iter().any(|group| group.uses(*field))).collect()
}

/// Names of the probes of a run, in the order in which they appear.
pub(crate) fn probe_names(run: &RunResult) -> Vec<&str> {
    let mut names = Vec::new();
    for probe in run.cells.iter().flat_map(|cell| &cell.probes) {
        if !names.contains(&probe.probe.as_str()) {
            names.push(&probe.probe);
        }
    }
    names
}

/// The series of a probe, in the order in which they appear; `None` where it has but one.
pub(crate) fn series_names<'r>(run: &'r RunResult, probe: &str) -> Vec<Option<&'r str>> {
    let mut names = Vec::new();
    for cpu in run.cells.iter().filter_map(|cell| cell_probe(cell, probe)).flat_map(|probe| &probe.cpus) {
        if !names.contains(&cpu.series.as_deref()) {
            names.push(cpu.series.as_deref());
        }
    }
    names
}

/// The CPUs that were measured.
pub(crate) fn measured_cpus(run: &RunResult) -> CpuSet {
    let probes = run.cells.iter().flat_map(|cell| &cell.probes);
    probes.flat_map(|probe| &probe.cpus).map(|cpu| cpu.cpu).collect()
}

/// What this probe measured in this cell.
pub(crate) fn cell_probe<'a>(cell: &'a CellResult, probe: &str) -> Option<&'a ProbeResult> {
    cell.probes.iter().find(|result| result.probe == probe)
}

/// The table of a run, one group per probe, cells in the plan's order.
pub(crate) fn run_groups(run: &RunResult) -> Vec<Group> {
    let groups = probe_names(run).into_iter().map(|probe| {
        let mut lines = Vec::new();
        for cell in &run.cells {
            let Some(result) = cell_probe(cell, probe) else { continue };
            for cpu in &result.cpus {
                push_lines(&mut lines, Some(cell), &result.rates, cpu, run.plan.limit);
            }
        }
        Group { probe: probe.to_owned(), first_title: "cell", lines }
    });
    groups.collect()
}

/// The table of one measurement: one line per CPU; the first column is used only where there are corrected figures.
pub(crate) fn measure_group(probe: &ProbeResult) -> Group {
    let mut lines = Vec::new();
    for cpu in &probe.cpus {
        push_lines(&mut lines, None, &[], cpu, None);
    }
    let mut group = Group { probe: probe.probe.clone(), first_title: "figures", lines };
    if group.has_corrected() {
        let recorded = group.lines.iter_mut().filter(|line| line.kind == LineKind::Recorded);
        for first in recorded.filter_map(|line| line.cells.first_mut()) {
            *first = Some("recorded".to_owned());
        }
    }
    group
}

fn push_lines(
    lines: &mut Vec<Line>,
    cell: Option<&CellResult>,
    rates: &[RateResult],
    cpu: &CpuResult,
    limit: Option<Nanos>,
) {
    let above = |figures: Option<&Quantiles>| match (figures, limit) {
        (Some(figures), Some(limit)) => figures.max_ns > limit.0,
        _ => false,
    };
    let recorded = Field::ALL.map(|field| recorded_text(field, cell, rates, cpu));
    lines.push(Line {
        kind: LineKind::Recorded,
        cells: recorded.to_vec(),
        over_limit: above(cpu.quantiles.as_ref()),
    });
    // Without missed periods the corrected figures are the recorded ones.
    let Some(corrected) = cpu.corrected.as_ref().filter(|_| cpu.overruns.is_some_and(|missed| missed > 0))
    else {
        return push_parts(lines, cpu);
    };
    let cells = Field::ALL.map(|field| match field {
        Field::Cell => Some("  corrected".to_owned()),
        _ => quantile_text(field, corrected),
    });
    lines.push(Line { kind: LineKind::Corrected, cells: cells.to_vec(), over_limit: above(Some(corrected)) });
    push_parts(lines, cpu);
}

fn push_parts(lines: &mut Vec<Line>, cpu: &CpuResult) {
    for part in &cpu.parts {
        let cells = Field::ALL.map(|field| match field {
            Field::Series => Some(format!("  {}", part.part)),
            Field::Samples => Some(count(part.samples)),
            _ => part.quantiles.as_ref().and_then(|figures| quantile_text(field, figures)),
        });
        lines.push(Line { kind: LineKind::Part, cells: cells.to_vec(), over_limit: false });
    }
}

fn quantile_text(field: Field, figures: &Quantiles) -> Option<String> {
    match field {
        Field::Min => Some(nanoseconds(figures.min_ns)),
        Field::Mean => Some(nanoseconds_f64(figures.mean_ns)),
        Field::Median => Some(nanoseconds(figures.p50_ns)),
        Field::P99 => Some(nanoseconds(figures.p99_ns)),
        Field::P999 => Some(nanoseconds(figures.p999_ns)),
        Field::P9999 => Some(nanoseconds(figures.p9999_ns)),
        Field::Max => Some(nanoseconds(figures.max_ns)),
        _ => None,
    }
}

fn recorded_text(
    field: Field,
    cell: Option<&CellResult>,
    rates: &[RateResult],
    cpu: &CpuResult,
) -> Option<String> {
    match field {
        Field::Cell => cell.map(|cell| cell.name.clone()),
        Field::Series => cpu.series.clone(),
        Field::Cpu => Some(match cpu.peer_cpu {
            Some(peer) => format!("{}->{peer}", cpu.cpu),
            None => cpu.cpu.to_string(),
        }),
        Field::Cycles => cpu.cycles.map(|cycles| count(cycles.p50)),
        Field::Samples => Some(count(cpu.samples)),
        Field::Missed => cpu.overruns.or(cpu.gaps).map(count),
        Field::Lost => cpu.lost_share.map(share),
        Field::LoadRate => load_rates(rates),
        Field::Steal => cell.and_then(|cell| cell.steal_ns).map(nanoseconds),
        Field::Interrupts => cell.and_then(|cell| hard_interrupts(cell, cpu.cpu)).map(count),
        _ => cpu.quantiles.as_ref().and_then(|figures| quantile_text(field, figures)),
    }
}

/// What every load of the cell achieved while the probe ran; `None` without a load that has a rate.
fn load_rates(rates: &[RateResult]) -> Option<String> {
    let rates: Vec<String> = rates.iter().map(|load| rate(load.mean, &load.unit)).collect();
    (!rates.is_empty()).then(|| rates.join(" + "))
}

/// Whether the record counts a softirq vector, which runs inside or after an interrupt that is counted already.
pub(crate) fn is_softirq(line: &str) -> bool {
    line.starts_with("softirq:")
}

/// Interrupts that one CPU handled in the cell, softirqs left out; `None` where none was counted.
fn hard_interrupts(cell: &CellResult, cpu: CpuId) -> Option<u64> {
    let mut counts = cell.interrupts.iter().filter(|record| record.cpu == cpu && !is_softirq(&record.line));
    let first = counts.next()?.count;
    Some(counts.fold(first, |sum, record| sum.saturating_add(record.count)))
}
