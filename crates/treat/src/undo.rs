//! Undoing what a journal says, backwards, and the result.

use crate::change::{Target, Task, Undoing};
use crate::error::TreatError;
use crate::journal::{
    Fate, Holder, IfDamaged, Journal, JournalEntry, JournalPlace, JournalRecord, State, boot_id,
};
use crate::neighbourhood::Neighbourhood;
use crate::place::{FoundSetting, Patience};
use crate::settle;
use std::collections::HashSet;
use whylate_host::HostRoot;

/// What happened to one change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Undone {
    pub treatment: String,
    pub target: Target,
    /// The former value, in the normal form.
    pub old: String,
    pub new: String,
    pub fate: Fate,
}

/// What happened to several changes, in the order in which they were undone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// One for each.
    pub outcomes: Vec<Undone>,
    /// What a damaged journal no longer says, one sentence each; settings that it recorded may still be changed.
    pub unknown: Vec<String>,
    /// What went wrong with the journal itself; the machine is as the outcomes say.
    pub journal_error: Option<String>,
}

impl Report {
    /// Whether every setting has its former value.
    pub fn is_complete(&self) -> bool {
        self.unknown.is_empty() && self.outcomes.iter().all(|outcome| outcome.fate.is_complete())
    }

    /// One line for each setting that was not restored, and for what is not known.
    pub fn problems(&self) -> Vec<String> {
        self.outcomes.iter().filter_map(Undone::problem).chain(self.unknown.iter().cloned()).collect()
    }

    /// The result, as the end of a sentence.
    pub fn aftermath(&self) -> String {
        match self.problems().as_slice() {
            [] => "every setting has its former value".to_owned(),
            problems => problems.join("; "),
        }
    }

    /// Adds the result of another undo.
    pub fn extend(&mut self, other: Self) {
        self.outcomes.extend(other.outcomes);
        self.unknown.extend(other.unknown);
        self.journal_error = self.journal_error.take().or(other.journal_error);
    }
}

impl Undone {
    /// Why the setting is not what it was; `None` when it is.
    pub fn problem(&self) -> Option<String> {
        let Self { target, old, new, .. } = self;
        match &self.fate {
            Fate::LeftAlone { found: Some(found) } => Some(format!(
                "{target} is now `{found}` instead of `{new}`: another program changed this value, so whylate left it alone (before: `{old}`)"
            )),
            Fate::LeftAlone { found: None } => {
                Some(format!("{target} no longer exists, so it was left alone (before: `{old}`)"))
            }
            Fate::Failed { reason } => Some(format!("{target} was not restored to `{old}`: {reason}")),
            Fate::Restored | Fate::Unchanged | Fate::Ended | Fate::Rebooted => None,
        }
    }
}

/// Undoes the open entries of a journal that `chosen` picks, newest first.
pub(crate) fn undo(journal: &mut Journal, root: &HostRoot, chosen: impl Fn(&JournalEntry) -> bool) -> Report {
    let mut chosen: HashSet<u64> =
        journal.contents().open().filter(|entry| chosen(entry)).map(|entry| entry.entry).collect();
    let mut report = Report { unknown: journal.contents().damage.clone(), ..Report::default() };
    let neighbourhood = Neighbourhood::begin(journal, root, &mut chosen, &mut report);
    undo_chosen(journal, root, &chosen, neighbourhood, report)
}

/// Undoes one entry and checks no other setting: those that were made before it stay.
pub(crate) fn undo_alone(journal: &mut Journal, root: &HostRoot, entry: u64) -> Report {
    let report = Report { unknown: journal.contents().damage.clone(), ..Report::default() };
    undo_chosen(journal, root, &HashSet::from([entry]), None, report)
}

fn undo_chosen(
    journal: &mut Journal,
    root: &HostRoot,
    chosen: &HashSet<u64>,
    neighbourhood: Option<Neighbourhood>,
    mut report: Report,
) -> Report {
    let boot_id = boot_id(root);
    let entries: Vec<JournalEntry> =
        journal.contents().open().rev().filter(|it| chosen.contains(&it.entry)).cloned().collect();
    let mut moved_back = tasks_moved_back(journal);
    // Closed only when they have settled.
    let mut settling = Vec::new();
    let mut patience = Patience::default();
    for entry in entries {
        let same_boot = journal.contents().holder(&entry).is_none_or(|holder| holder.boot_id == boot_id);
        let fate = match neighbourhood.as_ref().and_then(|it| it.undo(&entry, root)) {
            Some(fate) => fate,
            None if same_boot => undo_entry(&entry, root, &moved_back, &mut patience),
            None => Fate::Rebooted,
        };
        let is_setting = neighbourhood.as_ref().is_some_and(|it| it.has(&entry));
        if let Target::Membership { task, .. } = &entry.change.target {
            moved_back.insert(task.clone());
        }
        if entry.change.target.gives_cpus_back() {
            patience = Patience::default();
        }
        if is_setting || matches!(entry.change.target, Target::Affinity { .. }) {
            settling.push((entry.entry, report.outcomes.len()));
        } else {
            close(journal, entry.entry, fate.clone(), &mut report);
        }
        let (old, target) = (entry.old_normal(), entry.change.target);
        report.outcomes.push(Undone { treatment: entry.treatment, target, old, new: entry.change.new, fate });
    }
    settle::settle(&mut report.outcomes, root);
    if let Some(neighbourhood) = neighbourhood {
        neighbourhood.settle(journal, root, &settling, &mut report);
    }
    for (entry, place) in settling {
        let fate = report.outcomes[place].fate.clone();
        close(journal, entry, fate, &mut report);
    }
    let ended = if journal.contents().undoing.is_some() {
        journal.append(vec![JournalRecord::Undone {}])
    } else {
        Ok(())
    };
    if let Err(error) = ended.and_then(|()| journal.clear_if_closed()) {
        report.journal_error.get_or_insert(error.to_string());
    }
    report
}

fn close(journal: &mut Journal, entry: u64, fate: Fate, report: &mut Report) {
    if let Err(error) = journal.append(vec![JournalRecord::Closed { entry, fate }]) {
        // The next attempt finds the former value there.
        report.journal_error.get_or_insert(error.to_string());
    }
}

/// Tasks whose move between groups was undone already: the kernel may have changed their affinity with it.
fn tasks_moved_back(journal: &Journal) -> HashSet<Task> {
    let closed = journal.contents().entries.iter().filter(|entry| !entry.is_open());
    let moved = closed.filter(|entry| matches!(entry.change.target, Target::Membership { .. }));
    moved.filter_map(|entry| entry.change.target.task().cloned()).collect()
}

fn undo_entry(
    entry: &JournalEntry,
    root: &HostRoot,
    moved_back: &HashSet<Task>,
    patience: &mut Patience,
) -> Fate {
    match entry.change.target.clean(root).and_then(|()| try_undo(entry, root, moved_back, patience)) {
        Ok(fate) => fate,
        // A task may end at any moment.
        Err(_) if entry.change.target.task().is_some_and(|task| !task.is_alive(root)) => Fate::Ended,
        Err(error) => Fate::Failed { reason: error.to_string() },
    }
}

fn try_undo(
    entry: &JournalEntry,
    root: &HostRoot,
    moved_back: &HashSet<Task>,
    patience: &mut Patience,
) -> Result<Fate, TreatError> {
    let (target, old) = (&entry.change.target, entry.old_normal());
    if entry.change.undoing == Undoing::WithFolder {
        return Ok(Fate::Restored);
    }
    let found = match target.read(root)? {
        FoundSetting::Ended => return Ok(Fate::Ended),
        FoundSetting::Nothing => return Ok(Fate::LeftAlone { found: None }),
        FoundSetting::Value(found) => target.normal(&found),
    };
    if found == old {
        // A stop may be on its way to a process that still runs.
        if matches!(target, Target::Stopped { .. }) && old == Target::RUNNING {
            target.restore(root, &entry.old, patience)?;
        }
        return Ok(Fate::Unchanged);
    }
    let is_ours = match &entry.state {
        State::Applied { found: applied } => found == *applied,
        State::Intended | State::Closed(_) => target.is_reached(&entry.change.new, &found),
    };
    let is_moved = matches!(target, Target::Affinity { task } if moved_back.contains(task));
    if !is_ours && !is_moved && entry.change.undoing != Undoing::Always {
        return Ok(Fate::LeftAlone { found: Some(found) });
    }
    target.restore(root, &entry.old, patience)?;
    match target.read(root)? {
        FoundSetting::Ended => Ok(Fate::Ended),
        FoundSetting::Nothing => Ok(Fate::LeftAlone { found: None }),
        FoundSetting::Value(now) if target.normal(&now) == old => Ok(Fate::Restored),
        FoundSetting::Value(now) => {
            Err(TreatError::NotTaken { target: target.to_string(), wanted: old, found: target.normal(&now) })
        }
    }
}

/// Undoes everything that is left in the journals at `place` and in the same folder, whichever process made it.
///
/// # Errors
/// [`TreatError::Held`] while another whylate holds one of them, [`TreatError::State`], [`TreatError::Untrusted`].
pub fn restore(place: &JournalPlace, root: &HostRoot) -> Result<Report, TreatError> {
    let holder = Holder::this_process("whylate treat restore", None, false, root);
    let mut report = Report::default();
    for place in place.all()? {
        if place.exists() {
            match Journal::open(&place, root, &holder, IfDamaged::Keep) {
                Ok(mut journal) => report.extend(undo(&mut journal, root, |_| true)),
                // A disk that was full before the first change.
                Err(TreatError::State { .. }) if is_empty(&place, root) => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(report)
}

/// Whether nothing is changed, and the journal is whole.
fn is_empty(place: &JournalPlace, root: &HostRoot) -> bool {
    place.read(root).is_ok_and(|it| it.damage.is_empty() && it.open().next().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change::Change;
    use std::time::{Duration, Instant};
    use whylate_sys::schedule;

    #[test]
    fn affinities_that_the_kernel_refuses_are_waited_for_together() {
        let root = HostRoot::real();
        let folder = tempfile::tempdir().unwrap();
        let holder = Holder::this_process("a test", None, false, &root);
        let place = JournalPlace::new(folder.path(), &format!("test-{}", std::process::id()));
        let mut journal = Journal::open(&place, &root, &holder, IfDamaged::Refuse).unwrap();
        let session = journal.begin_session(&holder).unwrap();
        let tid = schedule::id_of_this_thread();
        let task = Task::find(&root, std::process::id(), tid).unwrap();
        let now = schedule::allowed_of_this_thread().unwrap().to_string();
        for entry in 1..=8 {
            let change = Change::required(Target::Affinity { task: task.clone() }, now.clone(), "test");
            // No machine has this CPU.
            let (treatment, old) = ("shield".to_owned(), "8191".to_owned());
            journal.append(vec![JournalRecord::Intended { entry, session, treatment, change, old }]).unwrap();
        }
        let begin = Instant::now();
        let report = undo(&mut journal, &root, |_| true);
        // One after the other they would take sixteen.
        assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
        assert_eq!(report.problems().len(), 8, "{report:?}");
    }
}
