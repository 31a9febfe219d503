//! Lakes with damaged objects: engines answer without them, and the answers name them.

mod made;

use made::{answer, make_lake, make_run};
use std::fs;
use whylate_farm::{AnswerRows, Engine, Lake, Push, Wait};

const QUANTILES: &str =
    "SELECT host, run, cell, cpu, quantile, value_ns FROM quantiles ORDER BY host, run, cell, cpu, quantile";

const RUNS_OF_A: &str = "table=runs/host=a/month=2026-09/night-000.parquet";

/// Ways in which an object can be damaged.
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

fn objects(rows: &AnswerRows) -> Vec<&str> {
    rows.damaged.iter().map(|it| it.object.as_str()).collect()
}

/// The rows of an answer without those of runs.
fn without(rows: &AnswerRows, is_out: impl Fn(&str, &str) -> bool) -> Vec<Vec<serde_json::Value>> {
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
    let Some(before) = answer(Engine::DuckDb, &lake, QUANTILES) else { return };
    assert!(before.damaged.is_empty(), "{before:?}");
    for (what, bytes) in damages(&whole) {
        fs::write(&object, bytes).unwrap();
        let now = answer(Engine::DuckDb, &lake, QUANTILES).unwrap();
        assert_eq!(objects(&now), [name], "{what}");
        assert_eq!(now.rows, without(&before, |host, run| (host, run) == ("b", "night-004")), "{what}");
        // It reads whole folders.
        let said = whylate_farm::answer(Engine::Spark, &lake, None, QUANTILES, Wait::default).unwrap_err();
        assert!(said.to_string().contains(name), "{what}: {said}");
    }
    fs::remove_file(&object).unwrap();
    let now = answer(Engine::DuckDb, &lake, QUANTILES).unwrap();
    assert_eq!(objects(&now), [name], "it is missing");
    assert_eq!(now.rows, without(&before, |host, run| (host, run) == ("b", "night-004")));
    let run = lake.find("b/night-004").unwrap();
    let causes = folder.path().join("lake").join(name.replace("quantiles", "causes"));
    fs::remove_file(&causes).unwrap();
    assert_eq!(lake.check(&run).unwrap_err().len(), 2, "each damaged object is listed");
    let runs = answer(Engine::DuckDb, &lake, "SELECT host, run FROM runs").unwrap();
    assert!(runs.damaged.is_empty(), "what a question does not use is not looked at: {runs:?}");
    fs::write(&object, &whole).unwrap();
    assert_eq!(answer(Engine::DuckDb, &lake, QUANTILES).unwrap(), before);
}

#[test]
fn no_changed_bit_of_a_table_is_missed() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("lake");
    let lake = Lake::open(place.to_str().unwrap(), true).unwrap();
    lake.push(&make_run(folder.path(), "a", "6.12", 0, 2000), &Push::default()).unwrap();
    let whole = fs::read(place.join(RUNS_OF_A)).unwrap();
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << (at % 8);
        assert!(whylate_store::check_lake_table(bytes).is_err(), "byte {at} of {}", whole.len());
    }
}

/// With an engine that fails as well.
#[test]
fn damaged_objects_are_named_without_an_answer() {
    let folder = tempfile::tempdir().unwrap();
    let lake = Lake::open(folder.path().join("lake").to_str().unwrap(), true).unwrap();
    for night in 0..2 {
        lake.push(&make_run(folder.path(), "a", "6.12", night, 2000), &Push::default()).unwrap();
    }
    let name = RUNS_OF_A;
    let asks = |question: &str| {
        let said = whylate_farm::answer(Engine::DuckDb, &lake, None, question, Wait::default).unwrap_err();
        (said.is_unavailable(), said.to_string())
    };
    let (_, whole) = asks("SELECT no_such_column FROM runs");
    fs::write(folder.path().join("lake").join(name), "garbage").unwrap();
    // With no engine installed, the error says so.
    let (_, said) = asks("SELECT no_such_column FROM runs");
    assert!(said.starts_with(whole.lines().next().unwrap()) && !whole.contains(name), "{whole}: {said}");
    assert!(said.contains(name) && said.contains("--check`"), "{said}");
    let (is_unavailable, said) = asks("SELECT 1 FROM runs; SELECT 2");
    assert!(!is_unavailable && said.contains("more than one SQL statement") && said.contains(name), "{said}");
}
