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
    /// The changes, in the order in which they are made (`restore`: undone).
    pub changes: Vec<TreatChange>,
    /// Whether every setting has its former value (`restore` only).
    pub restored: Option<bool>,
    /// What was not done, or done differently than requested.
    pub warnings: Vec<Warning>,
}

/// One change of one setting.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TreatChange {
    /// The treatment that makes the change.
    pub treatment: String,
    /// The setting: a path, or a property of a task.
    pub target: String,
    /// The value before the change; absent if it cannot be read yet (a file in a group that does not exist yet).
    pub old: Option<String>,
    /// The value that the treatment sets.
    pub new: String,
    /// The effect of the change; absent in `restore`.
    pub effect: Option<String>,
    /// State of the change.
    pub state: ChangeState,
    /// Why the change is in this state, if there is more to say.
    pub reason: Option<String>,
    /// The command that made the change (`status` only).
    pub holder: Option<ChangeHolder>,
}

/// State of a change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ChangeState {
    /// The change would be made.
    #[default]
    Planned,
    /// The setting already has the new value.
    NotNeeded,
    /// The change is in force.
    Applied,
    /// The process ended while it made the change, which may or may not be in force.
    Interrupted,
    /// The former value was restored.
    Restored,
    /// The setting already had the former value.
    Unchanged,
    /// The task whose property was changed has ended.
    Ended,
    /// The machine has rebooted since, which restored the former value.
    Rebooted,
    /// Another program has changed the setting since; it was left unchanged.
    LeftAlone,
    /// The change could not be undone.
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
    /// The process id of the command.
    pub pid: u32,
    /// Whether this process still runs.
    pub alive: bool,
    /// Whether the change stays until it is restored by hand.
    pub kept: bool,
    /// When the command began: RFC 3339, UTC.
    pub since: String,
}
