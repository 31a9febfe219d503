//! `whylate completions` and `whylate man`, both generated from the command line itself.

use crate::arguments::{Arguments, CompletionsArguments, ManArguments};
use crate::exit::Ending;
use crate::output;
use anyhow::{Context, Result};
use clap::CommandFactory as _;

pub(super) fn completions(arguments: &CompletionsArguments) -> Result<Ending> {
    let mut text = Vec::new();
    clap_complete::generate(arguments.shell, &mut Arguments::command(), "whylate", &mut text);
    output::drawn(&String::from_utf8_lossy(&text))?;
    Ok(Ending::Pass)
}

pub(super) fn man(arguments: &ManArguments) -> Result<Ending> {
    let folder = &arguments.folder;
    let problem = || format!("cannot write man pages to {}", folder.display());
    std::fs::create_dir_all(folder).with_context(problem)?;
    clap_mangen::generate_to(Arguments::command(), folder).with_context(problem)?;
    output::message(&format!("wrote whylate.1 and a page for each command to {}", folder.display()));
    Ok(Ending::Pass)
}
