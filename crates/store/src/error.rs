//! What can go wrong with a run directory.

use crate::info::RUN_DIRECTORY_FORMAT;
use std::io;
use std::path::{Path, PathBuf};

/// An error of the run directory; each names the path.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The place for a new run is occupied; nothing was changed there.
    #[error("{0}: exists and is not an empty directory; name another place with `-o DIR`")]
    Occupied(PathBuf),
    /// A path that holds no `run.json`.
    #[error("{0}: not a run directory (it has no `run.json`); give the directory that `whylate run` printed")]
    NotARun(PathBuf),
    /// `run.json` is there but cannot be understood.
    #[error("{0}: the file is damaged, or another version wrote it: {1}")]
    BadInfo(PathBuf, #[source] serde_json::Error),
    /// `run.json` of another format than [`RUN_DIRECTORY_FORMAT`].
    #[error("{0}: has the format `{1}`; this version reads `{RUN_DIRECTORY_FORMAT}`")]
    UnknownFormat(PathBuf, String),
    /// Another process is writing to this run.
    #[error("{0}: another whylate is still writing to this run; wait for that whylate, or stop it")]
    Busy(PathBuf),
    /// Root would write where another user could replace the files.
    #[error(
        "{0}: belongs to user {1}; as root, whylate writes only to directories that root owns: run whylate as that user"
    )]
    Foreign(PathBuf, u32),
    /// The same, because all users may write there.
    #[error(
        "{0}: other users may write to this path, and as root, whylate refuses to write to such paths: run `chmod \
         go-w` on this path"
    )]
    OpenToAll(PathBuf),
    /// A run that cannot be continued.
    #[error("{0}: the run is damaged and cannot be continued: {1}; begin a new run")]
    Damaged(PathBuf, String),
    /// No space is left (or the quota is used up). What was written before stays readable.
    #[error(
        "{0}: the disk is full ({1}); the results stored so far are kept: free some space, then continue with `whylate \
         run --resume`, or remove the folder and start a new run"
    )]
    DiskFull(PathBuf, #[source] io::Error),
    /// Another failure to read or write; the first field says what was tried.
    #[error("{1}: cannot {0}: {2}")]
    Io(&'static str, PathBuf, #[source] io::Error),
    /// A value could not be turned into its file's form.
    #[error("{0}: cannot be encoded: {1}")]
    Encode(PathBuf, String),
    /// The run is damaged, and no sample can be read.
    #[error("{0}: the run is damaged, and no samples are left: {1}")]
    NothingLeft(PathBuf, String),
    /// The run holds no sample: there is nothing to report. The command line maps it to exit code 1.
    #[error("{0}: no samples")]
    NoSamples(PathBuf),
}

/// Adds to an I/O error what was tried, and where.
pub(crate) trait At<T> {
    fn at(self, action: &'static str, path: &Path) -> Result<T, StoreError>;
}

impl<T> At<T> for io::Result<T> {
    fn at(self, action: &'static str, path: &Path) -> Result<T, StoreError> {
        self.map_err(|error| match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                StoreError::DiskFull(path.to_owned(), error)
            }
            _ => StoreError::Io(action, path.to_owned(), error),
        })
    }
}
