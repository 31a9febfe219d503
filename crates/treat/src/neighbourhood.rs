//! Undoing changes of the kernel's settings together with what they moved.
//!
//! Which value belongs to whylate is decided before anything is written: writing one of them moves others. Then the
//! settings that were asked for are written, and after them everything that differs, in rounds, until a walk over all
//! of them finds nothing.

use crate::change::{Change, Target, Undoing};
use crate::claims;
use crate::error::TreatError;
use crate::journal::{Before, Fate, Journal, JournalEntry, JournalRecord, State, boot_id};
use crate::neighbours::{Scope, Walk, is_near, is_same, of_kernel, target};
use crate::undo::{Report, Undone};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use whylate_host::HostRoot;

/// How often values that differ are written again: first to last, last to first, and so on.
const ROUNDS_MAX: usize = 6;
/// What the journal names as the treatment of an entry that no treatment asked for.
const MOVED: &str = "changed by the kernel together with another setting";

/// What one undoing writes, and the settings around it.
pub(crate) struct Neighbourhood {
    scope: Scope,
    /// Everything when the undoing began.
    found: Walk,
    /// The value before the first change, for settings that whylate may have moved.
    known: Walk,
    /// Values to restore, by their path without links.
    goals: BTreeMap<String, (Target, String)>,
    /// The paths of what was asked for.
    own: Vec<String>,
    /// The paths of all entries that are undone.
    taken: BTreeSet<String>,
    /// The path of an entry, and what happens to it.
    decided: BTreeMap<u64, (String, Fate)>,
}

impl Neighbourhood {
    /// Decides about the entries `chosen`, and adds what a process that was killed moved and could not record.
    pub(crate) fn begin(
        journal: &mut Journal,
        root: &HostRoot,
        chosen: &mut HashSet<u64>,
        report: &mut Report,
    ) -> Option<Self> {
        let boot_id = boot_id(root);
        let contents = journal.contents();
        let is_now = |entry: &&JournalEntry| {
            chosen.contains(&entry.entry)
                && contents.holder(entry).is_none_or(|holder| holder.boot_id == boot_id)
        };
        let entries: Vec<JournalEntry> = contents.open().filter(is_now).cloned().collect();
        let scope = Scope::of(entries.iter().map(|entry| &entry.change.target), root);
        if scope.is_empty() {
            return None;
        }
        let paths = entries.iter().filter_map(|it| Some((it.entry, of_kernel(&it.change.target, root)?)));
        let paths: BTreeMap<u64, String> = paths.collect();
        let is_own = |entry: &&JournalEntry| entry.change.undoing != Undoing::Moved;
        let own = entries.iter().filter(is_own).filter_map(|it| paths.get(&it.entry).cloned()).collect();
        let (mut known, mut unsure) = (Walk::new(), BTreeSet::new());
        for (before, end) in relevant(&contents.before, &paths) {
            for (path, value) in &before.values {
                known.entry(path.clone()).or_insert_with(|| value.clone());
            }
            if !before.is_complete && paths.range(before.first..end).next().is_some() {
                unsure.extend(before.values.keys().cloned());
            }
        }
        let found = scope.walk(root);
        let taken = paths.values().cloned().collect();
        let (goals, decided) = (BTreeMap::new(), BTreeMap::new());
        let mut it = Self { scope, found, known, goals, own, taken, decided };
        let crashed = contents.undoing.clone();
        let mut adopted = Vec::new();
        for (path, old) in &it.known {
            let Some(now) = it.found.get(path).filter(|now| !is_same(path, old, now)) else { continue };
            let is_unsure = match &crashed {
                Some(others) => !others.contains(path),
                None => unsure.contains(path),
            };
            if is_unsure && !it.taken.contains(path) {
                adopted.push((path.clone(), old.clone(), now.clone()));
            }
        }
        let mut entries = entries;
        for (path, old, now) in adopted {
            if it.is_near_own(&path) {
                entries.extend(it.adopt(journal, root, &path, &old, &now, report));
                chosen.extend(entries.last().map(|entry| entry.entry));
            } else {
                let target = target(&path, &old);
                let (old, found) = (target.normal(&old), target.normal(&now));
                report.outcomes.push(Undone {
                    treatment: "related settings".to_owned(),
                    target,
                    old,
                    new: "?".to_owned(),
                    fate: Fate::LeftAlone { found: Some(found) },
                });
            }
        }
        it.decide(&entries, root, crashed.as_ref());
        let left = it.decided.values().filter(|(_, fate)| matches!(fate, Fate::LeftAlone { .. }));
        let mut others: BTreeSet<String> = left.map(|(path, _)| path.clone()).collect();
        let foreign = it.known.iter().filter(|(path, old)| {
            !it.goals.contains_key(*path) && it.found.get(*path).is_some_and(|now| !is_same(path, old, now))
        });
        others.extend(foreign.map(|(path, _)| path.clone()));
        let noted =
            if crashed.is_some() { Ok(()) } else { journal.append(vec![JournalRecord::Undoing { others }]) };
        if let Err(error) = noted.and_then(|()| journal.sync()) {
            report.journal_error.get_or_insert(error.to_string());
        }
        Some(it)
    }

    fn is_near_own(&self, path: &str) -> bool {
        self.own.iter().any(|own| is_near(own, path))
    }

    /// Makes what was moved an entry of its own.
    fn adopt(
        &self,
        journal: &mut Journal,
        root: &HostRoot,
        path: &str,
        old: &str,
        now: &str,
        report: &mut Report,
    ) -> Option<JournalEntry> {
        let session = *journal.contents().sessions.last_key_value()?.0;
        let (entry, treatment) = (journal.next_entry(), "related settings".to_owned());
        let records = moved(entry, session, &treatment, path, old, Some(now));
        let change = moved_change(path, old, Some(now));
        claims::check(&change, old, root).ok()?;
        // On a full disk it is restored all the same.
        if let Err(error) = journal.append(records) {
            report.journal_error.get_or_insert(error.to_string());
        }
        let (state, old) = (State::Applied { found: change.new.clone() }, old.to_owned());
        Some(JournalEntry { entry, session, treatment, change, old, state })
    }

    /// Newest first, each as if those after it had been undone.
    fn decide(&mut self, entries: &[JournalEntry], root: &HostRoot, crashed: Option<&BTreeSet<String>>) {
        let mut now: BTreeMap<String, Option<String>> = BTreeMap::new();
        for entry in entries.iter().rev() {
            let setting = &entry.change.target;
            let Some(path) = of_kernel(setting, root) else { continue };
            if matches!(entry.change.undoing, Undoing::Always | Undoing::WithFolder) {
                continue;
            }
            let old = entry.old_normal();
            let value = now.entry(path.clone()).or_insert_with(|| setting.now(root));
            let is_moved = entry.change.undoing == Undoing::Moved;
            let fate = match value {
                // What was asked for is checked when it is its turn: it may have been restored with another setting.
                None if !is_moved => continue,
                Some(value) if *value == old => Fate::Unchanged,
                Some(value)
                    if !is_ours(entry, value) && crashed.is_none_or(|others| others.contains(&path)) =>
                {
                    Fate::LeftAlone { found: Some(value.clone()) }
                }
                _ => Fate::Restored,
            };
            if !matches!(fate, Fate::LeftAlone { .. }) {
                *value = Some(old);
                self.goals.insert(path.clone(), (setting.clone(), entry.old.clone()));
            }
            self.decided.insert(entry.entry, (path, fate));
        }
    }

    pub(crate) fn has(&self, entry: &JournalEntry) -> bool {
        self.decided.contains_key(&entry.entry)
    }

    /// Undoes one entry; `None` if it is none of the kernel's settings. What was moved comes later.
    pub(crate) fn undo(&self, entry: &JournalEntry, root: &HostRoot) -> Option<Fate> {
        let (_, fate) = self.decided.get(&entry.entry)?;
        if *fate == Fate::Restored && entry.change.undoing != Undoing::Moved {
            let setting = &entry.change.target;
            // Whether the setting took it is checked at the end: another one may restore it.
            if setting.clean(root).is_ok() && setting.now(root).as_ref() != Some(&entry.old_normal()) {
                let _ = setting.restore_at_once(root, &entry.old);
            }
        }
        Some(fate.clone())
    }

    /// Writes what differs until nothing does, and reports what stays different.
    pub(crate) fn settle(
        mut self,
        journal: &mut Journal,
        root: &HostRoot,
        places: &[(u64, usize)],
        report: &mut Report,
    ) {
        let mut added = Vec::new();
        let mut refused: BTreeMap<String, TreatError> = BTreeMap::new();
        for round in 0..ROUNDS_MAX {
            added.extend(self.moved_meanwhile(journal, root, report));
            let mut wrong: Vec<String> = self.wrong(root).collect();
            if wrong.is_empty() {
                break;
            }
            if round % 2 == 1 {
                wrong.reverse();
            }
            for path in wrong {
                let Some((setting, old)) = self.goals.get(&path) else { continue };
                if let Err(error) = setting.restore_at_once(root, old) {
                    refused.insert(path, error);
                }
            }
        }
        let wrong: BTreeSet<String> = self.wrong(root).collect();
        let end = |path: &String| {
            if !wrong.contains(path) {
                return Fate::Restored;
            }
            let (setting, old) = &self.goals[path];
            let Some(found) = setting.now(root) else { return Fate::LeftAlone { found: None } };
            let (target, wanted) = (setting.to_string(), setting.normal(old));
            let error = refused.get(path).map_or_else(
                || TreatError::NotTaken { target, wanted, found }.to_string(),
                TreatError::to_string,
            );
            Fate::Failed { reason: error }
        };
        for (entry, place) in places {
            let Some((path, fate)) = self.decided.get(entry) else { continue };
            if matches!(fate, Fate::Restored) || (*fate == Fate::Unchanged && wrong.contains(path)) {
                report.outcomes[*place].fate = end(path);
            }
        }
        for (entry, path) in added {
            let fate = end(&path);
            if let Err(error) = journal.append(vec![JournalRecord::Closed { entry, fate: fate.clone() }]) {
                report.journal_error.get_or_insert(error.to_string());
            }
            let (target, old) = &self.goals[&path];
            let (target, old, treatment) =
                (target.clone(), target.normal(old), "related settings".to_owned());
            report.outcomes.push(Undone { treatment, target, old, new: "?".to_owned(), fate });
        }
    }

    fn wrong(&self, root: &HostRoot) -> impl Iterator<Item = String> {
        let differs = |(setting, old): &(Target, String)| setting.now(root) != Some(setting.normal(old));
        self.goals.iter().filter(move |(_, goal)| differs(goal)).map(|(path, _)| path.clone())
    }

    /// What the undoing itself has moved becomes a goal.
    fn moved_meanwhile(
        &mut self,
        journal: &mut Journal,
        root: &HostRoot,
        report: &mut Report,
    ) -> Vec<(u64, String)> {
        let walk = self.scope.walk(root);
        let mut added = Vec::new();
        for path in self.known.keys() {
            let (Some(before), Some(now)) = (self.found.get(path), walk.get(path)) else { continue };
            if self.goals.contains_key(path) || is_same(path, before, now) || !self.is_near_own(path) {
                continue;
            }
            if !self.taken.contains(path)
                && let Some(entry) = self.adopt(journal, root, path, before, now, report)
            {
                added.push((entry.entry, entry.change.target, path.clone(), before.clone()));
            }
        }
        let goals =
            added.iter().map(|(_, setting, path, old)| (path.clone(), (setting.clone(), old.clone())));
        self.goals.extend(goals);
        added.into_iter().map(|(entry, _, path, _)| (entry, path)).collect()
    }
}

/// The values before the entries `paths`, and where the entries after it end.
fn relevant<'a>(
    before: &'a [Before],
    paths: &BTreeMap<u64, String>,
) -> impl Iterator<Item = (&'a Before, u64)> {
    let ends = before.iter().skip(1).map(|next| next.first).chain(std::iter::once(u64::MAX));
    let pairs: Vec<_> = before.iter().zip(ends).collect();
    let is_touched =
        |(of, end): &(&Before, u64)| of.first < *end && paths.range(of.first..*end).next().is_some();
    pairs.into_iter().filter(is_touched).collect::<Vec<_>>().into_iter()
}

fn is_ours(entry: &JournalEntry, now: &str) -> bool {
    match &entry.state {
        State::Applied { found } => found == now,
        State::Intended | State::Closed(_) => entry.change.target.is_reached(&entry.change.new, now),
    }
}

fn moved_change(path: &str, old: &str, now: Option<&str>) -> Change {
    let target = target(path, old);
    let found = now.map_or_else(|| Target::ABSENT.to_owned(), |now| target.normal(now));
    Change { undoing: Undoing::Moved, ..Change::optional(target, found, MOVED) }
}

/// The lines of a setting that was moved from `old`; `now` is `None` if it is gone.
pub(crate) fn moved(
    entry: u64,
    session: u64,
    treatment: &str,
    path: &str,
    old: &str,
    now: Option<&str>,
) -> Vec<JournalRecord> {
    let change = moved_change(path, old, now);
    let found = change.new.clone();
    let (treatment, old) = (treatment.to_owned(), old.to_owned());
    vec![
        JournalRecord::Intended { entry, session, treatment, change, old },
        JournalRecord::Applied { entry, found },
    ]
}

#[cfg(test)]
#[path = "neighbourhood_tests.rs"]
mod tests;
