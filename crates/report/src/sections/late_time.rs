//! One bar per cell: the late time of its spikes by class of cause, and the top culprit.

use crate::pictures::{SharePart, ShareRow, Shares, class_name};
use crate::section::Section;
use crate::worst::{self, LateBy};
use std::collections::BTreeMap;
use whylate_core::SeriesName;
use whylate_core::figure::{counted, nanoseconds_f64, share};
use whylate_core::order::InOrder;
use whylate_core::result::{CauseClass, CellResult, NOT_EXPLAINED, RunResult, late_kinds};

/// The most culprits that a part of a bar names.
const NAMED_MAX: usize = 3;

pub(super) fn of_run(run: &RunResult) -> Vec<Section> {
    let Some(series) = super::summary::deciding(run) else { return Vec::new() };
    let name = series.first().map(|first| first.name.clone()).unwrap_or_default();
    let rows: Vec<ShareRow> = run.cells.iter().filter_map(|cell| bar(cell, &name)).collect();
    let has_known = rows.iter().flat_map(|row| &row.parts).any(|part| part.text != NOT_KNOWN);
    let rows = if has_known { rows } else { Vec::new() };
    let section = Section::new("late-time", format!("Late time of {name} by cause"));
    section.with(Shares { rows }).unless_empty()
}

const NOT_KNOWN: &str = class_name(CauseClass::Unknown);

/// Late time by class, the largest first, the unknown part last.
fn bar(cell: &CellResult, series: &str) -> Option<ShareRow> {
    let LateBy { found, basis, spikes } = worst::late_by(std::slice::from_ref(cell), series);
    let total: f64 = found.iter().map(|one| one.ns).sum();
    let mut classes: Vec<(SharePart, Vec<String>)> = Vec::new();
    for one in &found {
        let class = one.kind.class();
        let at = classes.iter().position(|(part, _)| part.class == class).unwrap_or_else(|| {
            classes.push((SharePart { class, share: 0.0, text: String::new() }, Vec::new()));
            classes.len() - 1
        });
        classes[at].0.share += one.share;
        classes[at].1.push(one.name());
    }
    let is_unknown = |part: &SharePart| part.class == CauseClass::Unknown;
    classes.order_by(|(a, _), (b, _)| is_unknown(a).cmp(&is_unknown(b)).then(b.share.total_cmp(&a.share)));
    let part = |(part, names): (SharePart, Vec<String>)| SharePart {
        text: match is_unknown(&part) {
            true => NOT_KNOWN.to_owned(),
            false => named(&names),
        },
        ..part
    };
    // The same grouping as in the line "who".
    let top = late_kinds(&found).into_iter().next().map(|top| match top.is_explained {
        true => format!(", most by {} ({})", top.name, share(top.share)),
        false => format!(", most {NOT_EXPLAINED} ({})", share(top.share)),
    });
    let of = if SeriesName::of(series).is_of_user() { basis } else { counted(spikes, "spike") };
    (spikes > 0).then(|| ShareRow {
        label: cell.name.clone(),
        parts: classes.into_iter().map(part).collect(),
        note: format!("{} in {of}{}", nanoseconds_f64(total), top.unwrap_or_default()),
    })
}

fn named(names: &[String]) -> String {
    let once: BTreeMap<&String, ()> = names.iter().map(|name| (name, ())).collect();
    let mut text = names.iter().take(NAMED_MAX).cloned().collect::<Vec<_>>().join("; ");
    if once.len() > NAMED_MAX {
        text.push_str(&format!("; and {} more", once.len() - NAMED_MAX));
    }
    text
}
