//! Prints every answer about every trace below some folders, one line each: the lines of two commits show by `diff` what a
//! change of the analysis did.
//!
//!     cargo run --release -p whylate-explain --example answers -- FOLDER…

#![allow(clippy::print_stdout, reason = "an example that prints lines")]

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use whylate_core::result::{Cause, ExplainResult};
use whylate_explain::{Options, explain};
use whylate_trace::parse;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut paths = Vec::new();
    for folder in std::env::args().skip(1) {
        collect(Path::new(&folder), &mut paths)?;
    }
    paths.sort();
    for path in paths {
        print!("{}", answers(&path));
    }
    Ok(())
}

/// Every file that may be a trace; other files get a line that says so.
fn collect(path: &Path, found: &mut Vec<PathBuf>) -> std::io::Result<()> {
    if !path.is_dir() || path.join("trace_pipe_raw").exists() || path.join("header_page").exists() {
        let is_other = [".toml", ".md"].iter().any(|end| path.to_string_lossy().ends_with(end));
        found.extend((!is_other).then(|| path.to_owned()));
        return Ok(());
    }
    for entry in std::fs::read_dir(path)? {
        collect(&entry?.path(), found)?;
    }
    Ok(())
}

fn answers(path: &Path) -> String {
    let mut lines = String::new();
    for (name, options) in [("all", Options::default()), ("low", low())] {
        let what = format!("{} {name}", path.display());
        match parse::open(path).and_then(|mut reader| explain(reader.as_mut(), &options)) {
            Ok(result) => lines += &described(&what, &result),
            Err(error) => {
                let _ = writeln!(lines, "{what}: {error}");
            }
        }
    }
    lines
}

/// Includes smaller latencies: more pieces, more kinds of causes.
fn low() -> Options {
    Options { threshold_ns: Some(20_000), top: 40, ..Options::default() }
}

fn described(what: &str, result: &ExplainResult) -> String {
    let mut lines = String::new();
    for trace in &result.traces {
        let warnings: Vec<String> = result.warnings.iter().map(|it| format!("{:?}", it.code)).collect();
        let _ = writeln!(
            lines,
            "{what}: {:?} task={:?} threshold={} found={} also_late={} warnings={warnings:?}",
            trace.answer,
            trace.task,
            trace.threshold_ns,
            trace.spikes_found,
            trace.also_late.len()
        );
    }
    for spike in &result.spikes {
        let _ = writeln!(
            lines,
            "{what}: {} cpu {} at {} late {} lost {} | {}",
            spike.task,
            spike.cpu,
            spike.expected_ns,
            spike.latency_ns,
            spike.lost,
            named(&spike.cause)
        );
        for cause in &spike.also {
            let _ = writeln!(lines, "{what}:     also {}", named(cause));
        }
        for segment in &spike.timeline {
            let _ = writeln!(
                lines,
                "{what}:     {}..{} cpu {} {:?} {:?} {}",
                segment.from_ns, segment.to_ns, segment.cpu, segment.kind, segment.function, segment.what
            );
        }
    }
    lines
}

fn named(cause: &Cause) -> String {
    format!(
        "{} {:?} {:?} in {:?} <- {:?} share {:.3} confidence {:?} evidence {:?}",
        cause.kind.name(),
        cause.actor,
        cause.pid,
        cause.function,
        cause.callers,
        cause.share.unwrap_or(-1.0),
        cause.confidence,
        cause.evidence
    )
}
