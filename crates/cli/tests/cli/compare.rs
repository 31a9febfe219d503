//! `whylate compare` and `whylate runs`: from run directories and peers' files to verdicts and exit codes.

use crate::fields::{list, word};
use crate::json::validate;
use crate::tool::{SMALL_PLAN, alone, command, finish, folder, text, whylate, write};
use serde_json::Value;
use std::path::Path;
use whylate_testing::says;

const CYCLICTEST: &str = include_str!("../../../import/tests/files/cyclictest.json");

/// The same result, with every latency multiplied by `times`.
fn slower(times: u64) -> String {
    let document: Value = serde_json::from_str(CYCLICTEST).unwrap();
    let scaled = |value: &Value| value.as_f64().map_or(value.clone(), |it| (it as u64 * times).into());
    let mut document = document;
    let threads = document["thread"].as_object_mut().unwrap();
    for thread in threads.values_mut() {
        for key in ["min", "avg", "max"] {
            thread[key] = scaled(&thread[key]);
        }
        let histogram = thread["histogram"].as_object().unwrap().clone();
        let stretched = histogram
            .into_iter()
            .map(|(us, count)| ((us.parse::<u64>().unwrap() * times).to_string(), count));
        thread["histogram"] = Value::Object(stretched.collect());
    }
    document.to_string()
}

#[test]
fn two_single_results_have_no_verdict_and_show_their_difference() {
    let folder = folder();
    let (a, b) = (write(&folder, "a.json", CYCLICTEST), write(&folder, "b.json", &slower(20)));
    let said = whylate(&["compare", &a, &b, "--statistic", "timer p99", "--json"]);
    assert_eq!(said.code, Some(1), "{said:?}");
    let document = said.document();
    validate("compare", &document);
    assert_eq!((word(&document, "format"), word(&document, "outcome")), ("whylate.compare/1", "cannot_tell"));
    assert!(says("without-history-runs", word(&document, "basis")), "{document}");
    let contrast = &list(&document, "contrasts")[0];
    assert!(contrast["ratio"].as_f64().unwrap() > 15.0, "{contrast}");
    let shown = whylate(&["compare", &a, &b, "--statistic", "timer p99"]).stdout;
    assert!(shown.contains("CANNOT TELL") && shown.contains(" ×"), "{shown}");
}

#[test]
fn a_change_over_runs_is_found() {
    let folder = folder();
    let plan = write(&folder, "plan.toml", SMALL_PLAN);
    let runs = folder.path().join("runs");
    std::fs::create_dir(&runs).unwrap();
    let measuring = alone();
    let said = whylate(&["run", &plan, "-o", text(&runs.join("r")), "--quiet"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    drop(measuring);
    let show = |more: &[&str]| {
        let words = ["runs", "--dir", text(&runs), "--series", "timer p99"];
        whylate(&words.into_iter().chain(more.iter().copied()).collect::<Vec<_>>())
    };
    let document = show(&["--json"]).json();
    validate("runs", &document);
    let series = &document["series"];
    assert_eq!((word(series, "cell"), word(series, "plan")), ("idle", "small"), "{series}");
    assert!(series["points"][0]["value"].as_f64().unwrap() > 0.0, "{series}");
    let shown = show(&[]).stdout;
    assert!(says("run-too-few-show", &shown), "{shown}");
    let page = folder.path().join("series.html");
    assert!(show(&["-o", text(&page)]).stderr.contains("wrote"));
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("\"kind\":\"series\"") && page.contains("id=\"run-1\""), "{page}");
    assert!(page.contains("<h1 class=\"sentence\">timer p99, cell idle of plan small</h1>"), "{page}");
    let path = runs.join("r");
    let cells =
        whylate(&["compare", &format!("{}:idle", text(&path)), &format!("{}:cache", text(&path)), "--json"]);
    let differences = list(&cells.document(), "differences").to_vec();
    let loads = differences.iter().find(|it| it["what"] == "cell.loads").expect("the loads differ");
    assert_eq!(loads["values"], serde_json::json!(["none", "cache"]), "{loads}");
    let foreign = write(&folder, "cyclictest.json", CYCLICTEST);
    let foreign = whylate(&["compare", &foreign, text(&path), "--json"]).document();
    let what =
        |key: &str| list(&foreign, key).iter().map(|it| word(it, "what").to_owned()).collect::<Vec<_>>();
    assert!(what("unknown").contains(&"settings.rt_period_us".to_owned()), "{foreign}");
    assert!(!what("differences").iter().any(|it| it.starts_with("plan.")), "{foreign}");
    assert!(says("no-run-plan-small", show(&["--cell", "none"]).error()));
}

/// A file whose p99.9 is above the end of the histogram is neither left out nor shown with a number.
#[test]
fn a_quantile_above_the_histogram_decides_only_if_all_files_of_one_side_have_it_there() {
    let folder = folder();
    let file = |name: String, us: u64, above: u64| {
        let document = serde_json::json!({
            "file_version": 1, "cmdline:": "cyclictest -q -h 400 --json=x", "rt_test_version:": "2.40",
            "resolution_in_ns": 0,
            "thread": { "0": {
                "histogram": { "9": 19_800 - above, (us.to_string()): 200 },
                "cycles": 20_000, "min": 9, "max": 900, "avg": 10.0, "cpu": 0, "node": 0
            } }
        });
        write(&folder, &name, &document.to_string())
    };
    let before: Vec<String> = (0..8).map(|nth| file(format!("a{nth}.json"), 300 + nth, 1)).collect();
    let after: Vec<String> = (0..8)
        .map(|nth| file(format!("b{nth}.json"), 100 + nth, if nth % 2 == 0 { 90 } else { 1 }))
        .collect();
    let (a, b) = (before.join(","), after.join(","));
    let said = whylate(&["compare", &a, &b, "--statistic", "timer p99.9", "--json"]);
    let document = said.document();
    assert_eq!((said.code, word(&document, "outcome")), (Some(1), "cannot_tell"), "{document:#}");
    let reason = word(&document, "reason");
    assert!(
        reason.contains("the p99.9 of 4 of 8 files on side B is above the end of their histogram"),
        "{reason}"
    );
    let said = whylate(&["compare", &a, &b, "--json"]).document();
    let warnings = list(&said, "warnings");
    let is_said =
        |it: &Value| word(it, "text") == format!("p99.9 is missing in {}, so p99 decides", after[0]);
    assert!(warnings.iter().any(is_said), "{said:#}");
    assert_eq!(word(&said, "outcome"), "better", "{said:#}");
    let late: Vec<String> = (0..8).map(|nth| file(format!("c{nth}.json"), 100 + nth, 90)).collect();
    let said = whylate(&["compare", &a, &late.join(","), "--json"]);
    let document = said.document();
    assert_eq!((said.code, word(&document, "outcome")), (Some(2), "worse"), "{document:#}");
    let deciding = list(&document, "contrasts").iter().find(|it| it["primary"] == true).unwrap();
    assert_eq!(
        (word(deciding, "statistic"), &deciding["above_histogram"]),
        ("p99.9", &serde_json::json!([0, 8]))
    );
    let shown = whylate(&["report", &after[0], "--details"]).stdout;
    assert!(shown.contains("> 400 us"), "{shown}");
    let document = whylate(&["report", &after[0], "--json"]).document();
    validate("measure", &document);
    let cpu = &list(&document, "cpus")[0];
    assert!(
        cpu.get("p999_ns").is_none() && cpu["p99_ns"].is_u64() && cpu["histogram_end_ns"] == 400_000,
        "{cpu}"
    );
}

#[test]
fn a_regression_is_exit_code_2_and_a_failure_for_build_servers() {
    let folder = folder();
    let side = |name: &str, times: u64| -> String {
        let files = (0..4).map(|nth| write(&folder, &format!("{name}{nth}.json"), &slower(times + nth % 2)));
        files.collect::<Vec<_>>().join(",")
    };
    let (before, after) = (side("a", 1), side("b", 40));
    let run = |more: &[&str]| {
        let words = ["compare", &before, &after, "--statistic", "timer p99"];
        whylate(&words.into_iter().chain(more.iter().copied()).collect::<Vec<_>>())
    };
    let said = run(&[]);
    assert_eq!(said.code, Some(2), "{said:?}");
    assert!(said.stdout.contains("REGRESSION") && said.stdout.contains("▲"), "{}", said.stdout);
    let junit = folder.path().join("t.xml");
    assert_eq!(run(&["-o", text(&junit)]).code, Some(2));
    let junit = std::fs::read_to_string(junit).unwrap();
    assert!(
        junit.contains("failures=\"1\"") && junit.contains("<failure message=\"timer p99 worse"),
        "{junit}"
    );
    let annotations = run(&["--format", "github"]).stdout;
    assert!(annotations.starts_with("::error title=whylate::timer p99 worse"), "{annotations}");
    let markdown = run(&["--format", "markdown"]).stdout;
    assert!(markdown.starts_with("### ❌ REGRESSION"), "{markdown}");
    let swapped = whylate(&["compare", &after, &before, "--statistic", "timer p99"]);
    assert_eq!(swapped.code, Some(0), "{swapped:?}");
    assert!(swapped.stdout.contains("BETTER"));
}

#[test]
fn runs_are_listed_tagged_compared_and_removed() {
    let _alone = alone();
    let folder = folder();
    let home = folder.path();
    let here = |words: &[&str]| {
        let mut command = command(words);
        command.env("XDG_DATA_HOME", home).current_dir(home);
        finish(command)
    };
    let plan = write(&folder, "plan.toml", SMALL_PLAN);
    assert!(here(&["report"]).error().contains("has no run yet"));
    for _ in 0..2 {
        let said = here(&["run", &plan, "-q"]);
        assert!(matches!(said.code, Some(0 | 2)), "{said:?}");
        std::thread::sleep(std::time::Duration::from_millis(1_100));
    }
    let listed = here(&["runs", "--json"]).document();
    validate("runs", &listed);
    let runs = list(&listed, "runs");
    assert_eq!(runs.len(), 2);
    let (new, old) = (word(&runs[0], "path"), word(&runs[1], "path"));
    assert_eq!(here(&["runs", "tag", "latest", "after"]).code, Some(0));
    let found = here(&["runs", "tag=after", "--json"]).document();
    assert_eq!(list(&found, "runs").iter().map(|run| word(run, "path")).collect::<Vec<_>>(), [new]);
    let latest = here(&["report"]);
    assert_eq!(latest.code, Some(0), "{latest:?}");
    assert!(latest.stderr.contains(new), "{latest:?}");

    let said = here(&["compare", old, "latest", "--json"]);
    assert_eq!(word(&said.document(), "outcome"), "cannot_tell", "{said:?}");
    let cell = word(&list(&here(&["report", new, "--json"]).document(), "cells")[0], "name").to_owned();
    let of_cell = here(&["compare", &format!("{old}:{cell}"), &format!("{new}:{cell}"), "--json"]);
    assert_eq!(list(&of_cell.document(), "sides")[0]["cell"], Value::String(cell));
    assert!(says("there-no-cell-nowhere-2", here(&["compare", &format!("{old}:nowhere"), new]).error()));

    let other = here(&["run", &plan, "-q", "-o", "other", "--set", "duration=\"400ms\""]);
    assert!(matches!(other.code, Some(0 | 2)), "{other:?}");
    // A busy machine may add other warnings.
    let mixed = |words: &[&str]| -> Vec<String> {
        let found = here(words).document();
        let warnings = list(&found, "warnings").iter().filter(|it| word(it, "code") == "compared-mixed");
        warnings.map(|it| word(it, "text").to_owned()).collect()
    };
    let of_both = mixed(&["compare", new, &format!("{old},other"), "--json"]);
    assert_eq!(of_both, ["the runs of side B differ in plan.duration"]);
    assert_eq!(mixed(&["compare", old, new, "--json"]), [""; 0]);

    assert!(here(&["runs", "remove", old]).error().contains("--yes"));
    assert!(Path::new(old).exists());
    let mine = Path::new(new).join("mine.txt");
    std::fs::write(&mine, "mine").unwrap();
    assert_eq!(here(&["runs", "remove", old, "--yes"]).code, Some(0));
    assert!(!Path::new(old).exists() && Path::new(new).exists());
    let removed = here(&["runs", "remove", new, "--yes"]);
    assert!(removed.code == Some(0) && removed.stderr.contains("mine.txt"), "{removed:?}");
    assert!(mine.exists() && !Path::new(new).join("run.json").exists());
}

#[test]
fn an_impossible_comparison_has_a_page_too() {
    let folder = folder();
    let plan = write(&folder, "plan.toml", SMALL_PLAN);
    let (whole, empty) = (folder.path().join("whole"), folder.path().join("empty"));
    let measuring = alone();
    let said = whylate(&["run", &plan, "-o", text(&whole), "--quiet"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    drop(measuring);
    // A run that was stopped before its first sample has no tables.
    std::fs::create_dir(&empty).unwrap();
    let info = std::fs::read_to_string(whole.join("run.json")).unwrap();
    let info = info
        .replace("\"manifest\": true", "\"manifest\": false")
        .replace("\"manifest\":true", "\"manifest\":false");
    std::fs::write(empty.join("run.json"), info).unwrap();
    let page = folder.path().join("empty.html");
    let said = whylate(&["compare", text(&whole), text(&empty), "-o", text(&page)]);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(std::fs::read_to_string(&page).unwrap().contains("nothing can be compared"), "{said:?}");
    let said = whylate(&["compare", text(&whole), text(&empty), "--format", "junit"]);
    assert!(said.code == Some(1) && said.stdout.contains("<testsuite"), "{said:?}");
    // The plan of the run has the statistic that decides, even if the other side is a file of another tool.
    let foreign = write(&folder, "a.json", CYCLICTEST);
    let idle = format!("{}:idle", text(&whole));
    let deciding = |said: &Value| {
        let is_primary = |it: &&Value| it["comparison"]["primary"] == true || it["primary"] == true;
        list(said, "contrasts").iter().filter(is_primary).count()
    };
    // The p99.9 of that file is above the end of its histogram.
    let said = whylate(&["compare", &foreign, &idle, "--json"]).document();
    let deciding_one = list(&said, "contrasts").iter().find(|it| it["primary"] == true).unwrap();
    assert_eq!(
        (word(&said, "outcome"), &deciding_one["above_histogram"]),
        ("cannot_tell", &serde_json::json!([1, 0]))
    );
    assert!(word(&said, "reason").contains("timer p99.9"), "{said:#}");
    let said = whylate(&["compare", &foreign, &idle, "--json", "--statistic", "timer p99"]).document();
    assert!(deciding(&said) == 1 && !word(&said, "reason").contains("no cell has"), "{said:#}");
    let same = whylate(&["compare", &foreign, &foreign]).stdout;
    assert!(says("nothing-that-every-side", &same), "{same}");
}
