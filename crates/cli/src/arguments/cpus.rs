//! Flags of `whylate cpus`.

use super::parsers::seconds;
use clap::Args;
use whylate_core::{CpuSelector, Nanos};

/// `whylate cpus`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  whylate cpus                  every CPU: topology, shielding, threads and interrupts
  whylate cpus --watch          updates the table until Ctrl-C
  whylate cpus -a 1 --verbose   with the names of threads and interrupts
  whylate cpus --json | jq '.cpus[] | select(.threads.movable > 0) | .cpu'

shielding: proc = no movable thread may run here; irq = no movable interrupt may be delivered here;
ltmr = the periodic tick stops while a single task runs.
Threads: movable = may run here and on other CPUs; bound = a user bound the thread to this CPU;
pinned = the kernel bound the thread permanently. Threads and interrupts that remain on shielded
CPUs are listed by name.")]
pub(crate) struct CpusArguments {
    /// CPUs to show [default: all]
    #[arg(short = 'a', long, alias = "cpu", value_name = "LIST")]
    pub(crate) cpus: Option<CpuSelector>,
    /// Time during which interrupts are counted; a bare number is seconds
    #[arg(short, long, value_name = "TIME", default_value = "1s", value_parser = seconds)]
    pub(crate) interval: Nanos,
    /// Shows the table again after each interval, until Ctrl-C
    #[arg(short, long)]
    pub(crate) watch: bool,
    /// Lists threads and interrupts of every shown CPU by name
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// Prints one JSON document
    #[arg(long, conflicts_with = "watch")]
    pub(crate) json: bool,
}
