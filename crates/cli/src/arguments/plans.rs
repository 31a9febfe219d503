//! Flags of `whylate plans`.

use clap::Args;

/// `whylate plans`.
#[derive(Debug, Args)]
pub(crate) struct PlansArguments {
    /// Name of the plan to print
    pub(crate) name: Option<String>,
    /// Prints one JSON document
    #[arg(long)]
    pub(crate) json: bool,
}
