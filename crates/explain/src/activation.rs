//! Why a task of the user took so long: from the moment at which it was due or woken to the one at which it fell asleep
//! again.
//!
//! In: the stages of one activation (waiting for a CPU, running, preempted, blocked), as the programs in the kernel saw
//! them, and what the CPUs did meanwhile. Out: causes whose shares add up to the whole response. A task that runs and is
//! not interrupted does its own work, which is a cause like the others (`own_work`): the response was long, and
//! nobody else is to blame.
//!
//! "Held by" is not "released by". The owner of a lock is known where the lock itself told it when the wait began; where
//! only the thread is known that ended the wait, the cause says so, and is at best likely.

mod alone;
mod chain;
mod convoy;
mod inversion;
mod slow_clock;
mod waits;

pub use alone::explain_alone;
pub use chain::{CHAIN_BEFORE_NS, chain, told};
pub use convoy::convoy_from;
use waits::{behind, blocked};

use crate::confidence::{POSSIBLE, RECORDED, STATED};
use crate::divide::{Blame, Piece};
use crate::segments::{
    self, Activity, NO_RIGHT, Recording, Segment, Surroundings, Thread, Window, causes_of, pieces,
};
use std::collections::BTreeMap;
use whylate_core::CpuId;
use whylate_core::result::{Cause, CauseKind as Kind};

/// What one task did from being due to its next sleep. Times are CLOCK_MONOTONIC nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Activation {
    pub thread: Thread,
    pub process: u32,
    /// When it was due: the programmed expiry of its timer, or the wake-up.
    pub due_ns: u64,
    /// When it was woken.
    pub woken_ns: u64,
    pub waker: Waker,
    /// The stages, one after another without a gap, from `due_ns` to the end.
    pub stages: Vec<Stage>,
    /// Why it fell asleep at the end.
    pub slept: Wait,
    pub faults: u64,
    /// How often it was on another CPU than before.
    pub migrations: u64,
    /// Only its runs and preemptions are known: not when it was woken, nor for what it slept.
    pub is_partial: bool,
    /// Whether something between the activation before and this one was not seen: the time from that one is no period.
    pub is_after_gap: bool,
    /// It had not ended when the watch did: its last stage goes on.
    pub is_unended: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Waker {
    /// Not known.
    #[default]
    Unknown,
    Timer,
    /// An interrupt; what it interrupted has no part in it.
    Interrupt,
    /// A thread: its id and its name.
    Thread(u32, String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stage {
    pub from_ns: u64,
    pub to_ns: u64,
    /// The CPU on which it ran or waited.
    pub cpu: CpuId,
    pub what: Doing,
}

impl Stage {
    pub fn length_ns(&self) -> u64 {
        self.to_ns.saturating_sub(self.from_ns)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Doing {
    /// It was due or woken and did not run yet.
    Waking {
        /// Who had the CPU until it ran.
        previous: Thread,
        /// Its control group had no CPU time left.
        out_of_quota: bool,
    },
    Running,
    /// It could run, and another thread did.
    Preempted {
        by: Thread,
        /// Its control group had no CPU time left.
        out_of_quota: bool,
    },
    /// It had the CPU or waited for one: the kernel did not show when it came.
    Unseen,
    /// It slept in the middle of its work.
    Blocked {
        wait: Wait,
        waker: Waker,
    },
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Wait {
    /// Not known.
    #[default]
    Unknown,
    /// For something to do: a timer, a message, a file. The system call, where it is known.
    Work(Option<String>),
    /// For a lock of its own program.
    Lock {
        address: u64,
        /// Who held it when the wait began: thread id and name; `None` where the lock does not tell.
        owner: Option<(u32, String)>,
        /// Whether the owner gets the priority of who waits.
        inherits_priority: bool,
    },
    /// For a page of its memory.
    Page,
    /// In the kernel, without being woken by signals: for a disk or a lock of the kernel. The system call.
    Kernel(Option<String>),
}

impl Wait {
    /// Whether it is a part of its work, after which it goes on.
    pub fn is_inside(&self) -> bool {
        matches!(self, Self::Lock { .. } | Self::Page | Self::Kernel(_))
    }

    /// In a few words: `clock_nanosleep`, `a lock`.
    pub fn describe(&self) -> &str {
        match self {
            Self::Unknown | Self::Work(None) => "not known",
            Self::Work(Some(call)) => call,
            Self::Lock { .. } => "a lock",
            Self::Page => "a page fault",
            Self::Kernel(_) => "the kernel",
        }
    }
}

impl Activation {
    /// When it fell asleep.
    pub fn end_ns(&self) -> u64 {
        self.stages.last().map_or(self.due_ns, |stage| stage.to_ns)
    }

    /// From being due to the sleep.
    pub fn response_ns(&self) -> u64 {
        self.end_ns().saturating_sub(self.due_ns)
    }

    /// When it first ran.
    pub fn run_ns(&self) -> u64 {
        self.stages
            .iter()
            .find(|stage| stage.what == Doing::Running)
            .map_or(self.due_ns, |stage| stage.from_ns)
    }

    /// From being due to running.
    pub fn wakeup_ns(&self) -> u64 {
        self.run_ns().saturating_sub(self.due_ns)
    }

    pub fn running_ns(&self) -> u64 {
        self.sum(|what| *what == Doing::Running)
    }

    /// How long it could run and another thread did, after it had begun.
    pub fn preempted_ns(&self) -> u64 {
        self.sum(|what| matches!(what, Doing::Preempted { .. })) + self.waking_again_ns()
    }

    /// How long it slept in the middle of its work.
    pub fn blocked_ns(&self) -> u64 {
        self.sum(|what| matches!(what, Doing::Blocked { .. }))
    }

    /// How long its control group had no CPU time left.
    pub fn quota_ns(&self) -> u64 {
        self.sum(|what| {
            matches!(
                what,
                Doing::Preempted { out_of_quota: true, .. } | Doing::Waking { out_of_quota: true, .. }
            )
        })
    }

    fn waking_again_ns(&self) -> u64 {
        self.sum(|what| matches!(what, Doing::Waking { .. })).saturating_sub(self.wakeup_ns())
    }

    fn sum(&self, is_it: impl Fn(&Doing) -> bool) -> u64 {
        self.stages.iter().filter(|stage| is_it(&stage.what)).map(Stage::length_ns).sum()
    }

    /// The same up to the moment at which it first ran: what its wake-up latency is made of.
    #[must_use]
    pub fn until_running(&self) -> Self {
        let run_ns = self.run_ns();
        let stages = self.stages.iter().filter(|stage| stage.to_ns <= run_ns).cloned().collect();
        Self { stages, ..self.clone() }
    }
}

/// The causes of a response, largest share first, never empty, by what CPUs did and all wake-ups from [`convoy_from`] on.
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
                let holders = convoy::holders(stage, wakes)
                    .unwrap_or_else(|| vec![(stage.from_ns, stage.to_ns, blocked(wait, waker))]);
                for (from_ns, to_ns, blame) in holders {
                    let part = Stage { from_ns, to_ns, ..stage.clone() };
                    all.push(whole(&part, inversion::inverted(blame, &part, activation, recordings)));
                }
            }
            Doing::Preempted { out_of_quota: true, .. } | Doing::Waking { out_of_quota: true, .. } => {
                let evidence =
                    "the CPU time of its control group was used up when it left the CPU or was woken";
                all.push(whole(stage, Blame::new(Kind::Quota, STATED, evidence)));
            }
            Doing::Unseen => {
                let evidence =
                    "it ran or could run, and the kernel did not show the switch at which it got the CPU";
                all.push(whole(stage, Blame::unattributed_as(evidence)));
            }
            what => {
                let recording = recordings(stage.cpu, stage.from_ns, stage.to_ns);
                lost += recording.lost;
                let is_timer = matches!(what, Doing::Waking { .. });
                let priority =
                    if activation.thread.priority > 0 { activation.thread.priority } else { NO_RIGHT };
                let window = Window {
                    cpu: stage.cpu,
                    from_ns: stage.from_ns,
                    to_ns: stage.to_ns,
                    is_timer,
                    process: activation.process,
                    priority,
                };
                let mut recording = of_thread(recording, activation);
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
                found.iter_mut().for_each(|piece| complete(piece, what, woken_ns, priority));
                if is_moved {
                    found.iter_mut().for_each(moved_away);
                }
                all.extend(slow_clock::slowed(found, &recording));
            }
        }
    }
    causes_of(&all, activation.response_ns(), lost)
}

/// How long before a stage its CPU has to be looked at: who holds a lock may have been preempted before the wait for it began, and
/// real-time throttling may have begun before a wake-up. `None` where that tells nothing.
pub fn looks_back(stage: &Stage, priority: i32) -> Option<u64> {
    match &stage.what {
        Doing::Blocked { wait: Wait::Lock { .. }, .. } => Some(inversion::HELD_BEFORE_NS),
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

/// Says what the recording of the CPU alone does not: a task that runs does its own work, and the CPU of a task that is
/// preempted has the thread to which it was switched.
fn complete(piece: &mut Piece<()>, what: &Doing, woken_ns: u64, priority: i32) {
    let kind = piece.blame.kind.unwrap_or(Kind::Unattributed);
    let is_interrupt = matches!(kind, Kind::Irq | Kind::Softirq | Kind::Nmi | Kind::Ipi);
    match what {
        Doing::Running if !is_interrupt && kind != Kind::Lock => {
            piece.blame =
                Blame::new(Kind::OwnWork, RECORDED, "it had the CPU, and nothing else was recorded there");
        }
        Doing::Preempted { by, .. }
            if matches!(kind, Kind::Hardware | Kind::Unattributed | Kind::PageFault) =>
        {
            piece.blame = behind(by, priority, "the CPU was switched from the task to it");
        }
        // The recording begins later than the wait. Before the wake-up nobody kept the task from its CPU, and a lesser
        // thread does not do so.
        Doing::Waking { previous, .. }
            if piece.blame.kind == Some(Kind::Unattributed)
                && previous.pid != 0
                && piece.from >= woken_ns
                && previous.priority >= priority =>
        {
            let blame = behind(previous, priority, "it had the CPU before the task");
            piece.blame = Blame { confidence: POSSIBLE, ..blame };
        }
        _ => {}
    }
}

/// A thread that has a CPU all the time leaves no record there until it gives it up, and the task was moved before.
fn moved_away(piece: &mut Piece<()>) {
    if piece.blame == Blame::unattributed() {
        piece.blame = Blame::unattributed_as(
            "it waited for a CPU that somebody had, who is not recorded yet, and was moved to another one",
        );
    }
}

#[cfg(test)]
mod tests;
