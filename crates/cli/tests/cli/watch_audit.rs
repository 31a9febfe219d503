//! `whylate watch --audit` finds what a real-time thread should not do (`tests/victims/habits.c`).

use crate::tool::{alone, command, folder, start, victim, wait};
use serde_json::Value;
use whylate_testing::{Need, skip};

/// Watches the program with these arguments; the exit code and the findings of its real-time thread. `None` where that is not
/// possible here.
fn audit(flags: &[&str], is_good: bool) -> Option<(i32, Vec<Value>)> {
    let folder = folder();
    let path = victim(folder.path(), "habits", &["-O1", "-fno-omit-frame-pointer", "-pthread"])?;
    let (output, log) = (folder.path().join("run"), folder.path().join("log"));
    let words = ["watch", "-q", "--json", "--audit", "-o", output.to_str().unwrap()];
    let program = ["--", path.to_str().unwrap(), log.to_str().unwrap(), "1000"];
    let good: &[&str] = if is_good { &["good"] } else { &[] };
    let mut child = command(&[&words[..], flags, &program[..], good].concat());
    child.env("WHYLATE_STATE_DIR", folder.path().join("state"));
    let said = wait(start(child));
    if said.code == Some(69) || said.stdout.contains("for the audit") {
        skip(Need::Rights, "the audit of a program");
        return None;
    }
    if said.stderr.contains("exit status: 3") {
        skip(Need::Rights, "a real-time priority");
        return None;
    }
    let result: Value = serde_json::from_str(said.stdout.lines().next_back().unwrap()).unwrap();
    let threads = result["cells"][0]["probes"][0]["cpus"].as_array().unwrap();
    let real_time = threads.iter().filter(|one| one["task"]["priority"] == 20);
    let found = real_time.flat_map(|one| one["audit"].as_array().cloned().unwrap_or_default()).collect();
    Some((said.code.unwrap(), found))
}

fn of<'f>(found: &'f [Value], kind: &str, call: Option<&str>) -> Option<&'f Value> {
    found.iter().find(|one| one["kind"] == kind && one["call"].as_str() == call)
}

#[test]
fn habits_are_found_with_their_effect_and_their_place() {
    let _alone = alone();
    let Some((code, found)) = audit(&[], false) else { return };
    assert_eq!(code, 2, "{found:#?}");
    let count = |one: &Value| one["count"].as_u64().unwrap();
    let write = of(&found, "file", Some("write")).unwrap_or_else(|| panic!("{found:#?}"));
    // 40 lines in 1,000 cycles, of which the first 100 runs, or the first second, do not count.
    assert!((18..=40).contains(&count(write)), "{write:#}");
    assert!(write["object"].as_str().unwrap().ends_with("/log"), "{write:#}");
    assert!(write["place"].as_str().unwrap().starts_with("log_line <- update"), "{write:#}");
    assert!(write["longest_ns"].as_u64() > Some(0), "{write:#}");
    let map = of(&found, "memory", Some("mmap")).unwrap_or_else(|| panic!("{found:#?}"));
    assert!((9..=20).contains(&count(map)) && map["place"].as_str().unwrap().starts_with("grow"), "{map:#}");
    // 64 pages of each.
    let faults = of(&found, "minor-fault", None).unwrap_or_else(|| panic!("{found:#?}"));
    assert!(count(faults) >= 9 * 64, "{faults:#}");
    assert!(of(&found, "not-locked", None).is_some(), "{found:#?}");
    // The sleep until a moment of CLOCK_MONOTONIC is none, and the thread is a real-time thread.
    assert!(of(&found, "relative-sleep", None).is_none() && of(&found, "not-real-time", None).is_none());
}

#[test]
fn allowed_findings_and_good_manners_end_with_0() {
    let _alone = alone();
    let all = "write,memory,minor-fault,not-locked,plain-lock,woken-by-lower,major-fault";
    let Some((code, found)) = audit(&["--allow", all], false) else { return };
    assert!(code == 0 && found.iter().all(|one| one["allowed"] == true), "{found:#?}");
    let Some((code, found)) = audit(&[], true) else { return };
    assert!(code == 0 && found.is_empty(), "{found:#?}");
}
