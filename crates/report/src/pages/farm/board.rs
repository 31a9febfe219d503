//! One board: a statistic over its runs with its changes, its current problems, and the runs.

use super::{FarmAnswer, about, age, sentence, shortened, state};
use crate::pages::runs::course;
use crate::section::{Block, Cell, Column, Depth, Page, Row, Section, Table, Verdict, sentences};
use crate::words::counted;
use std::collections::BTreeMap;
use whylate_core::figure::nanoseconds;
use whylate_core::result::{FarmBoard, FarmRun, RunSeries};

/// The most runs that have a row, the newest first.
const ROWS_MAX: usize = 200;

const MEANING: &str = "for each run, the figure of its worst CPU over all repeats";
const MEANING_WITHOUT_MISSED: &str = "for each run, the figure of its worst CPU over all repeats. The \
    figures leave out missed periods, because an earlier version of whylate stored at least one of the runs \
    without counting missed periods";

/// A board with all its series, and the requested series.
pub fn board(board: &FarmBoard, series: Option<&RunSeries>, answer: &FarmAnswer) -> Page {
    let mut page = answer.page(board.host.clone());
    let runs = runs(board);
    if let Some((_, run)) = runs.first() {
        let (_, word, tone) = state(run.verdict);
        let reason = format!("the newest run, {}, {}", run.name, age(run, answer.now_s));
        page.verdict = Some(Verdict { word, reason, tone });
        let machine = Some(shortened(&run.machine)).filter(|text| !text.is_empty());
        page.about.insert(0, about(run).into_iter().chain(machine).collect());
    }
    page.failures.extend(board.series.iter().flat_map(|it| &it.alarms).map(sentence));
    page.sections.extend(
        match series {
            Some(series) if !series.points.is_empty() => {
                let (picture, figures) = course(series, None);
                let leaves_out = board.series.iter().any(|it| {
                    it.leaves_missed_out
                        && it.plan == series.plan
                        && it.cell == series.cell
                        && series.statistic.starts_with(&format!("{} ", it.probe))
                });
                let picture = picture.meaning(if leaves_out { MEANING_WITHOUT_MISSED } else { MEANING });
                let all = Section::new("figures", "The figure of each run").depth(Depth::Folded);
                picture.with(all.with(figures))
            }
            _ => Section::new("series", "Trend over the runs").with(missing(board)),
        }
        .unless_empty(),
    );
    page.sections.push(table(&runs));
    page
}

/// Why there is no picture, and which series the board has.
fn missing(board: &FarmBoard) -> Vec<crate::section::Item> {
    let has = board.series.iter().filter(|series| !series.cell.is_empty());
    let has =
        has.map(|it| format!("{} {} {}", shortened(&it.plan), shortened(&it.cell), shortened(&it.probe)));
    sentences(
        ["No complete run has the requested series. All runs, complete or not, have these:".to_owned()]
            .into_iter()
            .chain(has),
    )
}

/// The runs with their plans, the newest first, each once.
fn runs(board: &FarmBoard) -> Vec<(&str, &FarmRun)> {
    let all =
        board.series.iter().flat_map(|series| series.runs.iter().map(|run| (series.plan.as_str(), run)));
    let by_name: BTreeMap<(u64, &str), (&str, &FarmRun)> =
        all.map(|(plan, run)| ((run.started_s, run.name.as_str()), (plan, run))).collect();
    by_name.into_values().rev().collect()
}

fn table(runs: &[(&str, &FarmRun)]) -> Section {
    let columns = vec![
        Column::text("started"),
        Column::text("plan"),
        Column::text("verdict"),
        Column::number("max"),
        Column::text("kernel").importance(4),
        Column::text("run").importance(3),
        Column::text("missing, or different from the request").wraps().importance(3),
    ];
    let row = |(plan, run): &(&str, &FarmRun)| {
        let (_, word, tone) = state(run.verdict);
        let is_incomplete =
            run.verdict.is_some_and(|verdict| verdict == whylate_core::result::Verdict::Incomplete);
        let known = [Some(&run.mismatches), Some(&run.reason).filter(|_| is_incomplete)];
        let mismatches =
            known.into_iter().flatten().find(|text| !text.is_empty()).map(|text| shortened(text));
        Row::of::<Cell>([
            run.started_at.as_str().into(),
            shortened(plan).into(),
            Cell { tone, ..word.into() },
            run.max_ns.map(nanoseconds).into(),
            shortened(&run.kernel).into(),
            run.name.as_str().into(),
            mismatches.into(),
        ])
    };
    let section = Section::new("runs", counted(runs.len(), "run"));
    let section = section.with(Table::new(columns, runs.iter().take(ROWS_MAX).map(row).collect()));
    let cut = runs.len().saturating_sub(ROWS_MAX);
    section.with_all((cut > 0).then(|| Block::note(format!("Older runs that are not listed: {cut}."))))
}
