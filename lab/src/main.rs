//! The lab's command: `cargo xtask lab …` runs it.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command for developers talks on the terminal"
)]

mod command;

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match command::run(&words) {
        Ok(status) => status,
        Err(error) => {
            eprintln!("lab: {error}");
            ExitCode::from(error.exit_status())
        }
    }
}
