//! The implementation of each command.

mod bisect;
mod check;
mod compare;
mod copy;
mod cpus;
mod explain;
mod export;
mod farm;
mod fix;
mod foreign;
mod forms;
mod histograms;
mod kernel_log;
mod load;
mod maintainer;
mod measure;
mod plans;
mod preview;
mod report;
mod run;
mod runs;
mod schema;
mod serve;
mod shell;
mod top;
mod trace;
mod treat;
mod trigger;
mod watch;

use crate::arguments::Command;
use crate::exit::Ending;
use crate::output;
use anyhow::Result;
use std::path::PathBuf;
use whylate_host::Host;

/// Runs one command.
pub(crate) fn execute(command: Command, host: &Host) -> Result<Ending> {
    // Settings that a killed run left changed would affect each figure; a run restores them first.
    if matches!(command, Command::Measure(_) | Command::Watch(_) | Command::Check(_))
        && let Some(left) = whylate_runner::left_behind(&host.settings)
    {
        output::message(&format!("note: {}", left.text));
    }
    match command {
        Command::Run(arguments) => run::execute(&arguments, host),
        Command::Fix(arguments) => fix::execute(&arguments, host),
        Command::Plans(arguments) => plans::execute(&arguments),
        Command::Measure(command) => measure::execute(command, host),
        Command::Watch(arguments) => watch::execute(&arguments, host),
        Command::Trigger(arguments) => trigger::execute(arguments),
        Command::Top(arguments) => top::execute(&arguments, host),
        Command::Histograms(arguments) => histograms::execute(&arguments, host),
        Command::Load(command) => load::execute(&command, host),
        Command::Treat(command) => treat::execute(command, host),
        Command::Explain(arguments) => match arguments.why {
            Some(kind) => explain::why(kind, &arguments),
            None => explain::execute(arguments),
        },
        Command::Check(arguments) => check::execute(&arguments, host),
        Command::Copy(arguments) => copy::execute(&arguments, host),
        Command::Cpus(arguments) => cpus::execute(&arguments, host),
        Command::Trace(command) => trace::execute(command, host),
        Command::Compare(arguments) => compare::execute(&arguments),
        Command::Bisect(arguments) => bisect::execute(&arguments),
        Command::Report(mut arguments) => {
            arguments.run = runs::named(&arguments.run)?;
            report::execute(&arguments, &host.running)
        }
        Command::Runs(arguments) => runs::execute(&arguments),
        Command::Export(mut arguments) => {
            arguments.run = runs::named(&arguments.run)?;
            export::execute(&arguments)
        }
        Command::Serve(arguments) => serve::execute(&arguments),
        Command::Push(arguments) => farm::push(&arguments),
        Command::Pull(arguments) => farm::pull(&arguments),
        Command::Farm(command) => farm::execute(&command),
        Command::Schema(arguments) => schema::execute(&arguments),
        Command::Completions(arguments) => shell::completions(&arguments),
        Command::Man(arguments) => shell::man(&arguments),
    }
}

/// The path in a variable of the environment.
fn variable(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).map(PathBuf::from)
}
