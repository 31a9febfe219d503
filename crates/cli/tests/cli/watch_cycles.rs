//! `whylate watch` against the logs of programs that work in cycles and sleep in the middle of them
//! (`tests/victims/cycle.c`).
//!
//! `WHYLATE_PROGRAMS=500 cargo test -p whylate --test cli random_programs` tries that number.

use crate::tool::{PATIENCE, alone, command, folder, signal, start, until, victim, wait};
use rustix::process::Signal;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::Read as _;
use std::process::{Command, Stdio};
use whylate_testing::{Need, skip};

const DEADLINE_NS: u64 = 2_000_000;
/// The number of programs that are watched at a time.
const AT_ONCE: usize = 6;

/// A cycle program's thread, as it logged itself.
struct Log {
    words: Vec<String>,
    thread: u64,
    began_ns: Vec<u64>,
    took_ns: Vec<u64>,
}

impl Log {
    /// Cycles that were late, whatever the log and the watch take for their start.
    fn late(&self) -> usize {
        self.took_ns.iter().filter(|took_ns| **took_ns > DEADLINE_NS * 21 / 20).count()
    }

    /// Whether nearly each cycle begins when the one before ends. Where such a thread sleeps in the middle of its work, the kernel
    /// shows the same as of one that waits there for its work.
    fn never_waits(&self) -> bool {
        let waits = self
            .began_ns
            .windows(2)
            .zip(&self.took_ns)
            .filter(|(began_ns, took_ns)| began_ns[1] > began_ns[0] + *took_ns + 100_000);
        waits.count() * 10 <= self.took_ns.len()
    }
}

/// Watches programs, each with these words; returns the result and their logs. `None` if tasks cannot be watched
/// here.
fn watched(programs: &[Vec<String>], flags: &[&str]) -> Option<(Option<i32>, Value, Vec<Log>)> {
    let folder = folder();
    let path = victim(folder.path(), "cycle", &["-O1", "-pthread"])?;
    let output = folder.path().join("run");
    let words = ["watch", "--json", "--task", "victim", "--deadline", "2ms", "-o", output.to_str().unwrap()];
    let out = folder.path().join("out");
    let mut child = command(&[&words[..], flags].concat());
    child.env("WHYLATE_STATE_DIR", folder.path().join("state"));
    let mut child = start(child);
    // Its output is more than a pipe holds.
    let mut stdout = child.stdout.take().unwrap();
    let copy = out.clone();
    let reader = std::thread::spawn(move || {
        let mut file = std::fs::File::create(copy).unwrap();
        std::io::copy(&mut stdout, &mut file).unwrap();
    });
    let lines = || std::fs::read_to_string(&out).unwrap_or_default();
    assert!(until(|| lines().contains('\n') || child.try_wait().unwrap().is_some()), "it did not begin");
    if child.try_wait().unwrap().is_some() {
        let said = wait(child);
        assert_eq!(said.code, Some(69), "{said:?}");
        skip(Need::Rights, "tasks cannot be watched");
        return None;
    }
    let begin = |words: &Vec<String>| {
        Command::new(&path).args(words).arg("stamps=1").stdout(Stdio::piped()).spawn().unwrap()
    };
    let started: Vec<_> = programs.iter().map(begin).collect();
    let mut logs = Vec::new();
    for (mut victim, words) in started.into_iter().zip(programs) {
        let mut text = String::new();
        victim.stdout.take().unwrap().read_to_string(&mut text).unwrap();
        victim.wait().unwrap();
        let numbers = |line: &str| -> Vec<u64> { line.split_whitespace().flat_map(str::parse).collect() };
        let lines: Vec<&str> = text.lines().collect();
        let [began, _, log] = lines[..] else { panic!("{words:?}: {text}") };
        let (began_ns, log) = (numbers(began), numbers(log));
        logs.push(Log { words: words.clone(), thread: log[0], began_ns, took_ns: log[3..].to_vec() });
    }
    signal(&child, Signal::INT);
    let code = wait(child).code;
    reader.join().unwrap();
    let document = lines().lines().last().and_then(|line| serde_json::from_str(line).ok());
    Some((code, document.unwrap(), logs))
}

fn row<'r>(result: &'r Value, log: &Log) -> Option<&'r Value> {
    let rows = result["cells"][0]["probes"][0]["cpus"].as_array()?;
    rows.iter().find(|row| row["task"]["thread"] == log.thread)
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

/// What the watch reports about a thread's deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Verdict {
    Missed,
    CannotTell,
    Kept,
}

fn verdict(result: &Value, log: &Log) -> Verdict {
    let row = row(result, log).unwrap_or_else(|| panic!("{:?} has no row: {result:#}", log.words));
    if row["overruns"].as_u64() > Some(0) {
        Verdict::Missed
    } else if ["doubt_max_ns", "unseen_max_ns"].iter().any(|name| row[name].as_u64() > Some(DEADLINE_NS)) {
        Verdict::CannotTell
    } else {
        Verdict::Kept
    }
}

#[test]
fn a_cycle_with_a_sleep_in_its_middle_is_one_late_activation_and_the_sleep_is_its_cause() {
    let _alone = alone();
    let kinds = ["rwlock", "semaphore", "condition", "pipe", "write", "fcntl", "flock"];
    for chunk in kinds.chunks(4) {
        let programs: Vec<_> = chunk
            .iter()
            .enumerate()
            .map(|(nth, kind)| {
                words(&format!("middle={kind} priority={} every=20 cycles=200 period=10000 cpu=0", 50 + nth))
            })
            .collect();
        let Some((code, result, logs)) = watched(&programs, &[]) else { return };
        assert_eq!(code, Some(2), "{result:#}");
        for log in &logs {
            let row = row(&result, log).unwrap();
            // Some guests do not show every switch, and an incomplete cycle is not counted.
            let (missed, late) = (row["overruns"].as_u64().unwrap() as usize, log.late());
            assert!(missed * 10 >= late * 7, "{:?}: {late} late, {missed} missed", log.words);
            let cycles = row["samples"].as_u64().unwrap();
            assert!((150..=210).contains(&cycles), "{:?}: {cycles} cycles", log.words);
            assert_eq!(row.get("doubt_max_ns"), None, "{:?}: {row:#}", log.words);
        }
        let spikes = result["cells"][0]["probes"][0]["spikes"].as_array().unwrap();
        let blocked = spikes.iter().filter(|spike| {
            let cause = &spike["cause"];
            matches!(cause["kind"].as_str(), Some("wait" | "lock")) && cause["actor"] == "holder"
        });
        assert!(blocked.count() > 0, "{spikes:#?}");
    }
}

#[test]
fn own_work_has_parts() {
    let _alone = alone();
    for kind in ["faults", "trim", "locked", "bulk", "inherit"] {
        let program = words(&format!("middle={kind} every=4 cycles=80 period=20000 cpu=0"));
        let Some((_, result, logs)) = watched(&[program], &[]) else { return };
        if result.to_string().contains("times of system calls") {
            return skip(Need::Rights, "this kernel tells no programs of system calls");
        }
        assert!(logs[0].late() > 0, "{kind}");
        let spikes = result["cells"][0]["probes"][0]["spikes"].as_array().cloned().unwrap_or_default();
        let causes: Vec<&Value> = spikes
            .iter()
            .flat_map(|it| std::iter::once(&it["cause"]).chain(it["also"].as_array().into_iter().flatten()))
            .collect();
        let has = |is_it: &dyn Fn(&Value) -> bool| causes.iter().any(|cause| is_it(cause));
        let part = |name: &str, call: &Value, least: u64| {
            let is_it = |part: &Value| {
                part["part"] == name && part["call"] == *call && part["count"].as_u64() >= Some(least)
            };
            has(&|cause| cause["parts"].as_array().into_iter().flatten().any(is_it))
        };
        let has_part = match kind {
            "faults" => part("page_faults", &Value::Null, 2_048),
            "trim" => part("system_call", &"madvise".into(), 2),
            "locked" => part("system_call", &"mmap".into(), 1),
            "bulk" => part("system_call", &"read".into(), 2),
            _ => has(&|cause| cause["kind"] == "lock" && cause["actor"] == "holder"),
        };
        assert!(has_part, "{kind}: {causes:#?}");
    }
}

/// A response over several periods is one miss, and its later periods are counted.
#[test]
fn periods_that_begin_in_an_earlier_response_are_counted() {
    const PERIOD_NS: u64 = 10_000_000;
    let _alone = alone();
    let program = words("middle=bulk hold=25000 every=8 cycles=160 period=10000 cpu=0");
    let Some((code, result, logs)) = watched(&[program], &[]) else { return };
    assert_eq!(code, Some(2), "{result:#}");
    let log = &logs[0];
    // It begins the next period at once, late, and leaves out those after it.
    let follows = |nth: usize| {
        let between_ns = log.began_ns[nth + 1] - log.began_ns[nth];
        let is_late = log.began_ns[nth + 1] < log.began_ns[nth] + log.took_ns[nth];
        (between_ns + PERIOD_NS / 2) / PERIOD_NS - 1 + u64::from(is_late)
    };
    let expected: u64 = (0..log.began_ns.len() - 1).map(follows).sum();
    let row = row(&result, log).unwrap();
    let later = row["later_periods"].as_u64().unwrap();
    // The first cycles come before its rhythm is known, and some guests do not show every switch.
    assert!(later * 10 >= expected * 8 && later <= expected + 2, "{later} of {expected}: {row:#}");
    let reason = result["verdict_reason"].as_str().unwrap_or_default();
    assert!(reason.contains(&format!("{later} later periods began")), "{reason}");
}

/// Words of a random program.
fn random_words(one_of: &mut dyn FnMut(&[&str]) -> String, nth: usize) -> Vec<String> {
    let release = [
        "absolute",
        "relative",
        "timerfd",
        "epoll",
        "signal",
        "pipe",
        "condition",
        "socket",
        "eventfd",
        "word",
    ];
    let middle = [
        "none",
        "rwlock",
        "mutex",
        "inherit",
        "semaphore",
        "condition",
        "pipe",
        "write",
        "fcntl",
        "flock",
        "pause",
        "until",
        "socket",
        "faults",
        "file",
        "eventfd",
        "word",
        "same",
    ];
    let period = one_of(&["4000", "5000", "10000", "20000"]);
    let cycles = 2_000_000 / period.parse::<u64>().unwrap();
    let middles: Vec<String> =
        (0..one_of(&["1", "1", "1", "2", "3"]).parse().unwrap()).map(|_| one_of(&middle)).collect();
    words(&format!(
        "release={} middle={} every={} hold={} period={period} jitter={} helper={} work={} thief={} cpu={} \
         priority={} cycles={cycles}",
        one_of(&release),
        middles.join("+"),
        one_of(&["1", "2", "3", "10", "30", "100"]),
        one_of(&["300", "800", "3000", "6000"]),
        one_of(&["0", "0", "0", "1000", &period]),
        one_of(&["0", "0", "1"]),
        one_of(&["20", "100", "300"]),
        one_of(&["0", "0", "0", "500", "3000"]),
        one_of(&["0", "1"]),
        50 + nth,
    ))
}

/// No thread whose log has a late cycle passes, unless it never waits for its work.
#[test]
fn random_programs_with_a_late_cycle_do_not_pass() {
    let _alone = alone();
    let number = std::env::var("WHYLATE_PROGRAMS").ok().and_then(|it| it.parse().ok()).unwrap_or(AT_ONCE);
    let seed = std::env::var("WHYLATE_SEED").ok().and_then(|it| it.parse().ok()).unwrap_or(1_u64);
    let mut random = seed;
    let mut one_of = |values: &[&str]| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        values[(random >> 33) as usize % values.len()].to_owned()
    };
    let (mut done, mut counts, mut wrong) = (0, BTreeMap::new(), Vec::new());
    while done < number {
        let programs: Vec<_> =
            (0..AT_ONCE.min(number - done)).map(|nth| random_words(&mut one_of, nth)).collect();
        let Some((code, result, logs)) = watched(&programs, &[]) else { return };
        for log in &logs {
            let (is_late, verdict) = (log.late() > 0, verdict(&result, log));
            *counts.entry((is_late, verdict)).or_insert(0) += 1;
            let late_of = format!("{} of {} late", log.late(), log.took_ns.len());
            println!("{verdict:?} {late_of} {}", log.words.join(" "));
            if is_late && !log.never_waits() && (verdict == Verdict::Kept || code == Some(0)) {
                wrong.push(format!("{late_of} {:?}, exit code {code:?}", log.words));
            }
        }
        done += programs.len();
    }
    println!("{done} programs, seed {seed}, patience {PATIENCE:?}; (is late, verdict): {counts:?}");
    assert!(wrong.is_empty(), "{wrong:#?}");
}
