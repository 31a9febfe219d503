//! The command's own help.

use crate::tool::{command, whylate};

fn help(arguments: &[&str]) -> String {
    let mut arguments = arguments.to_vec();
    arguments.push("--help");
    let said = whylate(&arguments);
    assert_eq!((said.code, said.stderr.as_str()), (Some(0), ""));
    assert!(said.stdout.lines().all(|line| line.chars().count() <= 100), "wider than 100 columns");
    format!("$ whylate {}\n{}", arguments.join(" "), said.stdout.trim_end())
}

#[test]
fn help_of_every_command() {
    let commands = [
        "",
        "run",
        "plans",
        "measure",
        "measure timer",
        "measure stall",
        "measure dispatch",
        "measure roundtrip",
        "load",
        "load memory",
        "load exec",
        "check",
        "copy",
        "cpus",
        "explain",
        "load gpu",
        "load graphics",
        "load copy",
        "measure access",
        "load tlb",
        "load ipi",
        "load pageattr",
        "load softirq",
        "load irq-thread",
        "trace",
        "trace record",
        "watch",
        "top",
        "histograms",
        "histograms reset",
        "report",
        "schema",
        "treat",
        "treat apply",
        "treat apply irq-affinity",
        "treat apply governor",
    ];
    let texts = commands.map(|command| help(&command.split_whitespace().collect::<Vec<_>>()));
    insta::assert_snapshot!("help", texts.join("\n\n"));
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
fn a_closed_pipe_is_not_an_error() {
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
