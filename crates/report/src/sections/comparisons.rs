//! Each cell against its baseline: differences one by one, the rest gathered per cell.

use crate::figure::{nanoseconds, probability};
use crate::section::{Depth, Item, Section, Tone};
use whylate_core::result::{Comparison, Outcome, RunResult};

pub(super) fn of_run(run: &RunResult) -> Vec<Section> {
    let differences = run.comparisons.iter();
    let mut items: Vec<Item> =
        differences.filter_map(|one| Some(item(one.outcome, difference(one)?))).collect();
    for outcome in [Outcome::NoEffect, Outcome::TooFewRepeats] {
        let mut left: Vec<&Comparison> =
            run.comparisons.iter().filter(|comparison| comparison.outcome == outcome).collect();
        while let Some(first) = left.first().copied() {
            let same = |other: &&Comparison| other.cell == first.cell && other.baseline == first.baseline;
            let (members, others): (Vec<&Comparison>, Vec<&Comparison>) =
                left.iter().copied().partition(same);
            items.push(item(outcome, gathered(outcome, &members)));
            left = others;
        }
    }
    let section = Section::new("comparisons", "Comparisons").depth(Depth::Lead);
    section.with(items).unless_empty()
}

fn item(outcome: Outcome, text: String) -> Item {
    let (tone, symbol) = match outcome {
        Outcome::Worse => (Tone::Bad, "▲"),
        Outcome::Better => (Tone::Good, "▼"),
        Outcome::NoEffect => (Tone::Plain, "="),
        Outcome::TooFewRepeats => (Tone::Plain, "?"),
    };
    Item { tone, symbol, text: text.into(), ..Item::default() }
}

/// A difference in one sentence; `None` of a comparison that shows none.
fn difference(comparison: &Comparison) -> Option<String> {
    let word = match comparison.outcome {
        Outcome::Better => "better",
        Outcome::Worse => "worse",
        Outcome::NoEffect | Outcome::TooFewRepeats => return None,
    };
    Some(format!(
        "{} against {}: {} {} {word}, {}{}",
        comparison.cell,
        comparison.baseline,
        comparison.probe,
        statistic(&comparison.statistic),
        change(comparison),
        comparison.p_value.map(|p| format!(" ({})", probability(p))).unwrap_or_default(),
    ))
}

/// `4.10 -> 6.30 us`: the unit once where both have the same.
fn change(comparison: &Comparison) -> String {
    let (before, after) = (nanoseconds(comparison.baseline_ns), nanoseconds(comparison.cell_ns));
    match (before.split_once(' '), after.split_once(' ')) {
        (Some((number, unit)), Some((_, after_unit))) if unit == after_unit => format!("{number} -> {after}"),
        _ => format!("{before} -> {after}"),
    }
}

/// All comparisons of one cell with the same outcome, which is one of those that show nothing.
fn gathered(outcome: Outcome, members: &[&Comparison]) -> String {
    let mut subjects: Vec<String> = Vec::new();
    let mut probe_before = None;
    for member in members {
        let name = statistic(&member.statistic);
        match subjects.last_mut() {
            Some(subject) if probe_before == Some(&member.probe) => {
                subject.push_str(", ");
                subject.push_str(name);
            }
            _ => subjects.push(format!("{} {name}", member.probe)),
        }
        probe_before = Some(&member.probe);
    }
    let (subjects, first) = (subjects.join("; "), members.first());
    let pair = first.map(|first| format!("{} against {}", first.cell, first.baseline)).unwrap_or_default();
    match outcome {
        Outcome::TooFewRepeats => format!("{pair}: too few repeats to tell: {subjects}"),
        _ => {
            let smallest = members.iter().filter_map(|member| member.p_value).reduce(f64::min);
            // Of several, the smallest p stands for all.
            let sign = if members.len() > 1 { ">= " } else { "= " };
            let least =
                smallest.map(|p| format!(" ({})", probability(p).replace("= ", sign))).unwrap_or_default();
            format!("{pair}: no effect shown on {subjects}{least}")
        }
    }
}

/// The name of a statistic as the table prints it.
fn statistic(name: &str) -> &str {
    match name {
        "p50" => "median",
        "p999" => "p99.9",
        "p9999" => "p99.99",
        name => name,
    }
}
