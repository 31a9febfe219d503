//! `whylate schema`.

use super::watch;
use crate::arguments::SchemaArguments;
use crate::exit::Ending;
use crate::output;
use anyhow::{Result, bail};
use schemars::schema_for;
use whylate_core::schema;

/// The lines that a running watch prints, which are not a result.
const WATCH: &str = "watch";

fn names() -> Vec<&'static str> {
    [&schema::NAMES[..], &[WATCH]].concat()
}

pub(super) fn execute(arguments: &SchemaArguments) -> Result<Ending> {
    match &arguments.name {
        None => output::print(&names().join("\n"))?,
        Some(name) if name == WATCH => output::print_json(&schema_for!(watch::StatusLine<'_>))?,
        Some(name) => match schema::schema(name) {
            Some(schema) => output::print_json(&schema)?,
            None => bail!("there is no schema `{name}`; the schemas are {}", names().join(", ")),
        },
    }
    Ok(Ending::Pass)
}
