//! The `whylate` binary: arguments, exit codes, printing. Everything else is in the libraries.

mod arguments;
mod commands;
mod exit;
mod hook;
mod machine;
mod output;
mod progress;
mod screen;
mod signals;

use clap::Parser;
use clap::error::ErrorKind;
use std::process::ExitCode;
use whylate_host::HostRoot;

fn main() -> ExitCode {
    // The only use of the real root: everything else is passed one.
    let host = machine::host(HostRoot::real());
    // Hidden commands first: a measuring process skips the argument parser.
    let mut words = std::env::args_os().skip(1);
    if let Some(word) = words.next()
        && let Some(ended) = whylate_runner::hidden_command(&word, &host.running, words)
    {
        return ended;
    }
    match arguments::Arguments::try_parse() {
        Ok(arguments) => exit::finish(commands::execute(arguments.command, &host)),
        Err(error) => {
            // A closed pipe while printing is not an error.
            let _ = error.print();
            match error.kind() {
                ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => ExitCode::SUCCESS,
                _ => ExitCode::from(exit::ERROR),
            }
        }
    }
}
