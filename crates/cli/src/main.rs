//! The `whylate` binary: arguments, exit codes, printing. Everything else is in the libraries.

mod arguments;
mod commands;
mod exit;
mod figures;
mod hook;
mod machine;
mod output;
mod progress;
mod signals;

use clap::Parser;
use clap::error::ErrorKind;
use std::process::ExitCode;
use whylate_host::HostRoot;

fn main() -> ExitCode {
    // The only place that says which machine this is.
    let host = machine::host(HostRoot::real());
    // The hidden commands come first: a measuring process has no use for an argument parser.
    let mut words = std::env::args_os().skip(1);
    match words.next().as_deref().and_then(std::ffi::OsStr::to_str) {
        Some("internal-probe") => return whylate_probe::child::main(&host.running, words),
        Some("internal-load") => {
            return whylate_load::child_main(host.running, std::io::stdin(), std::io::stdout());
        }
        Some("internal-exec") => return whylate_load::exec_main(&host.running, words),
        _ => {}
    }
    match arguments::Arguments::try_parse() {
        Ok(arguments) => exit::finish(commands::execute(arguments.command, &host)),
        Err(error) => {
            // Printing may meet a closed pipe, which is no error of ours.
            let _ = error.print();
            match error.kind() {
                ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => ExitCode::SUCCESS,
                _ => ExitCode::from(exit::ERROR),
            }
        }
    }
}
