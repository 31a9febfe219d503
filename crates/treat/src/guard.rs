//! Changes that are undone when their guard is dropped, and by the next process if this one is killed.

use crate::change::{Change, Target, Undoing};
use crate::claims;
use crate::error::TreatError;
use crate::journal::{Holder, IfDamaged, Journal, JournalEntry, JournalPlace, JournalRecord, State};
use crate::neighbourhood::moved;
use crate::neighbours::{Scope, Walk, is_same, moved_by, of_kernel, replaced_by};
use crate::place::FoundSetting;
use crate::planner::{Planner, Surroundings};
use crate::undo::{Report, undo, undo_alone};
use std::collections::HashSet;
use std::time::Duration;
use whylate_core::warning::{Warning, WarningCode, push_once};
use whylate_host::HostRoot;

/// How often new tasks are looked for that were started meanwhile: each round is much shorter than the one before.
const ROUNDS_MAX: usize = 5;

/// Time between two walks that show which values change by themselves.
const LEARNING: Duration = Duration::from_millis(20);

/// How many changes are recorded on the disk at once, before they are made.
const BATCH_MAX: usize = 512;

/// Holds a journal, and changes the machine through it.
///
/// ```no_run
/// use whylate_host::HostRoot;
/// use whylate_treat::{Change, Guard, Holder, JournalPlace, Target};
///
/// # fn main() -> Result<(), whylate_treat::TreatError> {
/// let root = HostRoot::real();
/// let place = JournalPlace::of_this_machine("example");
/// let holder = Holder::this_process("an example", None, false, &root);
/// let mut guard = Guard::begin(&place, &root, holder)?;
/// let change = Change::required(Target::file("/proc/sys/vm/swappiness"), "1", "swaps less");
/// guard.apply("example", &[change])?;
/// // … measure …
/// let report = guard.undo();
/// assert!(report.is_complete());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Guard {
    journal: Journal,
    root: HostRoot,
    holder: Holder,
    /// Number of this guard's session in the journal; `None` until there is a change.
    session: Option<u64>,
    recovered: Report,
    is_kept: bool,
}

impl Guard {
    /// Takes the journal, and undoes what a process that was killed left in it.
    ///
    /// Changes that were applied to stay (`kept`) are not touched: a holder that also keeps its changes adds to them,
    /// any other holder is refused.
    pub fn begin(place: &JournalPlace, root: &HostRoot, holder: Holder) -> Result<Self, TreatError> {
        let mut journal = Journal::open(place, root, &holder, IfDamaged::Refuse)?;
        let is_kept = |journal: &Journal, entry: &JournalEntry| {
            let holder_of = journal.contents().holder(entry);
            holder_of.is_some_and(|of| of.kept && of.boot_id == holder.boot_id)
        };
        let kept: Vec<u64> =
            journal.contents().open().filter(|it| is_kept(&journal, it)).map(|it| it.entry).collect();
        let recovered = undo(&mut journal, root, |entry| !kept.contains(&entry.entry));
        if let (Some(first), false) = (kept.first(), holder.kept) {
            let contents = journal.contents();
            let entry = contents.entries.iter().find(|entry| entry.entry == *first);
            if let Some(of) = entry.and_then(|entry| contents.holder(entry)) {
                return Err(TreatError::InForce {
                    count: kept.len(),
                    command: of.command.clone(),
                    since: of.since(),
                });
            }
        }
        Ok(Self { journal, root: root.clone(), holder, session: None, recovered, is_kept: false })
    }

    /// What a process that was killed had left behind, undone by [`Guard::begin`].
    pub fn recovered(&self) -> &Report {
        &self.recovered
    }

    /// Makes the changes of one treatment, each after it is safe in the journal. Returns which of the optional ones
    /// could not be made.
    ///
    /// A setting that has its value already is not changed, and neither is a task that has ended.
    ///
    /// # Errors
    /// [`TreatError::NotApplied`] when a required change fails; what this call had changed is undone then.
    pub fn apply(&mut self, treatment: &str, changes: &[Change]) -> Result<Vec<Warning>, TreatError> {
        let first = self.journal.next_entry();
        let (mut warnings, mut report) = (Vec::new(), Report::default());
        match self.apply_all(treatment, changes, &mut warnings, &mut report) {
            Ok(()) => Ok(warnings),
            Err(source) => {
                report.extend(undo(&mut self.journal, &self.root, |entry| entry.entry >= first));
                self.forget_closed_session();
                let aftermath = report.aftermath();
                let treatment = treatment.to_owned();
                Err(TreatError::NotApplied { treatment, source: Box::new(source), aftermath })
            }
        }
    }

    /// Makes the changes for what appeared while those of `planner` were made, until nothing new appears.
    pub fn settle(
        &mut self,
        treatment: &str,
        planner: &impl Planner,
        surroundings: &Surroundings,
    ) -> Result<Vec<Warning>, TreatError> {
        let mut warnings = Vec::new();
        for _ in 0..ROUNDS_MAX {
            let more = planner
                .again(surroundings)
                .map_err(|source| TreatError::Impossible { treatment: treatment.to_owned(), source })?;
            if more.changes.is_empty() {
                break;
            }
            let not_done = self.apply(treatment, &more.changes)?;
            for warning in more.warnings.into_iter().chain(not_done) {
                push_once(&mut warnings, warning);
            }
        }
        Ok(warnings)
    }

    /// Undoes every change of this guard, newest first.
    pub fn undo(&mut self) -> Report {
        let Some(session) = self.session else { return Report::default() };
        let report = undo(&mut self.journal, &self.root, |entry| entry.session == session);
        self.forget_closed_session();
        report
    }

    /// Which of its changes no longer hold, one sentence each: something else has written there since.
    pub fn not_held(&self) -> Option<String> {
        let differs = |entry: &JournalEntry| {
            let State::Applied { found } = &entry.state else { return None };
            let target = &entry.change.target;
            let now = target.now(&self.root).filter(|now| now != found)?;
            // Tasks change their own affinity, and the kernel changes settings along with a group.
            let is_asked = target.task().is_none() && entry.change.undoing == Undoing::IfUnchanged;
            is_asked.then(|| format!("{target} was set to `{found}`, but is now `{now}`"))
        };
        self.in_force().find_map(differs)
    }

    /// Leaves the changes in force; `whylate treat restore` undoes them.
    ///
    /// # Errors
    /// [`TreatError::State`] when the journal cannot be brought to the disk; the changes are undone then.
    pub fn keep(mut self) -> Result<(), TreatError> {
        self.journal.sync()?;
        self.is_kept = true;
        Ok(())
    }

    /// The changes of this guard that are in force.
    pub fn in_force(&self) -> impl Iterator<Item = &JournalEntry> {
        self.journal.contents().open().filter(|entry| Some(entry.session) == self.session)
    }

    /// An emptied journal has no sessions.
    fn forget_closed_session(&mut self) {
        self.session = self.session.filter(|session| self.journal.contents().sessions.contains_key(session));
    }

    fn apply_all(
        &mut self,
        treatment: &str,
        changes: &[Change],
        warnings: &mut Vec<Warning>,
        undone: &mut Report,
    ) -> Result<(), TreatError> {
        let first = self.journal.next_entry();
        let scope = Scope::of(changes.iter().map(|change| &change.target), &self.root);
        let mut before = None;
        for batch in batches(changes) {
            let mut intended: Vec<(u64, &Change, String)> = Vec::new();
            let mut records = Vec::new();
            let session = self.session()?;
            for change in batch {
                match self.look(change) {
                    Ok(Some(old)) => {
                        let entry = self.journal.next_entry() + intended.len() as u64;
                        let (treatment, change_of) = (treatment.to_owned(), change.clone());
                        intended.push((entry, change, old.clone()));
                        records.push(JournalRecord::Intended {
                            entry,
                            session,
                            treatment,
                            change: change_of,
                            old,
                        });
                    }
                    Ok(None) => {}
                    Err(error) => forgive(change, error, &[], warnings)?,
                }
            }
            if !records.is_empty() {
                if before.is_none() {
                    before = Some(self.remember(&scope, first)?);
                }
                self.journal.append(records)?;
                self.journal.sync()?;
            }
            for (entry, change, old) in intended {
                match self.can_go_back(change, &old).and_then(|()| self.make(change)) {
                    Ok(Some(found)) => self.journal.append(vec![JournalRecord::Applied { entry, found }])?,
                    Ok(None) => {}
                    Err(error) => {
                        // It may have been made in part: the value right after it is what the kernel made of it.
                        if let TreatError::NotTaken { found, .. } = &error {
                            self.journal
                                .append(vec![JournalRecord::Applied { entry, found: found.clone() }])?;
                        }
                        // Everything that this call has made is undone together.
                        if change.required {
                            return Err(error);
                        }
                        let report = undo_alone(&mut self.journal, &self.root, entry);
                        self.forget_closed_session();
                        let problems = report.problems();
                        undone.extend(report);
                        forgive(change, error, &problems, warnings)?;
                        // An undoing that closes the last entry empties the journal.
                        if let Some(values) =
                            before.clone().filter(|_| self.journal.contents().before.is_empty())
                        {
                            self.session()?;
                            self.journal.append(vec![JournalRecord::Before { first, values }])?;
                        }
                    }
                }
            }
        }
        before.map_or(Ok(()), |before| self.note_moved(treatment, &scope, first, &before))
    }

    /// Walks the settings that the changes may move, and puts them into the journal.
    fn remember(&mut self, scope: &Scope, first: u64) -> Result<Walk, TreatError> {
        if scope.is_empty() {
            return Ok(Walk::new());
        }
        self.session()?;
        let earlier = scope.walk(&self.root);
        std::thread::sleep(LEARNING);
        let mut values = scope.walk(&self.root);
        // A value that changes by itself says nothing.
        values.retain(|path, value| earlier.get(path) == Some(value));
        self.journal.append(vec![JournalRecord::Before { first, values: values.clone() }])?;
        Ok(values)
    }

    /// Puts settings that were moved into the journal, and those that were set and then moved by another change.
    fn note_moved(
        &mut self,
        treatment: &str,
        scope: &Scope,
        first: u64,
        before: &Walk,
    ) -> Result<(), TreatError> {
        if scope.is_empty() {
            return Ok(());
        }
        let after = scope.walk(&self.root);
        let (session, mut records, mut own) = (self.session()?, Vec::new(), HashSet::new());
        for entry in self.journal.contents().open().filter(|it| it.entry >= first) {
            let Some(path) = of_kernel(&entry.change.target, &self.root) else { continue };
            if let (State::Applied { found }, Some(now)) = (&entry.state, after.get(&path)) {
                let now = entry.change.target.normal(now);
                if *found != now {
                    records.push(JournalRecord::Applied { entry: entry.entry, found: now });
                }
            }
            own.insert(path);
        }
        let mut next = self.journal.next_entry();
        for (path, old) in before.iter().filter(|(path, _)| !own.contains(*path)) {
            let now = after.get(path).map(String::as_str);
            if now.is_none_or(|now| !is_same(path, old, now)) {
                records.extend(moved(next, session, treatment, path, old, now));
                next += 1;
            }
        }
        records.push(JournalRecord::After {});
        self.journal.append(records)?;
        self.journal.sync()
    }

    /// Writes the former value of a setting once before it is changed: a setting that does not take it back is left
    /// alone.
    fn can_go_back(&self, change: &Change, old: &str) -> Result<(), TreatError> {
        let Some(path) = of_kernel(&change.target, &self.root) else { return Ok(()) };
        let is_file = std::fs::metadata(self.root.path(&path)).is_ok_and(|about| about.is_file());
        if change.undoing != Undoing::IfUnchanged || !is_file {
            return Ok(());
        }
        let one_way = |source| TreatError::OneWay {
            target: change.target.to_string(),
            old: change.target.normal(old),
            source,
        };
        // What the kernel prints for an empty text would be a text if it were written.
        if old.trim() == "(null)" {
            return Err(one_way(std::io::ErrorKind::InvalidInput.into()));
        }
        if let Some(moved) = moved_by(&path).map(Target::file)
            && let Some(value) = moved.now(&self.root)
            && let Err(TreatError::Write { source, .. }) = moved.restore_at_once(&self.root, &value)
        {
            return Err(one_way(std::io::Error::other(format!(
                "the value of {moved} could not be restored either: {source}"
            ))));
        }
        match change.target.restore_at_once(&self.root, old) {
            // The right is missing for the new value, too; there it is reported with its remedy.
            Err(TreatError::Write { source, .. })
                if source.kind() != std::io::ErrorKind::PermissionDenied =>
            {
                let other = replaced_by(&path).and_then(|other| Target::file(other).now(&self.root));
                if old.trim() == "0" && other.is_some_and(|other| other != "0") {
                    return Ok(());
                }
                Err(one_way(source))
            }
            _ => match change.target.now(&self.root) {
                Some(now) if now != change.target.normal(old) => Err(one_way(std::io::Error::other(
                    format!("after a write of `{old}`, the value was `{now}`"),
                ))),
                _ => Ok(()),
            },
        }
    }

    fn session(&mut self) -> Result<u64, TreatError> {
        match self.session {
            Some(session) => Ok(session),
            None => {
                let session = self.journal.begin_session(&self.holder)?;
                self.session = Some(session);
                Ok(session)
            }
        }
    }

    /// The value before the change; `None` when there is nothing to change.
    fn look(&self, change: &Change) -> Result<Option<String>, TreatError> {
        let target = &change.target;
        match target.read(&self.root)? {
            FoundSetting::Ended => Ok(None),
            FoundSetting::Nothing => Err(TreatError::Absent { target: target.to_string() }),
            FoundSetting::Value(old) => {
                let normal = target.normal(&old);
                // A value that the kernel may round is compared exactly: only a write shows whether it rounds.
                let is_there = normal == change.new
                    || (!matches!(target, Target::File { .. }) && target.is_reached(&change.new, &normal));
                if is_there && change.undoing != Undoing::Always {
                    return Ok(None);
                }
                let (target, value) = (target.to_string(), change.new.clone());
                claims::check(change, &old, &self.root).map_err(|reason| TreatError::NotOurs {
                    target,
                    value,
                    reason,
                })?;
                Ok(Some(old))
            }
        }
    }

    /// Writes and reads back; `None` when the task ended meanwhile.
    fn make(&self, change: &Change) -> Result<Option<String>, TreatError> {
        let (target, root) = (&change.target, &self.root);
        // Only recorded: setting an affinity again makes the kernel remember it as one that was asked for.
        if change.undoing == Undoing::Always
            && let FoundSetting::Value(found) = target.read(root)?
            && target.normal(&found) == change.new
        {
            return Ok(Some(change.new.clone()));
        }
        if let Err(error) = target.write(root, &change.new) {
            return if matches!(target.read(root), Ok(FoundSetting::Ended)) { Ok(None) } else { Err(error) };
        }
        match target.read(root)? {
            FoundSetting::Ended => Ok(None),
            FoundSetting::Nothing => Err(TreatError::Absent { target: target.to_string() }),
            FoundSetting::Value(found) => {
                let found = target.normal(&found);
                if target.is_reached(&change.new, &found) {
                    return Ok(Some(found));
                }
                Err(TreatError::NotTaken { target: target.to_string(), wanted: change.new.clone(), found })
            }
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if !self.is_kept {
            // To see the result call `undo`; failed changes stay in the journal.
            self.undo();
        }
    }
}

/// Turns the failure of a change that is not required into a warning.
fn forgive(
    change: &Change,
    error: TreatError,
    problems: &[String],
    warnings: &mut Vec<Warning>,
) -> Result<(), TreatError> {
    if change.required || matches!(error, TreatError::State { .. }) {
        return Err(error);
    }
    let problems: String = problems.iter().map(|problem| format!("; {problem}")).collect();
    let text = format!("not done: {} ({error}{problems})", change.effect);
    warnings.push(Warning::new(WarningCode::TreatmentIncomplete, text));
    Ok(())
}

/// Changes that may be recorded together: those of tasks. There are many of them, and each can read its old value
/// before the others are made.
fn batches(changes: &[Change]) -> impl Iterator<Item = &[Change]> {
    let together = |a: &Change, b: &Change| a.target.task().is_some() && b.target.task().is_some();
    changes.chunk_by(together).flat_map(|chunk| chunk.chunks(BATCH_MAX))
}
