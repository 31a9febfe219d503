//! The report of `whylate compare`: the differences between the machines, the verdicts, and the causes of late time.

use crate::pictures::{Forest, ForestRow};
use crate::reading::{self, Reading, SIGNS};
use crate::section::{Block, Cell, Column, Depth, Item, Page, Row, Section, Table, Tone, Verdict};
use crate::sections::warnings;
use whylate_core::figure::{self, probability, share, value};
use whylate_core::order::InOrder;
use whylate_core::result::{
    CauseChange, CauseDifference, CompareOutcome, CompareResult, CompareSide, Comparison, FactDifference,
    Outcome, RunContrast,
};

/// The most facts unknown for some side that a line names.
const UNKNOWN_NAMED: usize = 4;
/// A cause without a known difference is shown if it has at least this part of the late time on one side.
const CAUSE_SHARE_LEAST: f64 = 0.01;
/// What the figures of the table are; those of `whylate report` are different.
const MIDDLE: &str = "`before` and `now` are medians over the repeats; each repeat counts with the figure of \
    its worst CPU. For several runs, both are medians over the runs; for another tool's file, both are the \
    figure in that file. `whylate report --details` shows the quantiles of all repeats together. Between \
    cells of one run, the ratio is the median of the ratios between repeats that ran close together.";

/// The report of a comparison. A comparison without contents becomes a page that says why.
pub fn compare(result: &CompareResult) -> Page {
    let side = |it: &CompareSide| {
        let cell = it.cell.as_ref().map(|cell| format!(", cell {cell}")).unwrap_or_default();
        let tags: String = it.tags.iter().map(|tag| format!(" #{tag}")).collect();
        format!("{}: {}{cell}{tags}", it.name, it.runs.join(", "))
    };
    let (word, tone) = match result.outcome {
        CompareOutcome::Worse => ("REGRESSION", Tone::Bad),
        CompareOutcome::Better => ("BETTER", Tone::Good),
        CompareOutcome::Equivalent => ("EQUIVALENT", Tone::Good),
        CompareOutcome::CannotTell => ("CANNOT TELL", Tone::Plain),
        CompareOutcome::Nothing => ("NOTHING TO COMPARE", Tone::Warn),
    };
    let sections = [machines(result), contrasts(result), causes(result), repeats(result)];
    let sections = sections.into_iter().flat_map(Section::unless_empty);
    Page {
        origin: "whylate compare".to_owned(),
        title: title(&result.sides),
        about: result.sides.iter().map(|it| vec![side(it)]).collect(),
        verdict: Some(Verdict { word, reason: result.reason.clone(), tone }),
        sections: sections.chain(warnings::section(&result.warnings)).collect(),
        ..Page::default()
    }
}

/// `A (#old) against B (#new)`: what tells the sides apart, which are tags, or else the names of their runs.
fn title(sides: &[CompareSide]) -> String {
    let others = |side: &CompareSide| {
        let name = side.name.clone();
        sides.iter().filter(move |other| other.name != name)
    };
    let file = |side: &CompareSide| {
        let first = side.runs.first().map(|run| run.trim_end_matches('/'));
        let name = first.and_then(|run| run.rsplit('/').next()).unwrap_or_default();
        let cell = side.cell.as_ref().map(|cell| format!(":{cell}")).unwrap_or_default();
        let more = match side.runs.len() {
            0 | 1 => String::new(),
            count => format!(" and {} more", count - 1),
        };
        format!("{name}{cell}{more}")
    };
    let own = |side: &CompareSide| {
        let tags = side.tags.iter().filter(|tag| !others(side).any(|other| other.tags.contains(tag)));
        let tags: Vec<String> = tags.map(|tag| format!("#{tag}")).collect();
        let name =
            Some(file(side)).filter(|name| !name.is_empty() && others(side).all(|it| file(it) != *name));
        match (tags.is_empty(), &side.cell, name) {
            (false, None, _) => format!("{} ({})", side.name, tags.join(" ")),
            (false, Some(cell), _) => format!("{} ({}, cell {cell})", side.name, tags.join(" ")),
            (true, _, Some(name)) => format!("{} ({name})", side.name),
            (true, _, None) => side.name.clone(),
        }
    };
    sides.iter().map(own).collect::<Vec<_>>().join(" against ")
}

fn machines(result: &CompareResult) -> Section {
    let section = Section::new("machines", "What differs, apart from the figures");
    let section = match result.differences.is_empty() {
        // Results of other tools have few facts about the machine.
        true if result.unknown.is_empty() && result.sides.iter().any(|it| it.started_at.is_some()) => section.with(Block::note(
            "Nothing: kernel, command line, firmware, clocks, settings, plan, loads and treatments are the same.",
        )),
        true => section.with(Block::note("No difference in the facts that all sides report.")),
        false => section.with(facts(result, &result.differences)),
    };
    let names: Vec<&str> = result.unknown.iter().map(|it| it.what.as_str()).collect();
    let named = names.iter().take(UNKNOWN_NAMED).copied().collect::<Vec<_>>().join(", ");
    let more = match names.len().saturating_sub(UNKNOWN_NAMED) {
        0 => String::new(),
        more => format!(" and {more} more (--details lists them)"),
    };
    let line = format!("Facts that at least one side does not report are not compared: {named}{more}.");
    let title = format!("Facts that at least one side does not report ({})", names.len());
    let unknown = Section::new("", title).with(facts(result, &result.unknown));
    section.with_all(unknown.unless_empty().into_iter().map(|it| it.depth(Depth::Brief(line.clone()))))
}

fn facts(result: &CompareResult, all: &[FactDifference]) -> Table {
    let mut columns = vec![Column::text("what")];
    columns.extend(result.sides.iter().map(|side| Column::text(side.name.clone()).wraps()));
    let row = |it: &FactDifference| {
        Row::of(std::iter::once(Some(it.what.clone())).chain(it.values.iter().cloned()))
    };
    Table::new(columns, all.iter().map(row).collect())
}

/// The contrasts that are shown first: differences that matter, or, if none can be decided, the largest ones with
/// their size.
fn contrasts(result: &CompareResult) -> Section {
    let mut sorted: Vec<&RunContrast> = result.contrasts.iter().collect();
    sorted.order_by(|a, b| {
        b.comparison
            .primary
            .cmp(&a.comparison.primary)
            .then(reading::by_severity(&a.comparison, &b.comparison))
    });
    let matters = |it: &&RunContrast| {
        let is_large = it.comparison.ratio.is_none_or(|ratio| ratio.ln().abs() > result.margin.ln_1p());
        let is_large = is_large || it.above_histogram != [0, 0];
        it.comparison.primary || (it.comparison.outcome != Outcome::Equivalent && is_large)
    };
    let (shown, small): (Vec<&RunContrast>, Vec<&RunContrast>) = sorted.iter().copied().partition(matters);
    let margin = share(result.margin);
    let folded =
        Section::new("", format!("Comparisons without a difference above {margin}: {}", small.len()));
    let folded = folded.depth(Depth::Detail).with(table(&small, ""));
    let section = Section::new("contrasts", "Verdicts").with(table(&shown, MIDDLE));
    let section = section.with(forest(&sorted, result.margin)).with(folded);
    let all_small = (!result.contrasts.is_empty() && shown.is_empty()).then(|| match small.len() {
        1 => Block::note(format!("The only comparison shows no difference above {margin}.")),
        count => Block::note(format!("None of {count} comparisons shows a difference above {margin}.")),
    });
    let signs = (!result.contrasts.is_empty())
        .then(|| Block::note(SIGNS.replace("Ratios compare repeat by repeat. ", "")));
    let basis = (!result.basis.is_empty()).then(|| Block::note(result.basis.clone()));
    section.with_all(all_small).with_all(basis).with_all(signs)
}

/// `note` appears once, below the first table.
fn table(contrasts: &[&RunContrast], note: &'static str) -> Table {
    // Two sides have one pair.
    let is_one_pair = contrasts.windows(2).all(|pair| {
        (&pair[0].comparison.cell, &pair[0].comparison.baseline)
            == (&pair[1].comparison.cell, &pair[1].comparison.baseline)
    });
    let columns = vec![
        Column::text("cell"),
        Column::text("statistic"),
        Column::text("against").importance(if is_one_pair { 1 } else { 5 }),
        Column { note, ..Column::number("before (median)") },
        Column::number("now (median)"),
        Column::text("ratio"),
        Column::text("verdict"),
        Column::number("p").importance(2),
    ];
    let row = |it: &&RunContrast| {
        let comparison = &it.comparison;
        let decides = if comparison.primary { " (decides)" } else { "" };
        // The middle value is above the end of a histogram if half of them are.
        let figure = |side: usize, figure: f64| {
            let is_above = it.above_histogram[side] as usize * 2 >= it.values[side].len().max(1);
            format!("{}{}", if is_above { "> " } else { "" }, value(comparison.statistic, figure))
        };
        // A value above the end of a histogram counts with this end.
        let ratio = match it.above_histogram {
            [0, 0] => reading::cell_with_reason(comparison, None, ", the median over all pairs of repeats"),
            [0, _] => reading::bounded_cell(comparison, "at least"),
            _ => reading::bounded_cell(comparison, "at most"),
        };
        let reading = Reading::of(comparison.outcome);
        let verdict = Cell { tone: reading.tone, ..reading.word.into() };
        let cell = Some(it.of_cell.clone()).filter(|cell| !cell.is_empty());
        Row::of::<Cell>([
            cell.into(),
            format!("{} {}{decides}", comparison.probe, comparison.statistic).into(),
            format!("{} - {}", comparison.cell, comparison.baseline).into(),
            figure(0, comparison.baseline_value).into(),
            figure(1, comparison.cell_value).into(),
            ratio,
            verdict,
            p_value(comparison).into(),
        ])
    };
    Table::new(columns, contrasts.iter().map(row).collect())
}

/// Empty if a known mechanism decided, because it has no p-value.
fn p_value(comparison: &Comparison) -> String {
    let is_decided = matches!(comparison.outcome, Outcome::Better | Outcome::Worse);
    let is_open = comparison.ratio_low.is_none() && comparison.ratio_high.is_none();
    if is_decided && is_open && comparison.p_value >= 1.0 {
        String::new()
    } else {
        probability(comparison.p_value)
    }
}

fn forest(sorted: &[&RunContrast], margin: f64) -> Forest {
    let row = |it: &&RunContrast| {
        let comparison = &it.comparison;
        let cell = if it.of_cell.is_empty() { String::new() } else { format!("{}: ", it.of_cell) };
        Some(ForestRow {
            label: format!("{cell}{} {}", comparison.probe, comparison.statistic),
            reading: Reading::of(comparison.outcome),
            ratio: comparison.ratio.filter(|ratio| ratio.is_finite() && *ratio > 0.0)?,
            interval: reading::interval(comparison).filter(|(low, high)| low.is_some() || high.is_some()),
        })
    };
    Forest { rows: sorted.iter().filter_map(row).collect(), margin }
}

fn causes(result: &CompareResult) -> Section {
    let columns = vec![
        Column::text("cause").wraps(),
        Column::text("probe"),
        Column::number("before"),
        Column::number("now"),
        Column::text("difference (95 %)"),
        Column::text("change"),
    ];
    let row = |it: &CauseDifference| {
        let tone = match it.change {
            CauseChange::New | CauseChange::More => Tone::Bad,
            CauseChange::Gone | CauseChange::Less => Tone::Good,
            CauseChange::Same | CauseChange::CannotTell => Tone::Plain,
        };
        let rate = |ns_per_s: f64| format!("{} per s", figure::nanoseconds(ns_per_s.abs() as u64));
        Row::of::<Cell>([
            it.cause.clone().into(),
            it.probe.clone().into(),
            format!("{} ({})", rate(it.baseline_ns_per_s), share(it.baseline_share)).into(),
            format!("{} ({})", rate(it.ns_per_s), share(it.share)).into(),
            reading::interval_of_rates(it).into(),
            Cell { tone, ..it.change.name().replace('_', " ").into() },
        ])
    };
    let section = Section::new("causes", "Late time by cause").meaning(
        "late time of the spikes above the plan's `late_above`, by default half of its limit; of watched threads with a deadline, \
         the time of all late responses. If no spike is above `late_above`, only the largest spikes of each run count: a smaller \
         `late_above` counts all. Cells of one run are compared repeat by repeat, different runs run by run",
    );
    let is_shown = |it: &&CauseDifference| {
        !matches!(it.change, CauseChange::Same | CauseChange::CannotTell)
            || it.share.max(it.baseline_share) >= CAUSE_SHARE_LEAST
    };
    let (shown, small): (Vec<&CauseDifference>, Vec<&CauseDifference>) =
        result.causes.iter().partition(is_shown);
    let table =
        |causes: &[&CauseDifference]| Table::new(columns.clone(), causes.iter().copied().map(row).collect());
    let title = format!(
        "Causes of less than {}, without a known difference: {}",
        share(CAUSE_SHARE_LEAST),
        small.len()
    );
    let line = format!("{title} (--details lists them)");
    let folded = Section::new("", title).with(table(&small)).unless_empty();
    section.with(table(&shown)).with_all(folded.into_iter().map(|it| it.depth(Depth::Brief(line.clone()))))
}

/// The values themselves, one per run or repeat.
fn repeats(result: &CompareResult) -> Section {
    let item = |it: &RunContrast| {
        let comparison = &it.comparison;
        let values = |values: &[f64]| {
            values.iter().map(|one| value(comparison.statistic, *one)).collect::<Vec<_>>().join(", ")
        };
        let cell = if it.of_cell.is_empty() { String::new() } else { format!("{} ", it.of_cell) };
        Item::from(format!(
            "{cell}{} {}: {}: {}; {}: {}",
            comparison.probe,
            comparison.statistic,
            comparison.baseline,
            values(&it.values[0]),
            comparison.cell,
            values(&it.values[1])
        ))
    };
    let items: Vec<Item> = result.contrasts.iter().map(item).collect();
    let inner = Section::new("", "One value per run or repeat").depth(Depth::Folded).with(items);
    Section::new("values", "Values").depth(Depth::Detail).with_all(inner.unless_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_title_names_the_tags_or_else_the_runs_that_tell_the_sides_apart() {
        let side = |name: &str, runs: &[&str], tags: &[&str]| CompareSide {
            name: name.to_owned(),
            runs: runs.iter().map(|it| (*it).to_owned()).collect(),
            tags: tags.iter().map(|it| (*it).to_owned()).collect(),
            ..CompareSide::default()
        };
        let of = |sides: [CompareSide; 2]| title(&sides);
        let tagged = [side("A", &["r/1", "r/2"], &["lab", "old"]), side("B", &["r/3"], &["lab", "new"])];
        assert_eq!(of(tagged), "A (#old) against B (#new)");
        let plain = [side("A", &["r/1/", "r/2"], &["lab"]), side("B", &["base.json"], &["lab"])];
        assert_eq!(of(plain), "A (1 and 1 more) against B (base.json)");
        let cell =
            |name: &str, cell: &str| CompareSide { cell: Some(cell.to_owned()), ..side(name, &["r/1"], &[]) };
        assert_eq!(of([cell("A", "idle"), cell("B", "l3")]), "A (1:idle) against B (1:l3)");
        assert_eq!(of([side("A", &["a/run"], &[]), side("B", &["b/run"], &[])]), "A against B");
    }
}
