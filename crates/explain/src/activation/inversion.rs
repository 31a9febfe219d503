//! Priority inversion: a task waits for a lock whose holder cannot run, because another thread has its CPU. A lock without
//! a known holder looks like a wait for the thread that wakes the task in the end.

use crate::blame::piece::Blame;
use crate::segments::{Activity, Recording};
use crate::vocabulary;
use std::collections::{BTreeMap, BTreeSet};
use whylate_core::order::InOrder;
use whylate_core::recording::{Activation, Stage, Thread};
use whylate_core::result::CauseKind as Kind;
use whylate_core::{CpuId, figure};

/// A holder that is off the CPU for at least this part of a wait made it longer.
const INVERTED_LEAST: f64 = 0.1;
/// A holder is preempted at most this long before the wait for its lock.
pub(super) const HELD_BEFORE_NS: u64 = 100_000_000;

/// Priority inversion: the thread that had the CPU while the holder of the lock, or the thread that ended the wait, was
/// runnable, if a CPU of the task shows it.
pub(super) fn inverted(
    blame: Blame,
    stage: &Stage,
    activation: &Activation,
    recordings: &dyn Fn(CpuId, u64, u64) -> Recording,
) -> Blame {
    let (Some(kind @ (Kind::Lock | Kind::Wait)), Some(holder), Some(name)) =
        (blame.kind, blame.pid, blame.actor.clone())
    else {
        return blame;
    };
    let cpus: BTreeSet<CpuId> = activation.stages.iter().map(|stage| stage.cpu).collect();
    let before_ns = stage.from_ns.saturating_sub(HELD_BEFORE_NS);
    let all: Vec<(CpuId, Recording)> =
        cpus.iter().map(|cpu| (*cpu, recordings(*cpu, before_ns, stage.to_ns))).collect();
    let mut by_thread: BTreeMap<(u32, String), (u64, i32)> = BTreeMap::new();
    for (thread, ns) in instead(holder, stage, &all) {
        let known = by_thread.entry((thread.pid, thread.command)).or_insert((0, thread.priority));
        *known = (known.0 + ns, known.1.max(thread.priority));
    }
    let most = by_thread.into_iter().max_by_key(|(_, (ns, _))| *ns);
    let Some(((pid, command), (ns, priority))) = most else { return blame };
    if (ns as f64) < INVERTED_LEAST * stage.length_ns() as f64 {
        return blame;
    }
    let taken = figure::nanoseconds(ns);
    // A thread that the task cannot preempt would have delayed the task without a lock, too.
    let inversion = if priority < activation.thread.priority { ": priority inversion" } else { "" };
    let what = match kind {
        Kind::Lock => format!("the lock's holder for {taken} of the wait{inversion}"),
        _ => format!("{name}, for which the task waited, for {taken}"),
    };
    let evidence = format!("{}; {command} (thread {pid}) preempted {what}", blame.evidence);
    Blame { actor: Some(vocabulary::preempted(&name, &command)), evidence: evidence.into(), ..blame }
}

/// The threads that ran within the stage on the CPU on which `holder` had been preempted, and for how long.
fn instead(holder: u32, stage: &Stage, all: &[(CpuId, Recording)]) -> Vec<(Thread, u64)> {
    let mut ran: Vec<_> = all
        .iter()
        .flat_map(|(cpu, recording)| recording.segments.iter().map(move |segment| (*cpu, segment)))
        .filter_map(|(cpu, segment)| match &segment.what {
            Activity::Thread { thread, was_runnable, .. } => Some((cpu, segment, thread, *was_runnable)),
            _ => None,
        })
        .collect();
    ran.order_by_key(|(_, segment, ..)| segment.from_ns);
    let (mut out, mut found) = (None, Vec::new());
    for (cpu, segment, thread, was_runnable) in ran {
        let within_ns = segment.to_ns.min(stage.to_ns).saturating_sub(segment.from_ns.max(stage.from_ns));
        if thread.pid == holder {
            out = was_runnable.then_some(cpu);
        } else if out == Some(cpu) && thread.pid != 0 && within_ns > 0 {
            found.push((thread.clone(), within_ns));
        }
    }
    found
}
