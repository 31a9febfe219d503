//! `whylate watch` on this machine's kernel. Where it allows no BPF programs, the tests check that this is said.

use crate::json::validate;
use crate::tool::{
    Said, alone, command, finish, folder, mark, marked, signal, start, until, victim, wait, whylate,
};
use rustix::process::Signal;
use serde_json::Value;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use whylate_testing::{Need, says, skip};

/// Watches in that folder, which also has the journal.
fn watch(folder: &Path, arguments: &[&str]) -> Said {
    let output = folder.join("run");
    let all = [&["watch", "-o", output.to_str().unwrap()], arguments].concat();
    let mut command = command(&all);
    command.env("WHYLATE_STATE_DIR", folder.join("state"));
    finish(command)
}

/// Whether the machine can watch tasks with all facilities; if it cannot at all, checks exit code 69, a line that
/// says so, and that there is no directory.
fn is_possible(said: &Said, folder: &Path) -> bool {
    if [&said.stdout, &said.stderr]
        .iter()
        .any(|text| text.contains("latencies begin when a thread first runs"))
    {
        skip(Need::Rights, "the kernel tells an ordinary user too little");
        return false;
    }
    if said.code == Some(69) {
        assert!(said.stderr.contains("tasks cannot be watched"), "{said:?}");
        assert!(!folder.join("run").exists());
        return false;
    }
    true
}

const NAPS: &str = "for i in 1 2 3 4 5 6 7 8 9 10; do sleep 0.03; done";

#[test]
fn a_failing_program_fails_the_watch() {
    let _alone = alone();
    let folder = folder();
    let said = watch(folder.path(), &["--json", "--", "/bin/sh", "-c", &format!("{NAPS}; exit 3")]);
    if !is_possible(&said, folder.path()) {
        return;
    }
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.stderr.contains("exit 3` ended with"), "{said:?}");
    let result: Value = serde_json::from_str(said.stdout.lines().next_back().unwrap()).unwrap();
    assert_eq!(result["state"], "complete");
}

#[test]
fn a_command_is_watched_to_its_end_and_kept_as_a_run() {
    let _alone = alone();
    let folder = folder();
    let said = watch(folder.path(), &["--json", "--", "/bin/sh", "-c", NAPS]);
    if !is_possible(&said, folder.path()) {
        return;
    }
    assert_eq!(said.code, Some(0), "{said:?}");
    let lines: Vec<Value> = said.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let (result, before) = lines.split_last().unwrap();
    assert!(before.iter().all(|line| line["format"] == "whylate.watch/1"), "{before:?}");
    before.iter().for_each(|line| validate("watch", line));
    assert_eq!((&result["format"], &result["state"]), (&"whylate.run/1".into(), &"complete".into()));
    let probe = &result["cells"][0]["probes"][0];
    assert_eq!(probe["probe"], "task");
    let shell = probe["cpus"].as_array().unwrap().iter().find(|cpu| cpu["series"] == "sh").unwrap();
    assert!(shell["samples"].as_u64().unwrap() >= 8, "{shell:#}");
    assert!(shell["task"]["run_ns"].as_u64().unwrap() > 0, "{shell:#}");
    let parts: Vec<&str> =
        shell["parts"].as_array().unwrap().iter().map(|it| it["part"].as_str().unwrap()).collect();
    assert!(["wakeup", "run", "period"].iter().all(|part| parts.contains(part)), "{parts:?}");
    let spikes = probe["spikes"].as_array().unwrap();
    assert!(spikes.iter().any(|spike| spike["cause"]["kind"] != "unattributed"), "{spikes:?}");
    let run = folder.path().join("run");
    let report = whylate(&["report", run.to_str().unwrap()]);
    assert!(report.code == Some(0) && report.stdout.contains("The watched threads"), "{report:?}");
    let explained = whylate(&["explain", run.to_str().unwrap()]);
    assert_eq!(explained.code, Some(0), "{explained:?}");
}

#[test]
fn an_activation_that_never_ends_is_the_longest() {
    let _alone = alone();
    let busy = "sleep 0.05; while :; do :; done";
    let mut seen = Vec::new();
    // Some guests do not show every wake-up, and then its start is unknown.
    for _ in 0..5 {
        let folder = folder();
        let said = watch(folder.path(), &["--json", "-q", "-D", "2s", "--", "/bin/sh", "-c", busy]);
        if !is_possible(&said, folder.path()) {
            return;
        }
        let result: Value = serde_json::from_str(&said.stdout).unwrap_or_default();
        let spikes = result["cells"][0]["spikes"].as_array().cloned().unwrap_or_default();
        let longest = spikes.into_iter().max_by_key(|spike| spike["latency_ns"].as_u64()).unwrap_or_default();
        let has = |texts: &Value, words: &str| texts.to_string().contains(words);
        // It slept for 50 ms, and began long before the watch ended.
        if longest["latency_ns"].as_u64() > Some(500_000_000) {
            assert_eq!(said.code, Some(0), "{said:?}");
            assert!(
                has(&longest["cause"]["evidence"], "the activation had not ended when the watch ended"),
                "{longest:#}"
            );
            assert!(has(&result["warnings"], "had not ended when the watch ended, and counts"), "{result:#}");
            return;
        }
        seen.push((said.stderr, longest));
    }
    panic!("{seen:?}");
}

#[test]
fn a_thread_that_is_late_when_the_watch_begins_does_not_pass() {
    let _alone = alone();
    let folder = folder();
    let words = ["middle=none", "priority=0", "cycles=400", "period=5000", "cpu=0"];
    let Some(program) = victim(folder.path(), "cycle", &["-O1", "-pthread"]) else { return };
    let mut cycle = Command::new(program).args(words).stdout(Stdio::null()).spawn().unwrap();
    let pid = cycle.id().to_string();
    let path = format!("/proc/{pid}/task");
    // It cannot run from before the watch begins until the watch has ended.
    let is_up = until(|| std::fs::read_dir(&path).is_ok_and(|threads| threads.count() > 1));
    let mut hog = Command::new("chrt");
    hog.args(["-f", "30", "taskset", "-c", "0", "sh", "-c", "while :; do :; done"]);
    let mut hog = hog.stderr(Stdio::null()).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(100));
    let runs = hog.try_wait().unwrap().is_none();
    let said = watch(folder.path(), &["--json", "-q", "-D", "500ms", "--deadline", "1ms", "--pid", &pid]);
    hog.kill().and_then(|()| hog.wait()).unwrap();
    cycle.kill().and_then(|()| cycle.wait()).unwrap();
    if !is_up || !runs {
        return skip(Need::Rights, "no thread at a real-time priority");
    }
    if is_possible(&said, folder.path()) {
        assert!(matches!(said.code, Some(1 | 2)), "the threads of cycle could not run: {said:?}");
    }
}

#[test]
fn a_response_above_the_deadline_or_the_limit_is_exit_code_2() {
    let _alone = alone();
    for flag in ["--deadline", "--limit"] {
        let folder = folder();
        let said = watch(folder.path(), &["-q", flag, "1us", "--", "/bin/sh", "-c", NAPS]);
        if !is_possible(&said, folder.path()) {
            return;
        }
        assert_eq!(said.code, Some(2), "{flag}: {said:?}");
        let why =
            if flag == "--limit" { "above the limit of 1.00 us" } else { "missed the deadline of 1.00 us" };
        let report = said.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            report.contains("FAIL") && report.contains(why) && !report.contains("Not judged"),
            "{flag}: {report}"
        );
    }
}

#[test]
fn ctrl_c_is_the_end_of_a_watch_and_no_failure() {
    let _alone = alone();
    let folder = folder();
    let output = folder.path().join("run");
    let mut child = command(&["watch", "-q", "-o", output.to_str().unwrap(), "--priority", "1-99"]);
    child.env("WHYLATE_STATE_DIR", folder.path().join("state"));
    let mut child = start(child);
    let file = output.join("run.json");
    assert!(until(|| file.exists() || child.try_wait().unwrap().is_some()));
    if !file.exists() {
        return assert!(!is_possible(&wait(child), folder.path()));
    }
    std::thread::sleep(Duration::from_millis(1_500));
    signal(&child, Signal::INT);
    let said = wait(child);
    // A machine without any such thread has nothing to report.
    let is_quiet = said.stderr.contains("no samples");
    assert!(is_quiet || said.code == Some(0), "{said:?}");
}

#[test]
fn a_watch_that_is_killed_keeps_what_was_stored() {
    let _alone = alone();
    let folder = folder();
    let output = folder.path().join("run");
    let loops = [
        "watch",
        "-q",
        "-o",
        output.to_str().unwrap(),
        "--",
        "/bin/sh",
        "-c",
        "while sleep 0.02; do :; done",
    ];
    let (mark, variable, value) = mark("killed-watch");
    let mut child = command(&loops);
    child.env("WHYLATE_STATE_DIR", folder.path().join("state")).env(variable, value);
    let mut child = start(child);
    let is_kept = || {
        let manifest = std::fs::read_to_string(output.join("manifest.jsonl")).unwrap_or_default();
        manifest.contains("\"record\":\"flushed\"")
    };
    assert!(until(|| is_kept() || child.try_wait().unwrap().is_some()), "nothing was stored in time");
    if !is_kept() {
        return assert!(!is_possible(&wait(child), folder.path()));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(until(|| marked(&mark).is_empty()), "still there: {:?}", marked(&mark));
    let said = whylate(&["report", output.to_str().unwrap(), "--json"]);
    let probe = &said.document()["cells"][0]["probes"][0];
    assert!(probe["cpus"].as_array().unwrap().iter().any(|cpu| cpu["series"] == "sh"), "{probe:#}");
}

fn figures(address: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    let head = format!("GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn prometheus_reads_the_histograms_of_a_watch_under_way() {
    let _alone = alone();
    let folder = folder();
    let output = folder.path().join("run");
    let words = ["watch", "-q", "-D", "20s", "--prometheus", "127.0.0.1:0", "-o", output.to_str().unwrap()];
    let loops = ["--", "/bin/sh", "-c", "while sleep 0.02; do :; done"];
    let mut child = command(&[&words[..], &loops[..]].concat());
    child.env("WHYLATE_STATE_DIR", folder.path().join("state"));
    let mut child = start(child);
    let mut printed = String::new();
    BufReader::new(child.stderr.take().unwrap()).read_line(&mut printed).unwrap();
    let Some(address) = printed.trim().strip_prefix("figures for Prometheus: http://") else {
        wait(child);
        return assert!(printed.contains("tasks cannot be watched"), "{printed}");
    };
    let address = address.strip_suffix("/metrics").unwrap().to_owned();
    let is_there = |line: &str| line.starts_with("whylate_task_response_seconds_count{task=\"sh\"} ");
    assert!(until(|| figures(&address).lines().any(is_there)), "{}", figures(&address));
    let page = figures(&address);
    assert!(page.contains("whylate_task_response_seconds_bucket{task=\"sh\",le=\"+Inf\"}"), "{page}");
    signal(&child, Signal::INT);
    wait(child);
}

#[test]
fn traces_of_the_longest_waits_are_kept_and_explained() {
    let _alone = alone();
    let folder = folder();
    // Every wait is above it.
    let said = watch(folder.path(), &["-q", "--trace", "--limit", "1ns", "--", "/bin/sh", "-c", NAPS]);
    if !is_possible(&said, folder.path()) {
        return;
    }
    assert_eq!(said.code, Some(2), "{said:?}");
    let run = folder.path().join("run");
    let document = whylate(&["report", run.to_str().unwrap(), "--json"]).document();
    if document.to_string().contains("traces of spikes cannot be recorded") {
        return skip(Need::Rights, "this kernel gives no trace buffer");
    }
    let traces = std::fs::read_dir(run.join("traces")).unwrap().map(|it| it.unwrap().path());
    let notes: Vec<Value> = traces
        .filter(|path| path.extension().is_some_and(|it| it == "json"))
        .map(|path| serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap())
        .collect();
    assert!((1..=3).contains(&notes.len()), "{notes:#?}");
    assert!(notes.iter().all(|note| note["probe"].as_str().unwrap().starts_with("task/")), "{notes:#?}");
    assert!(notes.iter().any(|note| note["explained"]["spikes"][0]["cause"].is_object()), "{notes:#?}");
}

#[test]
fn texts_for_trace_marker_are_the_ends_of_activations() {
    let _alone = alone();
    let folder = folder();
    // In a mount namespace of its own, where tracefs is not mounted on this machine.
    let place = "/sys/kernel/tracing";
    let mounted = format!("test -e {place}/trace_marker || mount -t tracefs tracefs {place} || exit");
    let script = format!(
        "{mounted}; exec 3>{place}/trace_marker; i=0; while [ $i -lt 20 ]; do i=$((i + 1)); \
         echo \"cycle begin $i\" >&3; sleep 0.02; echo \"cycle end $i\" >&3; sleep 0.01; done"
    );
    let marks = ["-q", "--begin", "marker:cycle begin", "--end", "marker:cycle end"];
    let said =
        watch(folder.path(), &[&marks[..], &["--", "unshare", "--mount", "/bin/sh", "-c", &script]].concat());
    if !is_possible(&said, folder.path()) {
        return;
    }
    if ["cannot create", "cannot open", "mount:"].iter().any(|it| said.stderr.contains(it)) {
        return skip(Need::Rights, "trace_marker cannot be written here");
    }
    assert_eq!(said.code, Some(0), "{said:?}");
    let run = folder.path().join("run");
    let document = whylate(&["report", run.to_str().unwrap(), "--json"]).document();
    let series = document["cells"][0]["probes"][0]["cpus"].as_array().unwrap().clone();
    let [shell] = &series[..] else { panic!("no other thread writes such texts: {series:#?}") };
    // Some guests do not show every wake-up: an incomplete activation is not counted.
    let samples = shell["samples"].as_u64().unwrap();
    assert!(shell["series"] == "sh" && (15..=20).contains(&samples), "{shell:#}");
    assert!(shell["min_ns"].as_u64() >= Some(20_000_000), "each has a nap in it: {shell:#}");
}

#[test]
fn invalid_or_equal_marks_are_refused_with_a_suggestion() {
    let wrong: [([&str; 2], &str); 4] = [
        (
            ["trace_marker:tick", "marker:tock"],
            "--begin: `trace_marker:tick` is not a mark: did you mean `marker:tick`?",
        ),
        (["marker:tick", "marker:"], "--end: `marker:` is not a mark: TEXT has 1 to 63 bytes"),
        (["marker:tick", "marker:tick end"], "--end: the text of one mark begins with the text of the other"),
        (["tick", "marker:tock"], "FILE:FUNCTION, usdt:FILE:PROVIDER:NAME or marker:TEXT"),
    ];
    for ([begin, end], why) in wrong {
        let said = whylate(&["watch", "--task", "control", "--begin", begin, "--end", end]);
        assert!(said.error().contains(why), "{said:?}");
    }
}

#[test]
fn the_watched_thread_must_be_named_once_and_exist() {
    let said = whylate(&["watch"]);
    assert!(said.code == Some(1) && said.stderr.contains("--task"), "{said:?}");
    let said = whylate(&["watch", "--task", "a", "--pid", "1"]);
    assert!(said.code == Some(1) && said.stderr.contains("cannot be used with"), "{said:?}");
    let said = whylate(&["watch", "--priority", "99-80"]);
    assert!(says("real-time-priority-from", said.error()), "{said:?}");
    assert!(said.error().contains("--priority: ") && !said.error().contains("--priorities"), "{said:?}");
    let folder = folder();
    let mistyped: [(&[&str], &str); 6] = [
        (&["--pid", "4194304"], "there is no process 4194304"),
        (&["--unit", "no-such-unit.service"], "there is no control group, unit or container"),
        (&["--cgroup", "no/such/group"], "systemd-cgls"),
        (&["--", "no-such-program"], "cannot start `no-such-program`"),
        (&["--", "/etc/passwd"], "cannot start `/etc/passwd`: the file is not executable"),
        (&["--task", "audio", "--limit", "0"], "--limit 0 would always fail"),
    ];
    for (target, why) in mistyped {
        let said = watch(folder.path(), &[&["-q"], target].concat());
        assert!(said.code == Some(1) && said.error().contains(why), "{said:?}");
        assert!(!folder.path().join("run").exists(), "{target:?} leaves no directory");
    }
}

/// A watch cannot continue: if its directory is occupied, the user names another one.
#[test]
fn an_occupied_directory_is_refused_and_no_resume_is_offered() {
    let _alone = alone();
    let folder = folder();
    std::fs::create_dir_all(folder.path().join("run")).unwrap();
    std::fs::write(folder.path().join("run/run.json"), "{}").unwrap();
    let said = watch(folder.path(), &["-q", "-D", "100ms", "--", "sleep", "1"]);
    if said.code == Some(69) {
        assert!(said.stderr.contains("tasks cannot be watched"), "{said:?}");
        return;
    }
    let error = said.error();
    assert!(says("not-empty-directory-2", error) && !error.contains("resume"), "{said:?}");
}

#[test]
fn a_name_selects_only_among_the_threads_of_the_started_program() {
    let _alone = alone();
    let folder = folder();
    // It is there before, and wakes up all the time.
    let mut other = Command::new("/bin/sh").args(["-c", "while :; do sleep 0.01; done"]).spawn().unwrap();
    let flags = ["--json", "-q", "--task", "sh", "--", "/bin/sh", "-c", NAPS];
    let said = watch(folder.path(), &flags);
    let pid = other.id();
    other.kill().and_then(|()| other.wait()).unwrap();
    if !is_possible(&said, folder.path()) {
        return;
    }
    let result = serde_json::from_str::<Value>(&said.stdout).unwrap_or_default().to_string();
    assert!(said.code == Some(0) && result.contains("\"process\":"), "{said:?}");
    assert!(!result.contains(&format!("\"process\":{pid},")), "{result}");
}

#[test]
fn a_thread_that_never_sleeps_misses_its_deadline() {
    let _alone = alone();
    let folder = folder();
    let flags = ["-D", "1s", "--deadline", "3ms", "--task", "sh"];
    let said = watch(folder.path(), &[&flags[..], &["--", "/bin/sh", "-c", "while :; do :; done"]].concat());
    if !is_possible(&said, folder.path()) {
        return;
    }
    assert_eq!(said.code, Some(2), "{said:?}");
    let why = "sh did not sleep for ";
    assert!(said.stderr.contains(why) && said.stderr.contains("(--begin, --end)"), "{said:?}");
}

#[test]
fn a_watch_without_a_thread_leaves_no_run_behind() {
    let _alone = alone();
    let folder = folder();
    let mut command = command(&["watch", "-q", "-D", "300ms", "--task", "no-such-thread"]);
    command.env("XDG_DATA_HOME", folder.path()).env("WHYLATE_STATE_DIR", folder.path().join("state"));
    let said = finish(command);
    if !is_possible(&said, folder.path()) {
        return;
    }
    let why = "no thread called `no-such-thread` ran";
    assert!(said.code == Some(1) && said.error().contains(why) && !said.error().contains("cell"), "{said:?}");
    let runs = std::fs::read_dir(folder.path().join("whylate/runs")).unwrap();
    assert_eq!(runs.count(), 0, "{said:?}");
}
