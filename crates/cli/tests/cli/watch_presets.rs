//! `whylate watch --trigger preset:NAME` with the real programs, where they are installed
//! ([record](../../../../records/2026-11-30/presets.md)).

use crate::tool::{alone, command, folder, start, victim, wait};
use serde_json::Value;
use std::process::{Command, Stdio};
use std::time::Duration;
use whylate_testing::{Need, skip};

/// How often the thief takes the CPU, for longer than the server's period of 5.3 ms.
const THEFTS: usize = 8;

#[test]
fn each_xrun_of_a_real_jack_server_names_the_thread_that_kept_its_cpu() {
    let _alone = alone();
    let is_there = |program: &str| Command::new(program).arg("--version").output().is_ok();
    if !is_there("jackd") || !is_there("taskset") {
        return skip(Need::Program("jackd2"), "the preset `jack` is tested with a real server");
    }
    let folder = folder();
    let Some(thief) = victim(folder.path(), "thief", &["-O1"]) else { return };
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let (cpu, name) = ((cpus - 1).to_string(), format!("whylate-test-{}", std::process::id()));
    let output = folder.path().join("run");
    let server = ["taskset", "-c", &cpu, "jackd", "-n", &name, "-R", "-P", "50", "-d", "dummy", "-p", "256"];
    let words = ["watch", "--json", "-D", "12s", "--trigger", "preset:jack", "-o", output.to_str().unwrap()];
    let mut child = command(&[&words[..], &["--"], &server].concat());
    child.env("WHYLATE_STATE_DIR", folder.path().join("state"));
    let child = start(child);
    // The thief begins when the server runs.
    std::thread::sleep(Duration::from_secs(4));
    let thefts = ["80", &cpu, "600", "20", &THEFTS.to_string()].map(str::to_owned);
    let stole = Command::new(&thief).args(thefts).stdout(Stdio::null()).status().unwrap();
    let said = wait(child);
    let printed = |text: &str| said.stderr.lines().filter(|line| line.contains(text)).count();
    if stole.code() == Some(3) || said.code == Some(69) || printed("Cannot use real-time scheduling") > 0 {
        return skip(Need::Rights, "a server at a real-time priority cannot be watched with causes");
    }
    let result: Value = serde_json::from_str(said.stdout.lines().next_back().unwrap_or_default())
        .unwrap_or_else(|error| panic!("{error}: {said:?}"));
    let trigger = &result["cells"][0]["probes"][0]["triggers"][0];
    let xruns = printed("JackTimedDriver::Process XRun");
    assert!(xruns >= THEFTS, "{xruns}: {result:#}");
    assert_eq!(trigger["count"].as_u64(), Some(xruns as u64), "one trigger for each line: {trigger:#}");
    let moments = |cause: &&Value| cause["cause"]["actor"] == "thief";
    let suspects = trigger["suspects"].as_array().unwrap().iter().filter(moments);
    let by_thief: u64 = suspects.map(|it| it["moments"].as_u64().unwrap()).sum();
    assert!(by_thief as usize * 4 >= THEFTS * 3, "{by_thief} of {THEFTS}: {trigger:#}");
}
