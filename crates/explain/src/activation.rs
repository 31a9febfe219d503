//! Why a task of the user took so long: from the moment at which it was due or woken to the one at which it fell asleep
//! again.
//!
//! In: the stages of one activation (waiting for a CPU, running, preempted, blocked), as the programs in the kernel saw them,
//! and what the CPUs did meanwhile. Out: causes whose shares add up to the whole response. A task that runs without
//! interruption does its own work, which is a cause like the others (`own_work`): the response was long because of the task
//! itself.
//!
//! "Held by" is not "released by". The owner of a lock is known if the lock itself named it when the wait began. If only the
//! thread that ended the wait is known, the cause says so, and is at best likely.

mod alone;
mod chain;
mod convoy;
mod counted;
mod functions;
mod inversion;
mod origin;
mod own;
mod path;
mod slow_clock;
mod waits;

pub use alone::explain_alone;
pub use chain::{CHAIN_BEFORE_NS, chain, told};
pub use convoy::convoy_from;
pub use origin::Begins;
pub use path::{Ends, Path, Paths, path_causes};
use waits::{behind, blocked};

use crate::blame::piece::{Blame, Piece, may_run_before};
use crate::confidence::{CONCLUDED, POSSIBLE, RECORDED, SEEN, STATED};
use crate::segments::{self, Activity, Recording, Segment, Surroundings, Window, causes_of, pieces};
use std::collections::BTreeMap;
use whylate_core::CpuId;
use whylate_core::recording::{Activation, Budget, Doing, Stage, Wait, Waker};
use whylate_core::result::{Cause, CauseKind as Kind};

/// The causes of a response, largest share first, never empty, from the CPUs' activity and all wake-ups from [`convoy_from`]
/// on.
pub fn explain(
    activation: &Activation,
    recordings: &dyn Fn(CpuId, u64, u64) -> Recording,
    wakes: &BTreeMap<CpuId, Recording>,
    surroundings: &Surroundings,
) -> Vec<Cause> {
    let mut all: Vec<Piece<()>> = Vec::new();
    let mut lost = 0;
    for (nth, stage) in activation.stages.iter().enumerate().filter(|(_, stage)| stage.length_ns() > 0) {
        match &stage.what {
            Doing::Blocked { wait, waker } => {
                let holders = convoy::holders(stage, wakes).unwrap_or_else(|| {
                    let blame = waits::tried_again(activation, nth).unwrap_or_else(|| blocked(wait, waker));
                    vec![(stage.from_ns, stage.to_ns, blame)]
                });
                for (from_ns, to_ns, blame) in holders {
                    let part = Stage { from_ns, to_ns, ..stage.clone() };
                    all.push(whole(&part, inversion::inverted(blame, &part, activation, recordings)));
                }
            }
            Doing::Preempted { budget, .. } | Doing::Waking { budget, .. }
                if budget.throttler().is_some() =>
            {
                let actor = budget.throttler().unwrap_or_default();
                let evidence = "the scheduler's counters show no runtime left when the task left the CPU or \
                                was woken";
                all.push(whole(stage, Blame::new(Kind::Throttled, STATED, evidence).actor(actor)));
            }
            Doing::Preempted { budget: Budget::Quota, .. } | Doing::Waking { budget: Budget::Quota, .. } => {
                let evidence =
                    "the CPU quota of the control group was used up when the task left the CPU or was woken";
                let blame = Blame::new(Kind::Quota, STATED, evidence);
                all.push(whole(
                    stage,
                    match surroundings.quota.as_deref() {
                        Some(group) => blame.actor(group),
                        None => blame,
                    },
                ));
            }
            Doing::Unseen => {
                let evidence = "no record shows when the task got the CPU: the task ran, or waited for the \
                                CPU";
                all.push(whole(stage, Blame::unattributed_as(evidence)));
            }
            what => {
                let recording = recordings(stage.cpu, stage.from_ns, stage.to_ns);
                lost += recording.lost;
                let is_timer = matches!(what, Doing::Waking { .. });
                let priority = activation.thread.priority;
                let window = Window {
                    cpu: stage.cpu,
                    from_ns: stage.from_ns,
                    to_ns: stage.to_ns,
                    is_timer,
                    is_probe: false,
                    process: activation.process,
                    thread: Some(activation.thread.pid),
                    priority,
                };
                let mut recording = of_thread(recording, activation);
                // The thread may have run with another priority before, which is known from the start of the stage.
                if let Doing::Waking { previous: known, .. } | Doing::Preempted { by: known, .. } = what {
                    segments::raise(&mut recording.segments, known, |_| true);
                }
                if let Some(wakeup) = wakeup(activation, nth) {
                    let is_it = |segment: &Segment| {
                        matches!(segment.what, Activity::Wakeup { .. }) && segment.to_ns == wakeup.to_ns
                    };
                    if !recording.segments.iter().any(is_it) {
                        recording.segments.push(wakeup);
                    }
                }
                if let Some(before_ns) = looks_back(stage, activation.thread.priority) {
                    let before =
                        recordings(stage.cpu, stage.from_ns.saturating_sub(before_ns), stage.from_ns);
                    recording.segments.extend(segments::begun_in(&before, stage.from_ns));
                }
                let next = activation.stages.get(nth + 1).map(|next| &next.what);
                let is_moved = is_timer && matches!(next, Some(Doing::Waking { .. }));
                let mut found = pieces(&window, &recording, surroundings);
                let woken_ns = if nth == 0 { activation.woken_ns } else { stage.from_ns };
                let known_ns = woken_ns.max(others_until(stage, &recording));
                found.iter_mut().for_each(|piece| complete(piece, what, known_ns, priority, surroundings));
                if is_moved {
                    found.iter_mut().for_each(moved_away);
                }
                let own = own::without_spins(slow_clock::slowed(found, &recording), activation);
                all.extend(own::without_empty_sleeps(own, activation, surroundings.is_virtual));
            }
        }
    }
    functions::name_clock(&mut all, activation);
    let mut causes = causes_of(&all, activation.response_ns(), lost);
    own::divide(&mut causes, &all, activation);
    functions::name(&mut causes, &all, activation);
    counted::compare(&mut causes, &all, activation);
    causes
}

/// How long before a stage the recording of its CPU is needed. The holder of a lock may have been preempted before the wait
/// began, and real-time throttling may have begun before a wake-up. `None` if an earlier recording shows nothing.
pub fn looks_back(stage: &Stage, priority: i32) -> Option<u64> {
    match &stage.what {
        Doing::Blocked { wait: Wait::Lock { .. }, .. } | Doing::Blocked { waker: Waker::Thread(..), .. } => {
            Some(inversion::HELD_BEFORE_NS)
        }
        Doing::Waking { .. } | Doing::Preempted { .. } => segments::looks_back(priority, stage.length_ns()),
        _ => None,
    }
}

/// Without the wake-ups, timers and faults of the other threads of its process.
fn of_thread(mut recording: Recording, activation: &Activation) -> Recording {
    recording.segments.retain(|segment| match segment.what {
        Activity::Timer { pid, .. }
        | Activity::Wakeup { pid, .. }
        | Activity::Migration { pid, .. }
        | Activity::Lock { pid, .. } => pid == activation.thread.pid,
        Activity::PageFault { .. } => false,
        _ => true,
    });
    recording
}

/// The wake-up that ended with a stage, or with a move to a second CPU: the programs record only those with a stack.
fn wakeup(activation: &Activation, nth: usize) -> Option<Segment> {
    let stage = activation.stages.get(nth)?;
    let Doing::Waking { previous, .. } = stage.what.clone() else { return None };
    let from_ns = if nth == 0 { activation.woken_ns.max(stage.from_ns) } else { stage.from_ns };
    let (pid, process) = (activation.thread.pid, activation.process);
    let what = Activity::Wakeup { pid, process, previous, stack: Vec::new() };
    Some(Segment { from_ns, to_ns: stage.to_ns, what })
}

fn whole(stage: &Stage, blame: Blame) -> Piece<()> {
    Piece { from: stage.from_ns, to: stage.to_ns, began: stage.from_ns, blame, detail: () }
}

/// Until when other threads than the one before the task are known to have had its CPU.
fn others_until(stage: &Stage, recording: &Recording) -> u64 {
    let Doing::Waking { previous, .. } = &stage.what else { return 0 };
    let others = recording.segments.iter().filter(|segment| match &segment.what {
        Activity::Thread { thread, .. } => thread.pid != previous.pid,
        _ => false,
    });
    others.map(|segment| segment.to_ns).filter(|to_ns| *to_ns < stage.to_ns).max().unwrap_or_default()
}

/// Adds what the recording of the CPU alone does not show. A running task does its own work, and the CPU of a preempted task
/// has the thread to which it was switched.
fn complete(piece: &mut Piece<()>, what: &Doing, known_ns: u64, priority: i32, surroundings: &Surroundings) {
    let kind = piece.blame.kind.unwrap_or(Kind::Unattributed);
    let is_interrupt = matches!(kind, Kind::Irq | Kind::Softirq | Kind::Nmi | Kind::Ipi);
    match what {
        Doing::Running if !is_interrupt && kind != Kind::Lock => {
            let (confidence, evidence) = match surroundings.is_virtual {
                true => (
                    SEEN,
                    "the task had the CPU, and nothing else was recorded on this CPU; a hypervisor may have stopped \
                     the CPU meanwhile",
                ),
                false => (RECORDED, "the task had the CPU, and nothing else was recorded on this CPU"),
            };
            piece.blame = Blame::new(Kind::OwnWork, confidence, evidence);
        }
        Doing::Preempted { by, .. }
            if matches!(kind, Kind::Hardware | Kind::HostStall | Kind::Unattributed | Kind::PageFault) =>
        {
            piece.blame = behind(by, priority, surroundings, |thread| {
                format!("the scheduler switched from the task to {thread}")
            });
        }
        // The recording begins later than the wait. Before the wake-up no thread kept the task from its CPU, and a
        // lower-priority thread never does.
        Doing::Waking { previous, .. }
            if piece.blame.kind == Some(Kind::Unattributed)
                && previous.pid != 0
                && piece.from >= known_ns
                && may_run_before(previous.priority, priority) =>
        {
            let blame = behind(previous, priority, surroundings, |thread| {
                format!("{thread} had the CPU before the task")
            });
            let is_above = priority > 0 && previous.priority > priority;
            piece.blame = Blame { confidence: if is_above { CONCLUDED } else { POSSIBLE }, ..blame };
        }
        _ => {}
    }
}

/// A thread leaves a record only when it gives up its CPU, and the task migrated before that.
fn moved_away(piece: &mut Piece<()>) {
    if piece.blame == Blame::unattributed() {
        piece.blame = Blame::unattributed_as(
            "the task waited for a busy CPU, whose thread was not recorded, and then migrated",
        );
    }
}

#[cfg(test)]
mod tests;
