//! The first causes of the largest spikes, and spikes of several CPUs that are one event.

use crate::figure::{count, nanoseconds};
use crate::section::{Column, Row, Section, Table, sentences};
use crate::words;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use whylate_core::result::{CauseKind, MeasureResult, RunResult, Spike};

/// So many first causes of one cell and probe are told.
const FIRST_MAX: usize = 6;
/// So many events of several CPUs are told.
const EVENTS_MAX: usize = 5;

/// None of the causes where no causes were looked for.
pub(super) fn of_run(run: &RunResult) -> Vec<Section> {
    let looked_for = run.cells.iter().filter(|_| run.plan.causes);
    let first: Vec<FirstCause> = looked_for.flat_map(|cell| first_causes(&cell.name, &cell.spikes)).collect();
    sections(&first, run.cells.iter().flat_map(|cell| events(&cell.name, &cell.spikes)))
}

pub(super) fn of_measure(measure: &MeasureResult) -> Vec<Section> {
    let spikes = &measure.probe.spikes;
    sections(&first_causes("", spikes), events("", spikes))
}

fn sections(first: &[FirstCause], events: impl IntoIterator<Item = String>) -> Vec<Section> {
    let columns = vec![
        Column::text("cell"),
        Column::text("probe"),
        Column::text("first cause").wraps(),
        Column::number("spikes"),
        Column::number("largest"),
    ];
    let causes = Section::new("causes", "Causes of the largest spikes").meaning("which came first");
    let causes = causes.with(Table::new(columns, first.iter().map(FirstCause::row).collect()));
    let events = Section::new("events", "Late on several CPUs at once")
        .meaning("spikes that overlap count as one event")
        .with(sentences(events));
    [causes, events].into_iter().filter_map(Section::unless_empty).collect()
}

/// One first cause of the largest spikes of a cell.
#[derive(Clone, Debug, PartialEq)]
struct FirstCause {
    /// The cell; empty in a measurement.
    cell: String,
    /// The probe, with its series.
    probe: String,
    /// Kind, actor and function.
    what: String,
    /// Of how many spikes it is the first cause.
    spikes: usize,
    /// Of how many spikes causes were looked for.
    of: usize,
    /// The largest of its spikes.
    largest_ns: u64,
    /// Of how many of its spikes records were lost.
    with_losses: usize,
}

impl FirstCause {
    fn row(&self) -> Row {
        let losses = match self.with_losses {
            0 => String::new(),
            spikes => format!("; records of {spikes} of them were lost"),
        };
        let cell = Some(self.cell.clone()).filter(|cell| !cell.is_empty());
        Row::of([
            cell,
            Some(self.probe.clone()),
            Some(format!("{}{losses}", self.what)),
            Some(format!("{} of {}", count(self.spikes as u64), count(self.of as u64))),
            Some(nanoseconds(self.largest_ns)),
        ])
    }
}

/// The first causes of spikes, the most frequent first, probe by probe. None where nothing has a cause.
fn first_causes(cell: &str, spikes: &[Spike]) -> Vec<FirstCause> {
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

/// Spikes of several CPUs at one moment, each event as one sentence, the largest first.
fn events(cell: &str, spikes: &[Spike]) -> Vec<String> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use whylate_core::CpuId;
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
        let row = |first: &FirstCause| -> Vec<String> {
            first.row().cells.iter().map(|cell| cell.text.as_ref().unwrap().words()).collect()
        };
        let found = first_causes("idle", &spikes);
        assert_eq!(row(&found[0]), ["idle", "timer", "thread", "2 of 3", "7.00 us"]);
        assert_eq!(row(&found[1])[2..], ["irq; records of 1 of them were lost", "1 of 3", "9.00 us"]);
    }

    #[test]
    fn spikes_without_causes_tell_nothing() {
        assert!(first_causes("idle", &[spike(1, 9_000, CauseKind::Unattributed, None)]).is_empty());
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
