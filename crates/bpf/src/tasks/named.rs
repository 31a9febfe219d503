//! Which records count where the programs in the kernel follow all threads of a program, and only those of one name are watched.

use super::TaskTarget;
use crate::layout::Command;
use crate::layout::tasks::{RawStretch, TaskEvent};
use std::collections::{BTreeMap, BTreeSet};

/// The followed threads, by whether they have the name now.
#[derive(Default)]
pub(super) struct Named {
    watched: BTreeSet<u32>,
    others: BTreeMap<u32, Other>,
}

/// A thread without the name.
struct Other {
    process: u32,
    first_ns: u64,
    /// Whether there was a record of what it did.
    has_run: bool,
}

impl Other {
    fn of(raw: &RawStretch) -> Self {
        Self { process: raw.process, first_ns: raw.end_ns, has_run: false }
    }
}

impl Named {
    /// Whether a record counts; and the record that comes before it where its thread got or lost the name.
    pub(super) fn choose(&mut self, target: &TaskTarget, raw: &RawStretch) -> (Option<RawStretch>, bool) {
        let TaskTarget::ChildrenNamed(name) = target else { return (None, true) };
        let thread = raw.thread;
        match raw.kind {
            // These are not about one watched thread.
            TaskEvent::None | TaskEvent::Frequency | TaskEvent::Trigger | TaskEvent::Pass => (None, true),
            // They have no name.
            TaskEvent::Sample | TaskEvent::Audited | TaskEvent::Stack => {
                (None, self.watched.contains(&thread))
            }
            TaskEvent::New => {
                let before = self.leave(name, raw);
                self.others.insert(thread, Other::of(raw));
                (before, false)
            }
            TaskEvent::Gone => {
                let is_named = self.watched.contains(&thread) || target.is_named(&raw.command.text());
                let before = is_named.then(|| self.enter(raw)).flatten();
                self.others.remove(&thread);
                self.watched.remove(&thread);
                (before, is_named)
            }
            TaskEvent::Stretch | TaskEvent::Call | TaskEvent::Begin | TaskEvent::End => {
                if target.is_named(&raw.command.text()) {
                    return (self.enter(raw), true);
                }
                let before = self.leave(name, raw);
                self.others.entry(thread).or_insert_with(|| Other::of(raw)).has_run = true;
                (before, false)
            }
        }
    }

    /// New threads without a record of what they did, with their processes, and when they were first seen.
    pub(super) fn unseen(&self) -> impl Iterator<Item = (u32, u32, u64)> {
        let unseen = self.others.iter().filter(|(_, other)| !other.has_run);
        unseen.map(|(thread, other)| (*thread, other.process, other.first_ns))
    }

    /// The thread has the name: the record of its start, if that is new.
    fn enter(&mut self, raw: &RawStretch) -> Option<RawStretch> {
        let first_ns = self.others.remove(&raw.thread).map_or(raw.end_ns, |other| other.first_ns);
        let is_new = self.watched.insert(raw.thread);
        is_new.then(|| RawStretch { kind: TaskEvent::New, end_ns: first_ns, ..raw.clone() })
    }

    /// The thread has another name: the record of its end, if that is new. It got the name after it got the CPU.
    fn leave(&mut self, name: &str, raw: &RawStretch) -> Option<RawStretch> {
        let end_ns = if raw.run_ns > 0 && raw.kind == TaskEvent::Stretch { raw.run_ns } else { raw.end_ns };
        let command = Command::new(name);
        let gone = || RawStretch {
            kind: TaskEvent::Gone,
            run_ns: 0,
            end_ns,
            threads_left: 1,
            command,
            ..raw.clone()
        };
        self.watched.remove(&raw.thread).then(gone)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Watched;
    use super::super::build::raw;
    use super::*;
    use std::cell::RefCell;

    fn record(kind: TaskEvent, thread: u32, name: &str, end_ns: u64) -> RawStretch {
        let known = Watched { process: 4, command: name.to_owned(), ..Watched::default() };
        RawStretch { kind, end_ns, ..raw(&known, thread) }
    }

    #[test]
    fn only_threads_of_the_name_are_watched_from_when_they_have_it_until_they_lose_it() {
        let target = TaskTarget::ChildrenNamed("a very long name".to_owned());
        let named = RefCell::new(Named::default());
        let choose = |kind, thread, name: &str, end_ns| {
            let (before, counts) = named.borrow_mut().choose(&target, &record(kind, thread, name, end_ns));
            (before.map(|it| (it.kind, it.end_ns, it.command.text())), counts)
        };
        let full = "a very long nam";
        assert_eq!(choose(TaskEvent::New, 5, "whylate", 10), (None, false));
        assert_eq!(choose(TaskEvent::Sample, 5, "", 15), (None, false));
        let began = Some((TaskEvent::New, 10, full.to_owned()));
        assert_eq!(choose(TaskEvent::Stretch, 5, full, 20), (began, true));
        assert_eq!(choose(TaskEvent::Stretch, 5, full, 30), (None, true));
        assert_eq!(choose(TaskEvent::Sample, 5, "", 35), (None, true));
        // A thread that it starts has its name until it gets its own.
        assert_eq!(choose(TaskEvent::New, 6, full, 40), (None, false));
        assert_eq!(choose(TaskEvent::Stretch, 6, "helper", 50), (None, false));
        assert_eq!(choose(TaskEvent::Gone, 6, "helper", 60), (None, false));
        assert_eq!(choose(TaskEvent::Pass, 6, "", 60), (None, true));
        let ended = Some((TaskEvent::Gone, 70, full.to_owned()));
        assert_eq!(choose(TaskEvent::Stretch, 5, "other", 70), (ended, false));
        assert_eq!(choose(TaskEvent::Gone, 5, "other", 80), (None, false));
        // One that ended before it left its CPU.
        let began = Some((TaskEvent::New, 90, full.to_owned()));
        assert_eq!(choose(TaskEvent::New, 7, "whylate", 90), (None, false));
        assert_eq!(named.borrow().unseen().collect::<Vec<_>>(), [(7, 4, 90)]);
        assert_eq!(choose(TaskEvent::Gone, 7, full, 95), (began, true));
        assert!(named.borrow().unseen().next().is_none());
    }

    #[test]
    fn without_a_name_every_record_counts() {
        let mut named = Named::default();
        let one = record(TaskEvent::Stretch, 5, "any", 20);
        assert!(named.choose(&TaskTarget::Children, &one).1);
        assert!(named.choose(&TaskTarget::Name("control".to_owned()), &one).0.is_none());
    }
}
