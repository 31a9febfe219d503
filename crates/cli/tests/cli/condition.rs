//! Invalid measurements: a thread that never runs, a process that is stopped, a load that stands still.

use crate::fields::word;
use crate::tool::{
    SMALL_PLAN, alone, command, folder, mark, marked, start, text, until, wait, whylate, write,
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;
use whylate_testing::{Need, says, skip};

/// The process of a hidden command, among those with the mark.
fn hidden(mark: &str, name: &str) -> Option<Pid> {
    let is_it = |pid: &u32| {
        let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        words.split(|byte| *byte == 0).nth(1) == Some(name.as_bytes())
    };
    let pid = marked(mark).into_iter().find(is_it)?;
    Pid::from_raw(i32::try_from(pid).ok()?)
}

/// Runs one cell of the small plan, sends SIGSTOP to one of its processes, and returns the result.
fn stopped(name: &str, process: &str, plan: &str) -> (Value, Option<i32>) {
    let folder = folder();
    disturbed(&folder, (name, process), plan, |process| kill_process(process, Signal::STOP).unwrap())
}

/// Runs a plan into `run`, disturbs one of its processes meanwhile, and returns the result.
fn disturbed(
    folder: &TempDir,
    (name, process): (&str, &str),
    plan: &str,
    disturb: impl FnOnce(Pid),
) -> (Value, Option<i32>) {
    let plan = write(folder, "plan.toml", plan);
    let path = folder.path().join("run");
    let (mark, variable, value) = mark(name);
    let mut command = command(&["run", &plan, "-o", text(&path), "--json", "--set", "limit=10s"]);
    command.env(variable, value);
    let child = start(command);
    assert!(until(|| fs::read_dir(path.join("rates")).is_ok() && hidden(&mark, process).is_some()));
    // Long enough for the process to be at work.
    std::thread::sleep(std::time::Duration::from_millis(700));
    disturb(hidden(&mark, process).unwrap());
    let said = wait(child);
    (said.document(), said.code)
}

#[test]
fn a_probe_that_is_stopped_has_measured_nothing() {
    let _alone = alone();
    let plan = SMALL_PLAN
        .replace("duration = \"500ms\"", "duration = \"3s\"")
        .replace("noise_floor = \"100ms\"", "noise_floor = \"0s\"")
        .replace("[[probe]]\nkind = \"stall\"\n", "")
        .replace("[[cell]]\nloads = [\"cache\"]\n", "");
    let (result, code) = stopped("stopped-probe", "internal-probe", &plan);
    assert_eq!((word(&result, "verdict"), code), ("incomplete", Some(1)), "{result}");
    let repeat = &result["cells"][0]["repeats"][0];
    assert!(says("measuring-process-stopped", word(repeat, "error")), "{repeat}");
    assert_eq!(repeat["probes"].as_array().map(Vec::len), Some(0), "its samples do not count: {repeat}");
    assert!(says("measuring-process-stopped-2", word(&result, "verdict_reason")), "{result}");
}

/// Whether a thread of the process has a real-time priority: field 40 of its `stat`.
fn has_realtime_thread(pid: &str) -> bool {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    threads.filter_map(|thread| fs::read_to_string(thread.path().join("stat")).ok()).any(|stat| {
        // The second field is the name in brackets, which may hold anything.
        let rest = stat.rsplit(')').next().unwrap_or_default();
        rest.split_ascii_whitespace().nth(37).is_some_and(|priority| priority != "0")
    })
}

#[test]
fn a_probe_that_others_rescheduled_or_moved_has_measured_nothing() {
    let _alone = alone();
    let plan = SMALL_PLAN
        .replace("duration = \"500ms\"", "duration = \"4s\"")
        .replace("noise_floor = \"100ms\"", "noise_floor = \"0s\"")
        .replace("[[probe]]\nkind = \"stall\"\n", "")
        .replace("[[cell]]\nloads = [\"cache\"]\n", "");
    let ways: [(&str, &[&str], &str); 2] = [
        ("chrt", &["--all-tasks", "--fifo", "--pid", "7"], "to SCHED_FIFO 7"),
        ("taskset", &["--all-tasks", "--pid", "ffffffff"], "may now run on CPU"),
    ];
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    for (program, arguments, said) in ways {
        if program == "taskset" && cpus == 1 {
            skip(Need::Cpus, "with one CPU there is no other one to move to");
            continue;
        }
        let folder = folder();
        let mut refused = None;
        let (result, code) = disturbed(&folder, (program, "internal-probe"), &plan, |process| {
            let pid = process.as_raw_nonzero().to_string();
            // If real-time priorities are refused, this does not wait long: the probe ends.
            until(|| has_realtime_thread(&pid) || !Path::new("/proc").join(&pid).exists());
            let output = Command::new(program).args(arguments).arg(pid).output();
            refused = (!output.as_ref().is_ok_and(|it| it.status.success())).then(|| format!("{output:?}"));
        });
        if let Some(why) = refused {
            skip(Need::Rights, format!("{program}: {why}"));
            continue;
        }
        assert_eq!((word(&result, "verdict"), code), ("incomplete", Some(1)), "{result}");
        let repeat = &result["cells"][0]["repeats"][0];
        assert!(word(repeat, "error").contains(said), "{repeat}");
        let verified = whylate(&["farm", "verify", text(&folder.path().join("run"))]);
        assert!(verified.code == Some(1) && verified.stderr.contains(said), "{verified:?}");
    }
}

#[test]
fn a_load_that_stands_still_fails_its_repeat() {
    let _alone = alone();
    let plan = SMALL_PLAN
        .replace("duration = \"500ms\"", "duration = \"20s\"")
        .replace("repeats = 2", "repeats = 1")
        .replace("noise_floor = \"100ms\"", "noise_floor = \"0s\"")
        .replace("[[probe]]\nkind = \"stall\"\n", "")
        .replace("[[cell]]\n[[cell]]", "[[cell]]");
    let (result, code) = stopped("stopped-load", "internal-load", &plan);
    assert_eq!(code, Some(1));
    let repeat = &result["cells"][0]["repeats"][0];
    assert!(says("has-not-responded-for", word(repeat, "error")), "{repeat}");
}

#[test]
fn a_thread_that_never_runs_fails_the_limit() {
    let _alone = alone();
    let cpus = whylate(&["check", "--json"]).document();
    if cpus["facts"]["cpu_sets"]["online"].as_str() == Some("0") {
        return skip(Need::Cpus, "with one CPU a busy real-time loop would stop everything");
    }
    let folder = folder();
    let hog_path = folder.path().join("hog");
    let hog = start(command(&[
        "measure",
        "stall",
        "--cpu",
        "1",
        "--priority",
        "99",
        "--duration",
        "60s",
        "--json",
        "--threshold",
        "1ms",
    ]));
    drop(hog_path);
    std::thread::sleep(std::time::Duration::from_secs(2));
    let plan = SMALL_PLAN
        .replace("repeats = 2", "repeats = 1")
        .replace("noise_floor = \"100ms\"", "noise_floor = \"0s\"")
        .replace("[[probe]]\nkind = \"stall\"\n", "")
        .replace("[[cell]]\nloads = [\"cache\"]\n", "");
    let plan = write(&folder, "plan.toml", &plan);
    let path = folder.path().join("run");
    let arguments =
        ["run", &plan, "-o", text(&path), "--json", "--set", "limit=100ms", "--set", "target.cpus=1"];
    let said = whylate(&arguments);
    let measured = whylate(&["measure", "timer", "--cpu", "1", "--duration", "1s", "--json"]);
    kill_process(Pid::from_child(&hog), Signal::INT).unwrap();
    let hog = wait(hog);
    if hog.stderr.contains("no-realtime-priority")
        || hog.document().to_string().contains("no-realtime-priority")
    {
        return skip(Need::Rights, "a real-time priority is refused here");
    }
    let result = said.document();
    assert_eq!((word(&result, "verdict"), said.code), ("fail", Some(2)), "{result}");
    let reason = word(&result, "verdict_reason");
    assert!(says("measuring-thread-never-ran", reason), "{reason}");
    assert!(reason.contains("another whylate"), "who it was: {reason}");
    let cause = &result["cells"][0]["spikes"][0]["cause"];
    assert_eq!(word(cause, "kind"), "thread", "{cause}");
    assert!(reason.contains(word(cause, "actor")), "the cause names the same thread: {cause}, {reason}");
    let report = whylate(&["report", text(&path)]);
    assert!(report.stdout.contains(&format!("thread: {}", word(cause, "actor"))), "{}", report.stdout);
    // A measurement keeps its figures: the time that the thread has waited is a sample.
    let document = measured.document();
    assert_eq!(measured.code, Some(1), "{measured:?}");
    assert!(word(&document, "error").contains("another whylate"), "{document}");
    let row = &document["cpus"][0];
    assert!(row["samples"].as_u64() >= Some(1) && row["max_ns"].as_u64() > Some(0), "{document}");
}
