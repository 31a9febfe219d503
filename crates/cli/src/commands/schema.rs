//! `whylate schema`.

use crate::arguments::SchemaArguments;
use crate::exit::Ending;
use crate::output;
use anyhow::{Result, bail};
use whylate_core::schema;

pub(super) fn execute(arguments: &SchemaArguments) -> Result<Ending> {
    match &arguments.name {
        None => output::print(&schema::NAMES.join("\n"))?,
        Some(name) => match schema::schema(name) {
            Some(schema) => output::print_json(&schema)?,
            None => bail!("there is no schema `{name}`; there is {}", schema::NAMES.join(", ")),
        },
    }
    Ok(Ending::Pass)
}
