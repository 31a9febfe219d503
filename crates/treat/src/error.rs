//! What can go wrong with changing a machine.

use crate::planner::Impossible;
use std::io;
use std::path::PathBuf;
use whylate_host::HostError;

/// Why something was not changed, or not undone.
#[derive(Debug, thiserror::Error)]
pub enum TreatError {
    /// The journal cannot be kept, so nothing is changed.
    #[error(
        "cannot {action} {}: {source}; changes need a journal: run as root, or set WHYLATE_STATE_DIR to a folder of yours", path.display()
    )]
    State {
        /// What was tried: `create`, `write`, `read`, `lock`.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// Others could have written the journal, or exchange it.
    #[error(
        "{problem}: root reads from there what to undo, so nobody else may be able to write there; correct it, or name another folder (WHYLATE_STATE_DIR)"
    )]
    Untrusted {
        /// Which folder or file, and what is wrong with it.
        problem: String,
    },
    /// The journal is damaged: what else it told is not known.
    #[error(
        "the journal {} is damaged ({}); to undo what can still be read: whylate treat restore", path.display(), problems.join("; ")
    )]
    Damaged {
        /// Its file.
        path: PathBuf,
        /// What is wrong with it, a sentence each.
        problems: Vec<String>,
    },
    /// No treatment of whylate changes this, so it is neither changed nor undone.
    #[error("{target} is not changed to `{value}`: {reason}")]
    NotOurs {
        /// Where.
        target: String,
        /// The value.
        value: String,
        /// Why.
        reason: &'static str,
    },
    /// Another whylate holds treatments.
    #[error(
        "treatments are held by {holder}; wait for its end, or stop it (`whylate treat status` shows what it changed)"
    )]
    Held {
        /// Who, and since when.
        holder: String,
    },
    /// Treatments that were applied by hand are in force.
    #[error(
        "{count} changes by `{command}` are in force since {since}; restore them first: whylate treat restore"
    )]
    InForce {
        /// How many.
        count: usize,
        /// The command that made them.
        command: String,
        /// When.
        since: String,
    },
    /// A value cannot be read.
    #[error("cannot read {target}: {source}")]
    Read {
        /// Where.
        target: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// There is nothing of that name.
    #[error("{target} is not there")]
    Absent {
        /// Where.
        target: String,
    },
    /// A value is not as it is documented.
    #[error("cannot understand {target}: {problem}")]
    Malformed {
        /// Where.
        target: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The kernel refuses a value.
    #[error("cannot set {target} to `{value}`: {source}{remedy}")]
    Write {
        /// Where.
        target: String,
        /// The value.
        value: String,
        /// The kernel's answer.
        source: io::Error,
        /// What to do, with `; ` before it; empty where nothing is known.
        remedy: &'static str,
    },
    /// The value was written and is not there.
    #[error(
        "{target} was set to `{wanted}` and reads `{found}`: the kernel or another program has changed it"
    )]
    NotTaken {
        /// Where.
        target: String,
        /// What was written.
        wanted: String,
        /// What is read.
        found: String,
    },
    /// Tasks cannot be changed on a copy of a machine's files.
    #[error("{target}: below another root than / only files are changed")]
    NotThisMachine {
        /// The task.
        target: String,
    },
    /// A treatment was not applied.
    #[error("{treatment}: {source}; {aftermath}")]
    NotApplied {
        /// The treatment.
        treatment: String,
        /// Why.
        source: Box<TreatError>,
        /// What became of the changes that it had made before.
        aftermath: String,
    },
    /// A treatment cannot be applied here.
    #[error("{treatment}: {source}")]
    Impossible {
        /// The treatment.
        treatment: String,
        /// Why.
        source: Impossible,
    },
    /// A file of the machine cannot be understood.
    #[error(transparent)]
    Host(#[from] HostError),
}
