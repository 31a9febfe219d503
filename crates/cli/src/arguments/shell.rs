//! Flags of `whylate completions` and `whylate man`.

use clap::Args;
use clap_complete::Shell;
use std::path::PathBuf;

/// `whylate completions`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  whylate completions bash > /etc/bash_completion.d/whylate
  whylate completions zsh > _whylate")]
pub(crate) struct CompletionsArguments {
    /// bash, elvish, fish, powershell or zsh
    #[arg(hide_possible_values = true)]
    pub(crate) shell: Shell,
}

/// `whylate man`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  whylate man /usr/local/share/man/man1    a page for each command; `man whylate-run` shows one")]
pub(crate) struct ManArguments {
    /// Folder for the pages
    pub(crate) folder: PathBuf,
}
