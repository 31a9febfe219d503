//! Exit codes, and the one place where errors are printed.

use std::io;
use std::process::ExitCode;
use whylate_host::sockets::SocketError;

pub(crate) const ERROR: u8 = 1;
/// A limit was exceeded, or the machine is unfit.
pub(crate) const EXCEEDED: u8 = 2;
/// A setting was not restored.
pub(crate) const NOT_RESTORED: u8 = 3;
/// An explicitly requested facility is missing.
pub(crate) const UNAVAILABLE: u8 = 69;
/// `git bisect run` skips the commit.
const CANNOT_TELL: u8 = 125;
/// `git bisect run` stops.
pub(crate) const STOPS_BISECTION: u8 = 128;

/// How a command ended that did what was requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// All is well.
    Pass,
    /// A latency was above the limit or the break threshold, or the machine is unfit for real time.
    Exceeded,
    /// A setting of the machine was not restored, which was reported already.
    NotRestored,
    /// Something is incomplete, which was reported already.
    Incomplete,
    /// A step of a bisection without an answer.
    CannotTell,
}

/// A requested right that this user does not have, with its remedy.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Refused(pub(crate) &'static str);

/// The changed settings are unknown: the journal is not trusted.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub(crate) struct NotKnown(pub(crate) whylate_treat::TreatError);

/// Ends the process without waiting for anything.
pub(crate) fn at_once(code: u8) -> ! {
    crate::live::restore();
    #[expect(clippy::exit, reason = "the user asked not to wait")]
    std::process::exit(i32::from(code))
}

/// Prints the error, if any, and gives the exit code.
pub(crate) fn finish(outcome: anyhow::Result<Ending>) -> ExitCode {
    match outcome {
        Ok(Ending::Pass) => ExitCode::SUCCESS,
        Ok(Ending::Exceeded) => ExitCode::from(EXCEEDED),
        Ok(Ending::NotRestored) => ExitCode::from(NOT_RESTORED),
        Ok(Ending::Incomplete) => ExitCode::from(ERROR),
        Ok(Ending::CannotTell) => ExitCode::from(CANNOT_TELL),
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            crate::output::message(&format!("whylate: {}", one_line(&error)));
            ExitCode::from(code(&error))
        }
    }
}

/// The error and what led to it; a cause that is already part of the text is not repeated.
fn one_line(error: &anyhow::Error) -> String {
    error.chain().fold(String::new(), |line, cause| {
        let cause = cause.to_string();
        match line.as_str() {
            "" => cause,
            said if said.contains(&cause) => line,
            said => format!("{said}: {cause}"),
        }
    })
}

fn code(error: &anyhow::Error) -> u8 {
    if error.chain().any(|cause| cause.is::<NotKnown>() || whylate_runner::is_not_restored(cause)) {
        NOT_RESTORED
    } else if error.chain().any(is_unavailable) {
        UNAVAILABLE
    } else {
        ERROR
    }
}

fn is_unavailable(cause: &(dyn std::error::Error + 'static)) -> bool {
    cause.is::<Refused>()
        || matches!(cause.downcast_ref(), Some(SocketError::Absent(_)))
        || whylate_runner::is_unavailable(cause)
        || cause.downcast_ref().is_some_and(whylate_farm::FarmError::is_unavailable)
}

/// Whether the reader of the output has closed the pipe.
pub(crate) fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
    })
}
