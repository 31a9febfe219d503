//! The step between the supervisor and the command: it pins itself, binds its life to the supervisor's, and becomes
//! the command. A step of its own because nothing of this can be done safely between fork and exec.

use crate::child::pin;
use std::ffi::OsString;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use whylate_core::CpuSet;
use whylate_host::HostRoot;

/// Instead of a CPU list: wherever the supervisor may run.
pub(super) const ANYWHERE: &str = "-";

/// What the shell returns for a program that exists and cannot be run.
const STATUS_CANNOT_RUN: u8 = 126;

/// The hidden subcommand: arguments are the supervisor's process number, a CPU list or `-`, `--`, and the command.
///
/// Does not return when the command could be run. Otherwise the reason is on standard error and the status is 126,
/// as a shell's would be.
pub fn exec_main(host: &HostRoot, arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let reason = become_command(host, &arguments.into_iter().collect::<Vec<_>>());
    // Standard error is the output file of the load.
    let _ = writeln!(std::io::stderr(), "whylate: {reason}");
    ExitCode::from(STATUS_CANNOT_RUN)
}

/// Why it did not become the command.
fn become_command(host: &HostRoot, arguments: &[OsString]) -> String {
    let [parent, cpus, _, command, rest @ ..] = arguments else {
        return "only whylate itself uses this subcommand".to_owned();
    };
    let Some(parent) = parent.to_str().and_then(|text| text.parse().ok()) else {
        return "only whylate itself uses this subcommand".to_owned();
    };
    if let Err(error) = whylate_sys::process::die_with_parent(parent) {
        return error.to_string();
    }
    if cpus != ANYWHERE {
        let pinned = match cpus.to_string_lossy().parse::<CpuSet>() {
            Ok(cpus) => pin(host, &cpus).map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        if let Err(error) = pinned {
            return error;
        }
    }
    let error = Command::new(command).args(rest).exec();
    format!("cannot run `{}`: {error}", command.to_string_lossy())
}
