//! What the kernel reports, one line for each facility, with what is lost without it.

use super::host;
use crate::section::{Block, Item, Page, Section, Tone};
use whylate_core::result::{TracingFacility, TracingResult};

/// The report of `whylate check --tracing`.
pub fn tracing(result: &TracingResult) -> Page {
    let item = |facility: &TracingFacility| {
        let (label, tone) = match (facility.works, result.facts.privileges.root) {
            (true, _) => ("works", Tone::Good),
            (false, true) => ("missing", Tone::Warn),
            // Only root can see whether the kernel has it.
            (false, false) => ("not allowed", Tone::Warn),
        };
        let reason = facility.reason.as_ref().or(facility.source.as_ref());
        let reason = reason.map(|reason| format!(": {reason}")).unwrap_or_default();
        let below = [("effect", &facility.effect), ("fix", &facility.fix)];
        Item {
            tone,
            label,
            text: format!("{}{reason}", facility.name).into(),
            below: below.into_iter().filter_map(|(name, text)| Some((name, text.clone()?))).collect(),
            ..Item::default()
        }
    };
    let working = result.facilities.iter().filter(|facility| facility.works).count();
    let note = format!(
        "{working} of {} facilities work; each was tried just now. docs/KERNELS.md lists what other kernels have.",
        result.facilities.len()
    );
    let own = (working == 0).then_some(
        "Without them, `whylate watch` still measures your own threads: how long they ran and were preempted, but not who \
         preempted or woke them.",
    );
    let items: Vec<Item> = result.facilities.iter().map(item).collect();
    Page {
        origin: "whylate check --tracing".to_owned(),
        about: vec![host(&result.facts)],
        sections: vec![
            Section::new("facilities", "").with(items).with(Block::note(note)).with_all(own.map(Block::note)),
        ],
        ..Page::default()
    }
}
