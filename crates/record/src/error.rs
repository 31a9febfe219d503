//! What can go wrong when recording.

use std::io;
use std::path::PathBuf;

/// Why nothing is recorded.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The kernel does not offer it, or not to this user.
    #[error("{0}")]
    Unavailable(
        /// What is missing, why, and what to do.
        String,
    ),
    /// A file of tracefs cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A file of tracefs refuses a value.
    #[error("cannot write `{value}` to {}: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What was to be written.
        value: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The journal refuses, or a change through it failed.
    #[error(transparent)]
    Journal(
        /// Why.
        whylate_treat::TreatError,
    ),
    /// Something could not be put back as it was.
    #[error("not everything of the recording could be put back: {0}; `whylate treat restore` tries again")]
    LeftBehind(
        /// What.
        String,
    ),
    /// The programs in the kernel that count latencies cannot go on.
    #[error(transparent)]
    Bpf(
        /// Why.
        #[from]
        whylate_bpf::BpfError,
    ),
    /// What the kernel recorded cannot be understood.
    #[error("the kernel's trace cannot be understood: {0}")]
    Parse(
        /// Why.
        #[from]
        whylate_trace::parse::ParseError,
    ),
    /// The trace cannot be written to disk.
    #[error("cannot save the trace as {}: {source}", path.display())]
    Save {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}
