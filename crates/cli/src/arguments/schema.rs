//! Flags of `whylate schema`.

use clap::Args;

/// `whylate schema`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  whylate schema                             the names
  whylate schema run > run.schema.json       of what `whylate run --json` prints
  whylate schema plan                        of a plan, for an editor that checks TOML")]
pub(crate) struct SchemaArguments {
    /// Name of a schema; without one they are listed
    pub(crate) name: Option<String>,
}
