//! Flags of `whylate histograms`.

use super::Printing;
use super::parsers::seconds;
use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;
use std::str::FromStr;
use whylate_core::result::{HistogramKind, HistogramSource};
use whylate_core::{CpuSelector, Nanos};

/// `whylate histograms`.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_help_heading = "Commands for a running `whylate histograms`"
)]
#[command(after_help = "\
Examples:
  whylate histograms                                 shows them live, until Ctrl-C
  whylate histograms -D 5s --json
  whylate histograms --cpus 2-3 --priority 90-99 --task cyclictest
  whylate histograms --format osadl --output /run/latency_hist
                                                     writes the OSADL patch's files each second
  whylate histograms reset wakeup --cpus 1           in the running `whylate histograms`

missed_timer_offsets: from a timer's programmed expiry to the wake-up of its task; wakeup: from the
wake-up to the decision to run the task; timerandwakeup: both together; switchoff: from the decision
until the task runs; timerwakeupswitch: all three together, the preemption latency; sharedprio:
wake-ups that waited for a task of equal or higher priority (in no other wake-up histogram).")]
pub(crate) struct HistogramsArguments {
    #[command(subcommand)]
    pub(crate) command: Option<HistogramsCommand>,
    /// CPUs to measure: a list, or all, isolated, housekeeping, last
    #[arg(short = 'a', long = "cpus", alias = "cpu", value_name = "LIST", default_value = "all")]
    pub(crate) cpus: CpuSelector,
    /// Histograms that are switched on at the start [default: all]
    #[arg(short, long, value_name = "KIND", value_delimiter = ',', value_parser = kind)]
    pub(crate) kinds: Vec<HistogramKind>,
    /// Priorities of the tasks to count: 1 to 99 real time, 100 deadline, below 0 ordinary; or all
    #[arg(short, long, value_name = "MIN-MAX", default_value = "1-100", allow_hyphen_values = true)]
    pub(crate) priority: Priorities,
    /// Counts only this thread or process (by id), or only threads of this name
    #[arg(short, long, value_name = "PID|NAME")]
    pub(crate) task: Option<String>,
    /// How long to count; a bare number is seconds, 0 is until Ctrl-C
    #[arg(short = 'D', long, value_name = "TIME", default_value = "0", value_parser = seconds)]
    pub(crate) duration: Nanos,
    /// How often to show or write the histograms; a bare number is seconds
    #[arg(short, long, value_name = "TIME", default_value = "1s", value_parser = seconds)]
    pub(crate) interval: Nanos,
    /// terminal: a table; osadl: the files that the OSADL patch has in /sys/kernel/debug/latency_hist
    #[arg(long, value_enum, default_value = "terminal", hide_possible_values = true)]
    #[arg(requires_if("osadl", "output"))]
    pub(crate) format: HistogramsFormat,
    /// Folder for the files: a new or an empty one, or one that `whylate histograms` wrote before
    #[arg(short, long, value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,
    /// Where the kernel's events come from: bpf or tracefs [default: the best that works]
    #[arg(long, value_name = "SOURCE")]
    pub(crate) source: Option<HistogramSource>,
    /// Also counts which CPUs send interrupts (IPIs) to the measured CPUs (with BPF)
    #[arg(long)]
    pub(crate) ipis: bool,
    #[command(flatten)]
    pub(crate) printing: Printing,
}

/// Requests to a running `whylate histograms`.
#[derive(Debug, Subcommand)]
pub(crate) enum HistogramsCommand {
    /// Switches histograms on
    #[command(after_help = "Examples:\n  whylate histograms enable wakeup,timerandwakeup")]
    Enable(ControlArguments),
    /// Switches histograms off; their counts are not reset
    #[command(after_help = "Examples:\n  whylate histograms disable sharedprio --cpus 0")]
    Disable(ControlArguments),
    /// Empties histograms and the record of their largest latency
    #[command(
        after_help = "Examples:\n  whylate histograms reset\n  whylate histograms reset wakeup --cpus 1"
    )]
    Reset(ControlArguments),
}

/// Selects histograms of a process.
#[derive(Debug, Args)]
pub(crate) struct ControlArguments {
    /// missed_timer_offsets, wakeup, timerandwakeup, switchoff, timerwakeupswitch, sharedprio [default: all]
    #[arg(value_name = "KIND", value_delimiter = ',', value_parser = kind)]
    pub(crate) kinds: Vec<HistogramKind>,
    /// CPUs whose histograms the command changes, as a list [default: all measured CPUs]
    #[arg(short = 'a', long = "cpus", alias = "cpu", value_name = "LIST")]
    pub(crate) cpus: Option<whylate_core::CpuSet>,
    /// Process id of `whylate histograms`, if more than one is running
    #[arg(long, value_name = "PID")]
    pub(crate) pid: Option<u32>,
}

/// The form of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum HistogramsFormat {
    Terminal,
    Osadl,
}

fn kind(text: &str) -> Result<HistogramKind, String> {
    let names = || HistogramKind::ALL.map(HistogramKind::name).join(", ");
    HistogramKind::from_name(text)
        .ok_or_else(|| format!("`{text}` is not a histogram; the histograms are {}", names()))
}

/// A range of priorities, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Priorities {
    pub(crate) min: i32,
    pub(crate) max: i32,
}

impl FromStr for Priorities {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        if text == "all" {
            return Ok(Self { min: i32::MIN, max: i32::MAX });
        }
        // A leading minus is the sign of the first number.
        let split = text.get(1..).and_then(|rest| rest.find('-')).map(|at| at + 1);
        let (min, max) = split.map_or((text, text), |at| (&text[..at], &text[at + 1..]));
        match (min.parse(), max.parse()) {
            (Ok(min), Ok(max)) if min <= max => Ok(Self { min, max }),
            _ => Err(format!(
                "`{text}` is not a range of priorities; write for example 90-99, 95, -40--1 or all"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn priorities_may_be_negative() {
        let range = |text: &str| text.parse::<Priorities>().map(|range| (range.min, range.max));
        assert_eq!(range("90-99"), Ok((90, 99)));
        assert_eq!(range("95"), Ok((95, 95)));
        assert_eq!(range("-40--1"), Ok((-40, -1)));
        assert_eq!(range("-21"), Ok((-21, -21)));
        assert_eq!(range("-21-50"), Ok((-21, 50)));
        assert_eq!(range("all"), Ok((i32::MIN, i32::MAX)));
        for wrong in ["", "-", "99-90", "a-b", "1-", "ü-1"] {
            assert!(range(wrong).is_err(), "{wrong}");
        }
    }
}
