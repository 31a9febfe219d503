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

serious: no real-time guarantee is possible with this finding (exit code 2); advice: the setting
lengthens latencies and can be changed; info: worth knowing; ok: as it should be. Findings are about
settings, whose effect only a measurement shows: a machine with `advice` may be fast enough.")]
pub(crate) struct CheckArguments {
    /// CPUs for the real-time task [default: the isolated ones, else the last]
    #[arg(short = 'a', long, alias = "cpu", value_name = "LIST")]
    pub(crate) cpus: Option<CpuSelector>,
    /// Shows the evidence, effect, source and all remedies of each finding
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// Tests the sources of kernel events, not the settings; says what is missing for histograms, causes and traces
    #[arg(long, conflicts_with = "cpus")]
    pub(crate) tracing: bool,
    /// Prints one JSON document
    #[arg(long)]
    pub(crate) json: bool,
}
