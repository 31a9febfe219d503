//! Flags of `whylate schema`.

use clap::Args;

/// `whylate schema`.
#[derive(Debug, Args)]
pub(crate) struct SchemaArguments {
    /// plan, measure, run, load, plans, treat or explain; without a name they are listed
    pub(crate) name: Option<String>,
}
