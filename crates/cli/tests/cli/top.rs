//! `whylate top` on this machine's kernel. If it reports no events, the tests check the message.

use crate::json::validate;
use crate::tool::{Said, alone, command, finish, folder, whylate};
use serde_json::Value;
use whylate_testing::says;

/// The journal is in its own folder, so that treatments in force on this machine are not in the figures.
fn top(arguments: &[&str]) -> Said {
    let folder = folder();
    let mut command = command(&[&["top"], arguments].concat());
    command.env("WHYLATE_STATE_DIR", folder.path());
    finish(command)
}

/// Whether the machine can be watched; if not, checks exit code 69 and the remedy.
fn is_possible(said: &Said) -> bool {
    if said.code == Some(69) {
        assert!(says("machine-cannot-be-watched", &said.stderr), "{said:?}");
    }
    said.code != Some(69)
}

#[test]
fn each_interval_is_a_line_and_the_last_one_is_about_all_of_the_time() {
    let _alone = alone();
    let said = top(&["--json", "-D", "1s", "-i", "300ms", "--priority", "all"]);
    if !is_possible(&said) {
        return;
    }
    assert_eq!(said.code, Some(0), "{said:?}");
    let lines: Vec<Value> = said.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    lines.iter().for_each(|line| validate("top", line));
    let (all, intervals) = lines.split_last().unwrap();
    assert!(!intervals.is_empty(), "{said:?}");
    let sum = |line: &Value, of: &str, what: &str| -> u64 {
        line[of].as_array().unwrap().iter().map(|it| it[what].as_u64().unwrap()).sum()
    };
    let parts = |of, what| intervals.iter().map(|line| sum(line, of, what)).sum::<u64>();
    assert!(sum(all, "cpus", "samples") >= parts("cpus", "samples").max(1), "{said:?}");
    assert!(sum(all, "interrupts", "count") >= parts("interrupts", "count").max(1), "{said:?}");
    assert!(all["interval_ns"].as_u64().unwrap() >= 1_000_000_000, "{all}");
    if all["source"] == "bpf" {
        let is_thread = |it: &Value| it["kind"] == "thread" && it["total_ns"].as_u64() > Some(0);
        assert!(all["thieves"].as_array().unwrap().iter().any(is_thread), "this process ran: {all:#}");
    }
}

#[test]
fn without_a_terminal_the_end_is_a_table() {
    let _alone = alone();
    let said = top(&["-q", "-D", "300ms", "-p", "all"]);
    if !is_possible(&said) {
        return;
    }
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(said.stdout.contains("no treatment in force") && said.stdout.contains("thieves"), "{said:?}");
}

#[test]
fn an_interval_that_is_too_short_to_follow_is_refused() {
    let said = whylate(&["top", "--interval", "1ms"]);
    assert!(said.error().contains("--interval") && said.code == Some(1), "{said:?}");
}
