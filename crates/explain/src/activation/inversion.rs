//! Priority inversion: a task waits for a lock whose holder cannot run, because another thread has its CPU.

use crate::blame::piece::Blame;
use crate::segments::{Activity, Recording};
use std::collections::{BTreeMap, BTreeSet};
use whylate_core::order::InOrder;
use whylate_core::recording::{Activation, Stage};
use whylate_core::result::CauseKind as Kind;
use whylate_core::{CpuId, figure};

/// A holder that is off the CPU for at least this part of a wait made it longer.
const INVERTED_LEAST: f64 = 0.1;
/// A holder is preempted at most this long before the wait for its lock.
pub(super) const HELD_BEFORE_NS: u64 = 100_000_000;

/// Priority inversion: the thread that had the CPU while the holder of the lock was runnable, if a CPU of the task shows it.
pub(super) fn inverted(
    blame: Blame,
    stage: &Stage,
    activation: &Activation,
    recordings: &dyn Fn(CpuId, u64, u64) -> Recording,
) -> Blame {
    let (Some(Kind::Lock), Some(holder), Some(name)) = (blame.kind, blame.pid, blame.actor.clone()) else {
        return blame;
    };
    let cpus: BTreeSet<CpuId> = activation.stages.iter().map(|stage| stage.cpu).collect();
    let before_ns = stage.from_ns.saturating_sub(HELD_BEFORE_NS);
    let took = cpus.iter().flat_map(|cpu| instead(holder, stage, &recordings(*cpu, before_ns, stage.to_ns)));
    let mut by_thread: BTreeMap<(u32, String), u64> = BTreeMap::new();
    took.for_each(|(pid, command, ns)| *by_thread.entry((pid, command)).or_default() += ns);
    let Some(((pid, command), ns)) = by_thread.into_iter().max_by_key(|(_, ns)| *ns) else { return blame };
    if (ns as f64) < INVERTED_LEAST * stage.length_ns() as f64 {
        return blame;
    }
    let taken = figure::nanoseconds(ns);
    let evidence = format!(
        "{}; {command} (thread {pid}) preempted the lock's holder for {taken} of the wait: priority inversion",
        blame.evidence
    );
    Blame { actor: Some(format!("{name} (preempted by {command})")), evidence: evidence.into(), ..blame }
}

/// The threads that a CPU ran within the stage after it preempted `holder`, and for how long.
fn instead(holder: u32, stage: &Stage, recording: &Recording) -> Vec<(u32, String, u64)> {
    let mut ran: Vec<_> = recording
        .segments
        .iter()
        .filter_map(|segment| match &segment.what {
            Activity::Thread { thread, was_runnable, .. } => Some((segment, thread, *was_runnable)),
            _ => None,
        })
        .collect();
    ran.order_by_key(|(segment, ..)| segment.from_ns);
    let (mut is_out, mut found) = (false, Vec::new());
    for (segment, thread, was_runnable) in ran {
        let within_ns = segment.to_ns.min(stage.to_ns).saturating_sub(segment.from_ns.max(stage.from_ns));
        if thread.pid == holder {
            is_out = was_runnable;
        } else if is_out && thread.pid != 0 && within_ns > 0 {
            found.push((thread.pid, thread.command.clone(), within_ns));
        }
    }
    found
}
