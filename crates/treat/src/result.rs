//! Changes as results show them.

use crate::change::Change;
use crate::error::TreatError;
use crate::journal::{Fate, Holder, JournalEntry, State};
use crate::place::FoundSetting;
use crate::undo::Undone;
use whylate_core::result::{ChangeHolder, ChangeState, TreatChange};
use whylate_host::HostRoot;

impl Change {
    /// What it would do, without doing it.
    pub fn preview(&self, treatment: &str, root: &HostRoot) -> Result<TreatChange, TreatError> {
        let old = match self.target.read(root)? {
            // It is still to be made, or the task ended.
            FoundSetting::Nothing | FoundSetting::Ended => None,
            FoundSetting::Value(value) => Some(self.target.normal(&value)),
        };
        let is_there = old.as_ref() == Some(&self.new);
        Ok(TreatChange {
            treatment: treatment.to_owned(),
            target: self.target.to_string(),
            old,
            new: self.new.clone(),
            effect: Some(self.effect.clone()),
            state: if is_there { ChangeState::NotNeeded } else { ChangeState::Planned },
            ..TreatChange::default()
        })
    }
}

impl From<&Fate> for ChangeState {
    fn from(fate: &Fate) -> Self {
        match fate {
            Fate::Restored => Self::Restored,
            Fate::Unchanged => Self::Unchanged,
            Fate::Ended => Self::Ended,
            Fate::Rebooted => Self::Rebooted,
            Fate::LeftAlone { .. } => Self::LeftAlone,
            Fate::Failed { .. } => Self::Failed,
        }
    }
}

impl From<&JournalEntry> for TreatChange {
    fn from(entry: &JournalEntry) -> Self {
        let state = match &entry.state {
            State::Intended => ChangeState::Interrupted,
            State::Applied { .. } => ChangeState::Applied,
            State::Closed(fate) => fate.into(),
        };
        Self {
            treatment: entry.treatment.clone(),
            target: entry.change.target.to_string(),
            old: Some(entry.old_normal()),
            new: entry.change.new.clone(),
            effect: Some(entry.change.effect.clone()),
            state,
            ..Self::default()
        }
    }
}

impl From<&Undone> for TreatChange {
    fn from(outcome: &Undone) -> Self {
        Self {
            treatment: outcome.treatment.clone(),
            target: outcome.target.to_string(),
            old: Some(outcome.old.clone()),
            new: outcome.new.clone(),
            state: (&outcome.fate).into(),
            reason: outcome.problem(),
            ..Self::default()
        }
    }
}

impl Holder {
    /// As results show it.
    pub fn shown(&self, root: &HostRoot) -> ChangeHolder {
        ChangeHolder {
            command: self.command.clone(),
            run: self.run.clone(),
            pid: self.pid,
            alive: self.is_alive(root),
            kept: self.kept,
            since: self.since(),
        }
    }
}
