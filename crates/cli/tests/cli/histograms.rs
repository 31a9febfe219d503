//! `whylate histograms` on this machine's kernel. If it allows neither BPF programs nor a trace buffer, the tests
//! check the message.

use crate::json::validate;
use crate::tool::{Said, alone, command, finish, signal, start, until, wait, whylate};
use rustix::process::Signal;
use rustix::thread::{ClockId, clock_nanosleep_absolute};
use rustix::time::Timespec;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;
use tempfile::TempDir;
use whylate_testing::says;

/// A command whose socket and journal are in a folder of the test.
fn histograms(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = command(&[&["histograms"], arguments].concat());
    command.env("WHYLATE_RUNTIME_DIR", folder.join("run")).env("WHYLATE_STATE_DIR", folder.join("state"));
    command
}

/// Whether the machine can do what the rest of the test needs; if not, checks exit code 69 and a line that says so.
fn is_possible(said: &Said) -> bool {
    if said.code == Some(69) {
        assert!(said.stderr.starts_with("whylate: "), "{said:?}");
        return false;
    }
    true
}

/// A real-time task that wakes up every millisecond during the test; an ordinary one if that is refused.
struct Beat {
    process: Child,
}

impl Beat {
    fn start() -> Self {
        let measure = ["measure", "timer", "--cpu", "last", "-i", "1ms", "-D", "0", "--quiet"];
        Self { process: start(command(&measure)) }
    }
}

impl Drop for Beat {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn of<'j>(document: &'j Value, kind: &str) -> Vec<&'j Value> {
    let cpus = document["cpus"].as_array().unwrap();
    let all = cpus.iter().flat_map(|cpu| cpu["histograms"].as_array().unwrap());
    all.filter(|one| one["kind"] == kind).collect()
}

fn samples(document: &Value, kind: &str) -> u64 {
    of(document, kind).iter().map(|one| one["samples"].as_u64().unwrap()).sum()
}

#[test]
fn every_wakeup_is_accounted_for_whatever_the_source() {
    let _alone = alone();
    let folder = TempDir::new().unwrap();
    let _beat = Beat::start();
    for source in ["bpf", "tracefs"] {
        let arguments = ["-D", "1s", "--json", "--priority", "all", "--source", source];
        let said = finish(histograms(folder.path(), &arguments));
        if !is_possible(&said) {
            continue;
        }
        let document = said.json();
        validate("histograms", &document);
        assert_eq!(
            (document["format"].as_str(), document["source"].as_str()),
            (Some("whylate.histograms/1"), Some(source))
        );
        let number = |key: &str| document["wakeups"][key].as_u64().unwrap();
        assert!(number("seen") > 0, "{source}: {document}");
        assert!(!is_warned_of_zeros(&document), "{source}: {document}");
        let ended = samples(&document, "wakeup")
            + samples(&document, "sharedprio")
            + number("without_switch")
            + number("elsewhere");
        let lost = document["lost"].as_u64().unwrap();
        // Tasks that still wait when the histograms are read are in none of them.
        let waiting = (number("seen") + lost).saturating_sub(ended);
        assert!(ended <= number("seen") + lost && waiting < 1_000 + lost, "{source}: {document}");
        for one in of(&document, "timerwakeupswitch") {
            let Some(record) = one.get("max_record") else { continue };
            let part = |name: &str| record.get(name).and_then(Value::as_u64).unwrap_or(0);
            let parts = part("timer_offset_ns") + part("wakeup_ns") + part("switch_ns");
            assert_eq!(parts, part("latency_ns"), "{source}: {record}");
            assert_eq!(one["max_ns"], record["latency_ns"]);
        }
    }
}

/// A late task sets timers in the past: that is no latency of the kernel.
#[test]
fn a_timer_that_is_set_too_late_causes_no_latency() {
    const BEHIND_S: i64 = 100;
    let _alone = alone();
    let folder = TempDir::new().unwrap();
    let (end, is_over) = mpsc::channel::<()>();
    let catch_up = move || {
        while is_over.try_recv() == Err(mpsc::TryRecvError::Empty) {
            let now = rustix::time::clock_gettime(ClockId::Monotonic);
            let behind = Timespec { tv_sec: now.tv_sec.saturating_sub(BEHIND_S), ..now };
            clock_nanosleep_absolute(ClockId::Monotonic, &behind).unwrap();
            thread::sleep(Duration::from_millis(5));
        }
    };
    thread::scope(|scope| {
        scope.spawn(catch_up);
        // Ends the thread, also if the test fails.
        let _end = end;
        let own = std::process::id().to_string();
        for source in ["bpf", "tracefs"] {
            let arguments = ["-D", "1s", "--json", "--priority", "all", "--task", &own, "--source", source];
            let said = finish(histograms(folder.path(), &arguments));
            if !is_possible(&said) {
                continue;
            }
            let document = said.json();
            let offsets = of(&document, "missed_timer_offsets");
            assert!(offsets.iter().any(|one| one["samples"].as_u64() > Some(10)), "{source}: {document}");
            let max_ns = offsets.iter().filter_map(|one| one["max_ns"].as_u64()).max();
            assert!(max_ns < Some(BEHIND_S.unsigned_abs() * 1_000_000_000), "{source}: {document}");
        }
    });
}

fn is_warned_of_zeros(document: &Value) -> bool {
    document["warnings"].as_array().unwrap().iter().any(|warning| warning["code"] == "no-wakeups")
}

#[test]
fn zeros_are_explained() {
    let _alone = alone();
    let folder = TempDir::new().unwrap();
    // No task has this name.
    let arguments = ["-D", "200ms", "--json", "--task", "no such task"];
    let said = finish(histograms(folder.path(), &arguments));
    if !is_possible(&said) {
        return;
    }
    let document = said.json();
    validate("histograms", &document);
    assert_eq!(document["wakeups"]["seen"], 0);
    assert!(is_warned_of_zeros(&document), "{document}");
    let warnings = document["warnings"].to_string();
    assert!(says("no-task-named-by", &warnings), "{warnings}");
    assert!(warnings.contains("add --priority all"), "{warnings}");
}

#[test]
fn a_running_one_takes_requests_on_its_socket_and_leaves_nothing() {
    let _alone = alone();
    let folder = TempDir::new().unwrap();
    let tell = |arguments: &[&str]| finish(histograms(folder.path(), arguments));
    let none = tell(&["reset"]);
    assert!(says("no-whylate-histograms-this", none.error()), "{none:?}");
    // Leftovers of a killed process do not disturb.
    fs::create_dir(folder.path().join("run")).unwrap();
    fs::set_permissions(folder.path().join("run"), fs::Permissions::from_mode(0o700)).unwrap();
    let stale = folder.path().join("run/histograms-999999999.socket");
    drop(std::os::unix::net::UnixListener::bind(&stale).unwrap());
    let running = start(histograms(folder.path(), &["-D", "0", "--json", "--quiet"]));
    let socket = folder.path().join(format!("run/histograms-{}.socket", running.id()));
    let ended = || fs::read_dir(format!("/proc/{}/fd", running.id())).is_err();
    assert!(until(|| socket.exists() || ended()));
    if !socket.exists() {
        assert!(!is_possible(&wait(running)));
        return;
    }
    assert_eq!(fs::metadata(&socket).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(!stale.exists(), "a socket without a listener is removed");
    let off = tell(&["disable", "wakeup,timerandwakeup"]);
    assert_eq!(off.code, Some(0), "{off:?}");
    assert!(
        off.stdout.starts_with("wakeup, timerandwakeup on CPU") && off.stdout.ends_with(": off\n"),
        "{off:?}"
    );
    assert_eq!(tell(&["enable", "timerandwakeup"]).code, Some(0));
    assert_eq!(tell(&["reset"]).code, Some(0));
    let beyond = tell(&["reset", "--cpus", "4000"]);
    assert!(says("none-them-measured", beyond.error()), "{beyond:?}");
    signal(&running, Signal::INT);
    let said = wait(running);
    let document = said.json();
    assert!(of(&document, "wakeup").is_empty() && !of(&document, "timerandwakeup").is_empty());
    assert!(!socket.exists(), "the socket goes with the process");
}

#[test]
fn the_files_of_the_patch_are_written_and_obeyed() {
    let _alone = alone();
    let folder = TempDir::new().unwrap();
    let tree = folder.path().join("latency_hist");
    let output = tree.display().to_string();
    let arguments = ["-D", "0", "-i", "200ms", "--quiet", "--format", "osadl", "--output", &output];
    let running = start(histograms(folder.path(), &arguments));
    let ended = || fs::read_dir(format!("/proc/{}/fd", running.id())).is_err();
    let read = |path: &str| fs::read_to_string(tree.join(path)).unwrap_or_default();
    assert!(until(|| read("wakeup/max_latency-CPU0").ends_with('\n') || ended()));
    if ended() {
        assert!(!is_possible(&wait(running)));
        return;
    }
    assert!(read("wakeup/CPU0").starts_with("#Minimum latency: "));
    assert_eq!(read("wakeup/CPU0").lines().count(), 7 + 10_240);
    assert_eq!(read("enable/wakeup"), "1\n");
    assert!(until(|| tree.join("wakeup/sharedprio/max_latency-CPU0").exists()));
    // As a script does it.
    fs::write(tree.join("enable/timerandwakeup"), "0").unwrap();
    assert!(until(|| read("enable/timerandwakeup") == "0\n"));
    fs::write(tree.join("wakeup/reset"), "1").unwrap();
    assert!(until(|| fs::metadata(tree.join("wakeup/reset")).is_ok_and(|file| file.len() == 0)));
    signal(&running, Signal::TERM);
    assert_eq!(wait(running).code, Some(0));
    let own = folder.path().join("own");
    fs::create_dir(&own).unwrap();
    fs::write(own.join("file"), "mine").unwrap();
    let own = own.display().to_string();
    let said = finish(histograms(folder.path(), &["--format", "osadl", "--output", &own]));
    assert!(said.error().contains("is not empty"), "{said:?}");
}

#[test]
fn what_makes_no_sense_is_refused() {
    let lines: [(&[&str], &str); 3] = [
        (&["-i", "1ms"], "is too short"),
        (&["--output", "x"], "needs --format osadl"),
        (&["--task", ""], "give a process id or a name"),
    ];
    let folder = TempDir::new().unwrap();
    for (arguments, words) in lines {
        let said = finish(histograms(folder.path(), arguments));
        assert!(said.error().contains(words), "{said:?}");
    }
}

#[test]
fn sources_of_kernel_events_are_tried() {
    let _alone = alone();
    let document = whylate(&["check", "--tracing", "--json"]).json();
    validate("tracing", &document);
    let facilities = document["facilities"].as_array().unwrap();
    assert!(facilities.iter().any(|one| one["name"] == "BPF programs"), "{document}");
    assert!(facilities.iter().any(|one| one["name"] == "tracefs"), "{document}");
    for one in facilities {
        let is_missing = one["works"] == false;
        assert_eq!(one.get("reason").is_some(), is_missing, "{one}");
        assert_eq!(one.get("effect").is_some(), is_missing, "{one}");
    }
}

const PLAN: &str = r#"
name = "together"
duration = "500ms"
repeats = 1
noise_floor = "0s"
[target]
cpus = "last"
[[probe]]
kind = "timer"
interval = "2ms"
[[probe]]
kind = "histograms"
kinds = ["wakeup", "timerwakeupswitch"]
priority_min = -40
"#;

#[test]
fn a_plan_counts_them_together_with_its_other_probes() {
    let _alone = alone();
    let folder = TempDir::new().unwrap();
    let plan = folder.path().join("plan.toml");
    fs::write(&plan, PLAN).unwrap();
    let run = folder.path().join("run").display().to_string();
    let said = whylate(&["run", &plan.display().to_string(), "-o", &run, "--json"]);
    let document = said.json();
    validate("run", &document);
    let warnings = document["warnings"].as_array().unwrap();
    let probes = document["cells"][0]["probes"].as_array().unwrap();
    if warnings.iter().any(|warning| warning["code"] == "no-histograms") {
        assert_eq!(probes.len(), 1, "only the timer: {document}");
        return;
    }
    assert_eq!(probes[1]["probe"], "histograms", "{document}");
    let series = probes[1]["cpus"].as_array().unwrap();
    let names: Vec<&str> = series.iter().map(|one| one["series"].as_str().unwrap()).collect();
    assert_eq!(names, ["wakeup", "timerwakeupswitch"]);
    // The timer's own task counts too; a wake-up that finds it still running is in no histogram.
    assert!(series.iter().all(|one| one["samples"].as_u64() > Some(0)), "{document}");
    for one in series {
        assert_eq!(one["max_record"]["latency_ns"], one["max_ns"], "{one}");
    }
    let report = whylate(&["report", &run]);
    assert!(says("largest-latencies-that-kernel", &report.stdout), "{report:?}");
    let html = folder.path().join("report.html").display().to_string();
    assert_eq!(whylate(&["report", &run, "--format", "html", "-o", &html]).code, Some(0));
    assert!(says("largest-latencies-that-kernel-2", fs::read_to_string(&html).unwrap()));
}
