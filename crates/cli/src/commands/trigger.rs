//! `whylate trigger`: tells a running `whylate watch --trigger socket` that something was late.

use crate::arguments::TriggerArguments;
use crate::exit::Ending;
use anyhow::Result;

pub(super) fn execute(arguments: TriggerArguments) -> Result<Ending> {
    whylate_runner::send_trigger(arguments.text, arguments.pid)?;
    Ok(Ending::Pass)
}
