//! The `whylate` binary: arguments, exit codes, printing. Everything else is in the libraries.

mod actions;
mod arguments;
mod commands;
mod exit;
mod hook;
mod live;
mod machine;
mod output;
mod progress;
mod screen;
mod signals;

use clap::Parser;
use clap::error::ErrorKind;
use std::process::ExitCode;
use whylate_core::text;
use whylate_host::HostRoot;

const OF_CALLER: &str = "the variable comes from the user who ran sudo; set it in a root shell (`sudo -i`)";

#[global_allocator]
static ALLOCATOR: whylate_runner::ReservingAllocator = whylate_runner::ReservingAllocator;

fn main() -> ExitCode {
    // The only use of the real root: all other code gets a root as an argument.
    let host = machine::host(HostRoot::real());
    // Hidden commands first: a measuring process skips the argument parser.
    let mut words = std::env::args_os().skip(1);
    if let Some(word) = words.next()
        && let Some(ended) = whylate_runner::hidden_command(&word, &host.running, words)
    {
        return ended;
    }
    if let Some((mut again, left_out)) = whylate_host::environment::without_foreign() {
        for variable in left_out.iter().filter(|name| name.starts_with("WHYLATE")) {
            output::message(&format!("warning: {variable} is ignored: {OF_CALLER}"));
        }
        // Returns only if the kernel refuses it.
        let error = std::os::unix::process::CommandExt::exec(&mut again);
        output::message(&format!("whylate: cannot restart without another user's variables: {error}"));
        return ExitCode::from(exit::ERROR);
    }
    for variable in whylate_host::environment::ignored_variables() {
        output::message(&format!("warning: {variable} is ignored: {OF_CALLER}"));
    }
    let words: Vec<String> =
        std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    if let Some(tip) = arguments::tip(&words) {
        output::message(&tip);
        return ExitCode::from(exit::ERROR);
    }
    match arguments::Arguments::try_parse() {
        Ok(arguments) => exit::finish(commands::execute(arguments.command, &host)),
        Err(error) => {
            if std::env::args_os().any(|word| word.to_string_lossy().chars().any(text::is_hidden)) {
                output::message(&error.render().to_string());
            } else {
                // Printing may meet a closed pipe, which is not an error of whylate.
                let _ = error.print();
            }
            match error.kind() {
                ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => ExitCode::SUCCESS,
                // An exit code of 1 would make the commit a bad one.
                _ if words.first().is_some_and(|word| word == "bisect") => {
                    ExitCode::from(exit::STOPS_BISECTION)
                }
                _ => ExitCode::from(exit::ERROR),
            }
        }
    }
}
