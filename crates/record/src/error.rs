//! What can go wrong when recording.

use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};
use whylate_bpf::BpfError;
use whylate_trace::parse::ParseError;
use whylate_treat::TreatError;

#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The kernel does not offer it, or not to this user: what is missing, why, and what to do.
    #[error("{0}")]
    Unavailable(String),
    /// A file of tracefs cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    /// A file of tracefs refuses a value.
    #[error("cannot write `{value}` to {}: {source}", path.display())]
    Write { path: PathBuf, value: String, source: io::Error },
    /// The journal refuses, or a change through it failed.
    #[error(transparent)]
    Journal(TreatError),
    /// Something could not be restored.
    #[error(
        "could not restore all settings that the recording changed: {0}; `whylate treat restore` tries again"
    )]
    LeftBehind(String),
    /// The programs in the kernel that count latencies cannot go on.
    #[error(transparent)]
    Bpf(#[from] BpfError),
    /// What the kernel recorded cannot be parsed.
    #[error("cannot parse the kernel's trace: {0}")]
    Parse(#[from] ParseError),
    /// The trace cannot be written to disk.
    #[error("cannot save the trace as {}: {source}", path.display())]
    Save { path: PathBuf, source: io::Error },
}

impl RecordError {
    /// The file that could not be read.
    pub(crate) fn read(path: &Path) -> impl Fn(io::Error) -> Self {
        move |source| Self::Read { path: path.to_owned(), source }
    }

    /// The unexpected content of the file.
    pub(crate) fn unfit(path: &Path, problem: &impl Display) -> Self {
        Self::read(path)(io::Error::new(io::ErrorKind::InvalidData, problem.to_string()))
    }

    /// The file in which the trace could not be saved.
    pub(crate) fn save(path: &Path) -> impl Fn(io::Error) -> Self {
        move |source| Self::Save { path: path.to_owned(), source }
    }
}
