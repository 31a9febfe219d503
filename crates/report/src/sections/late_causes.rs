//! Which causes a load adds and a treatment removes: late time by cause in cells that differ in one thing.

use crate::reading::{interval_of_rates, more};
use crate::section::{Column, Depth, Item, Row, Section, Table, Tone};
use crate::words::counted;
use whylate_core::figure::nanoseconds;
use whylate_core::order::InOrder;
use whylate_core::result::{CauseChange, CauseDifference, RunResult};

/// The most sentences of "In short".
const SENTENCES_MAX: usize = 4;
/// A change of a smaller part of the largest one is only listed.
const SMALL: f64 = 0.05;

pub(super) fn of_run(run: &RunResult) -> Vec<Section> {
    let changed = section(
        "cause-contrasts",
        "What each load and treatment adds and removes",
        run.cause_contrasts.iter().filter(|it| it.is_change()),
    );
    changed.unless_empty().into_iter().collect()
}

/// The same of every cause.
pub(super) fn every(run: &RunResult) -> Vec<Section> {
    let whole = section("all-cause-contrasts", "Late time of every cause", run.cause_contrasts.iter());
    whole.depth(Depth::Detail).unless_empty().into_iter().collect()
}

fn section<'a>(name: &'static str, title: &str, rows: impl Iterator<Item = &'a CauseDifference>) -> Section {
    let columns = vec![
        Column::text("cell"),
        Column::text("against").importance(1),
        Column::text("probe"),
        Column::text("cause").wraps(),
        Column::text("late time per s"),
        Column::text("95 % interval of the difference").importance(1),
        Column::text("largest"),
        Column::text("change"),
    ];
    Section::new(name, title)
        .meaning(
            "late time of all spikes above the threshold, compared repeat by repeat. The column `change` is \
             corrected for the number of causes and comparisons",
        )
        .with(Table::new(columns, rows.map(row).collect()))
}

fn row(it: &CauseDifference) -> Row {
    let largest = |ns: u64| if ns == 0 { "0".to_owned() } else { nanoseconds(ns) };
    let [before, now] = [it.baseline_max_ns, it.max_ns].map(largest);
    Row::of([
        Some(it.side.clone()),
        it.baseline.clone(),
        Some(it.probe.clone()),
        Some(it.cause.clone()),
        Some(it.rates()),
        Some(interval_of_rates(it)),
        Some(format!("{before} → {now}")),
        Some(change(it)),
    ])
}

fn change(it: &CauseDifference) -> String {
    match (it.change, it.more_repeats) {
        (CauseChange::New | CauseChange::More, _) => "added".to_owned(),
        (CauseChange::Gone | CauseChange::Less, _) => "removed".to_owned(),
        (CauseChange::Same, _) => "same".to_owned(),
        (CauseChange::CannotTell, Some(more)) => {
            format!("cannot tell; about {} would tell", counted(more, "more repeat"))
        }
        (CauseChange::CannotTell, None) => "cannot tell".to_owned(),
    }
}

/// Sentences of "In short": each added and removed cause, the largest first, and the undecided ones.
pub(super) fn in_short(run: &RunResult) -> Vec<Item> {
    let mut changed: Vec<&CauseDifference> = run.cause_contrasts.iter().filter(|it| it.is_change()).collect();
    let size = |it: &CauseDifference| (it.ns_per_s - it.baseline_ns_per_s).abs();
    changed.order_by(|a, b| size(b).total_cmp(&size(a)));
    // With more spikes above the threshold, every wake-up's own share of them grows.
    let least = changed.first().map_or(0.0, |it| size(it) * SMALL);
    let large = changed.iter().take(SENTENCES_MAX).filter(|it| size(it) >= least).count();
    let sentence = |it: &&CauseDifference| {
        let verb = it.verb();
        let largest = if verb == "adds" { it.max_ns } else { it.baseline_max_ns };
        format!(
            "{} {verb} {}: late time {} per s, spikes up to {}, in {} of {} of repeats",
            what(run, it),
            it.cause,
            it.rates(),
            nanoseconds(largest),
            if verb == "adds" { it.blocks_larger } else { it.blocks.saturating_sub(it.blocks_larger) },
            counted(it.blocks, "block"),
        )
    };
    let mut sentences: Vec<String> = changed.iter().take(large).map(sentence).collect();
    if changed.len() > large {
        let more = changed.len() - large;
        sentences.push(format!("{more} more {} listed below", if more == 1 { "is" } else { "are" }));
    }
    if run.cause_contrasts.is_empty() {
        return Vec::new();
    }
    let text = match sentences.is_empty() {
        true => format!("No cause was proved to be added or removed{}.", open(run)),
        false => format!("{}.", sentences.join("; ")),
    };
    vec![Item { label: "by cause", tone: Tone::Plain, text: text.into(), ..Item::default() }]
}

/// How many more repeats would decide about the cause that is nearest to a claim.
fn open(run: &RunResult) -> String {
    let nearest = run
        .cause_contrasts
        .iter()
        .filter(|it| it.is_named())
        .filter_map(|it| Some((it.more_repeats?, it)))
        .min_by_key(|(more, _)| *more);
    nearest
        .map(|(more, it)| {
            format!("; about {} would tell for {} in {}", counted(more, "more repeat"), it.cause, it.side)
        })
        .unwrap_or_default()
}

/// What the cell has and its baseline lacks, or the name of the cell.
fn what(run: &RunResult, it: &CauseDifference) -> String {
    let cells = (it.baseline.as_deref().unwrap_or_default(), it.side.as_str());
    let loads = more(run, cells, |cell| &cell.loads).unwrap_or_default();
    let treatments = more(run, cells, |cell| &cell.treatments).unwrap_or_default();
    match [loads, treatments].concat() {
        none if none.is_empty() => it.side.clone(),
        names => names.join(" and "),
    }
}
