//! Flags of `whylate top`.

use super::parsers::seconds;
use super::{Printing, Priorities};
use clap::Args;
use whylate_core::{CpuSelector, Nanos};

/// `whylate top`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  whylate top                     the whole machine, live, until q
  whylate top -a 2-3              only CPUs 2 and 3
  whylate top --priority all      also counts ordinary tasks
  whylate top -q -D 10m           what the machine did in ten minutes
  whylate top --json -D 1m        one line each second, and a last line about the whole time

Latencies of real-time tasks are shown: `wake` lasts from the wake-up to the decision to run the
task, `timer` from the programmed expiry of its timer to this decision. A thief is what had the CPU
during a latency: an interrupt, a softirq, a function that another CPU requested, or a thread of a
counted priority. Nothing is changed and nothing is stored; `whylate watch` explains single
activations. Keys: up and down select, s sorts the thieves, i shows interrupts or IPIs, ? shows
help, q ends. Exit code 69 without the permissions (root, or CAP_BPF and CAP_PERFMON).")]
pub(crate) struct TopArguments {
    /// CPUs to watch: a list, or all, isolated, housekeeping, last
    #[arg(short = 'a', long = "cpu", alias = "cpus", value_name = "LIST", default_value = "all")]
    pub(crate) cpu: CpuSelector,
    /// Priorities of the tasks to count: 1 to 99 real time, 100 deadline, below 0 ordinary; or all
    #[arg(short, long, value_name = "MIN-MAX", default_value = "1-100", allow_hyphen_values = true)]
    pub(crate) priority: Priorities,
    /// How long to watch; a bare number is seconds, 0 is until q or Ctrl-C
    #[arg(short = 'D', long, value_name = "TIME", default_value = "0", value_parser = seconds)]
    pub(crate) duration: Nanos,
    /// Length of an interval; a bare number is seconds
    #[arg(short, long, value_name = "TIME", default_value = "1s", value_parser = seconds)]
    pub(crate) interval: Nanos,
    #[command(flatten)]
    pub(crate) printing: Printing,
}
