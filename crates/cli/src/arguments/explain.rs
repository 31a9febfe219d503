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
  whylate explain trace.txt               finds the measured task by itself
  whylate explain trace.dat --task cyclictest --period 200us
  ssh target cat /sys/kernel/tracing/trace | whylate explain -
  whylate explain trace.dat --what preempted
                                          which threads preempted a runnable task
  whylate explain trace.txt -o late.html  a page with zoomable timelines
  whylate explain trace.txt --top 1 --export perfetto -o late-perfetto.json
  whylate explain RUN                     the spikes of a run, and its traces
  dmesg | whylate explain -               messages about causes of latency
  whylate explain --why irqs_off          what irqs_off means, and what cures it

For each spike, whylate says when the task should have run, what had the CPU
instead, and which records of the trace show this. If the trace is not enough,
whylate says what to record, and the exit code is 1.")]
pub(crate) struct ExplainArguments {
    /// A trace (tracefs text, trace.dat or perf.data, also compressed, or a folder of raw pages), a kernel log (dmesg,
    /// journalctl -k, syslog), the directory of a run, or - for standard input
    #[arg(value_name = "FILE|RUN", default_value = "latest")]
    pub(crate) input: PathBuf,
    /// Name or thread id of the late task [default: the task that the trace seems to be about]
    #[arg(long, value_name = "NAME|PID")]
    pub(crate) task: Option<String>,
    /// Period of the task, for traces without timer events [default: estimated from its wake-ups]
    #[arg(long, value_name = "TIME", value_parser = microseconds)]
    pub(crate) period: Option<Nanos>,
    /// Explains only latencies above this [default: the threshold that the task or the tracer wrote into the trace,
    /// else 100us]
    #[arg(long, value_name = "TIME", value_parser = microseconds)]
    pub(crate) threshold: Option<Nanos>,
    /// Kind of delay to explain: wakeup, preempted (runnable, but another thread had the CPU) or blocked [default:
    /// wakeup, and for real-time tasks also preempted]
    #[arg(long, value_name = "WHAT", hide_possible_values = true, value_parser = late_what)]
    pub(crate) what: Option<LateWhat>,
    /// Prints the field guide's page about a cause or kernel message, named as in reports: what it is, how whylate
    /// detects it, how to confirm it with another tool, and what cures it
    #[arg(long, value_name = "KIND", value_parser = Why::of, conflicts_with_all = ["input", "task", "period", "threshold", "what", "export", "json"])]
    pub(crate) why: Option<Why>,
    /// Number of latencies to explain, largest first
    #[arg(long, value_name = "COUNT", default_value = "10", value_parser = count)]
    pub(crate) top: u64,
    /// terminal, markdown or html [default: by the extension of the --output file, else terminal]
    #[arg(long, hide_possible_values = true)]
    pub(crate) format: Option<ReportFormat>,
    /// Writes the spikes and the events around them for other tools: perfetto or text
    #[arg(long, value_name = "FORMAT", hide_possible_values = true, conflicts_with_all = ["format", "json"])]
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
