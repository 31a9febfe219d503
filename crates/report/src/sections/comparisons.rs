//! Cells that differ in one thing: first the comparisons that decide, then the exploratory ones.

use crate::pictures::{Forest, ForestRow};
use crate::reading::{Reading, by_severity, change, interval, times};
use crate::section::{Depth, Item, Section};
use crate::words::counted;
use whylate_core::figure::{between, probability};
use whylate_core::order::InOrder;
use whylate_core::plan::Statistic;
use whylate_core::result::{Comparison, Outcome, RunResult};

pub(super) fn of_run(run: &RunResult) -> Vec<Section> {
    let (primary, exploratory): (Vec<&Comparison>, Vec<&Comparison>) =
        run.comparisons.iter().partition(|comparison| comparison.primary);
    let statistic = run.plan.primary_statistic().map(|it| it.to_string()).unwrap_or_default();
    let title = format!("Comparisons by {statistic}, the statistic that decides");
    let mut deciding = Section::new("", title);
    if !run.plan.answer.is_empty() {
        // Without questions in the plan, the answers already list these comparisons.
        deciding = deciding.with(items(&primary));
    }
    let others = Section::new("", "Other comparisons (exploratory)").with(items(&exploratory));
    let all = Section::new("comparisons", "Comparisons")
        .meaning(
            "figures are medians over the repeats; p-values are corrected for the number of comparisons, \
             except in answers about cells that are not compared here",
        )
        .depth(Depth::Detail)
        .with(forest(run));
    all.with_all([deciding, others].into_iter().flat_map(Section::unless_empty)).unless_empty()
}

/// Every effect that is a ratio, worst first.
fn forest(run: &RunResult) -> Forest {
    let mut sorted: Vec<&Comparison> = run.comparisons.iter().collect();
    sorted.order_by(|a, b| by_severity(a, b));
    let row = |it: &&Comparison| {
        let ratio = it.ratio?;
        let label = format!("{}: {} {}", pair(it), it.probe, statistic(it.statistic));
        let reading = Reading::of(it.outcome);
        Some(ForestRow { label, reading, ratio, interval: interval(it) })
    };
    Forest { rows: sorted.iter().filter_map(row).collect(), margin: run.plan.margin.0 }
}

/// Differences and equivalences one by one, the rest gathered per pair of cells.
fn items(comparisons: &[&Comparison]) -> Vec<Item> {
    let (open, decided): (Vec<&Comparison>, Vec<&Comparison>) =
        comparisons.iter().partition(|it| it.outcome == Outcome::CannotTell && !it.primary);
    let mut items: Vec<Item> = decided.into_iter().map(|it| item(it.outcome, sentence(it))).collect();
    for of_pair in open.chunk_by(|a, b| a.cell == b.cell && a.baseline == b.baseline) {
        let names = of_pair.iter().map(|it| format!("{} {}", it.probe, statistic(it.statistic)));
        let names = names.collect::<Vec<String>>().join(", ");
        items.push(item(Outcome::CannotTell, format!("{}: cannot tell for {names}", pair(of_pair[0]))));
    }
    items
}

fn item(outcome: Outcome, text: String) -> Item {
    let Reading { tone, sign: symbol, .. } = Reading::of(outcome);
    Item { tone, symbol, text: text.into(), ..Item::default() }
}

fn pair(comparison: &Comparison) -> String {
    format!("{} against {}", comparison.cell, comparison.baseline)
}

/// `l3 against idle: timer p99.9 worse, 23.1 -> 49.8 us; 2.16 times, repeat by repeat (2.01 to 2.30) (p = 0.003)`.
fn sentence(comparison: &Comparison) -> String {
    let Comparison { probe, outcome, .. } = comparison;
    let Reading { word, .. } = Reading::of(*outcome);
    let ends = (comparison.ratio_low, comparison.ratio_high);
    let ratio = comparison
        .ratio
        .map(|ratio| format!("; {} times, repeat by repeat ({})", times(ratio), between(ends, times)));
    let more = comparison.more_repeats.map(|it| format!("; about {} would tell", counted(it, "more repeat")));
    let refused = comparison.refused.as_ref().map(|reason| format!("; {reason}"));
    format!(
        "{}: {probe} {} {word}, {}{} ({}){}",
        pair(comparison),
        statistic(comparison.statistic),
        change(comparison),
        ratio.unwrap_or_default(),
        probability(comparison.p_value),
        refused.or(more).unwrap_or_default(),
    )
}

fn statistic(statistic: Statistic) -> &'static str {
    match statistic {
        Statistic::Median => "median",
        Statistic::LostShare => "time lost",
        Statistic::GapRate => "gaps",
        Statistic::SpikeRate => "spikes",
        Statistic::TriggerRate => "triggers",
        Statistic::OwnP99 => "own p99",
        Statistic::OwnP999 => "own p99.9",
        Statistic::OwnMax => "own max",
        other => other.name(),
    }
}
