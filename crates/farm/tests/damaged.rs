//! Lakes with damaged objects: what engines answer without them, and what is said of it.

mod made;

use made::{ENGINES, answer, make_lake, make_run};
use std::fs;
use std::path::{Path, PathBuf};
use whylate_farm::{Engine, Lake, Push, Rows, Wait, library};

const QUANTILES: &str =
    "SELECT host, run, cell, cpu, quantile, value_ns FROM quantiles ORDER BY host, run, cell, cpu, quantile";

/// Ways in which an object is not what was written.
fn damages(whole: &[u8]) -> Vec<(&'static str, Vec<u8>)> {
    let mut flipped = whole.to_vec();
    flipped[whole.len() / 3] ^= 4;
    vec![
        ("cut off", whole[..whole.len() / 2].to_vec()),
        ("empty", Vec::new()),
        ("a changed bit", flipped),
        ("something else", b"<html>404</html>".repeat(100)),
    ]
}

fn objects(rows: &Rows) -> Vec<&str> {
    rows.damaged.iter().map(|it| it.object.as_str()).collect()
}

/// The rows of an answer without those of runs.
fn without(rows: &Rows, is_out: impl Fn(&str, &str) -> bool) -> Vec<Vec<serde_json::Value>> {
    let is_in = |row: &&Vec<serde_json::Value>| !is_out(row[0].as_str().unwrap(), row[1].as_str().unwrap());
    rows.rows.iter().filter(is_in).cloned().collect()
}

#[test]
fn a_damaged_object_of_a_run_is_named_and_all_others_are_answered_from() {
    let folder = tempfile::tempdir().unwrap();
    let (lake, _) = make_lake(folder.path());
    let name = "table=quantiles/host=b/month=2026-09/night-004.parquet";
    let object = folder.path().join("lake").join(name);
    let whole = fs::read(&object).unwrap();
    for engine in ENGINES {
        let Some(before) = answer(engine, &lake, QUANTILES) else { continue };
        assert!(before.damaged.is_empty(), "{before:?}");
        for (what, bytes) in damages(&whole) {
            fs::write(&object, bytes).unwrap();
            let now = answer(engine, &lake, QUANTILES).unwrap();
            assert_eq!(objects(&now), [name], "{engine:?}: {what}");
            assert_eq!(
                now.rows,
                without(&before, |host, run| (host, run) == ("b", "night-004")),
                "{engine:?}: {what}"
            );
            // A session of Spark takes half a minute to begin.
            if engine == Engine::Spark {
                break;
            }
        }
        let runs = answer(engine, &lake, "SELECT host, run FROM runs").unwrap();
        assert!(runs.damaged.is_empty(), "what a question does not use is not looked at: {runs:?}");
        fs::write(&object, &whole).unwrap();
        assert_eq!(answer(engine, &lake, QUANTILES).unwrap(), before, "{engine:?}");
    }
}

#[test]
fn a_damaged_month_is_named_and_the_others_are_answered_from() {
    let folder = tempfile::tempdir().unwrap();
    let (lake, runs) = make_lake(folder.path());
    let merged = lake.merge("2026-10", false).unwrap();
    assert_eq!(merged.len(), 1, "September is merged, October is not: {merged:?}");
    let september = merged[0].runs;
    assert!(september < runs.len());
    let object = only_file(&folder.path().join("lake/merged/table=quantiles/month=2026-09"));
    let whole = fs::read(&object).unwrap();
    let name = object.strip_prefix(folder.path().join("lake")).unwrap().to_str().unwrap().to_owned();
    for engine in ENGINES {
        let Some(before) = answer(engine, &lake, QUANTILES) else { continue };
        let is_of_september = |_: &str, run: &str| run < "night-010";
        for (what, bytes) in damages(&whole) {
            fs::write(&object, bytes).unwrap();
            let now = answer(engine, &lake, QUANTILES).unwrap();
            assert_eq!(objects(&now), [name.as_str()], "{engine:?}: {what}");
            assert_eq!(now.rows, without(&before, is_of_september), "{engine:?}: {what}");
            if engine == Engine::Spark {
                break;
            }
        }
        fs::remove_file(&object).unwrap();
        let now = answer(engine, &lake, QUANTILES).unwrap();
        assert_eq!((now.damaged[0].what.as_str(), now.damaged.len()), ("it is missing", 1), "{engine:?}");
        fs::write(&object, &whole).unwrap();
    }
}

#[test]
fn every_question_is_answered_where_no_object_of_a_table_is_left() {
    let folder = tempfile::tempdir().unwrap();
    let lake = Lake::open(folder.path().join("lake").to_str().unwrap(), true).unwrap();
    for night in 0..3 {
        lake.push(&make_run(folder.path(), "a", "6.12", night, 2000), &Push::default()).unwrap();
    }
    let mut broken = Vec::new();
    for table in ["runs", "quantiles", "contrasts", "causes"] {
        broken.extend(all_files(&folder.path().join("lake").join(format!("table={table}"))));
    }
    broken.iter().for_each(|file| fs::write(file, "garbage").unwrap());
    for engine in [Engine::DuckDb, Engine::ClickHouse, Engine::DataFusion] {
        for question in library() {
            let Some(rows) = answer(engine, &lake, question.sql) else { break };
            assert!(
                rows.rows.is_empty() && !rows.damaged.is_empty(),
                "{engine:?}: {}: {rows:?}",
                question.name
            );
        }
    }
}

/// An engine that fails besides.
#[test]
fn damaged_objects_are_named_where_there_is_no_answer() {
    let folder = tempfile::tempdir().unwrap();
    let lake = Lake::open(folder.path().join("lake").to_str().unwrap(), true).unwrap();
    lake.push(&make_run(folder.path(), "a", "6.12", 0, 2000), &Push::default()).unwrap();
    let name = "table=runs/host=a/month=2026-09/night-000.parquet";
    let asks = |question: &str| {
        let said = whylate_farm::answer(Engine::DuckDb, &lake, None, question, Wait::default).unwrap_err();
        (said.is_unavailable(), said.to_string())
    };
    let (_, whole) = asks("SELECT no_such_column FROM runs");
    fs::write(folder.path().join("lake").join(name), "garbage").unwrap();
    // With no engine installed, the error that says so.
    let (_, said) = asks("SELECT no_such_column FROM runs");
    assert!(said.starts_with(whole.lines().next().unwrap()) && !whole.contains(name), "{whole}: {said}");
    assert!(said.contains(name) && said.contains("--check`"), "{said}");
    let (is_unavailable, said) = asks("SELECT 1 FROM runs; SELECT 2");
    assert!(!is_unavailable && said.contains("more than one statement") && said.contains(name), "{said}");
}

fn all_files(folder: &Path) -> Vec<PathBuf> {
    made::files(folder).into_keys().map(|name| folder.join(name)).collect()
}

fn only_file(folder: &Path) -> PathBuf {
    let files = all_files(folder);
    assert_eq!(files.len(), 1, "{files:?}");
    files[0].clone()
}
