//! What each command does.

mod check;
mod copy;
mod cpus;
mod explain;
mod foreign;
mod histograms;
mod load;
mod measure;
mod plans;
mod preview;
mod report;
mod run;
mod schema;
mod trace;
mod treat;

use crate::arguments::Command;
use crate::exit::Ending;
use anyhow::Result;
use whylate_host::Host;

/// Runs one command.
pub(crate) fn execute(command: Command, host: &Host) -> Result<Ending> {
    match command {
        Command::Run(arguments) => run::execute(&arguments, host),
        Command::Plans(arguments) => plans::execute(&arguments),
        Command::Measure(command) => measure::execute(command, host),
        Command::Histograms(arguments) => histograms::execute(&arguments, host),
        Command::Load(command) => load::execute(&command, host),
        Command::Treat(command) => treat::execute(command, host),
        Command::Explain(arguments) => explain::execute(&arguments),
        Command::Check(arguments) => check::execute(&arguments, host),
        Command::Copy(arguments) => copy::execute(&arguments, host),
        Command::Cpus(arguments) => cpus::execute(&arguments, host),
        Command::Trace(command) => trace::execute(command, host),
        Command::Report(arguments) => report::execute(&arguments),
        Command::Schema(arguments) => schema::execute(&arguments),
    }
}
