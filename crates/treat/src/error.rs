//! What can go wrong with changing a machine.

use crate::planner::Impossible;
use std::io;
use std::path::PathBuf;
use whylate_host::HostError;

/// Nearly everything that is changed belongs to root.
fn journal_remedy() -> &'static str {
    match rustix::process::geteuid().is_root() {
        true => "set WHYLATE_STATE_DIR to a folder that can be written",
        false => "run as root",
    }
}

/// Why something was not changed, or not undone.
#[derive(Debug, thiserror::Error)]
pub enum TreatError {
    /// The journal cannot be kept, so nothing is changed.
    #[error(
        "cannot {action} {}: {source}; every change needs a journal, so {}", path.display(), journal_remedy()
    )]
    State {
        /// What was tried: `create`, `write`, `read`, `lock`.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        source: io::Error,
    },
    /// Other users could have written or replaced the journal.
    #[error(
        "{problem}: another user could change what root restores from this folder; correct the access rights, or set WHYLATE_STATE_DIR to another folder"
    )]
    Untrusted {
        /// Which folder or file, and what is wrong with it.
        problem: String,
    },
    /// The journal is damaged: what else it recorded is not known.
    #[error(
        "the journal {} is damaged ({}); to undo what can still be read: whylate treat restore", path.display(), problems.join("; ")
    )]
    Damaged {
        path: PathBuf,
        /// What is wrong with it, one sentence each.
        problems: Vec<String>,
    },
    /// No treatment of whylate changes this, so it is neither changed nor undone.
    #[error("{target} is not changed to `{value}`: {reason}")]
    NotOurs { target: String, value: String, reason: &'static str },
    #[error(
        "settings are already changed by {holder}; wait until that process ends, or stop it (`whylate treat status` lists the changed settings)"
    )]
    Held {
        /// Who, and since when.
        holder: String,
    },
    /// Treatments that were applied by hand are in force.
    #[error(
        "settings changed by `{command}` have been in force since {since} (number of settings: {count}); restore them first: whylate treat restore"
    )]
    InForce {
        count: usize,
        command: String,
        /// When.
        since: String,
    },
    #[error("cannot read {target}: {source}")]
    Read { target: String, source: io::Error },
    /// A name that does not exist.
    #[error("{target} does not exist")]
    Absent { target: String },
    /// A value is not in its documented form.
    #[error("cannot understand {target}: {problem}")]
    Malformed { target: String, problem: String },
    #[error("cannot set {target} to `{value}`: {source}{remedy}")]
    Write {
        target: String,
        value: String,
        source: io::Error,
        /// What to do, with `; ` before it; empty if nothing is known.
        remedy: &'static str,
    },
    /// Its former value could not be restored, so it is not changed.
    #[error("{target} is not changed, because its value `{old}` could not be restored later ({source})")]
    OneWay { target: String, old: String, source: io::Error },
    /// The value was written, and another one was read back.
    #[error(
        "{target} was set to `{wanted}`, but now holds `{found}`: the kernel or another program has changed it"
    )]
    NotTaken { target: String, wanted: String, found: String },
    /// Tasks cannot be changed on a copy of a machine's files.
    #[error("{target} is not changed: with a root other than /, whylate changes only files")]
    NotThisMachine { target: String },
    /// A treatment was not applied.
    #[error("{treatment}: {source}; {aftermath}")]
    NotApplied {
        treatment: String,
        source: Box<TreatError>,
        /// What happened to the changes that it had made before.
        aftermath: String,
    },
    /// A treatment cannot be applied here.
    #[error("{treatment}: {source}")]
    Impossible { treatment: String, source: Impossible },
    /// A file of the machine cannot be understood.
    #[error(transparent)]
    Host(#[from] HostError),
}
