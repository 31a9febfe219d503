//! `whylate load`.

use crate::fields::{list, number, real, warnings, word};
use crate::json::validate;
use crate::tool::{alone, command, finish, folder, mark, marked, text, until, whylate};
use std::fs;
use whylate_testing::{Need, skip};

#[test]
fn memory_traffic_of_every_kind_has_a_rate() {
    let _alone = alone();
    for kind in ["read", "write", "copy", "random-chase", "non-temporal-write"] {
        let said =
            whylate(&["load", "memory", "--working-set", "256KiB", "--kind", kind, "-D", "1", "--json"]);
        let result = said.json();
        validate("load", &result);
        assert_eq!((word(&result, "format"), word(&result, "load")), ("whylate.load/1", "memory"));
        assert_eq!(number(&result, "working_set_bytes"), 256 << 10);
        assert!(!word(&result, "cpus").is_empty());
        assert!(number(&result, "duration_ns") >= 1_000_000_000);
        warnings(&result);
        let rate = &result["rate"];
        assert_eq!(word(rate, "unit"), "bytes_per_s");
        assert!(real(rate, "mean") > 0.0 && !list(rate, "series").is_empty());
    }
}

#[test]
fn loads_of_single_acts_have_a_rate_and_say_how_they_do_it() {
    let _alone = alone();
    let usable = crate::measure::usable();
    let mut kinds = vec![
        (&["softirq"][..], "packets_per_s"),
        (&["irq-thread"], "interrupts_per_s"),
        (&["irq-thread", "--source", "timer"], "interrupts_per_s"),
    ];
    if usable.len() > 1 {
        kinds.push((&["tlb"], "flushes_per_s"));
        kinds.push((&["ipi"], "barriers_per_s"));
        kinds.push((&["ipi", "--reach", "global"], "barriers_per_s"));
    }
    for (kind, unit) in kinds {
        let mut arguments = vec!["load"];
        arguments.extend(kind);
        arguments.extend(["-D", "1", "--json"]);
        let result = whylate(&arguments).json();
        validate("load", &result);
        assert_eq!((word(&result, "load"), word(&result["rate"], "unit")), (kind[0], unit));
        assert!(real(&result["rate"], "mean") > 0.0, "{result}");
        assert!(!word(&result, "detail").is_empty());
        assert_eq!(result.get("victims").is_some(), ["tlb", "ipi"].contains(&kind[0]));
        warnings(&result);
    }
}

#[test]
fn a_paced_load_of_acts_keeps_its_rate() {
    let _alone = alone();
    let result = whylate(&["load", "softirq", "--rate", "2000/s", "-D", "2", "--json"]).json();
    let mean = real(&result["rate"], "mean");
    // A stalled machine may be below it, and catches up by at most a tenth of a second.
    assert!((500.0..2_300.0).contains(&mean), "{mean}");
}

#[test]
fn without_a_graphics_device_write_combining_buffers_are_unavailable() {
    if fs::exists("/dev/dri").unwrap() {
        return skip(Need::Machine("a machine without a GPU"), "there is a graphics device");
    }
    let said = whylate(&["load", "pageattr", "--source", "graphics", "-D", "1"]);
    assert_eq!((said.code, said.stdout.as_str()), (Some(69), ""), "{said:?}");
    assert!(said.stderr.contains("/dev/dri") && said.stderr.lines().count() == 1, "{said:?}");
}

const PLAN: &str = r#"name = "acts"
duration = "300ms"
repeats = 1
settle = "10ms"
warmup = "10ms"
noise_floor = "0s"
[[probe]]
kind = "timer"
[[load]]
name = "packets"
kind = "softirq"
rate = "2000/s"
[[load]]
name = "interrupts"
kind = "irq-thread"
source = "timer"
[[load]]
name = "buffers"
kind = "pageattr"
source = "graphics"
cpus = "target"
[[cell]]
loads = ["packets", "interrupts"]
[[cell]]
loads = ["buffers"]
"#;

#[test]
fn loads_of_single_acts_run_in_plans_and_are_skipped_where_something_lacks() {
    let _alone = alone();
    let folder = folder();
    let plan = crate::tool::write(&folder, "acts.toml", PLAN);
    let said = whylate(&["run", &plan, "-o", text(&folder.path().join("run")), "--json"]);
    let result = said.json();
    validate("run", &result);
    let cells = list(&result, "cells");
    let rates: Vec<(&str, &str)> = list(&cells[0], "rates")
        .iter()
        .map(|rate| {
            assert!(real(rate, "mean") > 0.0, "{rate}");
            (word(rate, "load"), word(rate, "unit"))
        })
        .collect();
    assert_eq!(rates, [("packets", "packets_per_s"), ("interrupts", "interrupts_per_s")]);
    if fs::exists("/dev/dri").unwrap() {
        return skip(Need::Machine("a machine without a GPU"), "there is a graphics device");
    }
    let reason = word(&cells[1], "skipped");
    assert!(reason.contains("load `buffers`") && reason.contains("/dev/dri"), "{reason}");
}

#[test]
fn the_output_of_a_command_becomes_a_rate() {
    let _alone = alone();
    let folder = folder();
    let output = folder.path().join("output.txt");
    let said = whylate(&[
        "load",
        "exec",
        "-D",
        "3",
        "--rate-pattern",
        "did ([0-9.]+) things",
        "--rate-unit",
        "things_per_s",
        "-o",
        text(&output),
        "--json",
        "--",
        "sh",
        "-c",
        "while :; do echo did 42.5 things; sleep 0.1; done",
    ]);
    let result = said.json();
    validate("load", &result);
    assert_eq!(word(&result, "load"), "exec");
    assert!(result.get("working_set_bytes").is_none());
    assert_eq!(word(&result["rate"], "unit"), "things_per_s");
    assert!((real(&result["rate"], "mean") - 42.5).abs() < 1e-6, "{}", result["rate"]);
    assert!(fs::read_to_string(&output).unwrap().starts_with("did 42.5 things\n"));
}

#[test]
fn a_command_is_ended_with_everything_that_it_started() {
    let _alone = alone();
    let (mark, variable, value) = mark("tree");
    // A child, one in its own session, and one whose parent is gone.
    let script = "sleep 600 & setsid sleep 600 & (setsid sleep 600 &) ; wait";
    let mut command = command(&["load", "exec", "-D", "1", "--json", "--", "sh", "-c", script]);
    command.env(variable, value);
    let result = finish(command).json();
    assert!(result.get("rate").is_none());
    assert!(until(|| marked(&mark).is_empty()), "still there: {:?}", marked(&mark));
}

#[test]
fn a_command_that_ends_too_early_is_an_error_with_its_last_words() {
    let _alone = alone();
    let said = whylate(&["load", "exec", "-D", "60", "-q", "--", "sh", "-c", "echo out of cheese; exit 3"]);
    let error = said.error();
    for words in ["`sh`", "exit status 3", "out of cheese"] {
        assert!(error.contains(words), "{error}");
    }
}
