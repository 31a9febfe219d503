//! `whylate measure`.

use crate::fields::{codes, facts, interrupts, list, number, probe, warnings, word};
use crate::json::validate;
use crate::tool::{alone, command, folder, signal, start, text, until, wait, whylate};
use rustix::process::Signal;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;
use whylate_testing::{Need, skip};

/// Measures, checks every field, and returns the document.
pub(crate) fn measured(arguments: &[&str]) -> Value {
    let mut all = vec!["measure"];
    all.extend(arguments);
    all.push("--json");
    let said = whylate(&all);
    assert_eq!((said.code, said.stderr.as_str()), (Some(0), ""));
    checked(said.document(), arguments[0])
}

fn checked(result: Value, name: &str) -> Value {
    validate("measure", &result);
    assert_eq!(word(&result, "format"), "whylate.measure/1");
    assert_eq!(word(&result, "probe"), name);
    facts(&result["facts"]);
    warnings(&result);
    probe(&result);
    interrupts(&result);
    let counted: Vec<u64> =
        list(&result, "counters").iter().map(|counters| number(counters, "cpu")).collect();
    let peers = list(&result, "cpus").iter().filter_map(|cpu| cpu.get("peer_cpu")?.as_u64());
    let measured: BTreeSet<u64> = cpus(&result).into_iter().chain(peers).collect();
    assert_eq!(counted, Vec::from_iter(measured), "the kernel's counters of each measured CPU");
    result
}

fn cpus(result: &Value) -> Vec<u64> {
    list(result, "cpus").iter().map(|cpu| number(cpu, "cpu")).collect()
}

/// CPUs that this process may use.
pub(crate) fn usable() -> Vec<u64> {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap();
    list.trim().parse::<whylate_core::CpuSet>().unwrap().iter().map(|cpu| u64::from(cpu.0)).collect()
}

#[test]
fn the_timer_probe_as_json() {
    let _alone = alone();
    let result = measured(&["timer", "-D", "500ms"]);
    assert_eq!(cpus(&result), [*usable().last().unwrap()]);
    assert_eq!(result["broke"], false);
}

#[test]
fn the_stall_probe_as_json() {
    let _alone = alone();
    let result = measured(&["stall", "-D", "500ms", "--threshold", "1us"]);
    assert_eq!(cpus(&result), [*usable().last().unwrap()]);
    let cpu = &result["cpus"][0];
    // A kernel takes more than a microsecond out of half a second.
    assert!(number(cpu, "gaps") > 0, "{cpu}");
    assert_eq!(result["spikes"][0]["latency_ns"], cpu["max_ns"]);
    assert_eq!(result["spikes"][0]["at_ns"], cpu["max_at_ns"]);
}

#[test]
fn the_short_flags_of_cyclictest() {
    let _alone = alone();
    let cpu = *usable().last().unwrap();
    let affinity = format!("-a{cpu}");
    let result = measured(&["timer", &affinity, "-t1", "-p95", "-i200", "-D1", "-q", "-m"]);
    assert_eq!(cpus(&result), [cpu]);
    // A second has 5,000 periods of 200 us, run or missed. A stalled machine loses some at the end, and a task that
    // is late then misses some beyond it.
    let beyond = number(&result["cpus"][0], "max_ns") / 200_000;
    let periods = number(&result["cpus"][0], "samples") + number(&result["cpus"][0], "overruns");
    assert!((2_500..=5_001 + beyond).contains(&periods), "{periods} periods");
}

#[test]
fn one_thread_on_each_cpu() {
    let _alone = alone();
    let usable = usable();
    if usable.len() < 2 {
        return skip(Need::Cpus, "there is only one usable CPU");
    }
    for flags in [&["-S"][..], &["-a", "-t"], &["-t"], &["--cpus", "all"]] {
        let mut arguments = vec!["timer", "-D", "100ms"];
        arguments.extend(flags);
        assert_eq!(cpus(&measured(&arguments)), usable, "{flags:?}");
    }
}

#[test]
fn every_method_and_policy_measures() {
    let _alone = alone();
    for method in ["nanosleep", "timerfd", "posix-timer"] {
        measured(&["timer", "--method", method, "-D", "100ms"]);
    }
    // An ordinary task may have to wait this long for others.
    for policy in ["rr", "other"] {
        measured(&["timer", "--policy", policy, "-D", "500ms"]);
        measured(&["stall", "--policy", policy, "-D", "500ms"]);
    }
}

#[test]
fn a_refused_deadline_is_a_missing_facility() {
    let _alone = alone();
    let said = whylate(&["measure", "timer", "--policy", "deadline", "-D", "100ms", "--json"]);
    if said.code == Some(0) {
        checked(said.document(), "timer");
        return skip(
            Need::Machine("a kernel that refuses pinned deadline tasks"),
            "this kernel takes a pinned deadline task",
        );
    }
    assert_eq!((said.code, said.stdout.as_str()), (Some(69), ""), "{said:?}");
    assert_eq!(said.stderr.lines().count(), 1, "{said:?}");
    assert!(said.stderr.contains("SCHED_DEADLINE") && said.stderr.contains("--policy fifo"), "{said:?}");
}

#[test]
fn it_ends_after_exactly_that_many_samples() {
    let _alone = alone();
    for flag in ["--until-samples", "-l"] {
        let result = measured(&["timer", flag, "100", "-D", "60"]);
        assert_eq!(number(&result["cpus"][0], "samples"), 100);
    }
}

#[test]
fn a_break_leaves_the_tracing_of_others_as_it_was_unless_asked_to_stop_it() {
    let _alone = alone();
    let switch = "/sys/kernel/tracing/tracing_on";
    let read = || fs::read_to_string(switch).map(|text| text.trim().to_owned());
    let Ok(before) = read() else { return skip(Need::Rights, "tracefs cannot be read here") };
    if fs::write(switch, "1").is_err() {
        return skip(Need::Rights, "tracefs cannot be written here");
    }
    let broken = |more: &[&str]| {
        let words = ["measure", "timer", "-b", "1us", "-D", "60", "--json"];
        let said = whylate(&words.iter().chain(more).copied().collect::<Vec<_>>());
        assert_eq!(said.code, Some(2), "{said:?}");
        (read().unwrap(), said.document())
    };
    let (kept, _) = broken(&[]);
    let (stopped, result) = broken(&["--tracemark"]);
    fs::write(switch, before).unwrap();
    assert_eq!((kept.as_str(), stopped.as_str()), ("1", "0"));
    let has_warning = list(&result, "warnings").iter().any(|warning| warning["code"] == "tracing-stopped");
    assert!(has_warning, "{result}");
}

#[test]
fn a_latency_above_the_break_ends_it_and_runs_the_command_once() {
    let _alone = alone();
    let folder = folder();
    let file = folder.path().join("latencies");
    let hook = format!("echo $WHYLATE_LATENCY_NS >> {}", text(&file));
    let said = whylate(&["measure", "timer", "-b", "1us", "-D", "60", "--on-threshold", &hook, "--json"]);
    assert_eq!(said.code, Some(2), "{said:?}");
    let result = checked(said.document(), "timer");
    assert_eq!(result["broke"], true);
    let latency = number(&result["spikes"][0], "latency_ns");
    assert!(latency > 1_000);
    assert_eq!(result["cpus"][0]["max_ns"], latency);
    let ran = fs::read_to_string(&file).unwrap();
    assert_eq!(ran.lines().count(), 1, "{ran}");
    assert!(ran.trim().parse::<u64>().unwrap() > 1_000, "{ran}");
}

#[test]
fn a_gap_above_the_threshold_runs_the_command_once_and_does_not_end_it() {
    let _alone = alone();
    let folder = folder();
    let file = folder.path().join("gaps");
    let hook = format!("echo x >> {}", text(&file));
    let result = measured(&["stall", "--threshold", "1us", "-D", "500ms", "--on-threshold", &hook]);
    assert!(number(&result["cpus"][0], "gaps") > 0);
    assert_eq!(fs::read_to_string(&file).unwrap(), "x\n");
}

#[test]
fn ctrl_c_ends_an_endless_measurement_in_order() {
    let _alone = alone();
    let child = start(command(&["measure", "timer", "-D", "0", "--json"]));
    // The measuring process exists, and has had time to arm.
    let threads = format!("/proc/{}/task", child.id());
    let has_child = |thread: fs::DirEntry| {
        fs::read_to_string(thread.path().join("children")).is_ok_and(|pids| !pids.trim().is_empty())
    };
    assert!(until(|| fs::read_dir(&threads).unwrap().flatten().any(has_child)));
    std::thread::sleep(Duration::from_millis(1_500));
    signal(&child, Signal::INT);
    let said = wait(child);
    assert_eq!((said.code, said.stderr.as_str()), (Some(0), ""));
    checked(said.document(), "timer");
}

#[test]
fn the_text_has_the_figures_and_the_warnings() {
    let _alone = alone();
    let said = whylate(&["measure", "timer", "-l", "200", "-q"]);
    assert_eq!((said.code, said.stderr.as_str()), (Some(0), ""));
    for words in ["timer: ", "samples", "p99.9", "max", "missed", "largest spike", "200"] {
        assert!(said.stdout.contains(words), "`{words}` is missing in:\n{}", said.stdout);
    }
    let json = whylate(&["measure", "timer", "-l", "200", "--json"]).json();
    for code in codes(&json) {
        assert!(said.stdout.contains(code.as_str()), "`{code}` is missing in:\n{}", said.stdout);
    }
}

#[test]
fn a_result_without_a_reader_is_no_error() {
    let _alone = alone();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = command(&["measure", "timer", "-l", "50", "--json"]);
    let status = command.stdout(writer).status().unwrap();
    assert_eq!(status.code(), Some(0));
}

/// A kept measurement is a run: every command that reads runs reads it.
#[test]
fn a_kept_measurement_is_read_as_a_run() {
    let folder = folder();
    let run = folder.path().join("kept");
    let run = text(&run);
    let _alone = alone();
    let kept = ["measure", "timer", "--cpu", "0", "--duration", "300ms", "--warmup", "10ms", "-o", run, "-q"];
    let said = whylate(&kept);
    assert_eq!(said.code, Some(0), "{said:?}");
    let report = whylate(&["report", run, "--json"]).json();
    let probes = list(&report["cells"][0], "probes");
    assert!(probes.iter().any(|probe| number(&probe["cpus"][0], "samples") > 100), "{report:#}");
    assert_eq!(whylate(&["compare", run, run, "--json"]).document()["format"], "whylate.compare/1");
    assert!(whylate(&["export", run, "--to", "csv", "--table", "histogram"]).stdout.lines().count() > 2);
    let again = whylate(&["measure", "timer", "--duration", "300ms", "-o", run, "-q"]);
    assert_eq!(again.code, Some(1), "what is there is not replaced: {again:?}");
    let endless = whylate(&["measure", "timer", "--duration", "0", "-o", run]);
    assert!(endless.code != Some(0) && endless.stderr.contains("--duration"), "{endless:?}");
}

/// Names of the fields, without the elements of lists that may be empty.
fn names(document: &Value) -> Vec<String> {
    document.as_object().unwrap().keys().cloned().collect()
}

#[test]
fn a_stored_measurement_prints_the_json_of_a_measurement() {
    let folder = folder();
    let run = folder.path().join("kept");
    let measure = ["measure", "timer", "--cpu", "0", "--duration", "300ms", "--warmup", "10ms", "--json"];
    let _alone = alone();
    let plain = whylate(&measure).json();
    let said = whylate(&[&measure[..], &["--spikes", "2", "-o", text(&run)]].concat());
    let stored = said.json();
    assert_eq!((said.code, stored["format"].as_str()), (Some(0), Some("whylate.measure/1")), "{stored:#}");
    assert_eq!(names(&stored), names(&plain));
    checked(stored.clone(), "timer");
    let cpu = |document: &Value| names(&document["cpus"][0]);
    let without_max = |mut names: Vec<String>| {
        names.retain(|name| name != "max_at_ns");
        names
    };
    assert_eq!(without_max(cpu(&stored)), without_max(cpu(&plain)));
    let spikes = list(&stored, "spikes");
    assert!(spikes.len() <= 2 && spikes.iter().all(|spike| spike["repeat"].is_null()), "{spikes:?}");
    assert_eq!(list(&stored, "counters").len(), list(&plain, "counters").len());
    // The run directory has the same figures.
    let report = whylate(&["report", text(&run), "--json"]).json();
    let reported = &report["cells"][0]["probes"][0]["cpus"][0];
    assert_eq!(reported["samples"], stored["cpus"][0]["samples"]);
    assert_eq!(reported["histogram"], stored["cpus"][0]["histogram"]);
}

#[test]
fn warnings_of_a_measurement_take_one_line_unless_asked_for() {
    let lines = |more: &[&str]| {
        let all = [&["measure", "timer", "--cpu", "0", "--duration", "200ms", "-q"], more].concat();
        whylate(&all).stdout.lines().count()
    };
    let _alone = alone();
    assert!(lines(&[]) <= 24, "a screen has 24 lines");
    assert!(lines(&["--details"]) > lines(&[]));
}
