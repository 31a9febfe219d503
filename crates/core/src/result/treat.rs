//! What `whylate treat … --json` prints.

use crate::warning::Warning;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What `whylate treat apply`, `status` or `restore` did or found.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TreatResult {
    /// [`TREAT_FORMAT`](super::TREAT_FORMAT).
    pub format: String,
    /// `apply`, `dry_run`, `status` or `restore`.
    pub action: String,
    /// The changes: in the order in which they are made (`restore`: undone).
    pub changes: Vec<TreatChange>,
    /// Whether every setting has its former value (`restore` only).
    pub restored: Option<bool>,
    /// What was not done, or not as asked.
    pub warnings: Vec<Warning>,
}

/// One change of one setting.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TreatChange {
    /// The treatment that wants it.
    pub treatment: String,
    /// The setting: a path, or a property of a task.
    pub target: String,
    /// The value before; absent if it cannot be read yet (a file in a group that is still to be made).
    pub old: Option<String>,
    /// The value that the treatment sets.
    pub new: String,
    /// What that does; absent in `restore`.
    pub effect: Option<String>,
    /// How far it is.
    pub state: ChangeState,
    /// Why it is in that state, if that needs words.
    pub reason: Option<String>,
    /// Who made it (`status` only).
    pub holder: Option<ChangeHolder>,
}

/// How far a change is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ChangeState {
    /// It would be made.
    #[default]
    Planned,
    /// The value is there already.
    NotNeeded,
    /// It is in force.
    Applied,
    /// It was about to be made when its process ended; it may or may not be in force.
    Interrupted,
    /// The former value was brought back.
    Restored,
    /// The former value was there already.
    Unchanged,
    /// The task ended.
    Ended,
    /// The machine has rebooted since, which brought the former value back.
    Rebooted,
    /// Another program has changed it since; it was left as it is.
    LeftAlone,
    /// It could not be undone.
    Failed,
}

/// Who made a change.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ChangeHolder {
    /// The command.
    pub command: String,
    /// The run directory, if there is one.
    pub run: Option<String>,
    /// Its process.
    pub pid: u32,
    /// Whether that still runs.
    pub alive: bool,
    /// Whether the change stays until it is restored by hand.
    pub kept: bool,
    /// When it began: RFC 3339, UTC.
    pub since: String,
}
