//! The lines of a journal, and what they add up to.
//!
//! Each line is one JSON object. A line that was cut off by a power failure is the last one, and is left out; a
//! damaged line elsewhere is counted, and the others are read.

use crate::change::Change;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// `format` of the line that begins a session.
pub const JOURNAL_FORMAT: &str = "whylate.journal/1";

/// Who makes changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// The command: `whylate run`.
    pub command: String,
    /// The run directory, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    /// Whether the changes stay when the process ends, until they are taken back by hand.
    pub kept: bool,
    /// Its process.
    pub pid: u32,
    /// When that started, in clock ticks since boot; 0 where /proc does not say.
    pub start_ticks: u64,
    /// Boot of the machine (`/proc/sys/kernel/random/boot_id`); empty where the kernel does not say.
    pub boot_id: String,
    /// When the session began, in seconds since 1970.
    pub since_s: u64,
}

/// One line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case")]
pub(crate) enum Record {
    /// A holder begins.
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
    /// It needs nothing any more; `fate` says why.
    Closed { entry: u64, fate: Fate },
}

/// What became of a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "fate", rename_all = "snake_case")]
pub enum Fate {
    /// The former value was written and read back.
    Restored,
    /// The former value was there already: the change was never made, or was undone by others.
    Unchanged,
    /// The task ended.
    Ended,
    /// The machine was started anew since, which brings it back.
    Rebooted,
    /// Somebody else changed the value since; it was not touched.
    LeftAlone {
        /// What is there; absent when the setting itself is gone.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        found: Option<String>,
    },
    /// Restoring failed; it stays in the journal, for another attempt.
    Failed {
        /// Why.
        reason: String,
    },
}

impl Fate {
    /// Whether the setting is what it was before, as far as that has a meaning.
    pub fn is_complete(&self) -> bool {
        !matches!(self, Self::LeftAlone { .. } | Self::Failed { .. })
    }
}

/// How far a change came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// It may or may not have been made.
    Intended,
    /// It was made.
    Applied {
        /// What was read afterwards, in the normal form.
        found: String,
    },
    /// It needs nothing any more.
    Closed(
        /// Why.
        Fate,
    ),
}

/// One change in a journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its number in the journal.
    pub entry: u64,
    /// The session that made it.
    pub session: u64,
    /// The treatment that wanted it.
    pub treatment: String,
    /// The change.
    pub change: Change,
    /// The former value, as it was read.
    pub old: String,
    /// How far it came.
    pub state: State,
}

impl Entry {
    /// Whether it is still to be undone.
    pub fn is_open(&self) -> bool {
        !matches!(self.state, State::Closed(_))
    }

    /// The former value in the normal form.
    pub fn old_normal(&self) -> String {
        self.change.target.normal(&self.old)
    }
}

/// What a journal says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// Every holder, by the number of its session.
    pub sessions: BTreeMap<u64, Holder>,
    /// Every change, in the order in which they were made.
    pub entries: Vec<Entry>,
    /// Lines that could not be read, the last one aside.
    pub damaged_lines: usize,
}

impl Contents {
    /// Reads the text of a journal; and how many of its bytes are whole lines.
    pub fn parse(bytes: &[u8]) -> (Self, usize) {
        let mut contents = Self::default();
        let mut good = 0;
        let mut damaged_since_good = 0;
        let mut end = 0;
        for line in bytes.split_inclusive(|&byte| byte == b'\n') {
            end += line.len();
            let record = line.strip_suffix(b"\n").and_then(|line| serde_json::from_slice(line).ok());
            match record {
                Some(record) => {
                    contents.add(record);
                    contents.damaged_lines += damaged_since_good;
                    (good, damaged_since_good) = (end, 0);
                }
                None => damaged_since_good += 1,
            }
        }
        (contents, good)
    }

    /// Changes that are still to be undone, oldest first.
    pub fn open(&self) -> impl DoubleEndedIterator<Item = &Entry> {
        self.entries.iter().filter(|entry| entry.is_open())
    }

    /// Who made a change.
    pub fn holder(&self, entry: &Entry) -> Option<&Holder> {
        self.sessions.get(&entry.session)
    }

    pub(super) fn add(&mut self, record: Record) {
        match record {
            Record::Session { session, holder, .. } => {
                self.sessions.insert(session, holder);
            }
            Record::Intended { entry, session, treatment, change, old } => {
                let state = State::Intended;
                self.entries.push(Entry { entry, session, treatment, change, old, state });
            }
            Record::Applied { entry, found } => self.set_state(entry, State::Applied { found }),
            // What failed is tried again.
            Record::Closed { fate: Fate::Failed { .. }, .. } => {}
            Record::Closed { entry, fate } => self.set_state(entry, State::Closed(fate)),
        }
    }

    fn set_state(&mut self, number: u64, state: State) {
        // Searched from the end: the newest entries are those that change.
        if let Some(entry) = self.entries.iter_mut().rev().find(|entry| entry.entry == number) {
            entry.state = state;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change::Target;
    use proptest::prelude::*;

    fn lines() -> Vec<Vec<u8>> {
        let holder = Holder {
            command: "whylate run".to_owned(),
            run: None,
            kept: false,
            pid: 7,
            start_ticks: 9,
            boot_id: "b".to_owned(),
            since_s: 1,
        };
        let change = Change::required(Target::file("/sys/a"), "1", "tries");
        let records = [
            Record::Session { format: JOURNAL_FORMAT.to_owned(), session: 1, holder },
            Record::Intended {
                entry: 1,
                session: 1,
                treatment: "t".to_owned(),
                change: change.clone(),
                old: "0\n".to_owned(),
            },
            Record::Applied { entry: 1, found: "1".to_owned() },
            Record::Intended {
                entry: 2,
                session: 1,
                treatment: "t".to_owned(),
                change,
                old: "1\n".to_owned(),
            },
            Record::Closed { entry: 1, fate: Fate::LeftAlone { found: Some("5".to_owned()) } },
        ];
        let line = |record| {
            let mut line = serde_json::to_vec(record).unwrap();
            line.push(b'\n');
            line
        };
        records.iter().map(line).collect()
    }

    #[test]
    fn lines_add_up() {
        let bytes = lines().concat();
        let (contents, good) = Contents::parse(&bytes);
        assert_eq!(good, bytes.len());
        assert_eq!(contents.open().map(|entry| entry.entry).collect::<Vec<_>>(), [2]);
        assert_eq!(contents.entries[0].old_normal(), "0");
        assert_eq!(contents.holder(&contents.entries[1]).unwrap().pid, 7);
    }

    #[test]
    fn wherever_a_power_cut_falls_the_whole_lines_before_it_are_read() {
        let lines = lines();
        let bytes = lines.concat();
        for cut in 0..bytes.len() {
            let (contents, good) = Contents::parse(&bytes[..cut]);
            let mut whole = 0;
            let mut expected = 0;
            for line in &lines {
                if whole + line.len() > cut {
                    break;
                }
                whole += line.len();
                expected += 1;
            }
            assert_eq!((good, contents.damaged_lines), (whole, 0), "cut at {cut}");
            assert_eq!(contents, Contents::parse(&lines[..expected].concat()).0, "cut at {cut}");
        }
    }

    #[test]
    fn a_damaged_line_costs_nothing_but_itself() {
        let mut lines = lines();
        lines[2] = b"\0\0\0\n".to_vec();
        let (contents, good) = Contents::parse(&lines.concat());
        assert_eq!((contents.damaged_lines, contents.entries.len()), (1, 2));
        assert_eq!(good, lines.concat().len());
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Contents::parse(&bytes);
        }
    }
}
