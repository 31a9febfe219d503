//! Links from the causes that a report names to their pages of the field guide; HTML includes the pages.

use crate::pages::guide;
use crate::section::{Block, Depth, Item, Section};
use std::collections::BTreeSet;
use whylate_core::order::InOrder;
use whylate_core::result::{Cause, CauseKind, ExplainResult, MeasureResult, RunResult, Spike, late_time};

/// The most further kinds in the line of a terminal, which must be short.
const OTHERS_MAX: usize = 3;

pub(super) fn of_run(run: &RunResult) -> Vec<Section> {
    let looked_for = run.cells.iter().filter(|_| run.plan.causes);
    of_spikes(looked_for.flat_map(|cell| &cell.spikes))
}

pub(super) fn of_measure(measure: &MeasureResult) -> Vec<Section> {
    // If causes were not looked for, there is nothing to look up.
    let has_cause = measure.probe.spikes.iter().any(|spike| spike.cause.kind != CauseKind::Unattributed);
    of_spikes(measure.probe.spikes.iter().filter(|_| has_cause))
}

pub(crate) fn of_explanation(result: &ExplainResult) -> Vec<Section> {
    let explained = result.spikes.iter().map(|spike| &spike.cause);
    section(explained.chain(result.measured.iter().map(|spike| &spike.cause)).map(kind))
}

/// The kind that took the most time comes first.
fn of_spikes<'s>(spikes: impl Iterator<Item = &'s Spike>) -> Vec<Section> {
    section(late_time(spikes).into_iter().map(|one| one.kind))
}

/// The page with the cures. A task that waited until a thread woke it does not need that thread to run less.
fn kind(cause: &Cause) -> CauseKind {
    match cause.kind {
        CauseKind::Thread if cause.delayed.is_some() && cause.delayed == cause.actor => CauseKind::Wait,
        kind => kind,
    }
}

fn section(kinds: impl Iterator<Item = CauseKind>) -> Vec<Section> {
    let mut seen = BTreeSet::new();
    let mut kinds: Vec<CauseKind> = kinds.filter(|kind| seen.insert(*kind)).collect();
    kinds.order_by_key(|kind| *kind == CauseKind::Unattributed);
    let Some(first) = kinds.first() else { return Vec::new() };
    let mut others: Vec<&str> = kinds.iter().skip(1).map(|kind| kind.name()).collect();
    if others.len() > OTHERS_MAX {
        others.truncate(OTHERS_MAX - 1);
        others.push("…");
    }
    let others = if others.is_empty() { String::new() } else { format!(" (or {})", others.join(", ")) };
    let line = format!("Cures: `whylate explain --why {first}`{others}");
    let item = |kind: &CauseKind| Item::from(format!("`{kind}`: {}", kind.meaning()));
    let page = |kind: &CauseKind| {
        let parts = guide::sections(*kind).into_iter().map(Block::Part);
        let page =
            Section::new(kind.name(), kind.name()).meaning("page of the field guide").depth(Depth::Folded);
        Block::Aside(page.with_all(parts))
    };
    let section =
        Section::new("guide", "Field guide").meaning("how to confirm these causes, and what cures them");
    let items: Vec<Item> = kinds.iter().map(item).collect();
    vec![section.depth(Depth::Brief(line)).with(items).with_all(kinds.iter().map(page))]
}
