//! Flags of `whylate explain`.

use super::ReportFormat;
use super::parsers::{count, microseconds};
use clap::{Args, ValueEnum};
use std::path::PathBuf;
use whylate_core::Nanos;
use whylate_core::result::{CauseKind, LateWhat};
use whylate_kmsg::MessageKind;

/// `whylate explain`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  whylate explain trace.txt                             finds the measured task by itself
  whylate explain trace.dat --task cyclictest --period 200us
  ssh target cat /sys/kernel/tracing/trace | whylate explain -
  whylate explain trace.dat --what preempted            who had the CPU of tasks that could run
  whylate explain trace.txt -o late.html                one file with timelines that zoom
  whylate explain trace.txt --top 1 --export perfetto -o late.json
  whylate explain RUN                                   the spikes of a run, and its traces
  dmesg | whylate explain -                             what the kernel's log says of latency
  whylate explain --why irqs_off                        what that is, and what cures it

For each spike it says when the task should have run, who had the CPU instead, and which records
of the trace show it. If the trace is not enough, it says what to record, and the exit code is 1.")]
pub(crate) struct ExplainArguments {
    /// A trace (tracefs text, trace.dat or perf.data, also compressed, or a folder of raw pages), a log of the kernel
    /// (dmesg, journalctl -k, syslog), - for standard input, or the directory of a run
    #[arg(value_name = "FILE|RUN", default_value = "latest")]
    pub(crate) input: PathBuf,
    /// Command or thread id of the late task [default: the task that seems to be measured]
    #[arg(long, value_name = "NAME|PID")]
    pub(crate) task: Option<String>,
    /// Its period, for traces without timer events [default: by its rhythm]
    #[arg(long, value_name = "TIME", value_parser = microseconds)]
    pub(crate) period: Option<Nanos>,
    /// Only latencies above this [default: the value of the task's own break marker or of the tracer, else 100us]
    #[arg(long, value_name = "TIME", value_parser = microseconds)]
    pub(crate) threshold: Option<Nanos>,
    /// How tasks were late: wakeup, preempted (runnable, but another thread had the CPU) or blocked [default: wakeup,
    /// and for real-time tasks what took their CPU]
    #[arg(long, value_name = "WHAT", hide_possible_values = true, value_parser = late_what)]
    pub(crate) what: Option<LateWhat>,
    /// Prints the page of the field guide for a kind of cause or of kernel message, as reports name it: what it is,
    /// how whylate recognises it, how to confirm it with another tool, what cures it
    #[arg(long, value_name = "KIND", value_parser = Why::of, conflicts_with_all = ["input", "task", "period", "threshold", "what", "export", "json"])]
    pub(crate) why: Option<Why>,
    /// How many latencies to explain, largest first
    #[arg(long, value_name = "COUNT", default_value = "10", value_parser = count)]
    pub(crate) top: u64,
    /// terminal, markdown or html [default: by the ending of FILE, else terminal]
    #[arg(long, hide_possible_values = true)]
    pub(crate) format: Option<ReportFormat>,
    /// perfetto or text: the spikes and the events around them, for other tools
    #[arg(long, hide_possible_values = true, conflicts_with_all = ["format", "json"])]
    pub(crate) export: Option<ExportFormat>,
    /// File for the result; must not exist [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Prints one JSON document
    #[arg(long, conflicts_with = "format")]
    pub(crate) json: bool,
}

/// The subjects of pages in the field guide.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Why {
    Cause(CauseKind),
    Message(&'static MessageKind),
}

impl Why {
    /// A kind by its name, or as reports write it: `preempt off`.
    ///
    /// # Errors
    /// Another text: which there are.
    pub(crate) fn of(text: &str) -> Result<Self, String> {
        let name = text.replace([' ', '-'], "_");
        match (name.parse(), whylate_kmsg::kind(&name)) {
            (Ok(kind), _) => Ok(Self::Cause(kind)),
            (Err(_), Some(kind)) => Ok(Self::Message(kind)),
            (Err(error), None) => Err(format!(
                "{error}, or a kind of message that `whylate explain` names in a log of the kernel"
            )),
        }
    }
}

/// The values that a user may give; a tracer that takes samples has only samples.
fn late_what(text: &str) -> Result<LateWhat, String> {
    match text.parse() {
        Ok(LateWhat::Sample) | Err(_) => Err("choose wakeup, preempted or blocked".to_owned()),
        what => what,
    }
}

/// Forms for other tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExportFormat {
    /// JSON trace events, which ui.perfetto.dev opens
    Perfetto,
    /// Lines as in the kernel's trace file
    Text,
}
