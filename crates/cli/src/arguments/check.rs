//! Flags of `whylate check`.

use clap::Args;
use whylate_core::CpuSelector;

/// `whylate check`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  whylate check --cpus 2-3               for a task on CPUs 2 and 3
  whylate check --cpus 3 --verbose       evidence, effect, source and every remedy of each finding
  whylate check --tracing                which histograms, causes and traces are possible here
  whylate check --json | jq '.findings[] | select(.severity == \"serious\") | .id'

serious: no real-time guarantee is possible with it (exit code 2); advice: it lengthens latencies
and can be changed; info: worth knowing; ok: as it should be. A machine with advice may still be
fast enough: these are statements about settings, and only a measurement shows their effect.")]
pub(crate) struct CheckArguments {
    /// CPUs for the real-time task [default: the isolated ones, else the last]
    #[arg(short = 'a', long, alias = "cpu", value_name = "LIST")]
    pub(crate) cpus: Option<CpuSelector>,
    /// Shows evidence, effect, source and every remedy of each finding
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// Instead tries every source of the kernel's events, and says what is missing for histograms, causes and traces
    #[arg(long, conflicts_with = "cpus")]
    pub(crate) tracing: bool,
    /// Prints one JSON document
    #[arg(long)]
    pub(crate) json: bool,
}
