//! Boards in answers: all of them with their newest runs, or one with all its runs.

use crate::engine::{AnswerRow, AnswerRows};
use crate::lake::is_plain;
use std::collections::BTreeMap;
use whylate_core::plan::Statistic;
use whylate_core::result::{
    FarmAlarm, FarmBoard, FarmRun, FarmSeries, RunChange, RunPoint, RunSeries, Verdict,
};
use whylate_stats::changes;

/// The columns of [`history_of`], in addition to those of the question `boards`.
const HISTORY: &str = "SELECT r.host AS host, r.plan AS plan, r.run AS run, r.started_at AS started_at, \
    r.started_s AS started_s, r.kernel AS kernel, r.architecture AS architecture, r.processor AS processor, \
    r.verdict AS verdict, r.reason AS reason, r.mismatches AS mismatches, \
    r.labels AS labels, r.limit_ns AS limit_ns, r.max_ns AS max_ns, q.cell AS cell, \
    q.probe AS probe, max(CASE WHEN q.quantile = 0.5 THEN coalesce(q.corrected_ns, q.value_ns) END) AS p50_ns, \
    max(CASE WHEN q.quantile = 0.99 THEN coalesce(q.corrected_ns, q.value_ns) END) AS p99_ns, \
    max(CASE WHEN q.quantile = 0.999 THEN coalesce(q.corrected_ns, q.value_ns) END) AS p999_ns, \
    max(CASE WHEN q.quantile = 0.9999 THEN coalesce(q.corrected_ns, q.value_ns) END) AS p9999_ns, \
    max(CASE WHEN q.quantile = 0.5 THEN q.value_ns END) AS p50_recorded_ns, \
    max(CASE WHEN q.quantile = 0.99 THEN q.value_ns END) AS p99_recorded_ns, \
    max(CASE WHEN q.quantile = 0.999 THEN q.value_ns END) AS p999_recorded_ns, \
    max(CASE WHEN q.quantile = 0.9999 THEN q.value_ns END) AS p9999_recorded_ns, \
    CASE WHEN count(q.corrected_ns) = count(*) THEN 'corrected' ELSE 'recorded' END AS kind \
    FROM runs AS r LEFT JOIN quantiles AS q ON r.host = q.host AND r.run = q.run WHERE r.host = ";
const HISTORY_END: &str = " GROUP BY r.host, r.plan, r.run, r.started_at, r.started_s, r.kernel, r.architecture, \
    r.processor, r.verdict, r.reason, r.mismatches, r.labels, r.limit_ns, r.max_ns, q.cell, q.probe ORDER BY started_s, run, cell, probe";

/// The columns of quantiles that leave missed periods out.
const RECORDED: [&str; 4] = ["p50_recorded_ns", "p99_recorded_ns", "p999_recorded_ns", "p9999_recorded_ns"];

/// The statement for all runs of a board. `None` for a name that `push` never gives a machine: such a name never
/// becomes part of a statement.
pub fn history_of(host: &str) -> Option<String> {
    is_plain(host).then(|| format!("{HISTORY}'{host}'{HISTORY_END}"))
}

/// The boards in an answer to `boards` or [`history_of`], by name, with their alarms from the answer to `alarms`.
pub fn boards(rows: &AnswerRows, alarms: Option<&AnswerRows>) -> Vec<FarmBoard> {
    let mut found: BTreeMap<[String; 4], FarmSeries> = BTreeMap::new();
    let mut recorded: BTreeMap<[String; 4], Vec<[Option<u64>; 4]>> = BTreeMap::new();
    for row in rows.by_name() {
        let [plan, cell, probe] = ["plan", "cell", "probe"].map(|name| row.text(name));
        let key = [row.text("host"), plan.clone(), cell.clone(), probe.clone()];
        let series = found.entry(key.clone()).or_insert_with(|| FarmSeries {
            plan,
            cell,
            probe,
            ..FarmSeries::default()
        });
        let run = run(&row);
        let has_figures = run.quantiles_ns.iter().any(Option::is_some);
        series.leaves_missed_out |= has_figures && row.text("kind") == "recorded";
        series.teaching_runs = row.count("teaching_runs");
        series.runs.push(run);
        recorded.entry(key).or_default().push(RECORDED.map(|name| row.count(name)));
    }
    // A change of the kind of figure would look like a change of the board.
    for (key, series) in found.iter_mut().filter(|(_, series)| series.leaves_missed_out) {
        let figures = recorded.remove(key).unwrap_or_default();
        for (run, figures) in series.runs.iter_mut().zip(figures) {
            run.quantiles_ns = figures;
        }
    }
    for row in alarms.into_iter().flat_map(AnswerRows::by_name) {
        let is_of = |key: &[String; 4]| key[0] == row.text("host") && key[1] == row.text("plan");
        if let Some((_, series)) = found.iter_mut().find(|(key, _)| is_of(key)) {
            series.alarms.push(alarm(&row));
        }
    }
    let mut boards: Vec<FarmBoard> = Vec::new();
    for ([host, ..], series) in found {
        match boards.last_mut() {
            Some(board) if board.host == host => board.series.push(series),
            _ => boards.push(FarmBoard { host, series: vec![series] }),
        }
    }
    boards
}

fn run(row: &AnswerRow<'_>) -> FarmRun {
    let machine = [row.text("architecture"), row.text("processor")];
    FarmRun {
        name: row.text("run"),
        started_at: row.text("started_at"),
        started_s: row.count("started_s").unwrap_or_default(),
        kernel: row.text("kernel"),
        machine: machine.into_iter().filter(|it| !it.is_empty()).collect::<Vec<_>>().join(" "),
        verdict: row.text("verdict").parse().ok(),
        mismatches: row.text("mismatches"),
        reason: row.text("reason"),
        labels: row.words("labels"),
        limit_ns: row.count("limit_ns"),
        max_ns: row.count("max_ns"),
        quantiles_ns: ["p50_ns", "p99_ns", "p999_ns", "p9999_ns"].map(|name| row.count(name)),
    }
}

fn alarm(row: &AnswerRow<'_>) -> FarmAlarm {
    FarmAlarm {
        kind: row.text("alarm"),
        what: row.text("what"),
        measured: row.number("measured"),
        allowed: row.number("allowed"),
    }
}

/// A quantile over the runs of a series, and where it changes. Runs without it and incomplete runs are left out.
/// `None` for another statistic.
pub fn course(series: &FarmSeries, statistic: Statistic) -> Option<RunSeries> {
    let index = FarmRun::QUANTILES.iter().position(|name| *name == statistic.name())?;
    let point = |run: &FarmRun| {
        Some(RunPoint {
            path: run.name.clone(),
            started_at: run.started_at.clone(),
            kernel: run.kernel.clone(),
            tags: Vec::new(),
            value: run.quantiles_ns[index]? as f64,
        })
    };
    let complete = series.runs.iter().filter(|run| run.verdict != Some(Verdict::Incomplete));
    let points: Vec<RunPoint> = complete.filter_map(point).collect();
    let values: Vec<f64> = points.iter().map(|point| point.value).collect();
    let changes = changes::changes(&values).into_iter();
    let changes: Vec<RunChange> =
        changes.map(|it| RunChange { point: it.at, p_value: it.p_value, ratio: it.ratio }).collect();
    let levels = match values.is_empty() {
        true => Vec::new(),
        false => changes::levels(&values, changes.iter().map(|change| change.point)),
    };
    Some(RunSeries {
        plan: series.plan.clone(),
        cell: series.cell.clone(),
        statistic: format!("{} {statistic}", series.probe),
        points,
        changes,
        levels,
    })
}
