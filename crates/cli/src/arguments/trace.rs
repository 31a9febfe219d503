//! Flags of `whylate trace`.

use super::parsers::{microseconds, seconds};
use super::{Printing, TaskTargetArguments};
use clap::{Args, Subcommand};
use std::path::PathBuf;
use whylate_core::plan::TraceProfile;
use whylate_core::units::Bytes;
use whylate_core::{CpuSelector, Nanos};

/// `whylate trace`.
#[derive(Debug, Subcommand)]
#[command(after_help = "\
Examples:
  whylate trace record --until 100us")]
pub(crate) enum TraceCommand {
    /// Records until a periodic task is late, then names the cause
    Record(TraceRecordArguments),
}

/// `whylate trace record`.
#[derive(Debug, Args)]
#[command(
    override_usage = "whylate trace record [OPTIONS] --until TIME\n       \
                      whylate trace record [OPTIONS] --until TIME|--trigger TRIGGER --task NAME\n       \
                      whylate trace record [OPTIONS] --until TIME|--trigger TRIGGER [--task NAME] -- COMMAND...",
    group = clap::ArgGroup::new("occasion").args(["until", "trigger"]).required(true).multiple(true),
    group = clap::ArgGroup::new("target").multiple(false),
    after_help = "\
Examples:
  whylate trace record --until 100us                        ends with the first latency above 100us
  whylate trace record --until 100us --profile functions -a 1
  whylate trace record --until 50us --worst 3 -D 10m -o night.dat
  whylate trace record --until 2ms --task control           ends when your own thread takes longer
  whylate trace record --trigger 'output:xrun' -- ./player  ends when the program reports an xrun

Without a thread, whylate measures with a periodic task of its own. With --task, --pid, --unit,
--cgroup or COMMAND, it watches your threads, as `whylate watch` does: --until is then the longest
acceptable response. A trigger without a thread watches every real-time thread.
The trace has its own buffer (a tracefs instance), so other users of tracing are not disturbed. The
file is a trace.dat: whylate explain, trace-cmd and KernelShark open it.
The exit code is 2 if a latency above --until was found, or a trigger came."
)]
pub(crate) struct TraceRecordArguments {
    /// Records until a latency above this; a bare number is microseconds
    #[arg(short, long, visible_alias = "break", short_alias = 'b', value_name = "TIME", value_parser = microseconds)]
    pub(crate) until: Option<Nanos>,
    /// Records until the application reports that it was late; TRIGGER is as in `whylate watch`, for example
    /// output:REGEX, journal:REGEX, marker:TEXT or FILE:FUNCTION:return<0. May be given several times
    #[arg(long, value_name = "TRIGGER")]
    pub(crate) trigger: Vec<String>,
    /// Explains what each thread did in this time before a trigger [default: 50ms]; a bare number is microseconds
    #[arg(long, value_name = "TIME", value_parser = microseconds, requires = "trigger")]
    pub(crate) last: Option<Nanos>,
    #[command(flatten)]
    pub(crate) target: TaskTargetArguments,
    /// CPUs to measure: a list, or all, isolated, housekeeping, last [default: last; all for your own threads]
    #[arg(short = 'a', long = "cpu", alias = "cpus", value_name = "LIST")]
    pub(crate) cpu: Option<CpuSelector>,
    /// Period of the task; a bare number is microseconds
    #[arg(short, long, value_name = "TIME", default_value = "200us", value_parser = microseconds, conflicts_with_all = ["target", "command", "trigger"])]
    pub(crate) interval: Nanos,
    /// Real-time priority, 1 to 99
    #[arg(short, long, default_value_t = 95, value_parser = clap::value_parser!(u32).range(1..=99), conflicts_with_all = ["target", "command", "trigger"])]
    pub(crate) priority: u32,
    /// Gives up after this time; a bare number is seconds, 0 is until Ctrl-C
    #[arg(short = 'D', long, value_name = "TIME", default_value = "0", value_parser = seconds)]
    pub(crate) duration: Nanos,
    /// light (scheduler, interrupts, timers), functions (also every kernel function), graph (also their durations)
    #[arg(long, default_value = "light")]
    pub(crate) profile: TraceProfile,
    /// Continues after the first latency until --duration is over, and keeps the traces of the N largest latencies, or of
    /// the first N triggers
    #[arg(long, value_name = "N")]
    pub(crate) worst: Option<usize>,
    /// Size of each CPU's ring buffer [default: 4MiB, or 16MiB with functions]
    #[arg(long, value_name = "SIZE")]
    pub(crate) buffer: Option<Bytes>,
    /// Records this event too, for example raw_syscalls/sys_enter; may be repeated
    #[arg(long = "event", value_name = "SYSTEM/NAME")]
    pub(crate) events: Vec<String>,
    /// File for the trace; must not exist [default: whylate-TIME.dat in the current folder]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Explains each warning
    #[arg(long)]
    pub(crate) details: bool,
    #[command(flatten)]
    pub(crate) printing: Printing,
}
