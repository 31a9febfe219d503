//! `whylate run` and `whylate report`, end to end on this machine.

use crate::fields::{list, number, run, word};
use crate::json::validate;
use crate::tool::{SMALL_PLAN, alone, command, finish, folder, text, whylate, write};
use serde_json::Value;
use std::fs;
use std::path::Path;
use whylate_core::figure::nanoseconds;
use whylate_testing::{Need, says, skip};

/// The largest latency of each probe in each cell, as reports print it.
fn largest(result: &Value) -> Vec<String> {
    let probes = list(result, "cells").iter().flat_map(|cell| list(cell, "probes"));
    probes.map(|probe| nanoseconds(number(&probe["cpus"][0], "max_ns"))).collect()
}

#[test]
fn a_run_and_its_reports() {
    let _alone = alone();
    let folder = folder();
    let plan = write(&folder, "plan.toml", SMALL_PLAN);
    let path = folder.path().join("results/first");
    let place = text(&path);
    let said = whylate(&["run", &plan, "-o", place]);
    assert_eq!(said.code, Some(0), "{said:?}");
    for words in ["plan small", "measuring CPU", place, "whylate report"] {
        assert!(said.stderr.contains(words), "`{words}` is missing in:\n{}", said.stderr);
    }

    let result = whylate(&["report", place, "--json"]).json();
    validate("run", &result);
    run(&result, &["idle", "cache"], 2);
    assert_eq!(word(&result, "verdict"), "no_limit");
    assert_eq!(
        result,
        serde_json::from_str::<Value>(&fs::read_to_string(path.join("result.json")).unwrap()).unwrap()
    );

    let figures = largest(&result);
    assert_eq!(figures.len(), 4);
    let page = folder.path().join("report.html");
    let wrote = whylate(&["report", place, "-o", text(&page)]);
    assert_eq!((wrote.code, wrote.stdout.as_str()), (Some(0), ""));
    let html = fs::read_to_string(&page).unwrap();
    let forms = [
        ("terminal", said.stdout),
        ("terminal again", whylate(&["report", place]).stdout),
        ("markdown", whylate(&["report", place, "--format", "markdown"]).stdout),
        ("html", html),
    ];
    for (form, report) in &forms {
        for words in figures.iter().map(String::as_str).chain(["idle", "cache", "timer", "stall"]) {
            assert!(report.contains(words), "`{words}` is missing in the {form} report");
        }
    }
    assert!(
        whylate(&["report", place, "--details"]).stdout.contains("GB/s"),
        "the rates are among the details"
    );
    assert_eq!(forms[0].1, forms[1].1, "a report made later says the same");
    assert!(forms[2].1.contains("| "), "Markdown has tables");
    let html = &forms[3].1;
    assert!(html.starts_with("<!doctype html>") && html.trim_end().ends_with("</html>"));
    for outside in ["src=\"http", "href=\"http", "@import", "url(http"] {
        assert!(!html.contains(outside), "the page is not self-contained: {outside}");
    }
    // Without a Markdown or HTML ending the file gets the text, and an existing file is never overwritten.
    let notes = write(&folder, "report.md", "mine");
    let error = whylate(&["report", place, "-o", &notes]).error().to_owned();
    assert!(error.contains(&notes) && error.contains("-o"), "{error}");
    assert_eq!(fs::read_to_string(&notes).unwrap(), "mine");
    // A complete run is not started again, nothing is written to it, and its directory is not reused.
    let manifest = || fs::read(Path::new(place).join("manifest.jsonl")).unwrap();
    let before = manifest();
    let error = whylate(&["run", "--resume", place, "-q"]).error().to_owned();
    assert!(error.contains("nothing to resume"), "{error}");
    assert!(manifest() == before, "a run that is over was written to");
    let error = whylate(&["run", &plan, "-o", place, "-q"]).error().to_owned();
    assert!(says("not-empty-directory", &error) && !error.contains("--resume"), "{error}");
    // If the disk was full at the very end, only the result is missing, and the manifest's line about it.
    let result = Path::new(place).join("result.json");
    fs::remove_file(&result).unwrap();
    let text = String::from_utf8(manifest()).unwrap();
    let kept = text.trim_end().rsplit_once('\n').unwrap().0;
    fs::write(Path::new(place).join("manifest.jsonl"), format!("{kept}\n")).unwrap();
    let said = whylate(&["run", "--resume", place, "-q"]);
    assert!(result.is_file() && matches!(said.code, Some(0 | 2)), "{said:?}");
}

#[test]
fn a_limit_that_is_exceeded_fails_the_run() {
    let _alone = alone();
    let folder = folder();
    let plan = write(&folder, "plan.toml", SMALL_PLAN);
    let hook = format!("echo x >> {}", text(&folder.path().join("hook")));
    let place = folder.path().join("run");
    let mut arguments = vec!["run", &plan, "-o", text(&place), "--json", "--on-threshold", &hook];
    arguments.extend(["--set", "limit=1ns", "--set", "duration=200ms", "--set", "repeats=1"]);
    arguments.extend(["--set", "probe.stall.threshold=1us"]);
    let said = whylate(&arguments);
    assert_eq!((said.code, said.stderr.as_str()), (Some(2), ""));
    let result = said.document();
    validate("run", &result);
    assert_eq!((word(&result, "verdict"), word(&result, "state")), ("fail", "complete"));
    assert_eq!(word(&result["plan"], "limit"), "1ns");
    assert_eq!(fs::read_to_string(folder.path().join("hook")).unwrap(), "x\n");
    // Reporting is not judging: the report of a failed run is a success.
    assert_eq!(whylate(&["report", text(&place)]).code, Some(0));
}

#[test]
fn a_break_ends_the_run_and_keeps_what_there_is() {
    let _alone = alone();
    let folder = folder();
    let plan = write(
        &folder,
        "plan.toml",
        &SMALL_PLAN.replacen("kind = \"timer\"", "kind = \"timer\"\nbreak = \"1us\"", 1),
    );
    let place = folder.path().join("run");
    let said = whylate(&["run", &plan, "-o", text(&place), "--json"]);
    assert_eq!(said.code, Some(2), "{said:?}");
    let result = said.document();
    validate("run", &result);
    assert_eq!(word(&result, "state"), "interrupted");
    assert!(word(&result, "error").contains("break"), "{}", result["error"]);
    assert!(number(&result["cells"][0]["spikes"][0], "latency_ns") > 1_000);
}

#[test]
fn a_load_that_dies_fails_its_cell_and_not_the_other() {
    let _alone = alone();
    let folder = folder();
    let load = "name = \"cache\"\nkind = \"exec\"\ncommand = [\"sh\", \"-c\", \"echo out of cheese; sleep 0.3; exit 3\"]";
    let text_of =
        SMALL_PLAN.replacen("name = \"cache\"\nkind = \"memory\"\nworking_set = \"256KiB\"", load, 1);
    assert!(text_of.contains("cheese"));
    let plan = write(&folder, "plan.toml", &text_of);
    let place = folder.path().join("run");
    let said = whylate(&["run", &plan, "-o", text(&place), "--set", "repeats=1", "-q", "--json"]);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(says("repeats-failed", &said.stderr) && said.stderr.contains("--resume"), "{}", said.stderr);
    let result = said.document();
    validate("run", &result);
    assert!(result["cells"][0]["repeats"][0].get("error").is_none());
    let error = word(&result["cells"][1]["repeats"][0], "error");
    assert!(error.starts_with("load `cache` ended early: ") && error.contains("exit status 3"), "{error}");
    assert!(!error.contains('\n'), "{error}");
    let kept = fs::read_to_string(place.join("loads/cache-1-1-cache.txt")).unwrap();
    assert_eq!(kept, "out of cheese\n");
}

#[test]
fn a_cell_with_a_missing_load_is_skipped() {
    let _alone = alone();
    let folder = folder();
    let plan = write(&folder, "plan.toml", &SMALL_PLAN.replace("\"256KiB\"", "\"l4*4\""));
    let place = folder.path().join("run");
    let said = whylate(&["run", &plan, "-o", text(&place), "--set", "repeats=1", "--set", "duration=100ms"]);
    if said.code == Some(0) && !said.stderr.contains("skipped") {
        return skip(
            Need::Machine("a CPU without a level-4 cache"),
            "this machine has a fourth level of cache",
        );
    }
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(says("skipped-cell-cache-load", &said.stderr), "{}", said.stderr);
    let result = whylate(&["report", text(&place), "--json"]).json();
    assert!(word(&result["cells"][1], "skipped").contains("load `cache`"));
    assert!(result["cells"][0]["skipped"].is_null());
}

#[test]
fn the_default_place_is_in_the_users_data() {
    let _alone = alone();
    let folder = folder();
    let mut command = command(&["run", "--set", "duration=50ms", "--set", "repeats=1", "--json"]);
    for load in ["l3", "above-l3"] {
        command.args(["--set", &format!("load.{load}.working_set=64KiB")]);
    }
    command.env("XDG_DATA_HOME", folder.path()).current_dir(folder.path());
    let result = finish(command).json();
    validate("run", &result);
    run(&result, &["idle", "l3", "above-l3"], 1);
    let place = word(&result, "run");
    assert!(
        place.starts_with(text(&folder.path().join("whylate/runs"))) && place.ends_with("-quick"),
        "{place}"
    );
}

#[test]
fn a_run_without_samples_says_so() {
    let _alone = alone();
    let folder = folder();
    let place = folder.path().join("run");
    let plan = SMALL_PLAN.replacen(
        "name = \"cache\"\nkind = \"memory\"\nworking_set = \"256KiB\"",
        "name = \"cache\"\nkind = \"exec\"\ncommand = [\"false\"]",
        1,
    );
    // Only the cell whose load never runs.
    let plan = write(&folder, "plan.toml", &plan.replacen("[[cell]]\n[[cell]]", "[[cell]]", 1));
    let said =
        whylate(&["run", &plan, "-o", text(&place), "-q", "--set", "repeats=1", "--set", "noise_floor=0s"]);
    let error = said.error();
    assert!(error.starts_with("no samples: cell `cache`: ") && error.contains("`false`"), "{error}");
    let error = whylate(&["report", text(&place)]).error().to_owned();
    assert_eq!(error, format!("{}: no samples", text(&place)));
}

#[test]
fn a_dry_run_checks_everything_and_measures_nothing() {
    let folder = folder();
    let missing = "[[load]]\nname = \"none\"\nkind = \"exec\"\ncommand = [\"no-such-command\"]\n[[cell]]\nloads = [\"none\"]\n";
    let plan = write(&folder, "plan.toml", &format!("{SMALL_PLAN}{missing}"));
    let path = folder.path().join("run");
    let arguments = ["run", &plan, "--dry-run", "-o", text(&path)];
    let said = whylate(&arguments);
    assert_eq!(said.code, Some(0), "{said:?}");
    for part in [
        "order: idle, cache, idle, cache",
        "8 of 10 such runs, with 2 repeats of each cell and 1 comparison, find these changes of timer p99.9: ",
        "skipped: cell `none`: load `none`: the command `no-such-command` was not found",
        "nothing was measured or changed",
    ] {
        assert!(said.stdout.contains(part), "`{part}` is missing in {}", said.stdout);
    }
    assert!(!path.exists());
    let result = whylate(&[&arguments[..], &["--json", "--set", "repeats=8"]].concat()).json();
    validate("preview", &result);
    assert_eq!(result["order"].as_array().map(Vec::len), Some(16));
    assert!(result["power"][0]["ratio"].as_f64().is_some_and(|ratio| ratio > 1.0), "{result}");
}
