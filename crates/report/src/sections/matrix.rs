//! Cells × (the quantile that decides, max): one row per cell, with its worst CPU and the verdict against its
//! baselines.

use super::summary::{deciding, how_bad};
use crate::reading;
use crate::section::{Block, Cell, Column, Depth, Row, Section, Table, Tone};
use crate::words::probe_meaning;
use crate::worst::{self, CellSeries};
use whylate_core::SeriesName;
use whylate_core::figure::{nanoseconds, rate, share, value};
use whylate_core::order::InOrder;
use whylate_core::plan::{Chain, Samples, Statistic};
use whylate_core::result::{CellResult, Comparison, Outcome, Quantiles, RunResult};

/// What the table shows: its figures differ from those that are compared.
const MIDDLE: &str = "Worst CPU: medians of the repeats; max is the largest of all repeats.";
const MIDDLE_AND_CORRECTED: &str =
    "Worst CPU, with missed periods: medians of the repeats; max is the largest.";
const CORRECTED_ALONE: &str = "Quantiles count missed periods, too; `--details` also shows them as recorded.";
/// A CPU whose figure has this multiple of the middle CPU's is named.
const OUTLYING: f64 = 2.0;
/// The most of them that are named.
const OUTLYING_MAX: usize = 5;
/// The most lines of tables on a screen, heads included; other series have one line each.
const LINES_MAX: usize = 18;
const HEAD_LINES: usize = 4;

pub(super) fn of_run(run: &RunResult) -> Vec<Section> {
    let mut all = worst::series(run);
    let decides = deciding(run).and_then(|cells| Some(cells.first()?.name.clone()));
    if run.cells.len() == 1 {
        // The table of the watched threads has all of them.
        all.retain(|(name, _)| Some(name) == decides.as_ref() || !name.starts_with("task/"));
    }
    let has_signs = !run.comparisons.is_empty();
    let shown = shown(run, &all, decides.as_deref());
    let last = shown.iter().rposition(|is_shown| *is_shown);
    let mut shown_cells =
        all.iter().zip(&shown).filter(|(_, is_shown)| **is_shown).flat_map(|((_, cells), _)| cells);
    let is_any_corrected = shown_cells.any(CellSeries::is_corrected);
    let figures = if is_any_corrected { MIDDLE_AND_CORRECTED } else { MIDDLE };
    let part = |(index, (name, cells)): (usize, (String, Vec<CellSeries<'_>>))| {
        let of = SeriesName::of(&name);
        let is_chain = of.series.and_then(Chain::of_series).is_some();
        let meaning = if is_chain { "how long instances of the chain take" } else { probe_meaning(of.probe) };
        let depth = if shown[index] { Depth::Main } else { Depth::Brief(brief(run, &name, &cells)) };
        let section = Section::new("", name).meaning(meaning).depth(depth).with(table(run, &cells));
        let outlying = cells.iter().filter_map(outlying).map(Block::note);
        let notes = match (Some(index) == last, has_signs) {
            (true, true) => vec![figures.to_owned(), reading::signs(&run.comparisons)],
            (true, false) if is_any_corrected => vec![CORRECTED_ALONE.to_owned()],
            _ => Vec::new(),
        };
        section.with_all(outlying).with_all(notes.into_iter().map(Block::note))
    };
    let parts: Vec<Section> = all.into_iter().enumerate().map(part).collect();
    Section::new("matrix", "").with_all(parts).unless_empty()
}

/// The series that have a table: the one that decides, those with a verdict, and the first ones.
fn shown(run: &RunResult, all: &[(String, Vec<CellSeries<'_>>)], decides: Option<&str>) -> Vec<bool> {
    let has_verdict = |name: &str| {
        let is_decided = |it: &&Comparison| matches!(it.outcome, Outcome::Worse | Outcome::Better);
        run.comparisons.iter().filter(is_decided).any(|it| it.probe == name)
    };
    let lines = all.iter().scan(0, |lines, (_, cells)| {
        *lines += cells.len() + HEAD_LINES;
        Some(*lines)
    });
    let is_shown = |((name, _), lines): (&(String, Vec<CellSeries<'_>>), usize)| {
        lines <= LINES_MAX || decides == Some(name) || has_verdict(name)
    };
    all.iter().zip(lines).map(is_shown).collect()
}

fn brief(run: &RunResult, name: &str, cells: &[CellSeries<'_>]) -> String {
    how_bad(run, cells).map_or_else(|| format!("{name}: no samples."), |figures| format!("{name}: {figures}"))
}

/// The compared statistics of a series: for gaps the time that they took, otherwise the quantile that decides.
fn statistics(run: &RunResult, cells: &[CellSeries<'_>]) -> [Statistic; 2] {
    let primary = run.plan.primary_statistic();
    let decides = cells.first().zip(primary).filter(|(cell, primary)| primary.is_of(&cell.name));
    match (cells.first().and_then(CellSeries::samples), decides.map(|(_, primary)| primary.statistic)) {
        (Some(Samples::Gap), _) => [Statistic::LostShare, Statistic::Max],
        (_, Some(quantile @ (Statistic::Median | Statistic::P99 | Statistic::P9999))) => {
            [quantile, Statistic::Max]
        }
        _ => [Statistic::P999, Statistic::Max],
    }
}

fn table(run: &RunResult, cells: &[CellSeries<'_>]) -> Table {
    let statistics = statistics(run, cells);
    let (first, other) = match statistics[0] {
        Statistic::LostShare => ("time lost", "median"),
        Statistic::Median => ("median", "p99.9"),
        quantile => (quantile.name(), "median"),
    };
    let mut baselines: Vec<&str> = compared(run, cells).map(|it| it.baseline.as_str()).collect();
    baselines.dedup();
    let against = |figure: &str| match baselines[..] {
        [baseline] => format!("{figure} vs {baseline}"),
        _ => format!("{figure} ratio"),
    };
    let columns = vec![
        Column::text("cell"),
        Column::number("worst CPU").importance(2),
        Column::number(other).importance(1),
        Column::number(first),
        Column::text("against").importance(if baselines.len() == 1 { 0 } else { 3 }),
        Column::text(against(first)).importance(7),
        Column::number("max"),
        Column::text(against("max")).importance(6),
        Column::text("load rates").importance(3),
    ];
    let largest = cells.iter().filter_map(CellSeries::max_ns).max();
    let worst = cells.iter().position(|cell| cell.max_ns() == largest);
    let rows = { cells.iter().enumerate() }
        .flat_map(|(index, cell)| rows(run, cells, cell, statistics, Some(index) == worst));
    Table::new(columns, rows.collect())
}

/// The comparisons of a series.
fn compared<'r>(run: &'r RunResult, cells: &[CellSeries<'_>]) -> impl Iterator<Item = &'r Comparison> {
    let name = cells.first().map(|cell| cell.name.clone());
    run.comparisons.iter().filter(move |it| Some(&it.probe) == name.as_ref())
}

/// The row of a cell, with the verdict against its first baseline, and one more row for each other baseline.
fn rows(
    run: &RunResult,
    all: &[CellSeries<'_>],
    cell: &CellSeries<'_>,
    statistics: [Statistic; 2],
    is_worst: bool,
) -> Vec<Row> {
    let is_of_cell = |it: &&Comparison| it.cell == cell.cell.name && it.probe == cell.name;
    let mut baselines: Vec<&str> = Vec::new();
    for it in run.comparisons.iter().filter(is_of_cell) {
        if statistics.contains(&it.statistic) && !baselines.contains(&it.baseline.as_str()) {
            baselines.push(&it.baseline);
        }
    }
    let said = |baseline: Option<&&str>, statistic: Statistic| {
        let mut of_cell = run.comparisons.iter().filter(is_of_cell);
        let found = of_cell.find(|it| Some(&it.baseline.as_str()) == baseline && it.statistic == statistic);
        let largest = |name: &str| Some(all.iter().find(|it| it.cell.name == name)?.max_ns()? as f64);
        let shown = |it: &Comparison| match it.statistic {
            Statistic::Max => largest(&it.baseline).zip(largest(&it.cell)),
            _ => None,
        };
        found.map_or_else(Cell::default, |it| reading::cell_with_reason(it, shown(it), " repeat by repeat"))
    };
    // The figures behind the ratios, if there are any.
    let figure = |statistic: Statistic| {
        let found = worst::middle(run, cell, statistic);
        let pooled = || {
            let of: fn(&Quantiles) -> u64 = match statistic {
                Statistic::LostShare => return cell.lost_share().map(share),
                Statistic::Median => |figures| figures.p50_ns,
                Statistic::P99 => |figures| figures.p99_ns,
                Statistic::P9999 => |figures| figures.p9999_ns,
                _ => |figures| figures.p999_ns,
            };
            cell.quantile(of).map(nanoseconds)
        };
        found.map(|found| value(statistic, found)).or_else(pooled)
    };
    let other = if statistics[0] == Statistic::Median { Statistic::P999 } else { Statistic::Median };
    let (figure, other) = (figure(statistics[0]), figure(other));
    let is_over = cell.max_ns().zip(run.plan.limit).is_some_and(|(max, limit)| max > limit.0);
    let tone = match (is_worst, is_over) {
        (true, true) => Tone::Bad,
        (true, false) => Tone::Warn,
        (false, _) => Tone::Plain,
    };
    let said_of = |baseline: Option<&&str>| {
        [
            baseline.map(|name| (*name).to_owned()).into(),
            said(baseline, statistics[0]),
            said(baseline, statistics[1]),
        ]
    };
    let [against, first, second] = said_of(baselines.first());
    let cells = vec![
        cell.cell.name.as_str().into(),
        cell.worst().filter(|_| cell.cpus.len() > 1).map(|cpu| cpu.cpu.to_string()).into(),
        other.into(),
        figure.into(),
        against,
        first,
        Cell { tone, ..cell.max_ns().map(nanoseconds).into() },
        second,
        loads_of(cell.cell).into(),
    ];
    let others = baselines.iter().skip(1).map(|baseline| {
        let [against, first, second] = said_of(Some(baseline));
        let none = Cell::default;
        let cells = vec![none(), none(), none(), none(), against, first, none(), second, none()];
        Row { cells, is_part: true, ..Row::default() }
    });
    std::iter::once(Row { cells, ..Row::default() }).chain(others).collect()
}

/// What each load of a cell achieved: `11.6 GB/s; 7.52 k operations/s`.
fn loads_of(cell: &CellResult) -> Option<String> {
    let rates: Vec<String> = cell.rates.iter().map(|it| rate(it.mean, &it.unit)).collect();
    (!rates.is_empty()).then(|| rates.join("; "))
}

/// The CPUs that differ from the others: `l3: CPUs 17 (412 us), 40 (380 us) have more than 2 times the p99.9 of the
/// middle CPU (53.0 us).`
fn outlying(cell: &CellSeries<'_>) -> Option<String> {
    let figure = |cpu: &&whylate_core::result::CpuResult| Some((cpu.judged_quantiles()?.p999_ns, cpu.cpu));
    let mut all: Vec<_> = cell.cpus.iter().filter_map(figure).collect();
    if all.len() < 3 || cell.samples() == Some(Samples::Gap) {
        return None;
    }
    all.order();
    let middle = all[all.len() / 2].0;
    let apart: Vec<_> =
        all.iter().rev().filter(|(p999, _)| *p999 as f64 > OUTLYING * middle as f64).collect();
    let named = apart.iter().take(OUTLYING_MAX).map(|(p999, cpu)| format!("{cpu} ({})", nanoseconds(*p999)));
    let named = named.collect::<Vec<String>>().join(", ");
    let more = apart.len().saturating_sub(OUTLYING_MAX);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    (!apart.is_empty()).then(|| {
        format!(
            "{}: on CPU {named}{more}, p99.9 is more than {OUTLYING} times the median of all CPUs ({}).",
            cell.cell.name,
            nanoseconds(middle)
        )
    })
}
