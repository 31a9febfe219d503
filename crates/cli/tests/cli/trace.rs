//! `whylate trace record` on this machine: the trace, its explanation, and that tracing is left as it was, also after
//! a kill. Needs root and tracefs, or says why it is skipped.

use crate::fields::{list, number, word};
use crate::json::validate;
use crate::tool::{Said, alone, command, finish, folder, skipped, start, text, until, whylate};
use std::fs;
use std::path::Path;
use std::process::Command;

const INSTANCES: &str = "/sys/kernel/tracing/instances";

/// The command, with a journal of its own.
fn with_state(state: &Path, arguments: &[&str]) -> Command {
    let mut command = command(arguments);
    command.env("WHYLATE_STATE_DIR", state);
    command
}

/// What recordings of this test's processes have in tracefs.
fn instances() -> Vec<String> {
    let entries = fs::read_dir(INSTANCES).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|name| name.starts_with("whylate-trace-")).collect()
}

fn is_mounted() -> bool {
    fs::read_to_string("/proc/mounts").unwrap().contains(" /sys/kernel/tracing tracefs ")
}

/// Records until the first latency above 1 us, which comes at once; `None` where nothing can be recorded.
fn recorded(state: &Path, file: &str) -> Option<Said> {
    let said =
        finish(with_state(state, &["trace", "record", "--until", "1us", "-D", "20s", "-o", file, "--json"]));
    if said.code == Some(69) {
        assert_eq!((said.stdout.as_str(), said.stderr.lines().count()), ("", 1), "{said:?}");
        skipped(said.stderr.trim());
        return None;
    }
    Some(said)
}

#[test]
fn a_late_moment_is_recorded_and_explained() {
    let _alone = alone();
    let folder = folder();
    let path = folder.path().join("late.dat");
    let (before, mounted) = (instances(), is_mounted());
    let Some(said) = recorded(folder.path(), text(&path)) else { return };
    assert_eq!(said.code, Some(2), "{}", said.stderr);
    let result: serde_json::Value = serde_json::from_str(&said.stdout).unwrap();
    validate("recording", &result);
    let trace = &list(&result, "traces")[0];
    assert_eq!(word(trace, "path"), text(&path));
    assert!(number(trace, "latency_ns") > 1_000);
    assert!(fs::read(&path).unwrap().starts_with(b"\x17\x08Dtracing6\0"));
    assert_eq!((instances(), is_mounted()), (before, mounted), "tracing is not as it was");

    // The file explains itself, and the recording explained the moment that it was kept for.
    let explained = whylate(&["explain", text(&path), "--threshold", "1us", "--json"]).json();
    assert!(number(&explained, "events") > 0);
    for spike in list(&result["explained"], "spikes") {
        assert!(number(spike, "actual_ns").abs_diff(number(trace, "at_ns")) < 1_000_000, "{spike}");
    }

    let again = whylate(&["trace", "record", "--until", "1us", "-o", text(&path)]);
    assert!(again.error().contains("exists; remove it or give another name"), "{}", again.stderr);
}

#[test]
fn a_killed_recording_is_taken_back() {
    let _alone = alone();
    let folder = folder();
    let path = folder.path().join("never.dat");
    if recorded(folder.path(), text(&folder.path().join("first.dat"))).is_none() {
        return;
    }
    let before = instances();
    let mut child =
        start(with_state(folder.path(), &["trace", "record", "--until", "10s", "-o", text(&path)]));
    assert!(until(|| instances().len() > before.len()), "no instance appeared");
    child.kill().unwrap();
    child.wait().unwrap();
    let said = finish(with_state(folder.path(), &["treat", "restore"]));
    assert_eq!(said.code, Some(0), "{}{}", said.stdout, said.stderr);
    assert_eq!(instances(), before);
    assert!(!path.exists());
}

#[test]
fn what_cannot_be_recorded_is_one_line() {
    for (arguments, expected) in [
        (["--until", "0", "-D", "1s"], "--until 0"),
        (["--until", "1us", "--worst", "2"], "--worst needs --duration"),
        (["--until", "1us", "-o", "/nowhere/late.dat"], "there is no folder /nowhere"),
    ] {
        let all: Vec<&str> = ["trace", "record"].iter().chain(&arguments).copied().collect();
        let said = whylate(&all);
        assert!(said.error().contains(expected), "{arguments:?}: {}", said.stderr);
    }
}
