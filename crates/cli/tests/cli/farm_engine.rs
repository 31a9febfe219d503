//! Questions to a lake through the installed engine: `WHYLATE_QUERY_PYTHON` names a Python with `duckdb`.

#[path = "../../../farm/tests/made/mod.rs"]
mod made;

use crate::fields::{list, real, word};
use crate::tool::{Said, command, folder, signal, start, text, until, wait, whylate, write};
use made::make_run;
use rustix::process::Signal;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use whylate_testing::{Need, says, skip};

/// Boards `a`, `b` and `c` with three runs of either kernel, each of them four times later with the newer one.
fn lake(folder: &TempDir) -> PathBuf {
    let mut words = vec!["push".to_owned()];
    for (number, host) in ["a", "b", "c"].into_iter().enumerate() {
        for night in 0..6 {
            let (kernel, scale) = if night < 3 { ("6.12.0-rt", 2000) } else { ("7.2.0-rt", 8000) };
            let run = make_run(folder.path(), host, kernel, night, scale + 100 * number as u64);
            words.push(text(&run).to_owned());
        }
    }
    let lake = folder.path().join("lake");
    words.push(text(&lake).to_owned());
    let pushed = whylate(&words.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!((pushed.code, pushed.stdout.lines().count()), (Some(0), 18), "{pushed:?}");
    lake
}

fn compare(lake: &Path, groups: [&str; 2], more: &[&str]) -> Said {
    let [first, second] = groups;
    whylate(&[&["farm", "compare", first, second, "--lake", text(lake)], more].concat())
}

#[test]
fn two_kernels_are_compared_over_boards_and_damage_prevents_a_pass() {
    let folder = folder();
    let lake = lake(&folder);
    let later = compare(&lake, ["6.12", "7.2"], &["--json"]);
    if later.code == Some(69) {
        return skip(Need::Program("duckdb, pyspark (pip)"), "no DuckDB is installed");
    }
    assert_eq!(later.code, Some(2), "{later:?}");
    let document = later.document();
    assert_eq!(word(&document, "format"), "whylate.farm-compare/1");
    assert!(list(&document, "damaged").is_empty());
    let comparisons = list(&document, "comparisons");
    let cells: Vec<&str> = comparisons.iter().map(|it| word(it, "cell")).collect();
    assert_eq!(cells, ["idle", "quiet"]);
    for found in comparisons {
        assert_eq!(
            (word(found, "plan"), word(found, "probe"), word(found, "outcome")),
            ("nightly", "timer", "worse")
        );
        assert!(real(found, "ratio_low") <= real(found, "ratio") && real(found, "ratio") > 1.5, "{found}");
        let boards = list(found, "boards");
        let hosts: Vec<&str> = boards.iter().map(|it| word(it, "host")).collect();
        assert_eq!(hosts, ["a", "b", "c"]);
        assert!(boards.iter().all(|it| it["runs"] == serde_json::json!([3, 3])), "{found}");
    }
    let earlier = compare(&lake, ["7.2", "6.12"], &[]);
    assert!(earlier.code == Some(0) && earlier.stdout.contains(": better"), "{earlier:?}");
    assert!(says("quantiles-over-those", &earlier.stdout), "{earlier:?}");
    assert!(earlier.stderr.is_empty(), "{earlier:?}");
    let alone = compare(&lake, ["7.2 host=a", "6.12 host=a"], &[]);
    assert!(
        alone.code == Some(1) && alone.stdout.contains("only one board, so there is no interval"),
        "{alone:?}"
    );
    let few = compare(&lake, ["7.2", "kernel=none"], &[]);
    assert!(few.code == Some(1) && says("no-board-has-complete", &few.stderr), "{few:?}");

    // A board loses a run: it has too few for a comparison, and the rest cannot pass.
    let name = "table=quantiles/host=a/month=2026-09/night-004.parquet";
    let object = lake.join(name);
    let whole = fs::read(&object).unwrap();
    fs::write(&object, &whole[..whole.len() / 2]).unwrap();
    let said = compare(&lake, ["7.2", "6.12"], &["--json"]);
    assert_eq!(said.code, Some(1), "{said:?}");
    let document = said.document();
    let damaged = list(&document, "damaged");
    assert!(damaged.len() == 1 && word(&damaged[0], "object") == name, "{document}");
    assert_eq!(document["comparisons"][0]["left_out"], serde_json::json!(["a"]));
    for words in [name, "damaged and left out of the answer: it", "--check`", "--replace`"] {
        assert!(said.stderr.contains(words), "{words}: {said:?}");
    }
    fs::write(&object, whole).unwrap();
    assert_eq!(compare(&lake, ["7.2", "6.12"], &[]).code, Some(0));
}

#[test]
fn a_question_is_answered_without_damaged_objects_and_never_in_silence() {
    let folder = folder();
    let lake = lake(&folder);
    let empty = write(&folder, "empty.sql", "SELECT run FROM runs WHERE host = 'unknown'");
    let all = write(&folder, "all.sql", "SELECT host, run, max_ns FROM runs ORDER BY host, run");
    let ask = |file: &str, more: &[&str]| {
        whylate(&[&["farm", "query", file, "--lake", text(&lake)], more].concat())
    };
    let before = ask(&all, &["--json"]);
    if before.code == Some(69) {
        return skip(Need::Program("duckdb, pyspark (pip)"), "no DuckDB is installed");
    }
    assert_eq!(list(&before.json(), "rows").len(), 18);
    assert_eq!(ask(&empty, &["--expect-none"]).code, Some(0));

    // One bit in the middle: an engine reads another figure there, or refuses everything.
    let name = "table=runs/host=b/month=2026-09/night-002.parquet";
    let mut bytes = fs::read(lake.join(name)).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(lake.join(name), bytes).unwrap();
    let said = ask(&all, &["--json"]);
    assert_eq!(said.code, Some(1), "{said:?}");
    let document = said.document();
    let expected: Vec<_> = list(&before.document(), "rows")
        .iter()
        .filter(|row| **row != before.document()["rows"][8])
        .cloned()
        .collect();
    assert_eq!(list(&document, "rows"), &expected, "the other runs are what they were");
    assert_eq!((word(&document["damaged"][0], "object"), list(&document, "damaged").len()), (name, 1));
    assert!(said.stderr.contains(name) && said.stderr.contains("its checksum is wrong"), "{said:?}");
    for form in [&[][..], &["--csv"]] {
        let said = ask(&all, form);
        assert!(
            said.code == Some(1) && said.stderr.contains(name) && said.stdout.contains("night-003"),
            "{said:?}"
        );
    }
    let none = ask(&empty, &["--expect-none"]);
    assert_eq!(none.code, Some(1), "no row is no answer where an object could not be read: {none:?}");
    assert_eq!(ask(&all, &["--expect-none"]).code, Some(2));
    // A table that no question uses is not read.
    fs::write(lake.join("table=spikes/host=a/month=2026-09/night-000.parquet"), "garbage").unwrap();
    assert_eq!(list(&ask(&all, &["--json"]).document(), "damaged").len(), 1);
    let mended = whylate(&["push", text(&folder.path().join("b/night-002")), text(&lake), "--replace"]);
    assert_eq!(mended.code, Some(0), "{mended:?}");
    assert_eq!(ask(&all, &["--json"]).json(), before.json());
}

#[test]
fn a_question_that_is_stopped_leaves_no_engine_and_no_file() {
    let folder = folder();
    let (run, lake) = (make_run(folder.path(), "a", "6.12", 0, 2000), folder.path().join("lake"));
    assert_eq!(whylate(&["push", text(&run), text(&lake)]).code, Some(0));
    fs::write(lake.join("table=runs/host=a/month=2026-09/night-000.parquet"), "garbage").unwrap();
    let (begun, scratch) = (folder.path().join("begun"), folder.path().join("scratch"));
    // An engine that never answers.
    let python =
        write(&folder, "python", &format!("#!/bin/sh\necho $$ >'{}'\nexec sleep 600\n", text(&begun)));
    fs::set_permissions(&python, fs::Permissions::from_mode(0o755)).unwrap();
    fs::create_dir(&scratch).unwrap();
    let left = || fs::read_dir(&scratch).unwrap().flatten().map(|it| it.file_name()).collect::<Vec<_>>();
    let ask = || {
        _ = fs::remove_file(&begun);
        let mut query = command(&["farm", "query", "boards", "--lake", text(&lake)]);
        query.env("WHYLATE_QUERY_PYTHON", &python).env("TMPDIR", &scratch);
        let query = start(query);
        let has_begun = || fs::read_to_string(&begun).is_ok_and(|it| it.ends_with('\n'));
        assert!(until(has_begun), "the engine does not begin");
        (query, PathBuf::from(format!("/proc/{}", fs::read_to_string(&begun).unwrap().trim())))
    };
    for by in [Signal::INT, Signal::TERM] {
        let (query, engine) = ask();
        signal(&query, by);
        let said = wait(query);
        assert!(said.code == Some(1) && said.stderr.contains("stopped before it answered"), "{said:?}");
        assert!(said.stderr.contains("night-000.parquet"), "what is damaged is named all the same: {said:?}");
        assert!(left().is_empty() && !engine.exists(), "{by:?}: {:?}", left());
    }
}
