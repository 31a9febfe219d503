//! What a state of the CPU means for a task that waits: the kind of cause, who, and how sure that is.
//!
//! The same state means different things in different phases: code with interrupts off delays a timer that is due,
//! and a thread of low priority does; but once the task is runnable, the same thread must hold it up by other means.

use super::late::LateKind;
use super::priorities::Priorities;
use super::state::{Knowledge, Level, Span, State};
use super::states::States;
use super::vocabulary;
use super::window::Window;
use std::collections::HashMap;
use whylate_core::result::CauseKind;
use whylate_trace::reader::Reader;

/// Idle states are left faster than this.
const IDLE_EXIT_MAX_NS: u64 = 2_000_000;
/// The first one behind polling, faster than this.
const IDLE_EXIT_FIRST_MAX_NS: u64 = 500_000;
/// A thread that is not known within so short a time is none: the CPU switches.
const SWITCH_MAX_NS: u64 = 50_000;
/// A runnable real-time task that nobody was asked to make room for, longer than this, is throttled.
const THROTTLED_LEAST_NS: u64 = 1_000_000;

/// What the waiting task waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Its timer is due, and the interrupt has not come.
    TimerDue,
    /// The timer's interrupt came, and has not woken it yet.
    Handling,
    /// It can run, and does not.
    Runnable,
    /// The thread that shall wake it has not done so; with the lock that it holds, it is a lock's owner.
    Waker {
        /// That thread.
        pid: u32,
        /// It holds what the task waits for.
        owner: bool,
    },
    /// It has a page fault that is being served.
    Fault,
}

/// What the trace lacks to be sure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Need {
    /// When interrupts and preemption were off.
    Sections,
    /// What ran in the kernel.
    Functions,
    /// Idle states.
    IdleStates,
}

/// What a span is to a waiting task.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Label {
    /// `None` for what every wake-up needs.
    pub(super) kind: Option<CauseKind>,
    pub(super) actor: Option<String>,
    pub(super) pid: Option<u32>,
    pub(super) what: String,
    pub(super) certainty: f64,
    /// What speaks for the kind.
    pub(super) reason: &'static str,
    pub(super) need: Option<Need>,
}

/// The waiting task, and the names of the others.
pub(super) struct Labeller<'a> {
    pub(super) window: &'a Window,
    pub(super) states: &'a States,
    pub(super) reader: &'a dyn Reader,
    /// Their commands.
    pub(super) people: &'a HashMap<u32, String>,
    pub(super) priorities: &'a Priorities,
    pub(super) late: LateKind,
}

/// The task that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Who {
    pub(super) pid: Option<u32>,
    pub(super) priority: Option<i32>,
}

impl Labeller<'_> {
    /// Names a thread.
    pub(super) fn thread(&self, pid: Option<u32>) -> String {
        match pid {
            Some(0) => "idle".to_owned(),
            Some(pid) => match self.people.get(&pid).cloned() {
                Some(name) => name,
                None => format!("thread {pid}"),
            },
            None => "an unknown thread".to_owned(),
        }
    }

    /// Labels the part `length_ns` of a span.
    pub(super) fn label(&self, phase: Phase, who: Who, span: &Span, length_ns: u64) -> Label {
        let state = &span.state;
        match state.level {
            Level::Nmi => plain(CauseKind::Nmi, "NMI", 0.9, "flags say that the CPU was in an NMI"),
            Level::HardIrq(label) => {
                let label = &self.states.labels[label];
                let kind = if label.ipi { CauseKind::Ipi } else { CauseKind::Irq };
                plain(kind, &label.text, 0.9, "the CPU was in the interrupt's handler")
            }
            Level::Softirq(vector) if phase != Phase::TimerDue => {
                let name = vector.map_or("softirq", vocabulary::softirq);
                let text = if vector.is_some() { format!("{name} softirq") } else { name.to_owned() };
                Label {
                    what: format!("{text} in {}", self.thread(state.pid)),
                    ..plain(CauseKind::Softirq, &text, 0.85, "the CPU was in a softirq")
                }
            }
            _ => self.in_thread(phase, who, span, length_ns),
        }
    }

    fn in_thread(&self, phase: Phase, who: Who, span: &Span, length_ns: u64) -> Label {
        let state = &span.state;
        let own = state.pid == who.pid || (state.pid.is_none() && !matches!(phase, Phase::TimerDue));
        if own && matches!(self.late, LateKind::NoiseGap { .. }) {
            let what = "nothing that the tracer knows of: hardware, firmware or a hypervisor";
            return Label {
                actor: None,
                what: what.to_owned(),
                ..plain(CauseKind::Unattributed, "", 0.3, "")
            };
        }
        if state.pid.is_none() && phase == Phase::Runnable && length_ns <= SWITCH_MAX_NS {
            return self.nobody("context switch".to_owned());
        }
        if state.pid == who.pid && state.pid.is_some() && !matches!(phase, Phase::Waker { .. } | Phase::Fault)
        {
            return self.nobody(format!("{} gets the CPU", self.thread(state.pid)));
        }
        match phase {
            Phase::TimerDue => self.timer_due(span, length_ns),
            Phase::Handling | Phase::Runnable => self.runnable(who, span, length_ns),
            Phase::Waker { pid, owner } => self.waker(pid, owner, span, length_ns),
            Phase::Fault => {
                let mut label =
                    plain(CauseKind::PageFault, "", 0.8, "the task had a page fault and slept on it");
                label.actor = None;
                label.what = format!("page fault; meanwhile {}", self.thread(state.pid));
                label
            }
        }
    }

    fn nobody(&self, what: String) -> Label {
        Label { kind: None, actor: None, pid: None, what, certainty: 1.0, reason: "", need: None }
    }

    pub(super) fn by(
        &self,
        kind: CauseKind,
        state: &State,
        what: &str,
        certainty: f64,
        reason: &'static str,
    ) -> Label {
        let name = self.thread(state.pid);
        let what = if what.is_empty() { name.clone() } else { format!("{name}: {what}") };
        let pid = state.pid.filter(|pid| *pid != 0);
        Label { kind: Some(kind), actor: Some(name), pid, what, certainty, reason, need: None }
    }

    /// The timer should have interrupted this.
    fn timer_due(&self, span: &Span, length_ns: u64) -> Label {
        use CauseKind::{IdleExit, IrqsOff, TimerLate, Unattributed};
        let state = &span.state;
        const OFF: &str = "interrupts off";
        if state.pid == Some(0) && state.irqs_off != Knowledge::ByEvent {
            let deep = state.idle_state.is_some_and(|index| index > 0);
            let reason = "the CPU was idle, where an interrupt is taken as soon as it comes";
            let longest = if state.idle_state == Some(1) { IDLE_EXIT_FIRST_MAX_NS } else { IDLE_EXIT_MAX_NS };
            let leaving = deep && length_ns <= longest;
            let label = match leaving {
                true => {
                    self.by(IdleExit, state, "", 0.7, "the CPU was in an idle state that takes time to leave")
                }
                false => self.by(TimerLate, state, "the timer interrupt came late", 0.6, reason),
            };
            let what =
                if leaving { "leaving an idle state" } else { "idle, the timer interrupt does not come" };
            let need = state.idle_state.is_none().then_some(Need::IdleStates);
            return Label { what: what.to_owned(), actor: None, need, ..label };
        }
        if state.user {
            let reason = "the CPU was in user mode, where interrupts are on";
            return self.by(TimerLate, state, "user mode, the timer interrupt does not come", 0.7, reason);
        }
        let traced = self.states.has_functions && state.path != super::stacks::PathId::ROOT;
        let in_kernel = traced || !self.interrupted(span).is_empty();
        match state.irqs_off {
            Knowledge::ByEvent => {
                self.by(IrqsOff, state, OFF, 0.95, "events say when interrupts went off and on")
            }
            Knowledge::ByFlags => {
                self.by(IrqsOff, state, OFF, 0.9, "flags of the events around say interrupts were off")
            }
            Knowledge::Not if self.states.irq_events => {
                self.by(TimerLate, state, "interrupts on", 0.8, "events say that interrupts were on")
            }
            Knowledge::Not => {
                let reason = "flags of the events around say that interrupts were on";
                self.by(TimerLate, state, "interrupts on", 0.4, reason)
            }
            Knowledge::Unknown if in_kernel => {
                let reason = "the timer interrupt was due and could not come while this kernel code ran";
                Label { need: Some(Need::Sections), ..self.by(IrqsOff, state, OFF, 0.75, reason) }
            }
            Knowledge::Unknown => {
                let what = "interrupts off, or the CPU itself stopped";
                Label { need: Some(Need::Functions), ..self.by(Unattributed, state, what, 0.3, "") }
            }
        }
    }

    /// The task could run.
    fn runnable(&self, who: Who, span: &Span, length_ns: u64) -> Label {
        use CauseKind::{IdleExit, IrqsOff, Throttled, Unattributed};
        let state = &span.state;
        if state.scheduling && !state.user {
            return self.nobody("context switch".to_owned());
        }
        let asked = state.need_resched || state.need_resched_lazy;
        let taken_off = matches!(self.late, LateKind::Preempted { for_lesser: true, .. });
        if state.pid == Some(0) {
            if taken_off || (!asked && length_ns > IDLE_EXIT_MAX_NS) {
                let reason = "the CPU was idle while the task could run: real-time throttling";
                let label = self.by(Throttled, state, "", 0.8, reason);
                return Label { actor: None, what: "idle; the task is throttled".to_owned(), ..label };
            }
            if length_ns > IDLE_EXIT_MAX_NS {
                let label = self.by(Unattributed, state, "", 0.3, "");
                let what = "idle, asked to make room for the task".to_owned();
                return Label { actor: None, what, need: Some(Need::Functions), ..label };
            }
            let label = self.by(IdleExit, state, "", 0.7, "the task could run and the CPU had not left idle");
            return Label { actor: None, what: "leaving idle".to_owned(), ..label };
        }
        // What was chosen while the task was throttled did not keep it from running.
        if state.irqs_off.holds() && !taken_off {
            let certainty = if state.irqs_off == Knowledge::ByEvent { 0.95 } else { 0.85 };
            return self.by(
                IrqsOff,
                state,
                "interrupts off",
                certainty,
                "interrupts were off while the task could run",
            );
        }
        self.behind_thread(who, span, length_ns, taken_off, asked)
    }

    /// Another thread ran.
    fn behind_thread(&self, who: Who, span: &Span, length_ns: u64, taken_off: bool, asked: bool) -> Label {
        use CauseKind::{Migration, PreemptOff, Thread, Throttled};
        let state = &span.state;
        let name = self.thread(state.pid);
        if name.starts_with("migration/") {
            return self.by(Migration, state, "moves tasks between CPUs", 0.8, "the migration thread ran");
        }
        let priority = state.pid.and_then(|pid| self.priorities.at(pid, span.events.0));
        let certainty = if state.preempt_off == Knowledge::ByEvent { 0.95 } else { 0.9 };
        let off = state.preempt_off.holds();
        match (priority, who.priority) {
            (Some(other), Some(own)) if other <= own => self.by(
                Thread,
                state,
                &format!("priority {other}, not below {own}"),
                0.9,
                "a thread ran that the task may not preempt",
            ),
            _ if off && !taken_off => self.by(
                PreemptOff,
                state,
                "preemption off",
                certainty,
                "the task could run and the running thread had preemption off",
            ),
            (Some(_), Some(_)) if taken_off => {
                let reason = "the task was taken off for one of lower priority: real-time throttling";
                let label = self.by(Throttled, state, "runs; the task is throttled", 0.8, reason);
                // Whoever runs meanwhile is not who held it back.
                Label { actor: None, pid: None, ..label }
            }
            (Some(_), Some(_))
                if !asked && length_ns > THROTTLED_LEAST_NS && state.preempt_off == Knowledge::Not =>
            {
                self.by(
                    Throttled,
                    state,
                    "runs; the task is throttled",
                    0.6,
                    "a thread of lower priority ran, and nobody asked it to make room: real-time throttling",
                )
            }
            (Some(_), Some(_)) => {
                let reason = "the task could run and the running thread of lower priority was not preempted";
                Label {
                    need: Some(Need::Sections),
                    ..self.by(PreemptOff, state, "not preempted", 0.5, reason)
                }
            }
            _ => {
                let reason = "another thread ran; the trace does not tell all priorities";
                self.by(Thread, state, "", 0.6, reason)
            }
        }
    }

    /// The thread `pid` shall wake the task.
    fn waker(&self, pid: u32, owner: bool, span: &Span, length_ns: u64) -> Label {
        let state = &span.state;
        let name = self.thread(Some(pid));
        let (kind, reason) = match owner {
            true => (CauseKind::Lock, "the task waited for a lock until this thread gave it away"),
            false => (CauseKind::Thread, "the task waited until this thread woke it"),
        };
        if state.pid == Some(pid) {
            let what = if owner { "holds the lock" } else { "has not woken the task yet" };
            return self.by(kind, state, what, 0.8, reason);
        }
        let priority = self.priorities.at(pid, span.events.0);
        let inner = self.label(Phase::Runnable, Who { pid: Some(pid), priority }, span, length_ns);
        if !owner {
            return inner;
        }
        let what = format!("{name}, which holds the lock, waits: {}", inner.what);
        Label {
            kind: Some(kind),
            actor: Some(name),
            pid: Some(pid),
            what,
            certainty: 0.75,
            reason,
            need: inner.need,
        }
    }
}

fn plain(kind: CauseKind, actor: &str, certainty: f64, reason: &'static str) -> Label {
    let actor = actor.to_owned();
    Label {
        kind: Some(kind),
        what: actor.clone(),
        actor: Some(actor),
        pid: None,
        certainty,
        reason,
        need: None,
    }
}
