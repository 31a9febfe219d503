//! The first causes of the largest spikes, and spikes of several CPUs that are one event.

use crate::section::{Column, Depth, Row, Section, Table, sentences};
use crate::words;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use whylate_core::figure::{count, nanoseconds};
use whylate_core::order::InOrder;
use whylate_core::result::{CauseKind, MeasureResult, RunResult, Spike};

/// The most first causes of one cell and probe that are listed.
const FIRST_MAX: usize = 6;
/// The most events of several CPUs that are listed.
const EVENTS_MAX: usize = 5;

/// No section if causes were not looked for.
pub(super) fn of_run(run: &RunResult) -> Vec<Section> {
    let looked_for = run.cells.iter().filter(|_| run.plan.causes);
    let first = looked_for.flat_map(|cell| first_causes(&cell.name, &cell.spikes)).collect();
    let all = sections(first, run.cells.iter().flat_map(|cell| events(&cell.name, &cell.spikes)));
    all.into_iter().map(|section| section.depth(Depth::Detail)).collect()
}

pub(super) fn of_measure(measure: &MeasureResult) -> Vec<Section> {
    let spikes = &measure.probe.spikes;
    sections(first_causes("", spikes), events("", spikes))
}

fn sections(first: Vec<Row>, events: impl IntoIterator<Item = String>) -> Vec<Section> {
    let columns = vec![
        Column::text("cell"),
        Column::text("probe"),
        Column::text("first cause").wraps(),
        Column::number("spikes"),
        Column::number("largest"),
    ];
    let causes = Section::new("causes", "Causes of the largest spikes")
        .meaning("each spike counts once, under its first cause");
    let causes = causes.with(Table::new(columns, first));
    let events = Section::new("events", "Late on several CPUs at once")
        .meaning("spikes that overlap count as one event")
        .with(sentences(events));
    [causes, events].into_iter().flat_map(Section::unless_empty).collect()
}

/// For a cause: the number of spikes in which it comes first, the largest of them, and the number with lost records.
#[derive(Default)]
struct Tally {
    spikes: usize,
    largest_ns: u64,
    with_losses: usize,
}

/// The first causes of spikes, the most frequent first, probe by probe. Empty if no spike has a cause.
fn first_causes(cell: &str, spikes: &[Spike]) -> Vec<Row> {
    let mut probes: BTreeMap<&str, Vec<&Spike>> = BTreeMap::new();
    for spike in spikes {
        probes.entry(spike.probe.as_deref().unwrap_or_default()).or_default().push(spike);
    }
    let has_cause = |spike: &&Spike| spike.cause.kind != CauseKind::Unattributed;
    let mut rows = Vec::new();
    for (probe, spikes) in probes.into_iter().filter(|(_, spikes)| spikes.iter().any(has_cause)) {
        let mut found: BTreeMap<String, Tally> = BTreeMap::new();
        for spike in &spikes {
            let tally = found.entry(words::cause_name(&spike.cause)).or_default();
            tally.spikes += 1;
            tally.largest_ns = tally.largest_ns.max(spike.latency_ns);
            tally.with_losses += usize::from(spike.lost > 0);
        }
        let mut found: Vec<(String, Tally)> = found.into_iter().collect();
        found.order_by_key(|(_, tally)| Reverse((tally.spikes, tally.largest_ns)));
        // The cause of the largest spike is among those that are listed.
        let largest = found.iter().enumerate().max_by_key(|(_, (_, tally))| tally.largest_ns);
        if let Some(nth) = largest.map(|(nth, _)| nth).filter(|nth| *nth >= FIRST_MAX) {
            let largest = found.remove(nth);
            found.insert(FIRST_MAX - 1, largest);
        }
        let (first, others) = found.split_at(found.len().min(FIRST_MAX));
        rows.extend(first.iter().map(|(what, tally)| row(cell, probe, what, tally, spikes.len())));
        if !others.is_empty() {
            let mut together = Tally::default();
            for (_, tally) in others {
                together.spikes += tally.spikes;
                together.largest_ns = together.largest_ns.max(tally.largest_ns);
                together.with_losses += tally.with_losses;
            }
            rows.push(row(
                cell,
                probe,
                &words::counted(others.len(), "other cause"),
                &together,
                spikes.len(),
            ));
        }
    }
    rows
}

/// `cell` is empty in a measurement.
fn row(cell: &str, probe: &str, what: &str, tally: &Tally, of: usize) -> Row {
    let losses = match tally.with_losses {
        0 => String::new(),
        spikes => format!("; records lost in {spikes} of these spikes"),
    };
    Row::of([
        Some(cell.to_owned()).filter(|cell| !cell.is_empty()),
        Some(probe.to_owned()),
        Some(format!("{what}{losses}")),
        Some(format!("{} of {}", count(tally.spikes as u64), count(of as u64))),
        Some(nanoseconds(tally.largest_ns)),
    ])
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
    events.order_by_key(|spikes| Reverse(largest(spikes)));
    let left_out = events.len().saturating_sub(EVENTS_MAX);
    let mut sentences: Vec<String> =
        events.iter().take(EVENTS_MAX).map(|spikes| event_sentence(cell, spikes)).collect();
    if left_out > 0 {
        sentences.push(format!("and {}", words::counted(left_out, "smaller event")));
    }
    sentences
}

/// `gpu: CPUs 0,1 had overlapping spikes of up to 112 us; causes: hardware; thread: X`.
fn event_sentence(cell: &str, spikes: &[&Spike]) -> String {
    let cpus = spikes.iter().map(|spike| spike.cpu).collect();
    let largest = spikes.iter().map(|spike| spike.latency_ns).max().unwrap_or(0);
    let causes: BTreeSet<String> = spikes.iter().map(|spike| words::cause_name(&spike.cause)).collect();
    let causes: Vec<String> = causes.into_iter().collect();
    let cell = if cell.is_empty() { String::new() } else { format!("{cell}: ") };
    format!(
        "{cell}{} had overlapping spikes of up to {}; {}: {}",
        words::cpu_list(&cpus),
        nanoseconds(largest),
        if causes.len() == 1 { "cause" } else { "causes" },
        causes.join("; ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use whylate_core::CpuId;
    use whylate_core::result::{Cause, WAITED_FOR_CPU};

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
        let row = |first: &Row| -> Vec<String> {
            first.cells.iter().map(|cell| cell.text.as_ref().unwrap().words()).collect()
        };
        let found = first_causes("idle", &spikes);
        assert_eq!(row(&found[0]), ["idle", "timer", WAITED_FOR_CPU, "2 of 3", "7.00 us"]);
        assert_eq!(row(&found[1])[2..], ["irq; records lost in 1 of these spikes", "1 of 3", "9.00 us"]);
    }

    #[test]
    fn spikes_without_causes_have_no_section() {
        assert!(first_causes("idle", &[spike(1, 9_000, CauseKind::Unattributed, None)]).is_empty());
    }

    #[test]
    fn an_event_appears_once() {
        let spikes = [
            spike(0, 5_000, CauseKind::Hardware, Some(1)),
            spike(1, 7_000, CauseKind::Hardware, Some(1)),
            spike(1, 9_000, CauseKind::Irq, None),
        ];
        let found = events("idle", &spikes);
        assert_eq!(found, ["idle: CPUs 0-1 had overlapping spikes of up to 7.00 us; cause: hardware"]);
    }
}
