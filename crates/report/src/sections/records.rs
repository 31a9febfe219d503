//! The late tasks of the largest latencies in the kernel's histograms.

use crate::section::{Section, sentences};
use whylate_core::CpuSet;
use whylate_core::figure::{nanoseconds, scheduled};
use whylate_core::quantity::MAX_RECORD;
use whylate_core::result::{CellResult, HistogramKind, LatencyRecord, ProbeResult, RunResult};

/// The latest task for each cell and CPU with the probe `histograms`.
pub(super) fn of_run(run: &RunResult) -> Vec<Section> {
    let section = Section::new("late", "Largest latencies that the kernel recorded");
    let section = section.meaning("who was late, in which system call, and who ran before");
    section.with(sentences(run.cells.iter().flat_map(of_cell))).unless_empty()
}

fn of_cell(cell: &CellResult) -> Vec<String> {
    let keeps_largest = |probe: &&ProbeResult| probe.facts().is_some_and(|facts| facts.keeps_largest);
    let Some(probe) = cell.probes.iter().find(keeps_largest) else { return Vec::new() };
    let cpus: CpuSet = probe.cpus.iter().map(|cpu| cpu.cpu).collect();
    let largest = cpus.iter().filter_map(|cpu| {
        let records = probe.cpus.iter().filter(|one| one.cpu == cpu).filter_map(|one| {
            Some((HistogramKind::from_name(one.series.as_deref()?)?, one.quantities.of(MAX_RECORD)))
        });
        let (kind, latency) = largest(records)?;
        Some(format!("{} on CPU {cpu}, {kind}: {}", cell.name, record(latency)))
    });
    largest.collect()
}

/// `37.0 us (timer 1.0 us, wake-up 36.0 us): cyclictest (1234, priority 99) in clock_nanosleep <- swapper/0 (0, …) at …`.
pub(crate) fn record(record: &LatencyRecord) -> String {
    let parts =
        [("timer", record.timer_offset_ns), ("wake-up", record.wakeup_ns), ("switch", record.switch_ns)];
    let parts: Vec<String> =
        parts.iter().filter_map(|(name, part)| Some(format!("{name} {}", nanoseconds((*part)?)))).collect();
    let syscall = record.syscall.as_ref().map(|name| format!(" in {}", name)).unwrap_or_default();
    format!(
        "{} ({}): {} ({}, {}){syscall} <- {} ({}, {}) at {}.{:06} s",
        nanoseconds(record.latency_ns),
        parts.join(", "),
        record.command,
        record.pid,
        scheduled(record.priority),
        record.previous_command,
        record.previous_pid,
        scheduled(record.previous_priority),
        record.at_ns / 1_000_000_000,
        record.at_ns / 1000 % 1_000_000,
    )
}

/// The largest latency of a CPU among records of several histograms. Waiting for a task of equal priority is not a
/// latency of the kernel.
pub(crate) fn largest<'r>(
    records: impl Iterator<Item = (HistogramKind, Option<&'r LatencyRecord>)>,
) -> Option<(HistogramKind, &'r LatencyRecord)> {
    let records = records.filter(|(kind, _)| *kind != HistogramKind::SharedPriority);
    records.filter_map(|(kind, record)| Some((kind, record?))).max_by_key(|(_, record)| record.latency_ns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use whylate_core::CpuId;
    use whylate_core::quantity::Quantities;
    use whylate_core::result::{CpuResult, ProbeResult};
    use whylate_testing::says;

    fn late(latency_ns: u64, command: &str) -> LatencyRecord {
        let command = command.to_owned();
        LatencyRecord { pid: 7, latency_ns, wakeup_ns: Some(latency_ns), command, ..LatencyRecord::default() }
    }

    #[test]
    fn the_largest_of_each_cpu_is_named_but_not_waiting_for_an_equal() {
        let series = |cpu, kind: HistogramKind, max_record| CpuResult {
            cpu: CpuId(cpu),
            series: Some(kind.name().to_owned()),
            quantities: Quantities::default().with(MAX_RECORD, max_record),
            ..CpuResult::default()
        };
        // In the order of the probe: by kind, then by CPU.
        let cpus = vec![
            series(1, HistogramKind::Wakeup, late(3_000, "short\u{1b}[2J")),
            series(2, HistogramKind::Wakeup, late(4_000, "other")),
            series(1, HistogramKind::TimerWakeupSwitch, late(5_000, "control")),
            series(2, HistogramKind::TimerWakeupSwitch, late(2_000, "early")),
            series(1, HistogramKind::SharedPriority, late(9_000, "neighbour")),
        ];
        let probe = ProbeResult { probe: "histograms".to_owned(), cpus, ..ProbeResult::default() };
        let cell = CellResult { name: "idle".to_owned(), probes: vec![probe], ..CellResult::default() };
        let lines: Vec<String> = of_cell(&cell);
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(says("idle-on-cpu-wakeup", &lines[1]), "{lines:?}");
        let begin =
            "idle on CPU 1, timerwakeupswitch: 5.00 us (wake-up 5.00 us): control (7, priority 0) <- ";
        assert!(lines[0].starts_with(begin), "{lines:?}");
        let after_idle = LatencyRecord { priority: 99, previous_priority: -21, ..late(1_000, "control") };
        assert!(says("control-priority-nice-at", record(&after_idle)));
    }
}
