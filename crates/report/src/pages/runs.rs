//! The list of runs.

use crate::charts::Chart;
use crate::reading::times;
use crate::section::{Block, Cell, Column, Page, Row, Section, Table, Tone};
use crate::words::counted;
use serde_json::{Value, json};
use whylate_core::figure;
use whylate_core::plan::SeriesStatistic;
use whylate_core::result::{RUNS_MIN, RunPoint, RunSeries, RunState, RunSummary, RunsResult, Verdict};

/// What the figures of the list are.
const FIGURES: &str = "max and p99 are of the series that decides the verdict, over all repeats. Each is the \
    largest of all CPUs and cells.";
/// The bar of the largest value.
const BAR_WIDTH: usize = 30;

/// The runs of a folder; `all` is their number before the search. `address` gives the address of a run on a web
/// server.
pub fn runs(result: &RunsResult, all: usize, address: Option<fn(&RunSummary) -> String>) -> Page {
    if let Some(series) = &result.series {
        return self::series(series, None);
    }
    let columns = vec![
        Column::text("started"),
        Column::text("plan"),
        Column::text("verdict"),
        Column { note: FIGURES, ..Column::number("max").importance(7) },
        Column::number("p99").importance(5),
        Column::number("limit").importance(2),
        Column::text("kernel").importance(3),
        Column::text("host").importance(3),
        Column::text("tags and note").wraps().importance(6),
        Column::text("run"),
    ];
    let name = |run: &RunSummary| {
        run.path.strip_prefix(&*result.folder).unwrap_or(&run.path).trim_start_matches('/').to_owned()
    };
    let link = |run: &RunSummary| address.map(|of| (of(run), name(run)));
    let rows: Vec<Row> =
        result.runs.iter().map(|run| Row { link: link(run), ..row(run, name(run)) }).collect();
    let shown = rows.len();
    let note = match (shown, all) {
        (_, 0) => format!("No runs in {}.", result.folder),
        (shown, all) if shown == all => format!("{} in {}.", counted(all, "run"), result.folder),
        (shown, all) => format!("{shown} of {} in {}.", counted(all, "run"), result.folder),
    };
    let section = Section::new("runs", "").with(Table::new(columns, rows)).with(Block::note(note));
    let title = if address.is_some() { "Runs" } else { "" };
    Page { title: title.to_owned(), sections: vec![section], ..Page::default() }
}

/// The facts about a run before its first sample.
pub fn begun(run: &RunSummary) -> Page {
    let origin = format!("{} on {}, Linux {}", run.started_at, run.host, run.kernel);
    Page { origin, title: run.plan.clone(), ..Page::default() }
}

/// A statistic over runs: a dot or a bar for each, and its changes. `address` gives the address of a run on a web
/// server.
pub fn series(series: &RunSeries, address: Option<fn(&str) -> String>) -> Page {
    let title = format!("{}, cell {} of plan {}", series.statistic, series.cell, series.plan);
    let (picture, figures) = course(series, address);
    let sections = vec![picture.with(figures)];
    Page { origin: "whylate runs".to_owned(), title, sections, ..Page::default() }
}

/// The picture with its remarks, and the figures.
pub(super) fn course(series: &RunSeries, address: Option<fn(&str) -> String>) -> (Section, Table) {
    let columns = vec![
        Column::text("started"),
        Column::text("kernel").importance(4),
        Column::text("tags").importance(3),
        Column::number(series.statistic.as_str()),
        Column::text("").importance(6),
        Column::text("change"),
    ];
    let statistic = series.statistic.parse::<SeriesStatistic>().ok().map(|it| it.statistic);
    let most = series.points.iter().map(|point| point.value).fold(f64::MIN_POSITIVE, f64::max);
    let row = |(index, point): (usize, &RunPoint)| {
        let change = series.changes.iter().find(|change| change.point == index);
        let value = statistic.map_or_else(|| point.value.to_string(), |it| figure::value(it, point.value));
        let length = (BAR_WIDTH as f64 * point.value / most).round() as usize;
        let tags: Vec<String> = point.tags.iter().map(|tag| format!("#{tag}")).collect();
        let text = change.map(|it| {
            let arrow = if it.ratio > 1.0 { "▲" } else { "▼" };
            format!("{arrow} {} × from here on (p = {:.2})", times(it.ratio), it.p_value.max(0.01))
        });
        let name = point.path.rsplit('/').next().unwrap_or_default().to_owned();
        let link = address.map(|of| (of(&point.path), name));
        let row = Row::of::<Cell>([
            point.started_at.as_str().into(),
            point.kernel.as_str().into(),
            tags.join(" ").into(),
            value.into(),
            "█".repeat(length).into(),
            Cell { tone: Tone::Warn, ..text.into() },
        ]);
        Row { link, anchor: anchor(index), ..row }
    };
    let rows: Vec<Row> = series.points.iter().enumerate().map(row).collect();
    let note = match (series.changes.len(), series.points.len()) {
        (_, 1) => format!("1 run is too few to show a change: at least {RUNS_MIN} are needed."),
        (_, count @ 0..RUNS_MIN) => {
            format!("{count} runs are too few to show a change: at least {RUNS_MIN} are needed.")
        }
        (0, count) => format!("No change was found in {count} runs."),
        (changes, count) => format!(
            "{} in {count} runs; 5 % of series without a real change also show a change.",
            counted(changes, "change")
        ),
    };
    (
        Section::new("series", "Trend over the runs")
            .meaning("for each run, the median over its repeats; each repeat counts with its worst CPU")
            .with(vec![picture(series)])
            .with(Block::note(note)),
        Table::new(columns, rows),
    )
}

fn anchor(index: usize) -> String {
    format!("run-{}", index + 1)
}

/// A dot for each run, the median between changes, and a line where a change begins.
fn picture(series: &RunSeries) -> Chart {
    let statistic = series.statistic.parse::<SeriesStatistic>().ok().map(|it| it.statistic);
    let dot = |(index, point): (usize, &RunPoint)| {
        let text = format!("{}, {} {}", point.started_at, point.kernel, point.tags.join(" "));
        json!([index + 1, point.value, "idle", text.trim_end(), anchor(index)])
    };
    let changes = series.changes.iter().map(|it| json!([it.point, it.ratio, it.p_value]));
    let dots: Vec<Value> = series.points.iter().enumerate().map(dot).collect();
    Chart {
        caption: format!("{} over the runs, the oldest first", series.statistic),
        hint: "one dot per run: click a dot to see the run; a line is the median between two changes; a dashed line \
            marks a change"
            .to_owned(),
        label: format!("{} of each run", series.statistic),
        is_wide: true,
        data: json!({ "kind": "series", "dots": dots, "levels": series.levels, "changes": changes.collect::<Vec<_>>(),
            "name": series.statistic, "unit": statistic.map_or("", |it| it.unit()), "span_s": 0, "limit_ns": null }),
    }
}

fn row(run: &RunSummary, name: String) -> Row {
    let (verdict, tone) = match (run.verdict, run.state) {
        (Some(Verdict::Fail), _) => ("fail", Tone::Bad),
        (Some(Verdict::Pass), _) => ("pass", Tone::Good),
        (Some(Verdict::Incomplete), _) => ("incomplete", Tone::Warn),
        (Some(Verdict::NoLimit), _) => ("no limit", Tone::Plain),
        (None, RunState::Running) if run.running => ("running", Tone::Plain),
        (None, RunState::Running) => ("not ended", Tone::Warn),
        (None, _) => ("-", Tone::Plain),
    };
    let figures = run.figures.as_ref();
    let figure = |ns: Option<u64>| Cell::from(ns.map(figure::nanoseconds));
    let is_over = figures.is_some_and(|it| it.limit_ns.is_some_and(|limit| it.max_ns > limit));
    let of_max = if is_over { Tone::Bad } else { Tone::Plain };
    let labels = run.tags.iter().map(|tag| format!("#{tag}")).chain(run.note.clone());
    Row::of::<Cell>([
        run.started_at.as_str().into(),
        run.plan.as_str().into(),
        Cell { tone, ..verdict.into() },
        Cell { tone: of_max, ..figure(figures.map(|it| it.max_ns)) },
        figure(figures.and_then(|it| it.p99_ns)),
        figure(figures.and_then(|it| it.limit_ns)),
        run.kernel.as_str().into(),
        run.host.as_str().into(),
        labels.collect::<Vec<_>>().join(" ").into(),
        name.into(),
    ])
}
