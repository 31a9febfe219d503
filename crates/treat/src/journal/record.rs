//! What the lines of a journal say, and the state that they add up to.

use crate::change::Change;
use crate::neighbours::Walk;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// `format` of the line that begins a session.
pub const JOURNAL_FORMAT: &str = "whylate.journal/2";

#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// The command: `whylate run`.
    pub command: String,
    /// The run directory, if there is one.
    pub run: Option<String>,
    /// Whether the changes stay when the process ends, until they are restored by hand.
    pub kept: bool,
    pub pid: u32,
    /// When that process started, in clock ticks since boot; 0 if /proc does not say.
    pub start_ticks: u64,
    /// Inode of the PID namespace of `pid`; absent in journals of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid_namespace: Option<u64>,
    /// Boot of the machine (`/proc/sys/kernel/random/boot_id`); empty if the kernel does not report it.
    pub boot_id: String,
    /// When the session began, in seconds since 1970.
    pub since_s: u64,
}

/// One line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case")]
pub(crate) enum JournalRecord {
    Session {
        format: String,
        session: u64,
        #[serde(flatten)]
        holder: Holder,
    },
    /// A change that is about to be made; on disk before it is.
    Intended {
        entry: u64,
        session: u64,
        treatment: String,
        #[serde(flatten)]
        change: Change,
        old: String,
    },
    /// The change was made; `found` is what was read afterwards.
    Applied { entry: u64, found: String },
    /// Nothing is left to do for it; `fate` says why.
    Closed { entry: u64, fate: Fate },
    /// The former values of settings that the entries from `first` on may move. It is in the journal before the first
    /// of these entries is made.
    Before { first: u64, values: Walk },
    /// What the entries since the last [`JournalRecord::Before`] moved is in the journal, as entries of its own.
    After {},
    /// Undoing begins. Others have changed the settings in `others`; the undoing itself has moved whatever else
    /// differs from here on.
    Undoing { others: BTreeSet<String> },
    /// Undoing has ended, with whatever result.
    Undone {},
    /// The journal was damaged, and was written again from what could be read: what is not known, and where the
    /// damaged one is kept.
    Damaged { unknown: Vec<String>, kept: String },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "fate", rename_all = "snake_case")]
pub enum Fate {
    /// The former value was written and read back.
    Restored,
    /// The former value was there already: the change was never made, or was undone by others.
    Unchanged,
    Ended,
    /// The machine has rebooted since, which brings it back.
    Rebooted,
    /// The value was changed by something else since; it was not touched.
    LeftAlone {
        /// The value found; absent if the setting itself is gone.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        found: Option<String>,
    },
    /// Restoring failed; it stays in the journal, for another attempt.
    Failed {
        reason: String,
    },
}

impl Fate {
    /// Whether the setting is what it was before, if that has a meaning.
    pub fn is_complete(&self) -> bool {
        !matches!(self, Self::LeftAlone { .. } | Self::Failed { .. })
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// It may or may not have been made.
    Intended,
    Applied {
        /// What was read afterwards, in the normal form.
        found: String,
    },
    /// Nothing is left to do for it.
    Closed(Fate),
}

/// One change in a journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalEntry {
    pub entry: u64,
    pub session: u64,
    pub treatment: String,
    pub change: Change,
    /// The former value, as it was read.
    pub old: String,
    pub state: State,
}

impl JournalEntry {
    /// Whether it is still to be undone.
    pub fn is_open(&self) -> bool {
        !matches!(self.state, State::Closed(_))
    }

    /// The former value in the normal form.
    pub fn old_normal(&self) -> String {
        self.change.target.normal(&self.old)
    }
}

/// Settings before some entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Before {
    /// The first of these entries.
    pub(crate) first: u64,
    pub(crate) values: Walk,
    /// Whether what they moved is in the journal.
    pub(crate) is_complete: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// Every holder, by the number of its session.
    pub sessions: BTreeMap<u64, Holder>,
    /// Every change, in the order in which they were made.
    pub entries: Vec<JournalEntry>,
    /// What settings were before entries that may have moved them, oldest first.
    pub(crate) before: Vec<Before>,
    /// What something else had changed when an undoing began that did not come to its end.
    pub(crate) undoing: Option<BTreeSet<String>>,
    /// What is not known because the journal is damaged, one sentence each.
    pub damage: Vec<String>,
}

impl Contents {
    /// Changes that are still to be undone, oldest first.
    pub fn open(&self) -> impl DoubleEndedIterator<Item = &JournalEntry> {
        self.entries.iter().filter(|entry| entry.is_open())
    }

    pub fn holder(&self, entry: &JournalEntry) -> Option<&Holder> {
        self.sessions.get(&entry.session)
    }

    pub(super) fn add(&mut self, record: JournalRecord) {
        match record {
            JournalRecord::Session { session, holder, .. } => {
                self.sessions.insert(session, holder);
            }
            JournalRecord::Intended { entry, session, treatment, change, old } => {
                let state = State::Intended;
                self.entries.push(JournalEntry { entry, session, treatment, change, old, state });
            }
            JournalRecord::Applied { entry, found } => self.set_state(entry, State::Applied { found }),
            // What failed is tried again.
            JournalRecord::Closed { fate: Fate::Failed { .. }, .. } => {}
            JournalRecord::Closed { entry, fate } => self.set_state(entry, State::Closed(fate)),
            JournalRecord::Before { first, values } => {
                self.before.push(Before { first, values, is_complete: false });
            }
            JournalRecord::After {} => {
                if let Some(before) = self.before.last_mut() {
                    before.is_complete = true;
                }
            }
            JournalRecord::Undoing { others } => self.undoing = Some(others),
            JournalRecord::Undone {} => self.undoing = None,
            JournalRecord::Damaged { unknown, kept } => {
                self.damage.extend(unknown);
                self.damage.push(format!("the damaged journal is kept as {kept}"));
            }
        }
    }

    /// What has to be written again into a new journal.
    pub(super) fn records(&self) -> Vec<JournalRecord> {
        let format = || JOURNAL_FORMAT.to_owned();
        let session = |(session, holder): (&u64, &Holder)| JournalRecord::Session {
            format: format(),
            session: *session,
            holder: holder.clone(),
        };
        let mut records: Vec<JournalRecord> = self.sessions.iter().map(session).collect();
        for Before { first, values, is_complete } in self.before.iter().cloned() {
            records.push(JournalRecord::Before { first, values });
            records.extend(is_complete.then_some(JournalRecord::After {}));
        }
        records.extend(self.undoing.clone().map(|others| JournalRecord::Undoing { others }));
        for it in self.open() {
            let JournalEntry { entry, session, treatment, change, old, state } = it.clone();
            records.push(JournalRecord::Intended { entry, session, treatment, change, old });
            if let State::Applied { found } = state {
                records.push(JournalRecord::Applied { entry, found });
            }
        }
        records
    }

    fn set_state(&mut self, number: u64, state: State) {
        // Searched from the end: the newest entries are those that change.
        if let Some(entry) = self.entries.iter_mut().rev().find(|entry| entry.entry == number) {
            entry.state = state;
        }
    }
}
