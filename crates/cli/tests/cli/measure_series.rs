//! `whylate measure dispatch` and `whylate measure roundtrip`: probes whose figures come in series.

use crate::fields::{list, number, run, word};
use crate::json::validate;
use crate::measure::{measured, usable};
use crate::tool::{alone, folder, text, whylate, write};
use serde_json::Value;
use whylate_testing::{Need, skip};

fn series(result: &Value) -> Vec<&str> {
    list(result, "cpus").iter().map(|cpu| word(cpu, "series")).collect()
}

#[test]
fn dispatch_measures_as_many_samples_as_asked_for() {
    let _alone = alone();
    for source in ["timerfd", "nanosleep"] {
        let result = measured(&["dispatch", "--source", source, "--samples", "200"]);
        assert_eq!(series(&result), [source]);
        assert_eq!(number(&result["cpus"][0], "samples"), 200);
    }
}

/// The parts of a series; `None`, with the reason, if this machine's kernel does not report them.
fn parts(result: &Value) -> Option<Vec<Value>> {
    let warnings = list(result, "warnings");
    if let Some(warning) = warnings.iter().find(|warning| warning["code"] == "dispatch-whole-only") {
        skip(Need::Rights, word(warning, "text"));
        return None;
    }
    Some(list(&result["cpus"][0], "parts").clone())
}

#[test]
fn the_parts_of_a_dispatch_add_up_to_it() {
    let _alone = alone();
    for source in ["timerfd", "nanosleep"] {
        let result = measured(&["dispatch", "--source", source, "--samples", "500"]);
        let Some(parts) = parts(&result) else { return };
        let names: Vec<&str> = parts.iter().map(|part| word(part, "part")).collect();
        assert_eq!(names, ["interrupt", "wakeup", "switch"], "{source}");
        let whole = &result["cpus"][0];
        let (samples, divided) = (number(whole, "samples"), number(&parts[0], "samples"));
        assert!(parts.iter().all(|part| number(part, "samples") == divided), "{parts:?}");
        // A late process did not sleep before its next interrupt, which is not divided.
        assert!(divided * 2 > samples, "{divided} of {samples}");
        let sum = |key: &str| parts.iter().map(|part| part[key].as_f64().unwrap()).sum::<f64>();
        assert!(sum("max_ns") + 1.0 >= whole["min_ns"].as_f64().unwrap());
        assert!(parts.iter().all(|part| number(part, "max_ns") <= number(whole, "max_ns")));
        if divided == samples {
            let mean = whole["mean_ns"].as_f64().unwrap();
            assert!((sum("mean_ns") - mean).abs() < 0.01 * mean.max(1.0), "{} and {mean}", sum("mean_ns"));
        }
    }
}

#[test]
fn dispatch_can_be_measured_without_its_parts() {
    let _alone = alone();
    let result = measured(&["dispatch", "--samples", "50", "--no-parts"]);
    assert!(result["cpus"][0].get("parts").is_none(), "{result}");
    assert!(!crate::fields::codes(&result).contains(&"dispatch-whole-only".to_owned()));
}

#[test]
fn dispatch_prints_rows_of_ten_microseconds() {
    let _alone = alone();
    let said = whylate(&["measure", "dispatch", "--samples", "200", "-q"]);
    assert_eq!((said.code, said.stderr.as_str()), (Some(0), ""));
    assert!(said.stdout.contains("timerfd, 200 samples): ") && said.stdout.contains(" us min/avg/max"));
    let rows =
        said.stdout.lines().filter_map(|line| line.split_once(" : ").filter(|row| row.0.contains(" .. ")));
    let counted = rows.map(|(_, row)| row.split_whitespace().next().unwrap().parse::<u64>().unwrap());
    assert_eq!(counted.sum::<u64>(), 200, "{}", said.stdout);
}

#[test]
fn a_source_that_is_not_there_is_a_missing_facility() {
    let _alone = alone();
    let said = whylate(&["measure", "dispatch", "--source", "uio4242", "--interval", "1ms", "--json"]);
    assert_eq!((said.code, said.stdout.as_str()), (Some(69), ""), "{said:?}");
    assert!(said.stderr.contains("/dev/uio4242") && said.stderr.lines().count() == 1, "{said:?}");
}

#[test]
fn round_trips_of_every_method() {
    let _alone = alone();
    let usable = usable();
    if usable.len() < 2 {
        return skip(Need::Cpus, "there is only one usable CPU");
    }
    let (from, to) = (usable[usable.len() - 1], usable[0]);
    let result = measured(&["roundtrip", "--cpus", &format!("{from},{to}"), "-D", "600ms"]);
    assert_eq!(series(&result), ["spin", "futex", "eventfd", "pipe", "unix", "udp"]);
    for cpu in list(&result, "cpus") {
        assert_eq!((number(cpu, "cpu"), number(cpu, "peer_cpu")), (from, to));
    }
}

#[test]
fn round_trips_on_one_cpu_leave_spinning_out() {
    let _alone = alone();
    let cpu = usable()[0];
    let pair = format!("{cpu},{cpu}");
    let result = measured(&["roundtrip", "--cpus", &pair, "--samples", "100"]);
    assert_eq!(series(&result), ["futex", "eventfd", "pipe", "unix", "udp"]);
    assert!(list(&result, "cpus").iter().all(|cpu| number(cpu, "samples") == 100));
    assert!(crate::fields::codes(&result).contains(&"no-spin-on-one-cpu".to_owned()));
}

const PLAN: &str = r#"name = "series"
duration = "300ms"
repeats = 2
settle = "10ms"
warmup = "10ms"
noise_floor = "0s"
[[probe]]
kind = "dispatch"
samples = 100
[[probe]]
kind = "dispatch"
source = "nanosleep"
interval = "500us"
[[probe]]
kind = "roundtrip"
method = "futex,pipe"
[[load]]
name = "cache"
kind = "memory"
working_set = "256KiB"
[[cell]]
[[cell]]
loads = ["cache"]
"#;

#[test]
fn series_go_through_a_whole_run_and_its_reports() {
    let _alone = alone();
    let folder = folder();
    let plan = write(&folder, "series.toml", PLAN);
    let kept = folder.path().join("run");
    let said = whylate(&["run", &plan, "-o", text(&kept), "--json"]);
    let result = said.json();
    validate("run", &result);
    run(&result, &["idle", "cache"], 2);
    for cell in list(&result, "cells") {
        let probes = list(cell, "probes");
        assert_eq!(
            probes.iter().map(|probe| word(probe, "probe")).collect::<Vec<_>>(),
            ["dispatch", "roundtrip"]
        );
        assert_eq!(series(&probes[0]), ["timerfd", "nanosleep"]);
        assert_eq!(number(&probes[0]["cpus"][0], "samples"), 200, "two repeats of a hundred");
        assert_eq!(series(&probes[1]), ["futex", "pipe"]);
    }
    let compared: Vec<&str> = list(&result, "comparisons").iter().map(|it| word(it, "probe")).collect();
    assert!(compared.contains(&"roundtrip/futex") && compared.contains(&"dispatch/timerfd"), "{compared:?}");
    for format in ["terminal", "markdown"] {
        let report = whylate(&["report", text(&kept), "--format", format, "--details"]).stdout;
        let has_parts = result["cells"][0]["probes"][0]["cpus"][0].get("parts").is_some();
        assert_eq!(report.contains("wakeup"), has_parts, "{report}");
        for words in ["futex", "pipe", "timerfd", "nanosleep", "min/avg/max", "median cycles"] {
            assert!(report.contains(words), "`{words}` is missing in:\n{report}");
        }
    }
    let page = whylate(&["report", text(&kept), "--format", "html"]).stdout;
    assert!(page.contains(", futex") && page.contains(", nanosleep, CPU") == (usable().len() > 2));
}
