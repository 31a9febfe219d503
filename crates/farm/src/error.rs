//! What can go wrong with a lake or a farm.

use std::io;
use std::path::PathBuf;
use whylate_store::StoreError;

/// An error of a lake or a farm; each names the object, file or key that it is about.
#[derive(Debug, thiserror::Error)]
pub enum FarmError {
    /// A URL that no kind of storage understands.
    #[error(
        "{0}: not the URL of a lake: {1}; give s3://BUCKET/PATH, gs://…, az://…, file:///PATH or a folder"
    )]
    BadUrl(String, String),
    /// A folder that is not there.
    #[error("{0}: there is no such folder; `whylate push RUN {0}` makes a lake there")]
    NoLake(PathBuf),
    /// The storage refused or could not be reached.
    #[error("{0}: {cause}", cause = first_cause(.1))]
    Storage(String, object_store::Error),
    /// The same name stands for another run in the lake.
    #[error(
        "{0}: the lake has this run with another content (it was continued, tagged or measured anew since); `--replace` \
         puts this one in its place"
    )]
    OtherContent(String),
    /// The same run, of which other things were asked for when it was pushed.
    #[error(
        "{0}: the lake has this run without a mismatch that it has now: {1}; `--replace` puts this one in its place"
    )]
    OtherMismatches(String, String),
    /// A name that cannot be part of an object's name.
    #[error("{0}: a run in a lake is named by letters, digits, `-`, `_`, `.` and `+`: rename its directory")]
    BadName(String),
    /// The same of a machine: the run, and the name of the machine that measured it.
    #[error(
        "{0}: it was measured on the machine `{1}`, and the name of a machine in a lake has letters, digits, `-`, `_`, `.` and \
         `+` alone, and begins with no `.`: give it one by `--host NAME`"
    )]
    BadHost(String, String),
    /// The run is still being written.
    #[error("{0}: the run is still going on; push it when it has ended")]
    InProgress(PathBuf),
    /// Its rows are in files of many runs.
    #[error(
        "{0}: the rows of this run are (or may be) in the file of a month, where they cannot be replaced; rename the run's \
         directory to push this one beside it"
    )]
    IsMerged(String),
    /// Rows that would count twice.
    #[error(
        "{0}: a merge of a month was cut off there by an earlier version of whylate; end it with that version: \
         `whylate farm merge {0} --continue`"
    )]
    HalfMerged(String),
    /// No run of that name.
    #[error("{0}: no such run in the lake; `whylate pull URL` lists its runs")]
    NoSuchRun(String),
    /// Several machines have a run of that name.
    #[error("{0}: several hosts have a run of that name; name one: {1}")]
    Ambiguous(String, String),
    /// A run whose push did not end.
    #[error("{0}: its push did not end: push it again, which goes on where it stopped")]
    NotComplete(String),
    /// An object that is missing, or other than its manifest says.
    #[error("{0}: damaged in the lake: {1}; push the run again with `--replace`")]
    Damaged(String, String),
    /// The place for a pulled run is taken.
    #[error("{0}: exists; give another directory")]
    Occupied(PathBuf),
    #[error("{1}: cannot {0}: {2}")]
    Io(&'static str, PathBuf, #[source] io::Error),
    #[error(transparent)]
    Run(#[from] StoreError),
    /// An engine that is not installed: its name, its module, the Python that was asked.
    #[error(
        "{0} is not installed: `{2} -m pip install {1}`{java}, or name a Python that has it in WHYLATE_QUERY_PYTHON",
        java = if *.0 == "spark" { " and Java" } else { "" }
    )]
    NoEngine(&'static str, &'static str, String),
    /// A Python that is not there.
    #[error("{0}: there is no such program; WHYLATE_QUERY_PYTHON names the Python that has the engines")]
    NoPython(String),
    /// What an engine says of a statement.
    #[error("{0}: {1}")]
    Engine(&'static str, String),
    /// An engine that had not answered after so many seconds.
    #[error(
        "{0}: no answer after {1} s; one file for each table makes questions of a large lake faster (FARM.md)"
    )]
    TooLong(&'static str, u64),
    /// An engine that was not waited for any more.
    #[error("{0}: stopped before it answered")]
    Stopped(&'static str),
    /// No answer, of a lake with damaged objects: the lines that name them say what the answer would have lacked as well.
    #[error("{0}\n{lines}", lines = .1.join("\n"))]
    WithDamage(Box<FarmError>, Vec<String>),
    /// A lake without a run.
    #[error("{0}: holds no run; `whylate push RUN {0}` brings one")]
    NoRuns(String),
    /// What is not one statement.
    #[error("the question cannot be asked: {0}")]
    Question(String),
    /// A farm file that is wrong.
    #[error("{0}: {1}")]
    FarmFile(String, String),
}

impl FarmError {
    /// Whether a facility that was asked for is not there.
    pub fn is_unavailable(&self) -> bool {
        match self {
            Self::NoEngine(..) | Self::NoPython(_) => true,
            Self::WithDamage(error, _) => error.is_unavailable(),
            _ => false,
        }
    }
}

/// What lies at the bottom of an error: all above it says the same again.
fn first_cause(error: &object_store::Error) -> String {
    last_cause(error).to_string()
}

/// The error that no other one has caused.
pub(crate) fn last_cause<'e>(
    error: &'e (dyn std::error::Error + 'static),
) -> &'e (dyn std::error::Error + 'static) {
    let mut cause = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause
}

/// Says of an input or output error what was tried, and where.
pub(crate) trait At<T> {
    fn at(self, action: &'static str, path: impl Into<PathBuf>) -> Result<T, FarmError>;
}

impl<T> At<T> for io::Result<T> {
    fn at(self, action: &'static str, path: impl Into<PathBuf>) -> Result<T, FarmError> {
        self.map_err(|error| FarmError::Io(action, path.into(), error))
    }
}
