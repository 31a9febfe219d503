//! The largest spikes: a sentence for each probe, and a table.

use crate::charts::Clock;
use crate::section::{Block, Cell, Column, Depth, Row, Section, Table, sentences};
use crate::words::{cause, cause_and_share, counted, hwlat, probe_names};
use whylate_core::SeriesName;
use whylate_core::figure::{count, nanoseconds};
use whylate_core::order::InOrder;
use whylate_core::result::{CauseKind, CellResult, MeasureResult, ProbeResult, RunResult, Spike};

const SPIKES_MAX: usize = 20;
/// The most further rows, in a folded table.
const MORE_MAX: usize = 180;
/// The most other contributors of a spike that are named.
const ALSO_MAX: usize = 3;

pub(super) fn of_run(run: &RunResult) -> Vec<Section> {
    let all = spikes(run);
    let dropped = dropped_spikes(run.cells.iter().flat_map(|cell| &cell.probes));
    let lines = sentences(largest_spikes(run, &all).into_iter().chain(dropped));
    let left_out = all.len().saturating_sub(SPIKES_MAX + MORE_MAX);
    let note = match (all.len(), left_out) {
        (0, _) => "No spike exceeded the threshold.".to_owned(),
        (_, 0) => "The column `when` uses the time axis of the charts.".to_owned(),
        _ => {
            format!(
                "The column `when` uses the time axis of the charts. The run directory also has {}.",
                counted(left_out, "smaller spike")
            )
        }
    };
    let more = all.len().saturating_sub(SPIKES_MAX).min(MORE_MAX);
    let more = Section::new("", counted(more, "more spike")).depth(Depth::Folded);
    let more = more.with(table(run, &all, SPIKES_MAX, MORE_MAX));
    let largest = Section::new("largest", "Largest spikes").depth(Depth::Detail);
    let largest = largest.with(table(run, &all, 0, SPIKES_MAX)).with(Block::note(note)).with(more);
    Section::new("spikes", "Spikes").with(lines).unless_empty().into_iter().chain([largest]).collect()
}

pub(super) fn of_measure(measure: &MeasureResult) -> Vec<Section> {
    let largest = measure.probe.spikes.first().map(|spike| {
        format!(
            "largest spike: {} on CPU {}: {}{}",
            nanoseconds(spike.latency_ns),
            spike.shown_cpu(),
            cause(&spike.cause),
            next_step(measure, spike).unwrap_or_default()
        )
    });
    let dropped = dropped_spikes(std::iter::once(&measure.probe)).filter(|_| largest.is_some());
    Section::new("spikes", "").with(sentences(largest.into_iter().chain(dropped))).unless_empty()
}

/// How to find the cause of a spike that is not explained.
fn next_step(measure: &MeasureResult, spike: &Spike) -> Option<String> {
    let is_own = measure.tool.is_none() && spike.cause.kind == CauseKind::Unattributed;
    let half = nanoseconds((spike.latency_ns / 2).max(1_000)).replace(' ', "");
    is_own.then(|| match spike.cause.evidence.is_empty() {
        true if measure.facts.privileges.root => "; --causes names the cause of each spike".to_owned(),
        true => "; --causes, as root, names the cause of each spike".to_owned(),
        false => format!("; a trace shows more: whylate trace record --until {half} -D 10m -o trace.dat"),
    })
}

/// The anchor of the spike with that rank.
pub(crate) fn anchor(rank: usize) -> String {
    format!("spike-{}", rank + 1)
}

fn table(run: &RunResult, all: &[(&CellResult, &Spike)], skipped: usize, rows: usize) -> Table {
    let columns = vec![
        Column::number("latency"),
        Column::number("when"),
        Column::text("cell"),
        Column::text("probe"),
        Column::number("CPU"),
        Column::number("repeat"),
        Column::number("sample"),
        Column::text("cause").wraps(),
    ];
    let clock = Clock::of(run);
    let rows = all.iter().enumerate().skip(skipped).take(rows).map(|(rank, (cell, spike))| {
        let row = Row::of::<Cell>([
            nanoseconds(spike.latency_ns).into(),
            clock.text(spike.at_ns).into(),
            cell.name.as_str().into(),
            spike.probe.clone().into(),
            spike.shown_cpu().to_string().into(),
            spike.repeat.map(|repeat| repeat.to_string()).into(),
            count(spike.sample).into(),
            Cell { below: evidence(spike), ..cause_and_share(&spike.cause).into() },
        ]);
        Row { anchor: anchor(rank), ..row }
    });
    Table::new(columns, rows.collect())
}

/// The hwlat record, the evidence for the cause, the callers of its function, and the other contributors.
fn evidence(spike: &Spike) -> Vec<String> {
    let mut lines: Vec<String> = spike.hwlat.iter().map(hwlat).chain(spike.cause.evidence.clone()).collect();
    if !spike.cause.callers.is_empty() {
        lines.push(format!("called by {}", spike.cause.callers.join(" < ")));
    }
    if !spike.also.is_empty() {
        let also: Vec<String> = spike.also.iter().take(ALSO_MAX).map(cause_and_share).collect();
        lines.push(format!("also {}", also.join("; ")));
    }
    if let Some(event) = spike.event {
        lines.push(format!(
            "other CPUs had spikes at the same moment; those spikes have the number {event} too"
        ));
    }
    lines
}

/// All spikes of a run with their cells, largest first.
pub(crate) fn spikes(run: &RunResult) -> Vec<(&CellResult, &Spike)> {
    let mut spikes: Vec<(&CellResult, &Spike)> =
        run.cells.iter().flat_map(|cell| cell.spikes.iter().map(move |spike| (cell, spike))).collect();
    spikes.order_by_key(|(_, spike)| std::cmp::Reverse(spike.latency_ns));
    spikes
}

/// The largest spike of each probe in one line: `largest timer spike: 2.31 ms in above-l3 on CPU 1, repeat 3:
/// unattributed`.
fn largest_spikes(run: &RunResult, all: &[(&CellResult, &Spike)]) -> Vec<String> {
    let lines = probe_names(run).into_iter().filter_map(|probe| {
        let name = |spike: &Spike| spike.probe.as_deref().map(|name| SeriesName::of(name).probe.to_owned());
        let (cell, spike) = all.iter().find(|(_, spike)| name(spike).as_deref() == Some(probe))?;
        let probe = spike.probe.as_deref().unwrap_or(probe);
        let repeat = spike.repeat.map(|repeat| format!(", repeat {repeat}")).unwrap_or_default();
        Some(format!(
            "largest {probe} spike: {} in {} on CPU {}{repeat}: {}",
            nanoseconds(spike.latency_ns),
            cell.name,
            spike.shown_cpu(),
            // The table of the largest spikes has all evidence.
            if spike.cause.evidence.len() > 1 { cause_and_share(&spike.cause) } else { cause(&spike.cause) },
        ))
    });
    lines.collect()
}

/// Spike records that were lost because a buffer was full; `None` if there are none.
fn dropped_spikes<'a>(probes: impl Iterator<Item = &'a ProbeResult>) -> Option<String> {
    let dropped: u64 = probes.flat_map(|probe| &probe.cpus).map(|cpu| cpu.spikes_dropped).sum();
    (dropped > 0).then(|| {
        format!(
            "{} did not fit into the buffer; the latency figures still include these spikes",
            counted(count(dropped).as_str(), "spike record")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use whylate_core::CpuId;
    use whylate_core::result::HwlatSample;

    #[test]
    fn a_spike_of_hwlat_shows_what_the_tracer_recorded() {
        let (nmi_ns, nmi_count) = (Some(3_000), Some(2));
        let sample =
            HwlatSample { inner_ns: 41_000, outer_ns: 7_000, nmi_ns, nmi_count, ..HwlatSample::default() };
        let spike = Spike { hwlat: Some(sample), ..Spike::unexplained(CpuId(1), 9_000, 41_000) };
        assert_eq!(evidence(&spike), ["inner 41.0 us, outer 7.00 us, 3.00 us in 2 NMIs"]);
    }
}
