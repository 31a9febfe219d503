//! `whylate cpus` and `whylate check` look at the machine and change nothing.

use crate::fields::{list, number, word};
use crate::json::validate;
use crate::tool::{command, signal, start, text, until, wait, whylate};
use rustix::process::Signal;
use serde_json::Value;
use whylate_testing::says;

#[test]
fn cpus_shows_every_cpu_as_a_table_and_as_json() {
    let said = whylate(&["cpus", "--interval", "100ms"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let first = said.stdout.lines().next().unwrap_or_default();
    assert!(says("cpu-chip-core-ht", first), "{first}");
    assert!(said.stdout.lines().all(|line| line.chars().count() <= 100), "{}", said.stdout);
    assert!(!said.stdout.contains('\u{1b}'), "no colours");

    let document = whylate(&["cpus", "--interval", "100ms", "--json"]).json();
    validate("cpus", &document);
    assert_eq!(word(&document, "format"), "whylate.cpus/1");
    assert!(number(&document, "interval_ns") >= 100_000_000);
    let present = std::fs::read_dir("/sys/devices/system/cpu").expect("sysfs").flatten();
    let is_cpu = |name: &str| name.strip_prefix("cpu").is_some_and(|number| number.parse::<u32>().is_ok());
    let present = present.filter(|entry| entry.file_name().to_str().is_some_and(is_cpu)).count();
    assert_eq!(list(&document, "cpus").len(), present);
    let pid = u64::from(std::process::id());
    assert!(
        list(&document, "threads").iter().any(|thread| number(thread, "pid") == pid),
        "this process is there"
    );
}

#[test]
fn cpus_of_a_list_names_what_is_there() {
    let said = whylate(&["cpus", "-a", "0", "--interval", "50ms", "--verbose"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(said.stdout.contains("\nCPU 0: "), "{}", said.stdout);
    assert!(said.stdout.contains("threads: "), "{}", said.stdout);
    let absent = whylate(&["cpus", "-a", "4000"]);
    assert!(says("cpus-cpu-does-not", absent.error()), "{absent:?}");
    assert!(whylate(&["cpus", "--interval", "1us"]).error().contains("out of range"));
}

#[test]
fn cpus_watches_until_it_is_stopped() {
    let folder = crate::tool::folder();
    let path = folder.path().join("table");
    let mut command = command(&["cpus", "--watch", "--interval", "50ms"]);
    command.stdout(std::fs::File::create(&path).expect("a file"));
    let child = command.stderr(std::process::Stdio::piped()).spawn().expect("the binary starts");
    let tables = || std::fs::read_to_string(text(&path)).unwrap_or_default().matches("ht-siblings").count();
    assert!(until(|| tables() >= 2), "no second table");
    signal(&child, Signal::INT);
    assert_eq!(wait(child).code, Some(0));
    let both = start(crate::tool::command(&["cpus", "--watch", "--json"]));
    assert_eq!(wait(both).code, Some(1), "a usage error");
}

#[test]
fn check_says_whether_the_machine_is_fit_by_its_exit_code() {
    let said = whylate(&["check", "--cpus", "0", "--json"]);
    let document = said.document();
    validate("check", &document);
    let serious = |finding: &&Value| word(finding, "severity") == "serious";
    let is_unfit = list(&document, "findings").iter().filter(serious).count() > 0;
    assert_eq!(document["fit"], Value::Bool(!is_unfit));
    assert_eq!(said.code, Some(if is_unfit { 2 } else { 0 }));

    let brief = whylate(&["check", "--cpus", "0"]);
    let verdict = if is_unfit { "\nUNFIT  " } else { "\nFIT  " };
    assert!(brief.stdout.contains(verdict) && brief.stdout.contains("\nKernel\n"), "{}", brief.stdout);
    assert!(brief.stdout.lines().all(|line| line.chars().count() <= 100), "{}", brief.stdout);
    let long = whylate(&["check", "--cpus", "0", "--verbose"]);
    assert!(long.stdout.contains("source: ") && long.stdout.contains("seen: "), "{}", long.stdout);
    assert!(long.stdout.len() > brief.stdout.len());
    assert!(says("cpus-cpu-does-not-2", whylate(&["check", "--cpus", "4000"]).error()));
}
