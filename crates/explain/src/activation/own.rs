//! The parts of a task's own work: long system calls, page faults, waits for a lock without a sleep, and the rest.

use crate::blame::piece::{Blame, Piece};
use crate::confidence::{LEFT_OVER, LIKELY, POSSIBLE, RECORDED, STATED};
use crate::time;
use std::collections::BTreeMap;
use whylate_core::figure::{count, nanoseconds};
use whylate_core::order::InOrder;
use whylate_core::recording::{Activation, LongCall};
use whylate_core::result::{Cause, CauseKind as Kind, CausePart, PartKind};

/// A sleep until a moment that is over ends sooner, unless something else has the CPU.
const EMPTY_SLEEP_NS: u64 = 100_000;
/// Page faults that take a smaller part of the response belong to the own work, and are no cause.
const FAULTS_LEAST: f64 = 0.05;
/// A page fault that reads nothing takes about this long.
const FAULT_NS: u64 = 500;
/// Long own work may be a wait for a lock without a sleep.
const UNDIVIDED_LEAST_NS: u64 = 1_000_000;

/// Cuts the times out of the own work in which the task waited for a lock in the kernel without sleeping because its owner
/// ran on another CPU.
pub(super) fn without_spins(pieces: Vec<Piece<()>>, activation: &Activation) -> Vec<Piece<()>> {
    let spins = activation.calls.iter().filter_map(|call| Some((call, call.spins_for.as_ref()?)));
    let mut pieces = pieces;
    for (call, (pid, command)) in spins {
        let evidence = format!(
            "the task spun in {} for a lock with priority inheritance, because the lock's owner ran on \
             another CPU",
            call.call
        );
        let blame = Blame::new(Kind::Lock, STATED, evidence).thread(command, *pid);
        pieces = pieces.into_iter().flat_map(|piece| cut(piece, call, &blame)).collect();
    }
    pieces
}

/// Cuts the times out of the own work in which the task had the CPU in a sleep: no thread works there.
pub(super) fn without_empty_sleeps(
    pieces: Vec<Piece<()>>,
    activation: &Activation,
    is_virtual: bool,
) -> Vec<Piece<()>> {
    let is_sleep = |call: &&LongCall| matches!(call.call.as_str(), "clock_nanosleep" | "nanosleep");
    let is_long = |call: &&LongCall| time::between(call.from_ns, call.to_ns) >= EMPTY_SLEEP_NS;
    let mut pieces = pieces;
    for call in activation.calls.iter().filter(is_sleep).filter(is_long) {
        let (kind, confidence, who) = match is_virtual {
            true => (Kind::HostStall, POSSIBLE, "the hypervisor probably stopped the CPU"),
            false => (Kind::Unattributed, 0.0, "an interrupt or the firmware had the CPU"),
        };
        let call_name = &call.call;
        let evidence = format!("the task had the CPU in {call_name}, where it has nothing to do: {who}");
        let blame = Blame::new(kind, confidence, evidence);
        pieces = pieces.into_iter().flat_map(|piece| cut(piece, call, &blame)).collect();
    }
    pieces
}

/// The parts of a piece of own work before, in and after a call.
fn cut(piece: Piece<()>, call: &LongCall, blame: &Blame) -> Vec<Piece<()>> {
    let (from, to) = (call.from_ns.max(piece.from), call.to_ns.min(piece.to));
    if piece.blame.kind != Some(Kind::OwnWork) || from >= to {
        return vec![piece];
    }
    let part = |from, to, blame: &Blame| Piece { from, to, began: from, blame: blame.clone(), detail: () };
    let own = &piece.blame;
    let all = [part(piece.from, from, own), part(from, to, blame), part(to, piece.to, own)];
    all.into_iter().filter(|piece| piece.length() > 0).collect()
}

/// Adds the parts of the own work to its cause; long page faults are a cause of their own.
pub(super) fn divide(causes: &mut Vec<Cause>, pieces: &[Piece<()>], activation: &Activation) {
    let Some(place) = causes.iter().position(|cause| cause.kind == Kind::OwnWork) else { return };
    if activation.is_partial {
        let unknown = "without rights, no wait for a lock or a disk is recorded: the task may have been late before this";
        causes[place].evidence.push(unknown.to_owned());
    }
    let is_own = |piece: &&Piece<()>| piece.blame.kind == Some(Kind::OwnWork);
    let own: Vec<(u64, u64)> = pieces.iter().filter(is_own).map(|piece| (piece.from, piece.to)).collect();
    let total_ns: u64 = own.iter().map(|(from, to)| time::between(*from, *to)).sum();
    let number = activation.faults;
    let Some(work) = activation.work else {
        let own = &mut causes[place];
        if total_ns >= UNDIVIDED_LEAST_NS {
            let unknown = "no record divides the task's work into system calls, page faults and user mode";
            own.evidence.push(unknown.to_owned());
            own.confidence = own.confidence.map(|confidence| confidence.min(POSSIBLE));
        }
        return faults_of_unknown_time(causes, place, total_ns, activation);
    };
    let (calls, spun_ns) = long_calls(activation, &own);
    let long_ns: u64 = calls.values().map(|(_, ns)| ns).sum();
    // The sums of the records include interrupts and waits for an owner on another CPU, which are no part of the own work.
    let calls_ns = work.calls_ns.saturating_sub(spun_ns).max(long_ns).min(total_ns);
    let faults_ns = work.faults_ns.map(|faults_ns| faults_ns.min(total_ns - calls_ns));
    let part =
        |part, call: Option<&str>, count, ns| CausePart { part, call: call.map(str::to_owned), count, ns };
    let mut parts: Vec<CausePart> = calls
        .iter()
        .map(|(call, (times, ns))| part(PartKind::SystemCall, Some(*call), Some(*times), Some(*ns)))
        .collect();
    parts.push(part(PartKind::SystemCall, None, None, Some(calls_ns.saturating_sub(long_ns))));
    if number > 0 {
        parts.push(part(PartKind::PageFaults, None, Some(number), faults_ns));
    }
    let rest_ns = total_ns - calls_ns - faults_ns.unwrap_or_default();
    parts.push(part(PartKind::User, None, None, Some(rest_ns)));
    parts.retain(|part| part.ns != Some(0));
    parts.order_by_key(|part| std::cmp::Reverse(part.ns));
    let unknown = Some(number).filter(|number| *number > 0 && faults_ns.is_none());
    let all: Vec<String> = parts.iter().filter_map(|part| described(part, unknown)).collect();
    causes[place].evidence.push(format!("{}: {}", nanoseconds(total_ns), all.join(", ")));
    causes[place].parts = parts;
    match faults_ns {
        Some(faults_ns) => {
            let share = faults_ns as f64 / activation.response_ns().max(1) as f64;
            let evidence = format!("{} of the task took {}", faults(number), nanoseconds(faults_ns));
            add_faults(causes, place, share, RECORDED, evidence);
        }
        None => faults_of_unknown_time(causes, place, total_ns, activation),
    }
}

/// How often it was in each long system call, and how much of its own work that is; and how long it spun for a lock.
fn long_calls<'a>(activation: &'a Activation, own: &[(u64, u64)]) -> (BTreeMap<&'a str, (u64, u64)>, u64) {
    let (mut calls, mut spun_ns) = (BTreeMap::<&str, (u64, u64)>::new(), 0);
    for call in &activation.calls {
        if call.spins_for.is_some() {
            spun_ns += time::between(call.from_ns, call.to_ns);
            continue;
        }
        let within = |(from, to): &(u64, u64)| time::between(call.from_ns.max(*from), call.to_ns.min(*to));
        let ns: u64 = own.iter().map(within).sum();
        let (times, took_ns) = calls.entry(&call.call).or_default();
        (*times, *took_ns) = (*times + 1, *took_ns + ns);
    }
    (calls, spun_ns)
}

/// Page faults whose time is not recorded make the own work less sure if they may be much of it, and are a possible cause.
fn faults_of_unknown_time(causes: &mut Vec<Cause>, place: usize, total_ns: u64, activation: &Activation) {
    let (number, response_ns) = (activation.faults, activation.response_ns());
    let each_ns = activation.fault_ns.unwrap_or(FAULT_NS);
    if number == 0 {
        return;
    }
    let own = &mut causes[place];
    own.evidence.push(format!("the task's work includes {} whose time was not recorded", faults(number)));
    let least_ns = number.saturating_mul(each_ns);
    if least_ns as f64 >= FAULTS_LEAST * total_ns as f64 {
        own.confidence = own.confidence.map(|confidence| confidence.min(LIKELY));
        // The sentence of the cause names them.
        if own.parts.is_empty() {
            let (part, count) = (PartKind::PageFaults, Some(number));
            own.parts.push(CausePart { part, call: None, count, ns: None });
        }
        let evidence = format!(
            "the time of {} of the task was not recorded: about {} each{}, so {} of its work",
            faults(number),
            nanoseconds(each_ns),
            activation.fault_ns.map_or("", |_| " (measured here, with fresh memory)"),
            nanoseconds(least_ns.min(total_ns))
        );
        let share = least_ns.min(total_ns) as f64 / response_ns.max(1) as f64;
        add_faults(causes, place, share, LEFT_OVER, evidence);
    }
}

/// Page faults that took a share of the response are a cause of their own next to the own work at `place`.
fn add_faults(causes: &mut Vec<Cause>, place: usize, share: f64, confidence: f64, evidence: String) {
    if share < FAULTS_LEAST {
        return;
    }
    let left = (causes[place].share.unwrap_or_default() - share).max(0.0);
    causes[place].share = Some(left);
    if let Some(known) =
        causes.iter_mut().find(|cause| cause.kind == Kind::PageFault && cause.actor.is_none())
    {
        known.share = Some(known.share.unwrap_or_default() + share);
        known.evidence.push(evidence);
        return;
    }
    let mut cause = Cause::new(Kind::PageFault);
    (cause.share, cause.confidence, cause.evidence) = (Some(share), Some(confidence), vec![evidence]);
    (cause.from_ns, cause.to_ns) = (causes[place].from_ns, causes[place].to_ns);
    causes.insert(if share > left { place } else { place + 1 }, cause);
}

fn faults(number: u64) -> String {
    if number == 1 { "1 page fault".to_owned() } else { format!("{} page faults", count(number)) }
}

/// `unknown`: the number of page faults, if their time is not known.
fn described(part: &CausePart, unknown: Option<u64>) -> Option<String> {
    let time = part.ns.map_or_else(|| "an unrecorded time".to_owned(), nanoseconds);
    Some(match (part.part, &part.call, unknown) {
        (PartKind::SystemCall, Some(call), _) => format!("{time} in {call}"),
        (PartKind::SystemCall, None, _) => format!("{time} in short system calls"),
        (PartKind::PageFaults, _, Some(_)) => return None,
        (PartKind::PageFaults, _, None) => format!("{time} in {}", faults(part.count.unwrap_or_default())),
        (PartKind::User, _, Some(number)) => format!("{time} in user mode and {}", faults(number)),
        (PartKind::User, _, None) => format!("{time} in user mode"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::confidence::SEEN;
    use whylate_core::CpuId;
    use whylate_core::recording::{Divided, Doing, Stage};

    fn activation(calls: &[(&str, u64, u64, bool)], faults: u64, work: Option<Divided>) -> Activation {
        let calls = calls.iter().map(|(call, from_ns, to_ns, spins)| LongCall {
            call: (*call).to_owned(),
            from_ns: *from_ns,
            to_ns: *to_ns,
            spins_for: spins.then(|| (9, "owner".to_owned())),
        });
        Activation {
            stages: vec![Stage { from_ns: 0, to_ns: 100_000, cpu: CpuId(0), what: Doing::Running }],
            calls: calls.collect(),
            faults,
            work,
            ..Activation::default()
        }
    }

    fn divided(activation: &Activation) -> Vec<Cause> {
        let blame = Blame::new(Kind::OwnWork, RECORDED, "it had the CPU");
        let own = Piece { from: 0, to: 100_000, began: 0, blame, detail: () };
        let pieces = without_spins(vec![own], activation);
        let mut causes = crate::segments::causes_of(&pieces, activation.response_ns(), 0);
        divide(&mut causes, &pieces, activation);
        causes
    }

    #[test]
    fn own_work_has_parts_by_system_call_page_faults_and_user_mode() {
        let work = Divided { calls_ns: 65_000, faults_ns: Some(30_000) };
        let causes = divided(&activation(&[("madvise", 10_000, 70_000, false)], 40, Some(work)));
        let own = causes.iter().find(|cause| cause.kind == Kind::OwnWork).unwrap();
        let parts: Vec<_> = own.parts.iter().map(|part| (part.part, part.call.as_deref(), part.ns)).collect();
        assert_eq!(
            parts,
            [
                (PartKind::SystemCall, Some("madvise"), Some(60_000)),
                (PartKind::PageFaults, None, Some(30_000)),
                (PartKind::SystemCall, None, Some(5_000)),
                (PartKind::User, None, Some(5_000)),
            ]
        );
        let faults = causes.iter().find(|cause| cause.kind == Kind::PageFault).unwrap();
        assert_eq!((faults.share, faults.confidence, own.share), (Some(0.3), Some(RECORDED), Some(0.7)));
    }

    #[test]
    fn a_wait_without_a_sleep_is_of_the_thread_that_has_the_lock() {
        let work = Divided { calls_ns: 80_000, faults_ns: Some(0) };
        let causes = divided(&activation(&[("futex", 10_000, 90_000, true)], 0, Some(work)));
        assert_eq!(
            (causes[0].kind, causes[0].actor.as_deref(), causes[0].pid),
            (Kind::Lock, Some("owner"), Some(9))
        );
        assert_eq!((causes[0].share, causes[0].confidence), (Some(0.8), Some(STATED)));
        assert_eq!((causes[1].kind, causes[1].share), (Kind::OwnWork, Some(0.2)));
    }

    #[test]
    fn page_faults_whose_time_is_not_recorded_make_own_work_less_sure() {
        let sure = |faults, work| divided(&activation(&[], faults, work))[0].confidence;
        assert_eq!(sure(0, None), Some(RECORDED));
        assert_eq!(sure(1, None), Some(RECORDED));
        assert_eq!(sure(64, None), Some(LIKELY));
        assert_eq!(sure(64, Some(Divided { calls_ns: 0, faults_ns: None })), Some(LIKELY));
        let causes = divided(&activation(&[], 64, Some(Divided { calls_ns: 40_000, faults_ns: None })));
        let percent = |it: &Cause| (it.share.unwrap() * 100.0).round() as u32;
        let found: Vec<_> = causes.iter().map(|it| (it.kind, percent(it), it.confidence)).collect();
        assert_eq!(found, [(Kind::OwnWork, 68, Some(LIKELY)), (Kind::PageFault, 32, Some(LEFT_OVER))]);
        let said = causes[0].evidence.join("; ");
        assert!(said.contains("60.0 us"), "{said}");
    }

    #[test]
    fn a_sleep_that_ends_at_once_is_no_work() {
        let own = || {
            let blame = Blame::new(Kind::OwnWork, SEEN, "it had the CPU");
            vec![Piece { from: 0, to: 1_000_000, began: 0, blame, detail: () }]
        };
        let kinds = |call: &str, to_ns, is_virtual| {
            let activation = activation(&[(call, 10_000, to_ns, false)], 0, None);
            let found = without_empty_sleeps(own(), &activation, is_virtual);
            found.iter().map(|piece| (piece.blame.kind.unwrap(), piece.length())).collect::<Vec<_>>()
        };
        let of = |kind| [(Kind::OwnWork, 10_000), (kind, 800_000), (Kind::OwnWork, 190_000)];
        assert_eq!(kinds("clock_nanosleep", 810_000, true), of(Kind::HostStall));
        assert_eq!(kinds("nanosleep", 810_000, false), of(Kind::Unattributed));
        assert_eq!(kinds("clock_nanosleep", 60_000, true), [(Kind::OwnWork, 1_000_000)]);
        assert_eq!(kinds("read", 810_000, true), [(Kind::OwnWork, 1_000_000)]);
    }
}
