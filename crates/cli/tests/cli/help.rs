//! What the command says of itself.

use crate::tool::{command, whylate};

fn help(arguments: &[&str]) -> String {
    let mut arguments = arguments.to_vec();
    arguments.push("--help");
    let said = whylate(&arguments);
    assert_eq!((said.code, said.stderr.as_str()), (Some(0), ""));
    assert!(said.stdout.lines().all(|line| line.chars().count() <= 100), "wider than 100 columns");
    format!("$ whylate {}\n{}", arguments.join(" "), said.stdout)
}

#[test]
fn help_of_every_command() {
    let commands: [(&str, &[&str]); 36] = [
        ("help", &[]),
        ("help_run", &["run"]),
        ("help_plans", &["plans"]),
        ("help_measure", &["measure"]),
        ("help_measure_timer", &["measure", "timer"]),
        ("help_measure_stall", &["measure", "stall"]),
        ("help_measure_dispatch", &["measure", "dispatch"]),
        ("help_measure_roundtrip", &["measure", "roundtrip"]),
        ("help_load", &["load"]),
        ("help_load_memory", &["load", "memory"]),
        ("help_load_exec", &["load", "exec"]),
        ("help_check", &["check"]),
        ("help_copy", &["copy"]),
        ("help_cpus", &["cpus"]),
        ("help_explain", &["explain"]),
        ("help_load_gpu", &["load", "gpu"]),
        ("help_load_graphics", &["load", "graphics"]),
        ("help_load_copy", &["load", "copy"]),
        ("help_measure_access", &["measure", "access"]),
        ("help_load_tlb", &["load", "tlb"]),
        ("help_load_ipi", &["load", "ipi"]),
        ("help_load_pageattr", &["load", "pageattr"]),
        ("help_load_softirq", &["load", "softirq"]),
        ("help_load_irq_thread", &["load", "irq-thread"]),
        ("help_trace", &["trace"]),
        ("help_trace_record", &["trace", "record"]),
        ("help_watch", &["watch"]),
        ("help_top", &["top"]),
        ("help_histograms", &["histograms"]),
        ("help_histograms_reset", &["histograms", "reset"]),
        ("help_report", &["report"]),
        ("help_schema", &["schema"]),
        ("help_treat", &["treat"]),
        ("help_treat_apply", &["treat", "apply"]),
        ("help_treat_apply_irq_affinity", &["treat", "apply", "irq-affinity"]),
        ("help_treat_apply_governor", &["treat", "apply", "governor"]),
    ];
    for (name, arguments) in commands {
        insta::assert_snapshot!(name, help(arguments));
    }
}

#[test]
fn the_short_help_is_h() {
    let said = whylate(&["measure", "timer", "-h"]);
    assert_eq!(said.code, Some(0));
    assert!(said.stdout.contains("Usage: whylate measure timer"), "{said:?}");
}

#[test]
fn plans_and_schemas_are_listed() {
    let lines = ["plans", "plans quick", "plans memory-load", "schema"].map(|line| {
        let said = whylate(&line.split(' ').collect::<Vec<_>>());
        assert_eq!((said.code, said.stderr.as_str()), (Some(0), ""));
        format!("$ whylate {line}\n{}", said.stdout)
    });
    insta::assert_snapshot!("plans", lines.join("\n"));
}

#[test]
fn the_version_is_that_of_the_package() {
    let said = whylate(&["--version"]);
    assert_eq!((said.code, said.stdout), (Some(0), format!("whylate {}\n", env!("CARGO_PKG_VERSION"))));
}

#[test]
fn whoever_stops_reading_has_seen_enough() {
    for arguments in
        [&["schema", "run"][..], &["plans"], &["plans", "--json"], &["--help"], &["run", "--help"]]
    {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let mut command = command(arguments);
        command.stdout(writer);
        let said = command.stderr(std::process::Stdio::piped()).output().expect("it runs");
        assert_eq!(said.status.code(), Some(0), "{arguments:?}");
        assert_eq!(String::from_utf8_lossy(&said.stderr), "", "{arguments:?}");
    }
}
