//! `whylate watch --trigger` explains what led to a line of the program (`tests/victims/late.c`), a signal, a request, a
//! counter and a line of a file.

use crate::tool::{Said, alone, command, finish, folder, signal, start, until, victim, wait};
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::Command;
use tempfile::TempDir;
use whylate_testing::{Need, skip};

fn program(folder: &TempDir) -> Option<PathBuf> {
    victim(folder.path(), "late", &["-O1", "-fno-omit-frame-pointer", "-pthread"])
}

/// A watch with these flags of the program with these arguments.
fn watch(folder: &TempDir, flags: &[&str], program: &[&str]) -> Command {
    let output = folder.path().join("run");
    let words = ["watch", "-q", "--json", "-o", output.to_str().unwrap()];
    let mut child = command(&[&words[..], flags, &["--"], program].concat());
    child.env("WHYLATE_STATE_DIR", folder.path().join("state"));
    child.env("WHYLATE_RUNTIME_DIR", folder.path().join("sockets"));
    child
}

/// The triggers of the result; `None` where the program could not be watched with causes.
fn triggers(said: &Said) -> Option<Vec<Value>> {
    let result: Value = said.stdout.lines().next_back().and_then(|line| serde_json::from_str(line).ok())?;
    let is_partial = result["warnings"].to_string().contains("latencies begin when a thread first runs");
    if said.stderr.contains("exit status: 3") || is_partial {
        skip(Need::Rights, "a program at a real-time priority cannot be watched");
        return None;
    }
    let triggers = result["cells"][0]["probes"][0]["triggers"].as_array();
    Some(triggers.unwrap_or_else(|| panic!("{said:?}")).clone())
}

/// Runs the program with a trigger at each of its lines; what it printed, and the trigger.
fn lines(last: &str, cycles: &str, why: &str) -> Option<(Vec<String>, Value)> {
    let folder = folder();
    let path = program(&folder)?;
    let flags = ["--trigger", "output:^late", "--last", last];
    let said = wait(start(watch(&folder, &flags, &[path.to_str().unwrap(), cycles, why])));
    let found = triggers(&said)?;
    let printed: Vec<String> =
        said.stdout.lines().filter(|line| line.starts_with("late")).map(str::to_owned).collect();
    let said_so = said.stderr.lines().find_map(|line| line.parse::<usize>().ok());
    assert_eq!(Some(printed.len()), said_so, "every line is passed on: {said:?}");
    assert_eq!(found[0]["count"].as_u64(), Some(printed.len() as u64), "{found:#?}");
    Some((printed, found[0].clone()))
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is not a number"))
}

/// The moments in which that thread was late for a cause of that kind.
fn blamed(trigger: &Value, kind: &str, actor: Option<&str>) -> u64 {
    let suspects = trigger["suspects"].as_array().unwrap().iter();
    let is_it = |it: &&Value| {
        let cause = &it["cause"];
        it["thread"] == "control"
            && cause["kind"] == kind
            && actor.is_none_or(|actor| cause["actor"] == actor)
    };
    suspects.filter(is_it).map(|it| number(&it["moments"])).sum()
}

#[test]
fn a_thief_is_found_at_each_line_that_says_late() {
    let _alone = alone();
    let Some((printed, trigger)) = lines("20ms", "1200", "thief") else { return };
    assert!(printed.len() >= 25, "{printed:#?}");
    let moments = trigger["moments"].as_array().unwrap();
    for moment in moments {
        let line = moment["text"].as_str().unwrap();
        assert!(printed.iter().any(|it| it == line), "{line}");
        let due_ns: u64 = line.rsplit(' ').next().unwrap().parse().unwrap();
        let after_ns = number(&moment["at_ns"]).saturating_sub(due_ns);
        assert!((2_500_000..1_000_000_000).contains(&after_ns), "{after_ns}: {moment:#}");
    }
    let (all, by_thief) = (moments.len() as u64, blamed(&trigger, "thread", Some("thief")));
    assert!(by_thief * 10 >= all * 6, "{by_thief} of {all}: {trigger:#}");
}

#[test]
fn own_work_is_found_at_each_line_that_says_late() {
    let _alone = alone();
    let Some((printed, trigger)) = lines("20ms", "1200", "own") else { return };
    assert!(printed.len() >= 25, "{printed:#?}");
    let (all, own) =
        (trigger["moments"].as_array().unwrap().len() as u64, blamed(&trigger, "own_work", None));
    assert!(own * 10 >= all * 6, "{own} of {all}: {trigger:#}");
}

#[test]
fn calls_results_durations_and_texts_are_triggers() {
    let _alone = alone();
    let folder = folder();
    let Some(path) = program(&folder) else { return };
    let path = path.to_str().unwrap();
    let calls =
        ["report:return<0", "report:arg1>2500000", "step:took>2ms"].map(|call| format!("{path}:{call}"));
    let usdt = format!("usdt:{path}:app:late:arg1>2500000");
    let mut all: Vec<&str> = calls.iter().map(String::as_str).collect();
    if cfg!(target_arch = "x86_64") {
        all.push(&usdt);
    }
    // While tracing is off, it can be opened, but not written.
    let has_marker = fs::write("/sys/kernel/tracing/trace_marker", "test").is_ok();
    all.extend(has_marker.then_some("marker:late"));
    let flags: Vec<&str> = all.iter().flat_map(|one| ["--trigger", one]).collect();
    let said = wait(start(watch(&folder, &flags, &[path, "800", "own"])));
    let Some(found) = triggers(&said) else { return };
    let printed = said.stdout.lines().filter(|line| line.starts_with("late")).count() as u64;
    assert!(printed >= 15, "{said:?}");
    let slow_steps = said.stderr.lines().find_map(|line| line.strip_prefix("steps of more than 2 ms: "));
    let slow_steps: u64 =
        slow_steps.and_then(|count| count.parse().ok()).unwrap_or_else(|| panic!("{said:?}"));
    for (flag, one) in all.iter().zip(&found) {
        let times = if flag.ends_with(":took>2ms") { slow_steps } else { printed };
        assert_eq!(number(&one["count"]), times, "{flag}: {one:#}");
        let own: u64 = blamed(one, "own_work", None);
        assert!(own * 10 >= printed * 6, "{own} of {printed}: {one:#}");
    }
    let moments: u64 = found.iter().map(|one| one["moments"].as_array().unwrap().len() as u64).sum();
    assert!(moments <= printed, "they share their explanations: {moments} of {printed}");
}

#[test]
fn of_a_started_program_only_the_threads_of_a_name_are_watched() {
    let _alone = alone();
    let folder = folder();
    let Some(path) = program(&folder) else { return };
    let said = wait(start(watch(&folder, &["--task", "control"], &[path.to_str().unwrap(), "300", "thief"])));
    let result: Value =
        said.stdout.lines().next_back().and_then(|line| serde_json::from_str(line).ok()).unwrap();
    if said.stderr.contains("exit status: 3") {
        return skip(Need::Rights, "a program at a real-time priority cannot be watched");
    }
    let rows = result["cells"][0]["probes"][0]["cpus"].as_array().unwrap_or_else(|| panic!("{said:?}"));
    let threads = rows.iter().map(|row| row["series"].as_str().unwrap());
    let own: Vec<&str> = threads.filter(|series| !series.contains('/')).collect();
    assert!(!own.is_empty() && own.iter().all(|series| series.starts_with("control")), "{own:?}");
}

#[test]
fn every_call_is_counted() {
    let _alone = alone();
    let folder = folder();
    let Some(path) = program(&folder) else { return };
    let trigger = format!("{}:step", path.display());
    let said =
        wait(start(watch(&folder, &["--trigger", &trigger], &[path.to_str().unwrap(), "300", "never"])));
    let Some(found) = triggers(&said) else { return };
    assert_eq!(number(&found[0]["count"]), 300, "{found:#?}");
}

#[test]
fn a_storm_is_counted_without_loss_and_nothing_is_explained_twice() {
    let _alone = alone();
    let Some((printed, trigger)) = lines("1ms", "400", "storm") else { return };
    assert_eq!(printed.len(), 1_000);
    let explained = trigger["moments"].as_array().unwrap();
    assert!(!explained.is_empty() && explained.len() <= 21, "{trigger:#}");
    let each = explained.len() as u64 + number(&trigger["shared"]) + number(&trigger["unexplained"]);
    assert_eq!(each, 1_000, "{trigger:#}");
    let mut moments: Vec<u64> = explained.iter().map(|it| number(&it["at_ns"])).collect();
    moments.dedup();
    assert_eq!(moments.len(), explained.len());
}

#[test]
fn a_closed_output_does_not_stop_the_program() {
    let _alone = alone();
    let folder = folder();
    let Some(path) = program(&folder) else { return };
    let flags = ["--trigger", "output:^late"];
    let mut child = start(watch(&folder, &flags, &[path.to_str().unwrap(), "300", "storm"]));
    drop(child.stdout.take());
    let said = wait(child);
    if said.stderr.contains("exit status: 3") {
        return skip(Need::Rights, "a real-time priority");
    }
    assert!(said.stderr.lines().any(|line| line == "1000"), "the program came to its end: {said:?}");
}

#[test]
fn signals_requests_counters_and_files_are_triggers() {
    let _alone = alone();
    let folder = folder();
    let Some(path) = program(&folder) else { return };
    let (log, counter) = (folder.path().join("app.log"), folder.path().join("missed"));
    fs::write(&counter, "7\n").unwrap();
    let file = format!("file:{}:late", log.display());
    let count = format!("counter:{}", counter.display());
    let flags: Vec<&str> =
        ["signal:USR1", "socket", &file, &count].into_iter().flat_map(|one| ["--trigger", one]).collect();
    let trigger = |words: &[&str]| {
        let mut command = command(&[&["trigger"], words].concat());
        command.env("WHYLATE_RUNTIME_DIR", folder.path().join("sockets"));
        finish(command)
    };
    assert_eq!(trigger(&[]).code, Some(69), "there is no watch");
    let child = start(watch(&folder, &flags, &[path.to_str().unwrap(), "20000", "never"]));
    if !until(|| trigger(&["the first"]).code == Some(0)) {
        signal(&child, Signal::KILL);
        wait(child);
        return skip(Need::Rights, "a program at a real-time priority cannot be watched");
    }
    std::thread::sleep(std::time::Duration::from_millis(500));
    assert_eq!(trigger(&["--pid", "1", "no"]).code, Some(69));
    signal(&child, Signal::USR1);
    fs::File::create(&log).unwrap().write_all(b"on time\nlate once\n").unwrap();
    fs::write(folder.path().join("new"), "9\n").unwrap();
    fs::rename(folder.path().join("new"), &counter).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(700));
    signal(&child, Signal::INT);
    let Some(found) = triggers(&wait(child)) else { return };
    let counts: Vec<u64> = found.iter().map(|it| number(&it["count"])).collect();
    assert!(counts[0] == 1 && counts[1] >= 1 && counts[2..] == [1, 1], "{found:#?}");
    let texts: Vec<&str> = found
        .iter()
        .flat_map(|it| it["moments"].as_array().unwrap())
        .filter_map(|moment| moment["text"].as_str())
        .collect();
    assert!(texts.contains(&"the first"), "{texts:?}");
}

#[test]
fn late_responses_and_triggers_have_actions() {
    let _alone = alone();
    let folder = folder();
    let Some(path) = program(&folder) else { return };
    let place = |name: &str| folder.path().join(name);
    let line = |what: &str, name: &str| format!("shell:echo \"{what}\" >>{}", place(name).display());
    let late = line("$WHYLATE_THREAD $WHYLATE_LATENCY_NS $WHYLATE_CAUSE", "late.txt");
    let trigger = line("$WHYLATE_TRIGGER", "triggers.txt");
    let flags =
        ["--deadline", "3ms", "--on-late", &late, "--trigger", "output:^late", "--on-trigger", &trigger];
    let said = wait(start(watch(&folder, &flags, &[path.to_str().unwrap(), "400", "own"])));
    let Some(found) = triggers(&said) else { return };
    let lines = |name: &str| fs::read_to_string(place(name)).unwrap_or_default();
    let late = lines("late.txt");
    assert!(!late.is_empty(), "{said:?}");
    for line in late.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let above = words[1].parse::<u64>().is_ok_and(|latency_ns| latency_ns > 3_000_000);
        assert!(words[0] == "control" && above && words.len() > 2, "{late}");
    }
    // Two triggers that come during an action have none of their own.
    let done = lines("triggers.txt").lines().filter(|line| *line == "output:^late").count() as u64;
    assert!(done >= 1 && done <= number(&found[0]["count"]), "{done} of {found:#?}");
    let flags = ["--deadline", "3ms", "--on-late", "stop"];
    let folder = crate::tool::folder();
    let said = wait(start(watch(&folder, &flags, &[path.to_str().unwrap(), "100000", "own"])));
    assert_eq!(said.code, Some(2), "{said:?}");
}

#[test]
fn a_wrong_trigger_is_refused_before_anything_starts() {
    let cases = [
        ("output:late", "needs a program that the watch starts"),
        ("late", "is not a trigger: choose from"),
        ("journal:late(", "is not a regular expression"),
        ("counter:/nowhere", "cannot read /nowhere"),
        ("/bin/no-such-file:update", "/bin/no-such-file: "),
        ("/bin/sh:main:arg9>1", "arg1 to arg6"),
        ("signal:KILL", "must be USR1 or USR2"),
    ];
    for (trigger, expected) in cases {
        let said = finish(command(&["watch", "-q", "--task", "nothing", "--trigger", trigger]));
        assert!(said.error().contains(expected), "{trigger}: {said:?}");
    }
}
