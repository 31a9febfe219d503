//! Changes as results show them.

use crate::journal::{Entry, Fate, Holder, State};
use crate::undo::Undone;
use whylate_core::result::{ChangeHolder, ChangeState, TreatChange};

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

impl From<&Entry> for TreatChange {
    fn from(entry: &Entry) -> Self {
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
            reason: None,
            holder: None,
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
            effect: None,
            state: (&outcome.fate).into(),
            reason: outcome.problem(),
            holder: None,
        }
    }
}

impl From<&Holder> for ChangeHolder {
    fn from(holder: &Holder) -> Self {
        Self {
            command: holder.command.clone(),
            run: holder.run.clone(),
            pid: holder.pid,
            alive: holder.is_alive(),
            kept: holder.kept,
            since: holder.since(),
        }
    }
}
