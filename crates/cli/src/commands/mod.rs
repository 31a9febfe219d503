//! What each command does.

mod check;
mod cpus;
mod explain;
mod histograms;
mod load;
mod measure;
mod plans;
mod report;
mod run;
mod schema;
mod trace;
mod treat;

use crate::arguments::Command;
use crate::exit::Ending;
use anyhow::Result;

/// Runs one command.
pub(crate) fn execute(command: Command) -> Result<Ending> {
    match command {
        Command::Run(arguments) => run::execute(&arguments),
        Command::Plans(arguments) => plans::execute(&arguments),
        Command::Measure(command) => measure::execute(command),
        Command::Histograms(arguments) => histograms::execute(&arguments),
        Command::Load(command) => load::execute(command),
        Command::Treat(command) => treat::execute(command),
        Command::Explain(arguments) => explain::execute(&arguments),
        Command::Check(arguments) => check::execute(&arguments),
        Command::Cpus(arguments) => cpus::execute(&arguments),
        Command::Trace(command) => trace::execute(command),
        Command::Report(arguments) => report::execute(&arguments),
        Command::Schema(arguments) => schema::execute(&arguments),
    }
}
