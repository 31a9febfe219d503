//! The remains of a run that is stopped or killed, and how it continues.

use crate::fields::{list, run, word};
use crate::json::validate;
use crate::tool::{
    SMALL_PLAN, WHYLATE, alone, command, finish, folder, mark, marked, signal, start, text, until, wait,
    whylate, write,
};
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use whylate_testing::says;

/// How long processes may take to notice that the run is gone.
const NOTICED_WITHIN: Duration = Duration::from_secs(10);

/// The executions in `run.json`.
fn executions(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path.join("run.json")).unwrap_or_default();
    let info: Value = serde_json::from_str(&text).unwrap_or_default();
    info["executions"].as_array().cloned().unwrap_or_default()
}

/// Waits until the second cell has begun.
fn wait_for_second_cell(path: &Path) {
    let begun = until(|| executions(path).len() >= 2);
    assert!(begun, "the second cell never began: {:?}", executions(path));
}

#[test]
fn ctrl_c_keeps_what_is_done_and_says_how_to_go_on() {
    let _alone = alone();
    let folder = folder();
    let plan = write(&folder, "plan.toml", SMALL_PLAN);
    let path = folder.path().join("run");
    let child = start(command(&["run", &plan, "-o", text(&path), "-q"]));
    wait_for_second_cell(&path);
    signal(&child, Signal::INT);
    let said = wait(child);
    assert_eq!(said.code, Some(1), "{said:?}");
    let resume = format!("whylate run --resume {}", text(&path));
    assert!(said.stderr.contains("stopped by the user") && said.stderr.contains(&resume), "{}", said.stderr);
    let result = whylate(&["report", text(&path), "--json"]).json();
    validate("run", &result);
    assert_eq!((word(&result, "state"), word(&result, "verdict")), ("interrupted", "no_limit"));
    assert!(result["cells"][0]["repeats"][0].get("error").is_none());
    assert_eq!(whylate(&["report", text(&path)]).code, Some(0));

    let result = whylate(&["run", "--resume", text(&path), "--json"]).json();
    validate("run", &result);
    run(&result, &["idle", "cache"], 2);
}

#[test]
fn ctrl_c_ends_a_run_of_ten_thousand_cells_with_what_was_measured() {
    let _alone = alone();
    let folder = folder();
    let cells: String = (0..10_000).map(|cell| format!("[[cell]]\nname = \"c{cell}\"\n")).collect();
    let plan = SMALL_PLAN.split("[[load]]").next().unwrap();
    let plan = write(&folder, "plan.toml", &format!("{plan}\n{cells}"));
    let path = folder.path().join("run");
    let child = start(command(&["run", &plan, "-o", text(&path), "-q"]));
    wait_for_second_cell(&path);
    signal(&child, Signal::INT);
    let (begun, asked) = (executions(&path).len(), Instant::now());
    let said = wait(child);
    // Without optimization, while other tests run; with optimization it took 32 s.
    assert!(asked.elapsed() < Duration::from_secs(30), "{:?}", asked.elapsed());
    assert_eq!(said.code, Some(1), "{said:?}");
    // At most the one that was running.
    assert!(executions(&path).len() <= begun + 1, "{begun} before the signal");
    let result: Value = serde_json::from_slice(&fs::read(path.join("result.json")).unwrap()).unwrap();
    assert_eq!((word(&result, "state"), list(&result, "cells").len()), ("interrupted", 10_000));
}

#[test]
fn a_killed_run_leaves_no_process_and_goes_on_where_it_was() {
    let _alone = alone();
    let folder = folder();
    let exec = "[[load]]\nname = \"sleepers\"\nkind = \"exec\"\ncommand = [\"sh\", \"-c\", \"sleep 600 & setsid sleep 600 & wait\"]\n[[cell]]\n[[cell]]";
    let plan = SMALL_PLAN
        .replacen("[[cell]]\n[[cell]]", exec, 1)
        .replace("loads = [\"cache\"]", "loads = [\"cache\", \"sleepers\"]")
        .replace("settle = \"50ms\"", "settle = \"2s\"")
        .replace("repeats = 2", "repeats = 1");
    let plan = write(&folder, "plan.toml", &plan);
    let path = folder.path().join("run");
    let (mark, variable, value) = mark("killed");
    let mut command = command(&["run", &plan, "-o", text(&path), "-q"]);
    command.env(variable, value);
    let mut child = start(command);
    wait_for_second_cell(&path);
    // The run, the processes of its two loads, the shell and its two sleepers.
    let running = until(|| marked(&mark).len() >= 6 || child.try_wait().unwrap().is_some());
    // Not counted again: a process that has forked but not yet taken its own name may be missed for a moment.
    assert!(running && child.try_wait().unwrap().is_none(), "only {:?}", marked(&mark));
    child.kill().unwrap();
    child.wait().unwrap();
    let killed = Instant::now();
    assert!(until(|| marked(&mark).is_empty()), "still there: {:?}", marked(&mark));
    assert!(killed.elapsed() < NOTICED_WITHIN, "it took {:?}", killed.elapsed());

    let result = whylate(&["report", text(&path), "--json"]).json();
    validate("run", &result);
    assert_eq!(word(&result, "state"), "running");
    assert!(word(&result, "error").contains("killed") && word(&result, "error").contains("--resume"));
    assert!(word(&result["cells"][1]["repeats"][0], "error").contains("ended during this repeat"));
    assert!(result.get("restored").is_none());

    refused_segment(&path);
    let before = fs::read(path.join("histograms/000001.parquet")).unwrap();
    let result = whylate(&["run", "--resume", text(&path), "--json"]).json();
    validate("run", &result);
    assert_eq!((word(&result, "state"), &result["restored"]), ("complete", &Value::Bool(true)));
    assert!(list(&result["cells"][1], "repeats").iter().all(|repeat| repeat.get("error").is_none()));
    assert_eq!(
        fs::read(path.join("histograms/000001.parquet")).unwrap(),
        before,
        "what was done is not done again"
    );
}

/// A segment cannot be written when the run continues: it stops with one line, and loses nothing.
fn refused_segment(path: &Path) {
    let planted = |number| path.join(format!("histograms/{number:06}.parquet.tmp"));
    (2..20).for_each(|number| fs::create_dir_all(planted(number).join("not empty")).unwrap());
    let said = whylate(&["run", "--resume", text(path), "-q"]);
    let error = said.error();
    assert!(error.contains("cannot remove") && error.contains("histograms/"), "{error}");
    assert_eq!(whylate(&["report", text(path)]).code, Some(0));
    for number in 2..20 {
        let _ = fs::remove_dir_all(planted(number));
    }
}

#[test]
fn a_run_that_is_still_going_on_is_left_alone() {
    let _alone = alone();
    let folder = folder();
    let plan = write(&folder, "plan.toml", SMALL_PLAN);
    let path = folder.path().join("run");
    let child = start(command(&["run", &plan, "-o", text(&path), "-q", "--set", "duration=3s"]));
    wait_for_second_cell(&path);
    let error = whylate(&["run", "--resume", text(&path), "-q"]).error().to_owned();
    assert!(says("another-whylate-still-writing", &error), "{error}");
    let result = whylate(&["report", text(&path), "--json"]).json();
    assert!(says("run-still-going-on", word(&result, "error")));
    signal(&child, Signal::TERM);
    assert_eq!(wait(child).code, Some(1));
}

/// The command with a limit on its memory.
fn within_memory(mebibytes: u32, arguments: &[&str]) -> Command {
    let mut shell = Command::new("sh");
    let script = format!("ulimit -v {}; exec \"$0\" \"$@\"", mebibytes << 10);
    shell.args(["-c", &script, WHYLATE]).args(arguments).env("NO_COLOR", "1").stdin(Stdio::null());
    shell
}

#[test]
fn too_little_memory_is_an_end_with_a_message_never_a_crash() {
    let _alone = alone();
    let folder = folder();
    let plan = write(&folder, "plan.toml", &SMALL_PLAN.replace("repeats = 2", "repeats = 1"));
    // With less memory the kernel cannot even load the program.
    let starts = |size: &u32| within_memory(*size, &["--version"]).output().unwrap().status.success();
    let least = (4..400).step_by(4).find(starts).expect("it starts with 400 MiB");
    let (mut refused, mut ended) = (0, 0);
    for more in (0..).step_by(8) {
        let path = folder.path().join(format!("run{more}"));
        let said = finish(within_memory(least + more, &["run", &plan, "-q", "-o", text(&path)]));
        assert!(more < 400, "it never had enough: {said:?}");
        match said.code {
            Some(0) => break,
            Some(69) => refused += 1,
            Some(1) => ended += 1,
            _ => panic!("neither said nor kept with {} MiB: {said:?}", least + more),
        }
        assert!(!said.stderr.is_empty(), "{said:?}");
    }
    assert!(refused > 0 && ended > 0, "{refused} times refused, {ended} times ended");
}

#[test]
fn a_measurement_that_ended_while_the_runner_stood_still_counts() {
    let _alone = alone();
    let child = start(command(&["measure", "timer", "-D", "2s", "--json"]));
    // Imitates a slow disk or a busy machine: the runner is stopped, its measuring process is not.
    std::thread::sleep(Duration::from_secs(1));
    signal(&child, Signal::STOP);
    std::thread::sleep(Duration::from_secs(12));
    signal(&child, Signal::CONT);
    let said = wait(child);
    let result = said.json();
    assert!(result["cpus"][0]["samples"].as_u64().is_some_and(|samples| samples > 0), "{said:?}");
}
