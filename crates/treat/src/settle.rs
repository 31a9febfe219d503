//! Affinities after a group or a CPU came back.
//!
//! The kernel gives tasks the returned CPUs a moment later, from a work item; kernels before 6.2 then forget which
//! CPUs a task was given meanwhile. So restored affinities are checked until they stay.

use crate::change::Target;
use crate::error::TreatError;
use crate::journal::Fate;
use crate::place::FoundSetting;
use crate::undo::Undone;
use std::collections::HashSet;
use std::time::{Duration, Instant};
use whylate_host::HostRoot;

/// How long nothing may change.
const STAYS: Duration = Duration::from_millis(200);
/// When to give up.
const WITHIN: Duration = Duration::from_secs(3);
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(20);

/// Restores affinities again that the kernel changed after they had been undone; those that do not stay have failed.
pub(crate) fn settle(outcomes: &mut [Undone], root: &HostRoot) {
    if !outcomes.iter().any(changes_what_tasks_may_use) {
        return;
    }
    let begin = Instant::now();
    let mut quiet_since = begin;
    let oldest = oldest(outcomes);
    loop {
        let is_last = begin.elapsed() > WITHIN;
        for place in &oldest {
            let outcome = &mut outcomes[*place];
            let Some(found) = differs(outcome, root).filter(|_| is_back(outcome)) else { continue };
            quiet_since = Instant::now();
            if is_last {
                let (target, wanted) = (outcome.target.to_string(), outcome.old.clone());
                let error = TreatError::NotTaken { target, wanted, found };
                outcome.fate = Fate::Failed { reason: error.to_string() };
            } else {
                // The next check shows whether it helped.
                let _ = outcome.target.restore_at_once(root, &outcome.old);
            }
        }
        if is_last || quiet_since.elapsed() >= STAYS || !outcomes.iter().any(is_back) {
            return;
        }
        std::thread::sleep(PAUSE);
    }
}

/// The place of each task's oldest affinity: the one from before all treatments. A treatment that came later, and was
/// undone earlier, found what another one had set.
fn oldest(outcomes: &[Undone]) -> Vec<usize> {
    let mut seen = HashSet::new();
    let mut is_oldest = |place: &usize| match &outcomes[*place].target {
        Target::Affinity { task } => seen.insert(task),
        _ => false,
    };
    let oldest = (0..outcomes.len()).rev().filter(|place| is_oldest(place));
    oldest.filter(|place| is_back(&outcomes[*place])).collect()
}

/// Whether the kernel may give tasks other CPUs after this was undone.
fn changes_what_tasks_may_use(outcome: &Undone) -> bool {
    let was_made = matches!(outcome.fate, Fate::Restored | Fate::Unchanged);
    let target = &outcome.target;
    was_made && (target.gives_cpus_back() || matches!(target, Target::Membership { .. }))
}

fn is_back(outcome: &Undone) -> bool {
    matches!(outcome.target, Target::Affinity { .. })
        && matches!(outcome.fate, Fate::Restored | Fate::Unchanged)
}

/// What is there, if it is not what was there before.
fn differs(outcome: &Undone, root: &HostRoot) -> Option<String> {
    match outcome.target.read(root) {
        Ok(FoundSetting::Value(found)) => {
            Some(outcome.target.normal(&found)).filter(|found| *found != outcome.old)
        }
        // A task that has ended needs nothing.
        Ok(FoundSetting::Ended | FoundSetting::Nothing) | Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change::Task;
    use whylate_core::CpuSet;
    use whylate_sys::schedule;

    fn undone(target: Target, old: &str) -> Undone {
        let treatment = "shield".to_owned();
        Undone { treatment, target, old: old.to_owned(), new: String::new(), fate: Fate::Restored }
    }

    fn group() -> Undone {
        undone(Target::Directory { path: "/sys/fs/cgroup/whylate-shield".to_owned() }, Target::ABSENT)
    }

    #[test]
    fn an_affinity_that_the_kernel_takes_away_is_brought_back_again() {
        let root = HostRoot::real();
        let allowed = schedule::allowed_of_this_thread().unwrap();
        let one = CpuSet::single(allowed.first().unwrap());
        let tid = schedule::id_of_this_thread();
        let task = Task::find(&root, std::process::id(), tid).unwrap();
        let affinity = || undone(Target::Affinity { task: task.clone() }, &one.to_string());
        if one != allowed {
            settle(&mut [affinity()], &root);
            assert_eq!(schedule::allowed_of_this_thread().unwrap(), allowed, "no group and no CPU came back");
        }
        let mut outcomes = [group(), affinity()];
        let begin = Instant::now();
        settle(&mut outcomes, &root);
        assert!(begin.elapsed() >= STAYS);
        assert_eq!(schedule::allowed_of_this_thread().unwrap(), one);
        assert_eq!(outcomes[1].fate, Fate::Restored);
    }

    #[test]
    fn of_two_treatments_the_first_one_says_what_was_there() {
        let root = HostRoot::real();
        let allowed = schedule::allowed_of_this_thread().unwrap();
        let tid = schedule::id_of_this_thread();
        let task = Task::find(&root, std::process::id(), tid).unwrap();
        let affinity = |old: &str| undone(Target::Affinity { task: task.clone() }, old);
        let mut outcomes = [group(), affinity("8191"), affinity(&allowed.to_string())];
        settle(&mut outcomes, &root);
        assert_eq!(outcomes.map(|outcome| outcome.fate), [Fate::Restored, Fate::Restored, Fate::Restored]);
        assert_eq!(schedule::allowed_of_this_thread().unwrap(), allowed);
    }

    #[test]
    fn affinities_that_do_not_stay_have_failed() {
        let root = HostRoot::real();
        let tid = schedule::id_of_this_thread();
        let task = Task::find(&root, std::process::id(), tid).unwrap();
        // No machine has this CPU, so that the task never gets it.
        let affinity = || undone(Target::Affinity { task: task.clone() }, "8191");
        let mut outcomes = [group(), affinity()];
        let begin = Instant::now();
        settle(&mut outcomes, &root);
        assert!(begin.elapsed() < 3 * WITHIN, "{:?}", begin.elapsed());
        let Fate::Failed { reason } = &outcomes[1].fate else { panic!("{outcomes:?}") };
        assert!(reason.contains("8191"), "{reason}");
    }
}
