//! What can go wrong with a lake or a farm.

use std::io;
use std::path::PathBuf;
use whylate_store::StoreError;

/// An error of a lake or a farm; each names the object, file or key.
#[derive(Debug, thiserror::Error)]
pub enum FarmError {
    /// A request that cannot be fulfilled: its subject, and why, mostly with what to do instead.
    #[error("{0}: {1}")]
    Refused(String, String),
    /// The storage refused or could not be reached.
    #[error("{0}: {cause}", cause = of_storage(.1))]
    Storage(String, object_store::Error),
    /// The same run, pushed before with other requests.
    #[error("{0}: the lake's copy of this run does not list this mismatch: {1}; push with `--replace`")]
    OtherMismatches(String, String),
    /// A machine's name that is not valid: the run, and the name of the machine that measured it.
    #[error(
        "{0}: a lake does not take the machine's name `{1}`; give a name of letters, digits, `-`, `_`, `.` and `+` \
         that does not begin with `.`, with `--host NAME`"
    )]
    BadHost(String, String),
    /// Its rows are in files that hold many runs.
    #[error(
        "{0}: this run's rows are, or may be, in the merged file of a month and cannot be replaced; rename the run's \
         directory to push it as another run"
    )]
    IsMerged(String),
    /// Rows that would count twice.
    #[error(
        "{0}: an earlier version of whylate began to merge a month in this lake; finish the merge with that version: \
         `whylate farm merge {0} --continue`"
    )]
    HalfMerged(String),
    /// An object that is missing, or differs from its manifest.
    #[error("{0} is damaged in the lake: {1}; push the run again with `--replace`")]
    Damaged(String, String),
    #[error("{1}: cannot {0}: {cause}", cause = of_io(.2))]
    Io(&'static str, PathBuf, #[source] io::Error),
    #[error(transparent)]
    Run(StoreError),
    /// An engine that is not installed: its name, its module, the Python that was used.
    #[error(
        "{0} is not installed: `{2} -m pip install {1}`{java}, or name a Python that has it in WHYLATE_QUERY_PYTHON",
        java = if *.0 == "spark" { " and Java" } else { "" }
    )]
    NoEngine(&'static str, &'static str, String),
    /// A missing Python.
    #[error("{0}: there is no such program; set WHYLATE_QUERY_PYTHON to the Python that has the engines")]
    NoPython(String),
    /// An engine's message about a statement.
    #[error("{0}: {1}")]
    Engine(&'static str, String),
    /// An engine that did not answer within this number of seconds.
    #[error("{0}: no answer after {1} s; a large lake answers faster with one file for each table (FARM.md)")]
    TooLong(&'static str, u64),
    /// An engine whose answer was no longer wanted.
    #[error("{0}: stopped before it answered")]
    Stopped(&'static str),
    /// No answer from a lake with damaged objects: the lines that name them list what the answer would have lacked
    /// too.
    #[error("{0}\n{lines}", lines = .1.join("\n"))]
    WithDamage(Box<FarmError>, Vec<String>),
}

impl FarmError {
    pub(crate) fn refused(what: impl std::fmt::Display, why: impl Into<String>) -> Self {
        Self::Refused(what.to_string(), why.into())
    }

    pub(crate) fn bad_url(url: &str, why: &str) -> Self {
        let forms = "give s3://BUCKET/PATH, gs://…, az://…, file:///PATH or a folder";
        Self::refused(url, format!("not the URL of a lake: {why}; {forms}"))
    }

    /// Whether a requested facility is missing.
    pub fn is_unavailable(&self) -> bool {
        match self {
            Self::NoEngine(..) | Self::NoPython(_) => true,
            Self::WithDamage(error, _) => error.is_unavailable(),
            _ => false,
        }
    }
}

impl From<StoreError> for FarmError {
    fn from(error: StoreError) -> Self {
        match error {
            // `StoreError` advises how to continue a measurement.
            StoreError::DiskFull(path, error) => Self::Io("write", path, error),
            other => Self::Run(other),
        }
    }
}

fn of_storage(error: &object_store::Error) -> String {
    full_disk(error).unwrap_or_else(|| last_cause(error).to_string())
}

fn of_io(error: &io::Error) -> String {
    full_disk(error).unwrap_or_else(|| error.to_string())
}

/// What to do if the root cause of an error is a full disk; `None` if it is not.
fn full_disk(error: &(dyn std::error::Error + 'static)) -> Option<String> {
    let cause = last_cause(error).downcast_ref::<io::Error>()?;
    let is_full = matches!(cause.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
    is_full.then(|| format!("the disk is full ({cause}): free some space, then try again"))
}

/// The error that has no cause: all errors above it repeat it.
pub(crate) fn last_cause<'e>(
    error: &'e (dyn std::error::Error + 'static),
) -> &'e (dyn std::error::Error + 'static) {
    let mut cause = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause
}

/// Adds to an I/O error what was tried, and where.
pub(crate) trait At<T> {
    fn at(self, action: &'static str, path: impl Into<PathBuf>) -> Result<T, FarmError>;
}

impl<T> At<T> for io::Result<T> {
    fn at(self, action: &'static str, path: impl Into<PathBuf>) -> Result<T, FarmError> {
        self.map_err(|error| FarmError::Io(action, path.into(), error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the storage reports it: wrapped in its own error, which is wrapped in one of input and output.
    #[test]
    fn a_full_disk_is_named_at_each_level() {
        let full = || io::Error::from_raw_os_error(28);
        let of_storage =
            || object_store::Error::Generic { store: "LocalFileSystem", source: Box::new(full()) };
        let wrapped = io::Error::other(of_storage());
        for error in [
            FarmError::Storage("lake/x".to_owned(), of_storage()),
            FarmError::Io("send", "lake/x".into(), wrapped),
            FarmError::from(StoreError::DiskFull("lake/x".into(), full())),
        ] {
            let said = error.to_string();
            assert!(
                said.starts_with("lake/x: ") && said.contains("the disk is full (No space left"),
                "{said}"
            );
            assert!(said.ends_with("free some space, then try again") && !said.contains("Generic"), "{said}");
        }
        let other = FarmError::Io("send", "lake/x".into(), io::Error::other("no route"));
        assert_eq!(other.to_string(), "lake/x: cannot send: no route");
    }
}
