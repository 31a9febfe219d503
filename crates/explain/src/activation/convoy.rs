//! Lock convoys: a task waits for a lock that goes from one thread to another before it gets it.
//!
//! The lock names its owner when the wait begins, and the thread that ends the wait released it last. If these are two
//! threads, the wake-ups between them show when the lock was handed on: a thread that releases a lock wakes the next waiter.

use super::waits::{lock_at, owned};
use crate::blame::piece::Blame;
use crate::confidence::{CONCLUDED, STATED};
use crate::segments::{Activity, Recording};
use std::collections::{BTreeMap, BTreeSet};
use whylate_core::CpuId;
use whylate_core::figure::nanoseconds;
use whylate_core::order::InOrder;
use whylate_core::recording::{Activation, Doing, Stage, Wait, Waker};
use whylate_core::result::CauseKind as Kind;

/// From when to when, and who held the lock.
type Held = (u64, u64, Blame);

/// A thread: its id and its name.
type Who<'s> = (u32, &'s str);

/// A wake-up of a thread by another one: its time, by whom.
type Wake<'r> = (u64, u32, &'r str);

/// The start of the first wait for a lock that one thread held and another one released; `None` without such a wait.
pub fn convoy_from(activation: &Activation) -> Option<u64> {
    activation.stages.iter().find(|stage| ends(stage).is_some()).map(|stage| stage.from_ns)
}

/// The thread that held the lock when the wait began, and the thread that released it, if they differ.
fn ends(stage: &Stage) -> Option<(Who<'_>, Who<'_>)> {
    let Doing::Blocked { wait: Wait::Lock { owner: Some((first, first_name)), .. }, waker } = &stage.what
    else {
        return None;
    };
    let Waker::Thread(last, last_name) = waker else { return None };
    (first != last).then_some(((*first, first_name), (*last, last_name)))
}

/// The holders of the lock one after the other; `None` if there was only one, or if nothing shows how the lock was handed on.
pub(super) fn holders(stage: &Stage, wakes: &BTreeMap<CpuId, Recording>) -> Option<Vec<Held>> {
    let (first, last) = ends(stage)?;
    let Doing::Blocked { wait: Wait::Lock { address, name, .. }, .. } = &stage.what else { return None };
    let lock = lock_at(*address, name.as_deref());
    let mut hands = Vec::new();
    let within = wakes_within(stage, wakes);
    is_handed(first.0, last, stage.to_ns, &within, &mut BTreeSet::new(), &mut hands).then_some(())?;
    let evidence = owned(&lock, first.0, first.1);
    let mut from_ns = stage.from_ns;
    let mut blame = Blame::new(Kind::Lock, STATED, evidence).thread(first.1, first.0);
    let mut held = Vec::new();
    let mut before = first.1;
    for (at_ns, thread, name) in hands {
        held.push((from_ns, at_ns, blame));
        let after = nanoseconds(at_ns - stage.from_ns);
        let evidence = format!("{after} into the wait, {before} handed over the {lock} by waking {name}");
        blame = Blame::new(Kind::Lock, CONCLUDED, evidence).thread(name, thread);
        (from_ns, before) = (at_ns, name);
    }
    held.push((from_ns, stage.to_ns, blame));
    Some(held)
}

/// Wake-ups by threads while the task waited, by the thread that was woken; the last one first.
fn wakes_within<'r>(stage: &Stage, wakes: &'r BTreeMap<CpuId, Recording>) -> BTreeMap<u32, Vec<Wake<'r>>> {
    let mut found: BTreeMap<u32, Vec<Wake<'r>>> = BTreeMap::new();
    for segment in wakes.values().flat_map(|recording| &recording.segments) {
        if let Activity::Waking { pid, waker: Waker::Thread(by, name) } = &segment.what
            && stage.from_ns < segment.to_ns
            && segment.to_ns < stage.to_ns
        {
            found.entry(*pid).or_default().push((segment.to_ns, *by, name));
        }
    }
    found.values_mut().for_each(|wakes| wakes.order_by_key(|wake| std::cmp::Reverse(wake.0)));
    found
}

/// Searches how the lock came from `first` to the thread that had it at the end, before `until_ns`; fills `hands` with the
/// times and the new holders. Wake-ups by `first` itself come before those by others.
fn is_handed<'r>(
    first: u32,
    to: (u32, &'r str),
    until_ns: u64,
    wakes: &BTreeMap<u32, Vec<Wake<'r>>>,
    seen: &mut BTreeSet<u32>,
    hands: &mut Vec<(u64, u32, &'r str)>,
) -> bool {
    if !seen.insert(to.0) {
        return false;
    }
    let before = || wakes.get(&to.0).into_iter().flatten().filter(|wake| wake.0 < until_ns);
    if let Some((at_ns, ..)) = before().find(|wake| wake.1 == first) {
        hands.push((*at_ns, to.0, to.1));
        return true;
    }
    for (at_ns, by, name) in before() {
        if is_handed(first, (*by, name), *at_ns, wakes, seen, hands) {
            hands.push((*at_ns, to.0, to.1));
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segments::Segment;

    const FIRST: u32 = 7;
    const SECOND: u32 = 8;
    const LAST: u32 = 9;

    fn stage() -> Stage {
        let wait = Wait::Lock {
            address: 0x10,
            name: Some("g_mutex of control".to_owned()),
            owner: Some((FIRST, "first".to_owned())),
            inherits_priority: false,
        };
        let waker = Waker::Thread(LAST, "last".to_owned());
        Stage { from_ns: 1_000, to_ns: 2_000, cpu: CpuId(1), what: Doing::Blocked { wait, waker } }
    }

    fn wakes(all: &[(u64, u32, Waker)]) -> BTreeMap<CpuId, Recording> {
        let segments = all.iter().map(|(at_ns, pid, waker)| {
            let what = Activity::Waking { pid: *pid, waker: waker.clone() };
            Segment { from_ns: *at_ns, to_ns: *at_ns, what }
        });
        [(CpuId(0), Recording { segments: segments.collect(), ..Recording::default() })].into()
    }

    fn by(pid: u32, name: &str) -> Waker {
        Waker::Thread(pid, name.to_owned())
    }

    fn held_by(wakes: &BTreeMap<CpuId, Recording>) -> Option<Vec<(u64, u64, String)>> {
        let held = holders(&stage(), wakes)?;
        Some(held.into_iter().map(|(from, to, blame)| (from, to, blame.actor.unwrap())).collect())
    }

    #[test]
    fn each_holder_has_its_part_of_the_wait() {
        let all = [
            // Before the wait: this thread could not have held the lock.
            (500, LAST, by(FIRST, "first")),
            (1_300, SECOND, by(FIRST, "first")),
            (1_900, LAST, by(SECOND, "second")),
            // It slept while it held the lock.
            (1_950, LAST, Waker::Timer),
        ];
        let named = |from, to, name: &str| (from, to, name.to_owned());
        let expected =
            vec![named(1_000, 1_300, "first"), named(1_300, 1_900, "second"), named(1_900, 2_000, "last")];
        assert_eq!(held_by(&wakes(&all)), Some(expected));
        let direct = [(1_900, LAST, by(FIRST, "first")), (1_950, LAST, by(77, "other"))];
        assert_eq!(
            held_by(&wakes(&direct)),
            Some(vec![named(1_000, 1_900, "first"), named(1_900, 2_000, "last")])
        );
    }

    #[test]
    fn what_does_not_lead_back_to_the_first_holder_tells_nothing() {
        assert_eq!(held_by(&wakes(&[])), None);
        // Two that wake each other.
        let circle = [(1_200, LAST, by(SECOND, "second")), (1_300, SECOND, by(LAST, "last"))];
        assert_eq!(held_by(&wakes(&circle)), None);
        assert_eq!(convoy_from(&Activation { stages: vec![stage()], ..Activation::default() }), Some(1_000));
    }
}
