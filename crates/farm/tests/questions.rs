//! A simulated lake: every question gives the same rows in every installed engine, quantiles equal those of `stats`,
//! and planted facts are found.
//!
//! `WHYLATE_QUERY_PYTHON` names a Python with `duckdb` and `pyspark`; a missing one is skipped.
//! `benches/farm_engines.sh` makes one, and gives Spark two workers.

mod made;

use made::{ENGINES, Made, PLAN, answer, answers, is_same, make, make_lake, make_run};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use whylate_core::plan::Statistic;
use whylate_core::quantity::CORRECTED;
use whylate_core::result::CauseKind;
use whylate_farm::{AnswerRows, Asked, Engine, Lake, Push, history_of, library};
use whylate_store::{Reader, assemble};
use whylate_testing::{Need, skip};

/// `PYSPARK_SUBMIT_ARGS` names Spark's workers.
#[test]
fn every_engine_gives_the_rows_of_the_others_and_the_quantiles_of_a_report() {
    let folder = tempfile::tempdir().unwrap();
    let (lake, runs) = make_lake(folder.path());
    let questions: Vec<&str> = library().iter().map(|question| question.sql).chain([BUCKETS]).collect();
    let mut first: Option<(Engine, Vec<AnswerRows>)> = None;
    for engine in ENGINES {
        let Some(found) = answers(engine, &lake, &questions) else { continue };
        for (question, rows) in library().iter().zip(&found) {
            of_question(question.name, rows, &runs);
        }
        // Any other quantile can be computed from the histograms by the same rules.
        assert_eq!(quantiles(found.last().unwrap()), quantiles_of(&runs), "{engine:?}");
        let Some((other, known)) = &first else {
            first = Some((engine, found));
            continue;
        };
        for (question, (a, b)) in library().iter().zip(known.iter().zip(&found)) {
            assert!(is_same(a, b), "{}: {other:?}:\n{a:?}\n{engine:?}:\n{b:?}", question.name);
        }
    }
}

/// Checks that the planted facts are found.
fn of_question(name: &str, rows: &AnswerRows, runs: &[PathBuf]) {
    let column = |name: &str| rows.columns.iter().position(|it| it == name).unwrap();
    let words = |name: &str| -> Vec<&str> {
        rows.rows.iter().map(|row| row[column(name)].as_str().unwrap()).collect()
    };
    match name {
        "worst" => assert_eq!(words("host")[0], "b", "{rows:?}"),
        "boards" => of_boards(rows),
        "silent" => assert_eq!(words("host"), ["c"], "{rows:?}"),
        "incomplete" => assert_eq!(words("host"), ["c", "a"], "ten runs of c, one of a: {rows:?}"),
        "alarms" => {
            let found: Vec<_> = words("alarm").into_iter().zip(words("host")).collect();
            let planted = [
                "exposure c",
                "incomplete a",
                "incomplete c",
                "level b",
                "level b",
                "probe a",
                "probe a",
                "regression b",
                "regression b",
                "silent c",
            ];
            assert_eq!(found, planted.map(|it| it.split_once(' ').unwrap()), "{rows:?}");
        }
        "levels" => {
            assert_eq!(words("host").iter().filter(|host| **host == "c").count(), 0, "incomplete: {rows:?}");
            assert!(words("kind").iter().all(|kind| *kind == "corrected"), "{rows:?}");
            let notes = words("note");
            assert_eq!(&notes[..2], ["no limit yet: 1 of 14 runs", "no limit yet: 2 of 14 runs"], "{rows:?}");
            let has_limit = |row: &Vec<Value>| row[column("limit_ns")].is_number();
            assert!(
                rows.rows.iter().zip(&notes).all(|(row, note)| has_limit(row) == note.is_empty()),
                "{rows:?}"
            );
        }
        "regressions" => {
            assert!(words("host").iter().all(|host| *host == "b"), "{rows:?}");
            assert!(words("first_run_after").contains(&"night-014"), "{rows:?}");
            assert!(words("kernel_after").contains(&"7.2.0-rt"), "{rows:?}");
        }
        "bounds" => {
            assert_eq!(words("kernel"), ["6.12.0-rt", "7.2.0-rt"]);
            let count: u64 = rows.rows.iter().map(|row| row[column("run_count")].as_u64().unwrap()).sum();
            assert_eq!(count, runs.len() as u64);
        }
        "labels" => {
            let found: Vec<_> = words("label").into_iter().zip(words("value")).collect();
            assert_eq!(found, [("rack", "1"), ("soc", "n100"), ("soc", "rk3588")], "{rows:?}");
            let counts: Vec<u64> = rows.rows.iter().map(|row| row[3].as_u64().unwrap()).collect();
            assert_eq!(counts, [48, 24, 24], "board c has none: {rows:?}");
        }
        "causes" => {
            assert!(words("actor").iter().all(|actor| *actor == "irq/45-nvkm"), "{rows:?}");
            let spikes: u64 = rows.rows.iter().map(|row| row[column("spikes")].as_u64().unwrap()).sum();
            assert_eq!(spikes, spikes_of(runs), "as many as the reports of the runs have");
        }
        "actors" => {
            let hosts = words("host");
            assert!(["a", "b", "c"].iter().all(|host| hosts.contains(host)), "{rows:?}");
            assert!(words("actor").iter().all(|actor| *actor == "irq/45-nvkm"), "{rows:?}");
            let run_counts = rows.rows.iter().map(|row| row[column("run_count")].as_u64().unwrap());
            assert!(run_counts.max() == Some(5), "the newest five runs: {rows:?}");
        }
        "treatments" => assert!(words("treatment").iter().all(|kind| *kind == "governor"), "{rows:?}"),
        "quantiles" => assert_eq!(quantiles(rows), quantiles_of(runs)),
        other => panic!("{other}: say what is planted"),
    }
}

/// Spikes with a cause that the runs' reports count.
fn spikes_of(runs: &[PathBuf]) -> u64 {
    let of_run = |path: &PathBuf| {
        let result = assemble(&Reader::open(path).unwrap()).unwrap();
        let ledgers = result.cells.iter().flat_map(|cell| &cell.spikes);
        ledgers.filter(|spike| spike.cause.kind != CauseKind::Unattributed).count() as u64
    };
    runs.iter().map(of_run).sum()
}

/// Each board with its newest runs, and an alarm in the right place.
fn of_boards(rows: &AnswerRows) {
    let columns = ["alarm", "host", "plan", "what", "measured", "allowed"].map(str::to_owned).to_vec();
    let alarm = ["silent", "c", "nightly", "days without a run"].map(Value::from);
    let alarm = alarm.into_iter().chain([12.0.into(), 3.0.into()]).collect();
    let alarms = AnswerRows { columns, rows: vec![alarm], ..AnswerRows::default() };
    let boards = whylate_farm::boards(rows, Some(&alarms));
    let sizes: Vec<_> = boards.iter().map(|it| (it.host.as_str(), it.series[0].runs.len())).collect();
    assert_eq!(sizes, [("a", 24), ("b", 24), ("c", 12)]);
    assert!(
        boards.iter().all(|board| board.series.len() == 1 && board.series[0].cell == "idle"),
        "{boards:?}"
    );
    let alarms = boards.iter().map(|board| board.series[0].alarms.len());
    assert_eq!(alarms.collect::<Vec<_>>(), [0, 0, 1]);
    let newest = boards[1].series[0].runs.last().unwrap();
    assert_eq!((newest.name.as_str(), newest.kernel.as_str()), ("night-023", "7.2.0-rt"));
    let [p50, p99, p999, _] = newest.quantiles_ns;
    assert!(p50 < p99 && p99 < p999 && p50.is_some() && newest.max_ns >= p999, "{newest:?}");
}

/// A failed run is an alarm, and so is one that does not meet the request: one run may be both.
#[test]
fn a_newest_run_that_failed_or_is_not_what_was_asked_for_is_an_alarm_whatever_its_verdict() {
    let folder = tempfile::tempdir().unwrap();
    let lake = Lake::open(folder.path().join("lake").to_str().unwrap(), true).unwrap();
    let strict = PLAN.replace("limit = \"1ms\"", "limit = \"1us\"");
    let asked = Push { asked: Asked { kernel: Some("9".to_owned()), ..Asked::default() }, ..Push::default() };
    let runs = [("a", &strict, &Push::default()), ("b", &strict, &asked), ("c", &PLAN.to_owned(), &asked)];
    for (host, plan, push) in runs {
        lake.push(&make(folder.path(), &Made { host, plan, ..Made::default() }), push).unwrap();
    }
    lake.push(&make(folder.path(), &Made { host: "d", ..Made::default() }), &Push::default()).unwrap();
    let sql = |name: &str| library().iter().find(|it| it.name == name).unwrap().sql;
    let Some(found) = answers(Engine::DuckDb, &lake, &[sql("alarms"), sql("incomplete")]) else { return };
    let words = |rows: &AnswerRows, count: usize| -> Vec<String> {
        let row = |row: &Vec<Value>| {
            row[..count].iter().map(|it| it.as_str().unwrap()).collect::<Vec<_>>().join(" ")
        };
        rows.rows.iter().map(row).collect()
    };
    assert_eq!(words(&found[0], 2), ["incomplete b", "incomplete c", "limit a", "limit b"], "{found:?}");
    assert!(words(&found[0], 4)[2].contains("above the limit of 1.00 us"), "{found:?}");
    assert_eq!(found[0].rows[2][5].as_u64(), Some(1000), "{found:?}");
    assert_eq!(words(&found[1], 1), ["b", "c"], "{found:?}");
}

/// Missed periods count in a lake as in a report.
#[test]
fn a_lake_has_the_corrected_quantiles_of_a_report() {
    let folder = tempfile::tempdir().unwrap();
    let lake = Lake::open(folder.path().join("lake").to_str().unwrap(), true).unwrap();
    // Shorter than many of the latencies.
    let plan = PLAN.replace("100ms", "10us");
    let run = make(folder.path(), &Made { plan: &plan, ..Made::default() });
    lake.push(&run, &Push::default()).unwrap();
    let sql = |name: &str| library().iter().find(|it| it.name == name).unwrap().sql;
    let history = history_of("a").unwrap();
    let Some(found) = answers(Engine::DuckDb, &lake, &[sql("quantiles"), sql("boards"), &history]) else {
        return;
    };
    let result = assemble(&Reader::open(&run).unwrap()).unwrap();
    let idle = result.cells.iter().find(|cell| cell.name == "idle").unwrap();
    let cpus = || idle.probes.iter().flat_map(|probe| &probe.cpus);
    let corrected: Vec<u64> = cpus().map(|cpu| cpu.get(CORRECTED).unwrap().p999_ns).collect();
    let recorded: Vec<u64> = cpus().map(|cpu| cpu.quantiles.unwrap().p999_ns).collect();
    assert_ne!(corrected, recorded, "planted");
    let column = |rows: &AnswerRows, name: &str| rows.columns.iter().position(|it| it == name).unwrap();
    let rows = &found[0];
    let [cell, quantile, value, with_missed] =
        ["cell", "quantile", "value_ns", "corrected_ns"].map(|it| column(rows, it));
    let of_p999 = |at: usize| -> Vec<u64> {
        let is = |row: &&Vec<Value>| row[cell] == "idle" && row[quantile].as_f64() == Some(0.999);
        rows.rows.iter().filter(is).map(|row| row[at].as_u64().unwrap()).collect()
    };
    assert_eq!((of_p999(with_missed), of_p999(value)), (corrected.clone(), recorded));
    for rows in &found[1..] {
        let boards = whylate_farm::boards(rows, None);
        let series = boards[0].series.iter().find(|it| it.cell == "idle").unwrap();
        let shown = series.runs[0].quantiles_ns[2];
        assert_eq!((shown, series.leaves_missed_out), (corrected.iter().max().copied(), false), "{series:?}");
    }
}

/// A run that an earlier version pushed has no corrected quantiles: then none of its series is shown with them.
#[test]
fn a_series_with_a_run_of_an_earlier_version_leaves_missed_periods_out_and_says_so() {
    let columns =
        ["host", "plan", "run", "cell", "probe", "p999_ns", "p999_recorded_ns", "kind", "teaching_runs"];
    let rows = |kinds: [&str; 2]| {
        let row = |(number, kind): (u64, &str)| {
            let corrected = if kind == "recorded" { 7 } else { 900 };
            let words = ["a", "nightly", &format!("night-{number}"), "idle", "timer"].map(Value::from);
            words.into_iter().chain([corrected.into(), 7.into(), kind.into(), 2.into()]).collect()
        };
        let rows = [1, 2].into_iter().zip(kinds).map(row).collect();
        AnswerRows { columns: columns.map(str::to_owned).to_vec(), rows, ..AnswerRows::default() }
    };
    for (kinds, shown, leaves_out) in [
        (["corrected", "corrected"], 900, false),
        (["recorded", "corrected"], 7, true),
        (["recorded", "recorded"], 7, true),
    ] {
        let boards = whylate_farm::boards(&rows(kinds), None);
        let series = &boards[0].series[0];
        assert_eq!(series.leaves_missed_out, leaves_out, "{kinds:?}");
        assert!(series.runs.iter().all(|run| run.quantiles_ns[2] == Some(shown)), "{kinds:?}: {series:?}");
        assert_eq!(series.without_limit().as_deref(), Some("no learnt limit yet: 2 of 14 needed runs"));
    }
}

/// A board's history equals its runs, with the planted change.
#[test]
fn a_board_has_all_its_runs_and_its_change_in_the_right_place() {
    let folder = tempfile::tempdir().unwrap();
    let (lake, _) = make_lake(folder.path());
    let Some(rows) = answer(Engine::DuckDb, &lake, &history_of("b").unwrap()) else { return };
    let boards = whylate_farm::boards(&rows, None);
    let cells: Vec<&str> = boards[0].series.iter().map(|series| series.cell.as_str()).collect();
    assert_eq!((boards.len(), cells), (1, vec!["idle", "quiet"]));
    let course = whylate_farm::course(&boards[0].series[0], Statistic::P999).unwrap();
    assert_eq!(course.points.len(), 24);
    assert!(course.changes.len() == 1 && course.changes[0].point.abs_diff(14) <= 1, "{course:?}");
    assert_eq!(whylate_farm::course(&boards[0].series[0], Statistic::Max), None);
}

#[test]
fn a_name_that_is_not_plain_never_becomes_part_of_a_statement() {
    for name in ["b' OR '1'='1", "a\\", "", "a b", "*", "ä"] {
        assert_eq!(history_of(name), None, "{name}");
    }
}

const BUCKETS: &str = "SELECT host, run, cell, probe, cpu, quantile, value_ns FROM bucket_quantiles \
    ORDER BY host, run, cell, probe, cpu, quantile";

type Quantiles = BTreeMap<(String, String, String, u64), Vec<u64>>;

/// Host, run, cell and CPU, with the 0.5, 0.99, 0.999 and 0.9999 quantiles.
fn quantiles(rows: &AnswerRows) -> Quantiles {
    let mut found = Quantiles::new();
    for row in &rows.rows {
        let word = |index: usize| row[index].as_str().unwrap().to_owned();
        let key = (word(0), word(1), word(2), row[4].as_u64().unwrap());
        found.entry(key).or_default().push(row[6].as_u64().unwrap());
    }
    found
}

fn quantiles_of(runs: &[PathBuf]) -> Quantiles {
    let mut found = Quantiles::new();
    for path in runs {
        let reader = Reader::open(path).unwrap();
        let (host, run) = (reader.info().facts.host.clone(), reader.info().run.clone());
        let result = assemble(&reader).unwrap();
        for cell in &result.cells {
            for cpu in cell.probes.iter().flat_map(|probe| &probe.cpus) {
                let figures = cpu.quantiles.as_ref().unwrap();
                let key = (host.clone(), run.clone(), cell.name.clone(), u64::from(cpu.cpu.0));
                found.insert(key, vec![figures.p50_ns, figures.p99_ns, figures.p999_ns, figures.p9999_ns]);
            }
        }
    }
    found
}

/// A simulated farm: some boards become 30 % later; `None` if DuckDB is not installed.
fn make_farm(lake: &Path, arguments: &[&str]) -> Option<()> {
    let python = std::env::var("WHYLATE_QUERY_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/generate.py");
    let has_engine = Command::new(&python).args(["-c", "import duckdb"]).stderr(Stdio::null()).status();
    if !has_engine.is_ok_and(|status| status.success()) {
        skip(Need::Program("duckdb, pyspark (pip)"), format!("{python} has no duckdb"));
        return None;
    }
    let made = Command::new(&python).arg(program).arg(lake).args(arguments).status().unwrap();
    assert!(made.success());
    Some(())
}

/// For each board the runs from the planted change (0: there is none) to the first alarm after it (0: there is none),
/// and whether there was an alarm without a change.
const ALARMS: &str = "WITH planted AS (SELECT host, started_s FROM read_csv('PLANTED')),
    placed AS (
        SELECT l.host, l.started_s, l.above_of_8, p.started_s AS changed_s,
            row_number() OVER (PARTITION BY l.host ORDER BY l.started_s) AS place,
            coalesce(lag(l.above_of_8) OVER (PARTITION BY l.host ORDER BY l.started_s), 0) AS before
        FROM levels AS l LEFT JOIN planted AS p ON l.host = p.host
    )
    SELECT host, coalesce(min(CASE WHEN above_of_8 >= 5 AND started_s >= changed_s THEN place END)
            - min(CASE WHEN started_s >= changed_s THEN place END) + 1, 0) AS runs_to_alarm,
        count(changed_s) AS planted,
        sum(CASE WHEN above_of_8 >= 5 AND before < 5 AND (changed_s IS NULL OR started_s < changed_s) THEN 1 ELSE 0 END) AS falsely
    FROM placed GROUP BY host ORDER BY host";

#[test]
fn boards_that_become_later_alarm_soon_and_others_hardly_ever() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["--boards", "120", "--years", "4", "--worse", "0.5", "--only", "runs,quantiles"];
    if make_farm(folder.path(), &arguments).is_none() {
        return;
    }
    let lake = Lake::open(folder.path().to_str().unwrap(), false).unwrap();
    let sql = ALARMS.replace("PLANTED", folder.path().join("planted.csv").to_str().unwrap());
    let rows = answer(Engine::DuckDb, &lake, &sql).unwrap().rows;
    let of = |row: &Vec<Value>, at: usize| row[at].as_u64().unwrap();
    let planted: Vec<u64> = rows.iter().filter(|row| of(row, 2) > 0).map(|row| of(row, 1)).collect();
    let found = planted.iter().filter(|runs| (1..=10).contains(*runs)).count();
    assert!(planted.len() > 40 && found * 20 >= planted.len() * 19, "{found} of {}", planted.len());
    // 480 board-years, less those after a change.
    assert!(rows.iter().map(|row| of(row, 3)).sum::<u64>() <= 3, "{rows:?}");
    // All questions work on a simulated lake, except for the tables that it lacks.
    assert!(!answer(Engine::DuckDb, &lake, "SELECT * FROM levels LIMIT 1").unwrap().rows.is_empty());
}

/// The boards with a level alarm.
fn level_alarms(lake: &Path) -> std::collections::BTreeSet<String> {
    let alarms = library().iter().find(|question| question.name == "alarms").unwrap();
    let lake = Lake::open(lake.to_str().unwrap(), false).unwrap();
    let rows = answer(Engine::DuckDb, &lake, alarms.sql).unwrap().rows;
    rows.iter().filter(|row| row[0] == "level").map(|row| row[1].as_str().unwrap().to_owned()).collect()
}

/// The learnt limit adapts to the new level within weeks; the alarm keeps the limit by which it began.
#[test]
fn a_level_alarm_stays_until_the_board_comes_back_or_its_level_is_accepted() {
    const RUN_S: f64 = 7.0 * 86_400.0;
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| folder.path().join(name);
    let farm = ["--boards", "60", "--years", "4", "--worse", "1", "--only", "runs,quantiles"];
    if make_farm(&place("back"), &[&farm[..], &["--for", "70"]].concat()).is_none() {
        return;
    }
    let planted = std::fs::read_to_string(place("back").join("planted.csv")).unwrap();
    let changed: Vec<(&str, f64)> = planted
        .lines()
        .skip(1)
        .filter_map(|line| line.split_once(','))
        .map(|(host, s)| (host, s.parse().unwrap()))
        .collect();
    let end_s = 1_600_000_000.0 + 207.0 * RUN_S;
    let boards = |runs: std::ops::Range<f64>| {
        let is_in = move |(_, at): &&(&str, f64)| runs.contains(&((end_s - at) / RUN_S));
        changed.iter().filter(is_in).map(|(host, _)| *host).collect::<Vec<&str>>()
    };
    let alarming = level_alarms(&place("back"));
    let count = |boards: &[&str]| boards.iter().filter(|host| alarming.contains(**host)).count();
    let (adapted, back) = (boards(30.0..68.0), boards(78.0..208.0));
    assert!(adapted.len() > 8 && back.len() > 20, "{adapted:?} {back:?}");
    assert!(count(&adapted) + 1 >= adapted.len(), "{adapted:?} {alarming:?}");
    assert!(count(&back) <= 1, "{back:?} {alarming:?}");
    // The day is compared with the first run of the alarm: before all runs of this farm, and after them.
    let found = ["2019-12-31", "2100-01-01"].map(|day| {
        make_farm(&place(day), &[&farm[..], &["--accepted", day]].concat()).unwrap();
        level_alarms(&place(day)).len()
    });
    assert!(found[0] > 50 && found[1] == 0, "{found:?}");
}

#[test]
fn a_made_farm_has_the_columns_of_a_pushed_one() {
    let folder = tempfile::tempdir().unwrap();
    let (made, pushed) = (folder.path().join("made"), folder.path().join("pushed"));
    if make_farm(&made, &["--boards", "2", "--years", "1"]).is_none() {
        return;
    }
    let run = make_run(folder.path(), "a", "6.18.3", 1, 2000);
    let real = Lake::open(pushed.to_str().unwrap(), true).unwrap();
    real.push(&run, &Push::default()).unwrap();
    let made = Lake::open(made.to_str().unwrap(), false).unwrap();
    for table in ["runs", "cells", "contrasts", "intervals", "histograms", "quantiles", "spikes", "causes"] {
        let columns = |lake: &Lake| -> Vec<String> {
            answer(Engine::DuckDb, lake, &format!("SELECT * FROM {table} LIMIT 1")).unwrap().columns
        };
        let real = columns(&real);
        let other: Vec<String> = columns(&made).into_iter().filter(|name| !real.contains(name)).collect();
        assert_eq!(other, Vec::<String>::new(), "{table}");
    }
    for question in library() {
        answer(Engine::DuckDb, &made, question.sql).unwrap();
    }
    let same = "SELECT count(*) FROM (SELECT host, run, cell, probe, cpu, quantile, value_ns FROM quantiles
        EXCEPT SELECT host, run, cell, probe, cpu, quantile, value_ns FROM bucket_quantiles)";
    assert_eq!(answer(Engine::DuckDb, &made, same).unwrap().rows, [[0]]);
}
