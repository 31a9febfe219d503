//! What can go wrong with a run directory.

use std::io;
use std::path::{Path, PathBuf};

/// An error of the run directory; each names the path that it is about.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The place for a new run is taken: nothing was changed there.
    #[error(
        "{path}: exists and is not an empty directory; name another place with `-o DIR`, or continue that run with `--resume`"
    )]
    Occupied {
        /// The place.
        path: PathBuf,
    },
    /// A path that holds no `run.json`.
    #[error(
        "{path}: is no run directory (it has no `run.json`); give the directory that `whylate run` printed"
    )]
    NotARun {
        /// The path.
        path: PathBuf,
    },
    /// `run.json` is there but cannot be understood.
    #[error("{path}: is damaged or of another version: {source}")]
    BadInfo {
        /// The file.
        path: PathBuf,
        /// Where and why.
        source: serde_json::Error,
    },
    /// `run.json` of a format that this version does not know.
    #[error("{path}: has the format `{format}`; this version reads `{known}`")]
    UnknownFormat {
        /// The file.
        path: PathBuf,
        /// Its format.
        format: String,
        /// The format that can be read.
        known: &'static str,
    },
    /// Another process is writing to this run.
    #[error("{path}: another whylate is still writing to this run; wait for it, or stop it")]
    Busy {
        /// The run directory.
        path: PathBuf,
    },
    /// No space is left (or the quota is used up). What was written before stays readable.
    #[error(
        "{path}: the disk is full ({source}); what was stored before is kept: free some space, then continue with `--resume`"
    )]
    DiskFull {
        /// The file that did not fit.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// Reading or writing failed otherwise.
    #[error("{path}: cannot {action}: {source}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// On which file or folder.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A value could not be turned into its file's form.
    #[error("{path}: cannot be encoded: {reason}")]
    Encode {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// The run holds no sample: there is nothing to report. The command line maps it to exit code 1.
    #[error("{path}: no samples")]
    NoSamples {
        /// The run directory.
        path: PathBuf,
    },
}

/// Says of an input or output error what was tried, and where.
pub(crate) trait At<T> {
    /// # Errors
    /// [`StoreError::DiskFull`] for a full disk, else [`StoreError::Io`].
    fn at(self, action: &'static str, path: &Path) -> Result<T, StoreError>;
}

impl<T> At<T> for io::Result<T> {
    fn at(self, action: &'static str, path: &Path) -> Result<T, StoreError> {
        self.map_err(|source| {
            let path = path.to_owned();
            match source.kind() {
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                    StoreError::DiskFull { path, source }
                }
                _ => StoreError::Io { action, path, source },
            }
        })
    }
}
