//! Flags of `whylate schema`.

use clap::Args;

/// `whylate schema`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  whylate schema                             the names
  whylate schema run > run.schema.json       the schema of the output of `run --json`
  whylate schema plan                        the schema of plans, for an editor that checks TOML")]
pub(crate) struct SchemaArguments {
    /// Name of a schema; without a name, the schemas are listed
    pub(crate) name: Option<String>,
}
