//! What the tests of programs share.

use whylate_bpf::BpfError;
use whylate_testing::{Need, skip};

/// What was started. `None`, with a message, if this machine lets no programs run: the rest of the test is skipped.
pub(crate) fn unless_refused<T>(started: Result<T, BpfError>) -> Option<T> {
    match started {
        Ok(running) => Some(running),
        Err(
            error @ (BpfError::NotBuilt
            | BpfError::Refused { .. }
            | BpfError::NoTypeInformation(_)
            | BpfError::Namespace),
        ) => {
            skip(Need::Rights, error);
            None
        }
        Err(error) => panic!("{error}"),
    }
}
