//! Flags of `whylate plans`.

use clap::Args;

/// `whylate plans`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  whylate plans                              lists the plans and the question of each
  whylate plans memory-load > mine.toml      a template for a plan of your own
  whylate plans --json")]
pub(crate) struct PlansArguments {
    /// Name of the plan to print
    pub(crate) name: Option<String>,
    /// Prints one JSON document
    #[arg(long)]
    pub(crate) json: bool,
}
