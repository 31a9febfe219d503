//! `whylate watch --chain` over three processes (`tests/victims/chain.c`), compared with what the program says of itself.

use crate::tool::{Said, alone, command, finish, folder, start, victim, wait, whylate};
use serde_json::Value;
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;
use whylate_testing::{Need, skip};

/// The deadline, in nanoseconds: a slow message takes longer, an ordinary one does not.
const DEADLINE_NS: u64 = 4_000_000;

fn program(folder: &TempDir) -> Option<PathBuf> {
    victim(folder.path(), "chain", &["-O1", "-fno-omit-frame-pointer"])
}

/// A watch of the program with these marks; what it said, the latencies that the program saw, and the result. `None` where
/// the program could not be watched.
fn watch(folder: &TempDir, marks: [&str; 2], arguments: &[&str]) -> Option<(Said, Vec<u64>, Value)> {
    let path = program(folder)?;
    let path = path.to_str().unwrap();
    let output = folder.path().join("run");
    let marks = marks.map(|mark| mark.replace("FILE", path));
    let flags = ["watch", "-q", "--json", "-o", output.to_str().unwrap(), "--chain", "frame"];
    let ends = ["--begin", &marks[0], "--end", &marks[1], "--deadline", "4ms", "--", path];
    let mut child = command(&[&flags[..], &ends, arguments].concat());
    child.env("WHYLATE_STATE_DIR", folder.path().join("state"));
    let said = wait(start(child));
    if said.code == Some(69) || said.stderr.contains("exit status: 3") {
        assert!(said.code != Some(69) || said.stderr.contains("tasks cannot be watched"), "{said:?}");
        skip(Need::Rights, "a program at a real-time priority cannot be watched with its chain");
        return None;
    }
    let took = said.stdout.lines().filter_map(|line| line.parse().ok()).collect();
    let result = said.stdout.lines().next_back().and_then(|line| serde_json::from_str(line).ok());
    let result = result.unwrap_or_else(|| panic!("{said:?}"));
    Some((said, took, result))
}

fn chain(result: &Value) -> &Value {
    let chain = &result["cells"][0]["probes"][0]["chains"][0];
    assert_eq!(chain["name"], "frame", "{result:#}");
    chain
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is not a number"))
}

fn late(took: &[u64]) -> u64 {
    took.iter().filter(|ns| **ns > DEADLINE_NS).count() as u64
}

/// Checks that the parts of the longest instance follow each other without a gap and add up to its latency.
fn check_path(chain: &Value) {
    let parts = chain["worst"].as_array().unwrap();
    let sum: u64 = parts.iter().map(|it| number(&it["to_ns"]) - number(&it["from_ns"])).sum();
    assert_eq!(sum, number(&chain["worst_ns"]), "{chain:#}");
    assert!(parts.windows(2).all(|pair| pair[0]["to_ns"] == pair[1]["from_ns"]), "{chain:#}");
    let unknown = parts.iter().filter(|it| it["what"] == "unknown");
    let unknown: u64 = unknown.map(|it| number(&it["to_ns"]) - number(&it["from_ns"])).sum();
    assert!(unknown * 100 <= sum, "{unknown} of {sum} is not known: {chain:#}");
}

#[test]
fn late_instances_are_counted_and_the_slow_thread_in_the_middle_is_found() {
    let _alone = alone();
    let folder = folder();
    let marks = ["FILE:begin_frame:arg2@first", "FILE:end_frame:arg1"];
    let Some((said, took, result)) = watch(&folder, marks, &["300", "slow"]) else { return };
    let chain = chain(&result);
    assert_eq!((said.code, took.len()), (Some(2), 300), "{said:?}");
    assert_eq!(number(&chain["instances"]), 300, "{chain:#}");
    assert!(number(&chain["late"]).abs_diff(late(&took)) <= 1, "{} late: {chain:#}", late(&took));
    assert!(result["verdict_reason"].to_string().contains("chain `frame` missed"), "{result:#}");
    check_path(chain);
    let threads: Vec<&str> =
        chain["worst"].as_array().unwrap().iter().filter_map(|it| it["thread"].as_str()).collect();
    let has_all = ["first", "middle", "last"].iter().all(|thread| threads.contains(thread));
    assert!(has_all && threads.last() == Some(&"last"), "{chain:#}");
    let spikes = result["cells"][0]["probes"][0]["spikes"].as_array().unwrap();
    let of_chain: Vec<&Value> = spikes
        .iter()
        .filter(|it| it["probe"] == "task/chain frame" && number(&it["latency_ns"]) > DEADLINE_NS)
        .collect();
    let by_middle =
        of_chain.iter().filter(|it| it["cause"]["kind"] == "own_work" && it["cause"]["actor"] == "middle");
    let (found, all) = (by_middle.count(), of_chain.len());
    assert!(all >= 5 && found * 10 >= all * 9, "{found} of {all}: {of_chain:#?}");
    let path = folder.path().join("run");
    let report = whylate(&["report", path.to_str().unwrap()]);
    assert!(report.stdout.contains("of chain frame"), "{report:?}");
    assert!(fs::exists(path.join("paths")).unwrap());
}

#[test]
fn a_message_that_is_overtaken_is_joined_by_its_value() {
    let _alone = alone();
    let folder = folder();
    let marks = ["FILE:begin_frame:arg2", "FILE:end_frame:arg1@last"];
    let Some((said, took, result)) = watch(&folder, marks, &["205", "overtake"]) else { return };
    let chain = chain(&result);
    assert_eq!((number(&chain["instances"]), took.len()), (205, 205), "{said:?}");
    assert_eq!((number(&chain["overtaken"]), number(&chain["dropped"])), (20, 0), "{chain:#}");
    assert!(number(&chain["late"]).abs_diff(late(&took)) <= 1, "{} late: {chain:#}", late(&took));
    let (longest, max_ns) = (took.iter().max().unwrap(), number(&chain["max_ns"]));
    assert!(max_ns.abs_diff(*longest) * 20 <= max_ns, "{longest}: {chain:#}");
    check_path(chain);
}

#[test]
fn overlapping_instances_without_values_are_joined_by_their_wake_ups() {
    let _alone = alone();
    let folder = folder();
    let marks = ["FILE:begin_frame@first", "FILE:end_frame@last"];
    let Some((said, took, result)) = watch(&folder, marks, &["205", "pool"]) else { return };
    let chain = chain(&result);
    assert_eq!((number(&chain["instances"]), took.len()), (205, 205), "{said:?}");
    // The newest begin before each end would give none of the long ones.
    let (planted, found) = (late(&took), number(&chain["late"]));
    assert!(planted >= 20 && found.abs_diff(planted) * 10 <= planted, "{planted} late: {chain:#}");
    assert!(number(&chain["uncertain"]) * 10 <= planted, "{chain:#}");
    let (longest, max_ns) = (took.iter().max().unwrap(), number(&chain["max_ns"]));
    assert!(max_ns.abs_diff(*longest) * 20 <= max_ns, "{longest}: {chain:#}");
    check_path(chain);
}

#[test]
fn numbers_after_texts_join_begin_and_end() {
    // While tracing is off, it can be opened, but not written.
    if fs::write("/sys/kernel/tracing/trace_marker", "test").is_err() {
        return skip(Need::Rights, "trace_marker cannot be written");
    }
    let _alone = alone();
    let folder = folder();
    let marks = ["marker:frame in", "marker:frame out"];
    let Some((said, took, result)) = watch(&folder, marks, &["100", "text"]) else { return };
    let chain = chain(&result);
    assert_eq!((number(&chain["instances"]), number(&chain["uncertain"])), (100, 0), "{said:?}");
    assert!(number(&chain["late"]).abs_diff(late(&took)) <= 1, "{} late: {chain:#}", late(&took));
    check_path(chain);
}

/// A program on one CPU; ends with the value.
struct Running(Child);

impl Running {
    fn start(cpu: &str, words: &[&str]) -> Self {
        let mut command = Command::new("taskset");
        command.args(["-c", cpu]).args(words).stdout(Stdio::null()).stderr(Stdio::null());
        Self(command.spawn().expect("taskset starts"))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn for_a_chain_the_thread_that_preempts_it_is_moved_and_its_own_threads_are_not() {
    let _alone = alone();
    let folder = folder();
    let (Some(path), Some(thief)) = (program(&folder), victim(folder.path(), "thief", &["-O1"])) else {
        return;
    };
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    if cpus < 2 || Command::new("taskset").arg("--version").output().is_err() {
        return skip(Need::Cpus, "a thread is moved from one CPU to another");
    }
    let (cpu, path) = ((cpus - 1).to_string(), path.to_str().unwrap().to_owned());
    let _thief = Running::start(&cpu, &[thief.to_str().unwrap(), "80", &cpu, "14", "6", "9000"]);
    let mut chain = Running::start(&cpu, &[&path, "9000", "even"]);
    std::thread::sleep(Duration::from_secs(1));
    if chain.0.try_wait().unwrap().is_some() {
        return skip(Need::Rights, "a real-time priority");
    }
    let plan = format!(
        "name = \"chain\"\nduration = \"2s\"\nrepeats = 2\n[[probe]]\nkind = \"task\"\nname = \"middle\"\n\
         [[probe.chains]]\nname = \"frame\"\nbegin = \"{path}:begin_frame:arg2@first\"\n\
         end = \"{path}:end_frame:arg1@last\"\ndeadline = \"4ms\"\n"
    );
    let (plan_path, output) = (folder.path().join("plan.toml"), folder.path().join("search"));
    fs::write(&plan_path, plan).unwrap();
    let words = ["fix", plan_path.to_str().unwrap(), "--advise", "--json", "--trust-plan", "-q"];
    let goal = ["--goal", "chain frame p99 < 4ms", "-o", output.to_str().unwrap()];
    let mut search = command(&[&words[..], &goal].concat());
    search.env("WHYLATE_STATE_DIR", folder.path().join("state"));
    let said = finish(search);
    if said.code == Some(69) {
        return skip(Need::Rights, "tasks cannot be watched");
    }
    let advice = said.json();
    let share = |cause: &&Value| cause["share"].as_f64().unwrap();
    let causes = advice["causes"].as_array().unwrap().iter();
    let most = causes.max_by(|one, other| share(one).total_cmp(&share(other))).unwrap();
    assert_eq!((&most["kind"], &most["actor"]), (&"thread".into(), &"thief".into()), "{advice:#}");
    let names: Vec<&str> =
        advice["arms"].as_array().unwrap().iter().filter_map(|arm| arm["name"].as_str()).collect();
    assert!(names.contains(&"affinity-thief") && names.contains(&"priority-thief"), "{names:?}");
    let is_own = |name: &&str| ["-first", "-middle", "-last"].iter().any(|thread| name.ends_with(thread));
    assert!(!names.iter().any(is_own), "{names:?}");
}

#[test]
fn a_wrong_chain_is_refused_before_anything_starts() {
    let mark = "/bin/sh:main";
    let chain = |name: &'static str, begin: &'static str, end: &'static str| {
        vec!["--chain", name, "--begin", begin, "--end", end]
    };
    let cases = [
        (chain("a", "main", mark), "begin of chain `a`: `main` is not a mark"),
        (chain("a", "/bin/no-such-file:x", "/bin/no-such-file:y"), "begin of chain `a`: /bin/no-such-file: "),
        (chain("a", "/bin/sh:no_such_function", mark), "begin of chain `a`: "),
        (chain("a", mark, mark), "both begin and end of chain `a`"),
        (chain("a/b", mark, "marker:x"), "without / and #"),
        (chain("a", "/bin/sh:main:arg1", "/bin/sh:exit"), "only one end of chain `a` has a value"),
        (
            [chain("a", mark, "marker:x"), chain("a", mark, "marker:x")].concat(),
            "two chains have the name `a`",
        ),
        (
            [chain("a", mark, "marker:x"), vec!["--end", "marker:y"]].concat(),
            "--end is given 2 times for 1 chain; ",
        ),
        (
            [chain("a", mark, "marker:x"), vec!["--deadline", "1ms", "--deadline", "2ms"]].concat(),
            "--deadline is given 2 times for 1 chain; ",
        ),
        (vec!["--begin", mark, "--end", "marker:x", "--begin", mark], "--begin is given 2 times"),
    ];
    let said = finish(command(&["watch", "-q", "--task", "nothing", "--chain", "a"]));
    assert!(said.code == Some(1) && said.stderr.contains("--begin <MARK>"), "{said:?}");
    for (flags, expected) in cases {
        let said = finish(command(&[&["watch", "-q", "--task", "nothing"], &flags[..]].concat()));
        assert!(said.error().contains(expected), "{flags:?}: {said:?}");
    }
}
