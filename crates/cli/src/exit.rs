//! Exit codes, and the one place where errors are printed.

use std::io;
use std::process::ExitCode;

/// Something went wrong, usage included.
pub(crate) const ERROR: u8 = 1;
/// A limit was exceeded.
pub(crate) const EXCEEDED: u8 = 2;
/// A facility that was asked for explicitly is not there.
pub(crate) const UNAVAILABLE: u8 = 69;

/// How a command ended that did what it was asked to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// All is well.
    Pass,
    /// A latency was above the limit or the break threshold.
    Exceeded,
    /// Something is incomplete, and has been said already.
    Incomplete,
}

/// An error for which another exit code than 1 is right.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Unavailable(pub(crate) String);

/// Prints the error, if any, and gives the exit code.
pub(crate) fn finish(outcome: anyhow::Result<Ending>) -> ExitCode {
    match outcome {
        Ok(Ending::Pass) => ExitCode::SUCCESS,
        Ok(Ending::Exceeded) => ExitCode::from(EXCEEDED),
        Ok(Ending::Incomplete) => ExitCode::from(ERROR),
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            crate::output::message(&format!("whylate: {error:#}"));
            ExitCode::from(if error.is::<Unavailable>() { UNAVAILABLE } else { ERROR })
        }
    }
}

/// Whoever read our output has seen enough.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
    })
}
