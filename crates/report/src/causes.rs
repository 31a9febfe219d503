//! What a result says of causes, the same for every format: the first causes of a cell's spikes, interrupts that other
//! CPUs sent, and spikes of several CPUs that are one event.

use crate::figure::{count, nanoseconds};
use crate::words;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use whylate_core::CpuId;
use whylate_core::record::IpiRecord;
use whylate_core::result::{CauseKind, CellResult, RunResult, Spike};

/// So many first causes of one cell and probe are told.
const FIRST_MAX: usize = 6;
/// So many ways in which CPUs are interrupted are told.
const IPI_LINES_MAX: usize = 16;
/// So many events of several CPUs are told.
const EVENTS_MAX: usize = 5;

/// One first cause of the largest spikes of a cell.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FirstCause {
    /// The cell; empty in a measurement.
    pub(crate) cell: String,
    /// The probe, with its series.
    pub(crate) probe: String,
    /// Kind, actor and function.
    pub(crate) what: String,
    /// Of how many spikes it is the first cause.
    pub(crate) spikes: usize,
    /// Of how many spikes causes were looked for.
    pub(crate) of: usize,
    /// The largest of its spikes.
    pub(crate) largest_ns: u64,
    /// Of how many of its spikes records were lost.
    pub(crate) with_losses: usize,
}

impl FirstCause {
    /// `idle, timer: irqs off: nvkm in unarm: first of 12 of 32 spikes, up to 112 us`.
    pub(crate) fn sentence(&self) -> String {
        let cell = if self.cell.is_empty() { String::new() } else { format!("{}, ", self.cell) };
        format!(
            "{cell}{}: {}: first of {} of {} spikes, up to {}{}",
            self.probe,
            self.what,
            count(self.spikes as u64),
            count(self.of as u64),
            nanoseconds(self.largest_ns),
            self.losses()
        )
    }

    /// What to add where records were lost.
    pub(crate) fn losses(&self) -> String {
        match self.with_losses {
            0 => String::new(),
            spikes => format!("; records of {spikes} of them were lost"),
        }
    }
}

/// The first causes of spikes, the most frequent first, probe by probe. None where nothing has a cause.
pub(crate) fn first_causes(cell: &str, spikes: &[Spike]) -> Vec<FirstCause> {
    let mut probes: BTreeMap<&str, Vec<&Spike>> = BTreeMap::new();
    for spike in spikes {
        probes.entry(spike.probe.as_deref().unwrap_or_default()).or_default().push(spike);
    }
    let has_cause = |spike: &&Spike| spike.cause.kind != CauseKind::Unattributed;
    let mut all = Vec::new();
    for (probe, spikes) in probes {
        if !spikes.iter().any(has_cause) {
            continue;
        }
        let mut found: BTreeMap<String, FirstCause> = BTreeMap::new();
        for spike in &spikes {
            let what = words::cause_name(&spike.cause);
            let known = found.entry(what.clone()).or_insert_with(|| FirstCause {
                cell: cell.to_owned(),
                probe: probe.to_owned(),
                what,
                spikes: 0,
                of: spikes.len(),
                largest_ns: 0,
                with_losses: 0,
            });
            known.spikes += 1;
            known.largest_ns = known.largest_ns.max(spike.latency_ns);
            known.with_losses += usize::from(spike.lost > 0);
        }
        let mut found: Vec<FirstCause> = found.into_values().collect();
        found.sort_by_key(|first| Reverse((first.spikes, first.largest_ns)));
        found.truncate(FIRST_MAX);
        all.append(&mut found);
    }
    all
}

/// The first causes of a run, cell by cell; none of a run that did not look for causes.
pub(crate) fn of_run(run: &RunResult) -> Vec<FirstCause> {
    if !run.plan.causes {
        return Vec::new();
    }
    run.cells.iter().flat_map(|cell| first_causes(&cell.name, &cell.spikes)).collect()
}

/// One way in which other CPUs interrupt a CPU.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct IpiLine {
    pub(crate) cpu: CpuId,
    pub(crate) function: String,
    /// Who had it called; empty where the kernel does not tell.
    pub(crate) caller: String,
    /// The threads that sent it.
    pub(crate) senders: String,
    /// How often, in each of the cells.
    pub(crate) counts: Vec<u64>,
}

/// A CPU, the function that runs there, and who had it called.
type Way<'a> = (CpuId, &'a str, &'a str);
/// The threads that sent it, and how often in each of the cells.
type Sent = (BTreeSet<String>, Vec<u64>);

/// The ways in which other CPUs interrupt, the most frequent first, and how many are left out.
fn ipi_lines(cells: &[&[IpiRecord]]) -> (Vec<IpiLine>, usize) {
    let mut lines = BTreeMap::<Way<'_>, Sent>::new();
    for (index, records) in cells.iter().enumerate() {
        for record in *records {
            let caller = record.caller.as_deref().unwrap_or_default();
            let key = (record.cpu, record.function.as_str(), caller);
            let fresh = || (BTreeSet::new(), vec![0; cells.len()]);
            let (senders, counts) = lines.entry(key).or_insert_with(fresh);
            senders.extend(record.from_task.clone());
            counts[index] += record.count;
        }
    }
    let line = |((cpu, function, caller), (senders, counts)): (Way<'_>, Sent)| {
        let shown: Vec<String> = senders.iter().take(3).cloned().collect();
        let more = senders.len().saturating_sub(shown.len());
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        IpiLine {
            cpu,
            function: function.to_owned(),
            caller: caller.to_owned(),
            senders: shown.join(", ") + &more,
            counts,
        }
    };
    let mut lines: Vec<IpiLine> = lines.into_iter().map(line).collect();
    lines.sort_by_key(|line| (line.cpu, Reverse(line.counts.iter().copied().max())));
    let left_out = lines.len().saturating_sub(IPI_LINES_MAX);
    if left_out > 0 {
        lines.sort_by_key(|line| Reverse(line.counts.iter().copied().max()));
        lines.truncate(IPI_LINES_MAX);
        lines.sort_by_key(|line| (line.cpu, Reverse(line.counts.iter().copied().max())));
    }
    (lines, left_out)
}

impl IpiLine {
    /// `CPU 1: do_flush_tlb_all for flush_tlb_kernel_range, sent by whylate: 271 in idle, 345,184 in gpu`.
    pub(crate) fn sentence(&self, cells: &[String]) -> String {
        let caller = if self.caller.is_empty() { String::new() } else { format!(" for {}", self.caller) };
        let senders =
            if self.senders.is_empty() { String::new() } else { format!(", sent by {}", self.senders) };
        let counts: Vec<String> = match cells {
            [] => self.counts.iter().map(|number| count(*number)).collect(),
            cells => {
                let named = cells.iter().zip(&self.counts).filter(|(_, number)| **number > 0);
                named.map(|(cell, number)| format!("{} in {cell}", count(*number))).collect()
            }
        };
        format!("CPU {}: {}{caller}{senders}: {}", self.cpu, self.function, counts.join(", "))
    }
}

/// Interrupts from other CPUs in several cells.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Ipis {
    /// The names of the cells; none in a measurement.
    pub(crate) cells: Vec<String>,
    /// The most frequent ways, with a count for each cell.
    pub(crate) lines: Vec<IpiLine>,
    /// How many ways are left out.
    pub(crate) left_out: usize,
}

impl Ipis {
    /// Of the cells that were not skipped: in the others nothing was counted.
    pub(crate) fn of_cells(cells: &[CellResult]) -> Self {
        let ran = || cells.iter().filter(|cell| cell.skipped.is_none());
        let records: Vec<&[IpiRecord]> = ran().map(|cell| cell.ipis.as_slice()).collect();
        let (lines, left_out) = ipi_lines(&records);
        Self { cells: ran().map(|cell| cell.name.clone()).collect(), lines, left_out }
    }

    /// Of a measurement.
    pub(crate) fn of_records(records: &[IpiRecord]) -> Self {
        let (lines, left_out) = ipi_lines(&[records]);
        Self { cells: Vec::new(), lines, left_out }
    }

    /// A sentence for each way.
    pub(crate) fn sentences(&self) -> Vec<String> {
        let mut sentences: Vec<String> = self.lines.iter().map(|line| line.sentence(&self.cells)).collect();
        if self.left_out > 0 {
            sentences.push(format!("and {} rarer ones", self.left_out));
        }
        sentences
    }
}

/// Spikes of several CPUs at one moment, each event as one sentence, the largest first.
pub(crate) fn events(cell: &str, spikes: &[Spike]) -> Vec<String> {
    let mut events: BTreeMap<u64, Vec<&Spike>> = BTreeMap::new();
    for spike in spikes {
        if let Some(event) = spike.event {
            events.entry(event).or_default().push(spike);
        }
    }
    let mut events: Vec<Vec<&Spike>> = events.into_values().collect();
    let largest = |spikes: &[&Spike]| spikes.iter().map(|spike| spike.latency_ns).max().unwrap_or(0);
    events.sort_by_key(|spikes| Reverse(largest(spikes)));
    let left_out = events.len().saturating_sub(EVENTS_MAX);
    let mut sentences: Vec<String> =
        events.iter().take(EVENTS_MAX).map(|spikes| event_sentence(cell, spikes)).collect();
    if left_out > 0 {
        sentences.push(format!("and {left_out} smaller ones"));
    }
    sentences
}

/// `gpu: CPUs 0,1 were late at the same moment, up to 112 us: hardware; thread: X`.
fn event_sentence(cell: &str, spikes: &[&Spike]) -> String {
    let cpus = spikes.iter().map(|spike| spike.cpu).collect();
    let largest = spikes.iter().map(|spike| spike.latency_ns).max().unwrap_or(0);
    let causes: BTreeSet<String> = spikes.iter().map(|spike| words::cause_name(&spike.cause)).collect();
    let causes: Vec<String> = causes.into_iter().collect();
    let cell = if cell.is_empty() { String::new() } else { format!("{cell}: ") };
    format!(
        "{cell}{} were late at the same moment, up to {}: {}",
        words::cpu_list(&cpus),
        nanoseconds(largest),
        causes.join("; ")
    )
}

/// The events of a run.
pub(crate) fn events_of_run(run: &RunResult) -> Vec<String> {
    run.cells.iter().flat_map(|cell| events(&cell.name, &cell.spikes)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use whylate_core::result::Cause;

    fn spike(cpu: u32, latency_ns: u64, kind: CauseKind, event: Option<u64>) -> Spike {
        Spike {
            probe: Some("timer".to_owned()),
            cause: Cause::new(kind),
            event,
            lost: u64::from(kind == CauseKind::Irq),
            ..Spike::unexplained(CpuId(cpu), 0, latency_ns)
        }
    }

    #[test]
    fn first_causes_are_counted() {
        let spikes = [
            spike(1, 9_000, CauseKind::Irq, None),
            spike(1, 5_000, CauseKind::Thread, None),
            spike(1, 7_000, CauseKind::Thread, None),
        ];
        let found = first_causes("idle", &spikes);
        assert_eq!(found[0].sentence(), "idle, timer: thread: first of 2 of 3 spikes, up to 7.00 us");
        assert!(found[1].sentence().ends_with("up to 9.00 us; records of 1 of them were lost"));
    }

    #[test]
    fn spikes_without_causes_tell_nothing() {
        assert!(first_causes("idle", &[spike(1, 9_000, CauseKind::Unattributed, None)]).is_empty());
    }

    #[test]
    fn senders_of_one_function_are_one_line() {
        let record = |task: &str, count| IpiRecord {
            cpu: CpuId(1),
            function: "do_flush_tlb_all".to_owned(),
            caller: Some("flush_tlb_all".to_owned()),
            from_task: Some(task.to_owned()),
            count,
            ..IpiRecord::default()
        };
        let (idle, load) = (vec![record("a", 2)], vec![record("a", 300), record("b", 1_000)]);
        let cell = |name: &str, ipis| CellResult { name: name.to_owned(), ipis, ..CellResult::default() };
        let skipped = Some("no GPU".to_owned());
        let cells = [cell("idle", idle), CellResult { skipped, ..cell("gpu", vec![]) }, cell("tlb", load)];
        let ipis = Ipis::of_cells(&cells);
        let expected = "CPU 1: do_flush_tlb_all for flush_tlb_all, sent by a, b: 2 in idle, 1,300 in tlb";
        assert_eq!(ipis.sentences(), [expected]);
        assert_eq!(ipis.cells, ["idle", "tlb"], "in a cell that was skipped nothing was counted");
    }

    #[test]
    fn an_event_is_told_once() {
        let spikes = [
            spike(0, 5_000, CauseKind::Hardware, Some(1)),
            spike(1, 7_000, CauseKind::Hardware, Some(1)),
            spike(1, 9_000, CauseKind::Irq, None),
        ];
        let told = events("idle", &spikes);
        assert_eq!(told, ["idle: CPUs 0-1 were late at the same moment, up to 7.00 us: hardware"]);
    }
}
