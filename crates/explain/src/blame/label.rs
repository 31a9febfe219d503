//! What a state of the CPU means for a waiting task: the kind of cause, who, and how sure that is.
//!
//! The same state means different things in different phases. Code with interrupts disabled delays a pending timer whatever its
//! thread's priority. Once the task is runnable, the same thread of low priority can delay it only by other means.

use crate::blame::interrupted::InterruptStacks;
use crate::blame::piece::{Blame, EDGE_MAX_NS, IDLE_EXIT_MAX_NS, STOPPED_LEAST_NS, may_run_before};
use crate::blame::standstill::ran_at_end;
use crate::confidence::{CONCLUDED, FAINT, LEFT_OVER, LIKELY, POSSIBLE, SEEN, SHOWN, STATED, UNENDED};
use crate::find::late::LateKind;
use crate::find::late::PRIORITY_NORMAL;
use crate::states::States;
use crate::states::priorities::{Change, Priorities};
use crate::states::state::{Knowledge, Level, Span, State};
use crate::vocabulary::{self, STILL_AT_WORK};
use crate::window::Window;
use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;
use whylate_core::figure::{self, of_kernel, scheduled};
use whylate_core::result::CauseKind;
use whylate_trace::event::{Event, EventKind, TaskState};
use whylate_trace::reader::Reader;

/// Leaving the first idle state after polling takes less than this.
const IDLE_EXIT_FIRST_MAX_NS: u64 = 500_000;
/// A time this short in which no thread is known is a context switch.
const SWITCH_MAX_NS: u64 = 50_000;
/// The same as [`STOPPED_LEAST_NS`] of softirqs, which do more work.
const SOFTIRQ_LONG_NS: u64 = 10_000_000;
/// A switch that takes longer is worth naming.
const SWITCH_LONG_NS: u64 = 20_000;
/// A runnable real-time task for which no thread is asked to reschedule for longer than this is throttled.
const THROTTLED_LEAST_NS: u64 = 1_000_000;

/// What the trace lacks to be sure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Need {
    /// When interrupts and preemption were disabled.
    Sections,
    Functions,
    IdleStates,
}

/// What the waiting task waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// It is still at work, or preempted in it, and has not set its timer, which is already due.
    AtWork,
    /// Its timer is due, and the interrupt has not come.
    TimerDue,
    /// The timer's interrupt came, and has not woken it yet.
    Handling,
    /// It is runnable, and does not run.
    Runnable,
    /// The thread that is to wake it has not done so; it is the owner of a lock if it holds one.
    Waker {
        pid: u32,
        /// It holds what the task waits for.
        owner: bool,
    },
    /// It has a page fault that is being served.
    Fault,
}

/// What a span is to a waiting task.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Label {
    pub(crate) blame: Blame,
    /// What went on, in a few words.
    pub(crate) what: String,
    pub(crate) need: Option<Need>,
}

impl Label {
    /// Names no thread as the actor.
    fn without_actor(self) -> Self {
        Self { blame: Blame { actor: None, pid: None, ..self.blame }, ..self }
    }

    /// The same for a thread called `name`, for which the task waited.
    pub(crate) fn on_behalf(mut self, name: String) -> Self {
        if !self.blame.evidence.is_empty() {
            let evidence = self.blame.evidence.replace("the late task", &name).replace("the task", &name);
            self.blame.evidence = format!("the task waited for {name}: {evidence}").into();
        }
        if self.blame.kind == Some(CauseKind::Thread) {
            self.blame.delayed = Some(name);
        }
        self
    }

    fn what(self, what: impl Into<String>) -> Self {
        Self { what: what.into(), ..self }
    }

    fn need(self, need: Need) -> Self {
        Self { need: Some(need), ..self }
    }

    /// What every wake-up needs.
    fn needed(what: impl Into<String>) -> Self {
        Self { what: what.into(), ..Self::default() }
    }

    pub(crate) fn unattributed(what: &str) -> Self {
        Self { blame: Blame::unattributed(), ..Self::needed(what) }
    }
}

/// The waiting task, and the names of the others.
pub(crate) struct Labeller<'a> {
    pub(crate) window: &'a Window,
    pub(crate) states: &'a States,
    pub(crate) reader: &'a dyn Reader,
    /// Built on first use.
    pub(crate) stacks: OnceCell<InterruptStacks>,
    /// For a thread, the places of the events that wake it or take it off its CPU. Built on first use.
    pub(crate) own_events: RefCell<HashMap<u32, Vec<usize>>>,
    pub(crate) priorities: &'a Priorities,
    pub(crate) late: LateKind,
    /// See [`Late`](crate::find::late::Late).
    pub(crate) unstopped: bool,
    /// The traced machine is the guest of a hypervisor.
    pub(crate) is_virtual: bool,
}

/// A task that was woken on another CPU is in the queue of its CPU by then.
const CHOICE_NS: u64 = 100_000;
/// How many events are looked through for the wake-up and the last switch.
const EVENTS_BEFORE: usize = 1 << 14;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Who {
    pub(crate) pid: Option<u32>,
    pub(crate) priority: Option<i32>,
}

impl Labeller<'_> {
    pub(crate) fn thread(&self, pid: Option<u32>) -> String {
        match pid {
            Some(0) => "idle".to_owned(),
            Some(pid) => match self.window.commands.get(&pid) {
                Some(command) => self.reader.names().text(*command).to_owned(),
                None => format!("thread {pid}"),
            },
            None => "an unknown thread".to_owned(),
        }
    }

    /// Labels the part `length_ns` of a span.
    pub(crate) fn label(&self, phase: Phase, who: Who, span: &Span, length_ns: u64) -> Label {
        let state = &span.state;
        match state.level {
            Level::Nmi => {
                let reason = "the event flags say that the CPU was in an NMI";
                plain(CauseKind::Nmi, vocabulary::NMI.to_owned(), SEEN, reason)
            }
            Level::HardIrq(label) => {
                let label = &self.states.labels[label];
                let kind = label.interrupt.kind();
                let (confidence, reason) = in_handler(kind, span, length_ns);
                plain(kind, label.text.clone(), confidence, reason)
            }
            Level::Softirq(vector) if phase != Phase::TimerDue => {
                let name = vocabulary::softirq(vector);
                let what = format!("{name} in {}", self.thread(state.pid));
                let (confidence, reason) = in_handler(CauseKind::Softirq, span, length_ns);
                plain(CauseKind::Softirq, name, confidence, reason).what(what)
            }
            _ => self.in_thread(phase, who, span, length_ns),
        }
    }

    fn in_thread(&self, phase: Phase, who: Who, span: &Span, length_ns: u64) -> Label {
        let state = &span.state;
        let own = state.pid == who.pid || (state.pid.is_none() && !matches!(phase, Phase::TimerDue));
        if own && matches!(self.late, LateKind::NoiseGap { .. }) {
            return Label::unattributed("nothing that the tracer counts: hardware, firmware or a hypervisor");
        }
        if state.pid.is_none() && phase == Phase::Runnable && length_ns <= SWITCH_MAX_NS {
            return Label::needed("context switch");
        }
        if state.switching && !matches!(phase, Phase::Waker { .. } | Phase::Fault) {
            let long = length_ns > SWITCH_LONG_NS;
            let reason = "the scheduler had chosen the next thread, but the context switch was not over";
            let blame = Blame::new(CauseKind::ContextSwitch, CONCLUDED, reason);
            let blame = if long { blame } else { Blame::default() };
            return Label { blame, ..Label::needed("context switch") };
        }
        if state.pid == who.pid && state.pid.is_some() && !matches!(phase, Phase::Waker { .. } | Phase::Fault)
        {
            if phase == Phase::AtWork {
                return Label::unattributed(STILL_AT_WORK);
            }
            return Label::needed(format!("{} gets the CPU", self.thread(state.pid)));
        }
        match phase {
            Phase::TimerDue => self.timer_due(span, length_ns),
            Phase::AtWork | Phase::Handling | Phase::Runnable => self.runnable(who, span, length_ns),
            Phase::Waker { pid, owner } => self.waker(who, (pid, owner), span, length_ns),
            Phase::Fault => {
                let reason = "the task slept until its page fault was handled";
                let blame = Blame::new(CauseKind::PageFault, SHOWN, reason);
                let what = format!("page fault; meanwhile {}", self.thread(state.pid));
                Label { blame, ..Label::needed(what) }
            }
        }
    }

    /// The thread of that state did it.
    pub(crate) fn by(
        &self,
        kind: CauseKind,
        state: &State,
        what: &str,
        confidence: f64,
        reason: &'static str,
    ) -> Label {
        let name = self.thread(state.pid);
        let what = if what.is_empty() { name.clone() } else { format!("{name}: {what}") };
        let pid = state.pid.filter(|pid| *pid != 0);
        Label {
            blame: Blame { pid, ..Blame::new(kind, confidence, reason).actor(name) },
            ..Label::needed(what)
        }
    }

    /// The timer should have interrupted this.
    fn timer_due(&self, span: &Span, length_ns: u64) -> Label {
        use CauseKind::{HostStall, IrqsOff, TimerLate, Unattributed};
        let state = &span.state;
        let by = |kind, what, confidence, reason| self.by(kind, state, what, confidence, reason);
        // A thread that ran with interrupts enabled did not delay the timer: only the timeline names it.
        let late_timer = |what, confidence, reason| by(TimerLate, what, confidence, reason).without_actor();
        if state.pid == Some(0) && state.irqs_off != Knowledge::ByEvent {
            return self.timer_due_in_idle(state, length_ns);
        }
        if state.user {
            let reason = "the CPU was in user mode, where interrupts are enabled";
            let what = "user mode; the timer interrupt does not come";
            return match self.is_virtual && !ran_at_end(span, self) {
                true => by(HostStall, what, CONCLUDED, reason).without_actor(),
                false => late_timer(what, LIKELY, reason),
            };
        }
        let found = self.interrupted(span);
        let innermost = crate::stack::innermost(&found);
        let is_edge = innermost.as_ref().is_some_and(|(function, _)| vocabulary::is_edge(function));
        if state.irqs_off != Knowledge::ByEvent && is_edge && length_ns > EDGE_MAX_NS {
            let reason = "the late timer interrupt came during kernel entry, kernel exit or the arming of a \
                          timer, which are too short to cause this delay";
            let what = "the timer interrupt does not come";
            return match self.is_virtual {
                true => by(HostStall, what, CONCLUDED, reason).without_actor(),
                false => late_timer(what, LIKELY, reason),
            };
        }
        if state.irqs_off != Knowledge::ByEvent
            && innermost.is_some_and(|(function, _)| vocabulary::goes_to_sleep(&function))
        {
            let reason = "the late timer interrupt came when a thread was about to sleep";
            return late_timer("about to sleep; the timer interrupt does not come", POSSIBLE, reason);
        }
        let traced = self.states.has_functions && state.path != crate::states::stacks::PathId::ROOT;
        let in_kernel = traced || !found.is_empty();
        let off = "interrupts disabled";
        match state.irqs_off {
            Knowledge::ByEvent => by(IrqsOff, off, STATED, "events show when interrupts were disabled"),
            Knowledge::ByFlags => {
                by(IrqsOff, off, SEEN, "the flags of nearby functions say that interrupts were disabled")
            }
            Knowledge::Not if self.states.irq_events => {
                late_timer("interrupts enabled", CONCLUDED, "events show that interrupts were enabled")
            }
            Knowledge::Not => {
                late_timer("interrupts enabled", FAINT, "the event flags say that interrupts were enabled")
            }
            Knowledge::Unknown if in_kernel => {
                let reason = "the timer interrupt remained pending while the CPU ran kernel code";
                by(IrqsOff, off, CONCLUDED, reason).need(Need::Sections)
            }
            Knowledge::Unknown => {
                by(Unattributed, "interrupts disabled, or the CPU stopped", 0.0, "").need(Need::Functions)
            }
        }
    }

    /// The timer should have interrupted an idle CPU.
    fn timer_due_in_idle(&self, state: &State, length_ns: u64) -> Label {
        let longest = if state.idle_state == Some(1) { IDLE_EXIT_FIRST_MAX_NS } else { IDLE_EXIT_MAX_NS };
        let leaving = state.idle_state.is_some_and(|index| index > 0) && length_ns <= longest;
        let sampled = matches!(self.late, LateKind::Timerlat { .. });
        if sampled && state.idle_state.is_none() && length_ns <= IDLE_EXIT_FIRST_MAX_NS {
            let reason = "the CPU was idle: either leaving idle or a hypervisor took the time; the trace does not show which";
            let blame = Blame::new(CauseKind::IdleExit, CONCLUDED, reason);
            return Label { blame, need: Some(Need::IdleStates), ..Label::needed("leaving idle") };
        }
        let (blame, what) = if leaving {
            let reason = "the CPU was in an idle state that takes time to leave";
            (Blame::new(CauseKind::IdleExit, LIKELY, reason), "leaving an idle state")
        } else {
            let reason = "the CPU was idle, and leaving idle does not take this long: the timer interrupt itself came late";
            let what = "idle; the timer interrupt does not come";
            (Blame::new(CauseKind::TimerLate, SEEN, reason), what)
        };
        Label { blame, need: state.idle_state.is_none().then_some(Need::IdleStates), ..Label::needed(what) }
    }

    fn runnable(&self, who: Who, span: &Span, length_ns: u64) -> Label {
        let state = &span.state;
        if state.scheduling && !state.user && !(state.switched && length_ns > SWITCH_MAX_NS) {
            return Label::needed("context switch");
        }
        let asked = state.need_resched || state.need_resched_lazy;
        let taken_off = matches!(self.late, LateKind::Preempted { for_lesser: true, .. });
        if state.pid == Some(0) {
            return self.runnable_in_idle(taken_off, asked, length_ns);
        }
        // A thread that ran while the task was throttled did not delay the task.
        if state.irqs_off.holds() && !taken_off {
            let confidence = if state.irqs_off == Knowledge::ByEvent { STATED } else { SEEN };
            let reason = "interrupts were disabled while the task was runnable";
            return self.by(CauseKind::IrqsOff, state, "interrupts disabled", confidence, reason);
        }
        self.behind_thread(who, span, length_ns, taken_off, asked)
    }

    /// The task could run, and the CPU was idle.
    fn runnable_in_idle(&self, taken_off: bool, asked: bool, length_ns: u64) -> Label {
        if taken_off || (!asked && !self.unstopped && length_ns > IDLE_EXIT_MAX_NS) {
            let reason = "the CPU was idle while the task was runnable: real-time throttling";
            let blame = Blame::new(CauseKind::Throttled, CONCLUDED, reason);
            return Label { blame, ..Label::needed("idle; the task is throttled") };
        }
        if length_ns > IDLE_EXIT_MAX_NS {
            let what = match asked {
                true => "idle, with a reschedule requested for the task",
                false => "idle; no real-time thread was throttled",
            };
            return Label::unattributed(what).need(Need::Functions);
        }
        let reason = "the task was runnable and the CPU had not left idle";
        Label { blame: Blame::new(CauseKind::IdleExit, FAINT, reason), ..Label::needed("leaving idle") }
    }

    /// Whether an event at one end of a span shows that no reschedule was requested. A wake-up (before the request) and a
    /// switch (after it) do not count.
    fn is_seen_alive(&self, span: &Span) -> bool {
        let events =
            || [span.events.0, span.events.1].into_iter().filter_map(|place| self.window.events.get(place));
        let cpu = events().next().map(|event| event.cpu);
        events().any(|event| {
            let asked = event.context.need_resched || event.context.need_resched_lazy;
            let tells = !matches!(
                event.kind,
                EventKind::Switch { .. } | EventKind::Waking { .. } | EventKind::Wakeup { .. }
            );
            Some(event.cpu) == cpu && tells && !asked
        })
    }

    fn behind_thread(&self, who: Who, span: &Span, length_ns: u64, taken_off: bool, asked: bool) -> Label {
        use CauseKind::{Migration, PreemptOff, Thread, Throttled};
        let state = &span.state;
        let by = |kind, what: &str, confidence, reason| self.by(kind, state, what, confidence, reason);
        if self.thread(state.pid).starts_with("migration/") {
            return by(Migration, "moves tasks between CPUs", CONCLUDED, "the kernel's migration thread ran");
        }
        let priority = state.pid.and_then(|pid| self.priorities.at(pid, span.events.0));
        match (priority, who.priority) {
            (Some(other @ PRIORITY_NORMAL..), Some(own @ PRIORITY_NORMAL..)) if other > own => {
                let reason = "an ordinary task ran, which shares the CPU with the late task";
                by(Thread, &format!("{}, shares the CPU", scheduled(of_kernel(other))), CONCLUDED, reason)
            }
            (Some(other), Some(own)) if may_run_before(of_kernel(other), of_kernel(own)) => {
                let own = figure::priority(of_kernel(own));
                let what = format!("{}, not below {own}", scheduled(of_kernel(other)));
                match state.pid.map(|pid| self.priorities.change(pid)) {
                    Some(Change::Inherited) => {
                        let reason = "a thread ran with an inherited priority: the thread held a lock for which \
                                      another task waited";
                        return by(Thread, &what, CONCLUDED, reason);
                    }
                    Some(Change::Unknown) => {
                        let reason = "a thread ran whose priority had been raised: by sched_setscheduler, or by a \
                                      lock for which another task waited";
                        return by(Thread, &what, CONCLUDED, reason);
                    }
                    Some(Change::None) | None => {}
                }
                // Without its events a softirq looks like the thread that serves it.
                let serves = vocabulary::serves_softirqs(&self.thread(state.pid));
                let confidence = if serves { CONCLUDED } else { SHOWN };
                by(Thread, &what, confidence, "a thread ran that the task cannot preempt")
            }
            (Some(other), Some(own))
                if own < PRIORITY_NORMAL && other >= PRIORITY_NORMAL && self.is_passed_over(who, span) =>
            {
                let reason = "the scheduler chose a lower-priority thread although the task was runnable: \
                              real-time throttling, or the fair server";
                by(Throttled, "runs; the task is throttled", STATED, reason).without_actor()
            }
            _ if state.preempt_off.holds() && !taken_off => {
                let confidence = if state.preempt_off == Knowledge::ByEvent { STATED } else { SEEN };
                let reason = "the task was runnable and the running thread had preemption disabled";
                by(PreemptOff, "preemption disabled", confidence, reason)
            }
            (Some(_), Some(_)) if taken_off => {
                let reason =
                    "the CPU was switched from the task to a lower-priority thread: real-time throttling";
                // The thread that runs meanwhile is not the one that delayed it.
                let label = by(Throttled, "runs; the task is throttled", CONCLUDED, reason);
                label.without_actor()
            }
            (Some(_), Some(_))
                if !asked && length_ns > THROTTLED_LEAST_NS && state.preempt_off == Knowledge::Not =>
            {
                if self.is_seen_alive(span) {
                    let reason = "a lower-priority thread kept running, and no reschedule was requested: \
                                  either its priority had been raised (sched_setscheduler), or the task was \
                                  throttled";
                    return by(Thread, "runs; its priority at that time is not known", POSSIBLE, reason);
                }
                let reason =
                    "a lower-priority thread ran, and no reschedule was requested: real-time throttling";
                by(Throttled, "runs; the task is throttled", FAINT, reason)
            }
            (Some(_), Some(_)) => {
                let reason = "the task was runnable, and the running lower-priority thread was not preempted";
                by(PreemptOff, "not preempted", LEFT_OVER, reason).need(Need::Sections)
            }
            _ if state.pid.is_none() => Label::unattributed("the trace does not show which thread ran"),
            _ => by(Thread, "", LEFT_OVER, "another thread ran; the trace does not show all priorities"),
        }
    }

    /// Whether the thread of a span got the CPU when the task had been runnable for long, so that the scheduler had a choice.
    fn is_passed_over(&self, who: Who, span: &Span) -> bool {
        let events = &self.window.events;
        let (Some(first), Some(pid)) = (events.get(span.events.0), who.pid) else { return false };
        let before = || events[..=span.events.0].iter().rev().take(EVENTS_BEFORE);
        let came = before().find_map(|event| match event.kind {
            EventKind::Switch { next, .. } if event.cpu == first.cpu => Some((event.at_ns, next.pid)),
            _ => None,
        });
        let Some((came_ns, _)) = came.filter(|(_, next)| Some(*next) == span.state.pid) else { return false };
        let mut all = self.own_events.borrow_mut();
        let own = all.entry(pid).or_insert_with(|| {
            let is_own = |event: &Event| match event.kind {
                EventKind::Wakeup { task, .. } | EventKind::Waking { task, .. } => task.pid == pid,
                EventKind::Switch { previous, .. } => previous.pid == pid,
                _ => false,
            };
            (0..events.len()).filter(|place| is_own(&events[*place])).collect()
        });
        let last = own.partition_point(|place| *place <= span.events.0).checked_sub(1);
        let woken_ns = last.map(|last| &events[own[last]]).and_then(|event| match event.kind {
            // It slept.
            EventKind::Switch { state, .. } if state != TaskState::Runnable => None,
            _ => Some(event.at_ns),
        });
        woken_ns.is_some_and(|woken_ns| woken_ns.saturating_add(CHOICE_NS) <= came_ns)
    }

    /// The thread `pid` is to wake the task; whether it owns the lock for which the task waits.
    fn waker(&self, who: Who, (pid, owner): (u32, bool), span: &Span, length_ns: u64) -> Label {
        let state = &span.state;
        let held = "the task waited for a lock until the lock's holder released it";
        if state.pid == Some(pid) {
            let sure = if self.late == LateKind::Blocked { POSSIBLE } else { FAINT };
            let not_yet =
                ("has not woken the task yet", sure, "the task waited until another thread woke the task");
            let (kind, (what, confidence, reason)) = if owner {
                (CauseKind::Lock, ("holds the lock", CONCLUDED, held))
            } else {
                (CauseKind::Thread, not_yet)
            };
            let mut label = self.by(kind, state, what, confidence, reason);
            label.blame.delayed = label.blame.actor.clone().filter(|_| !owner);
            return label;
        }
        let priority = self.priorities.at(pid, span.events.0);
        let inner = self.label(Phase::Runnable, Who { pid: Some(pid), priority }, span, length_ns);
        let name = self.thread(Some(pid));
        if !owner {
            return inner.on_behalf(name);
        }
        let what = format!("{name}, which holds the lock, waits: {}", inner.what);
        // A thread that the task cannot preempt either would have delayed the task without a lock, too.
        let other_priority = inner.blame.pid.and_then(|other| self.priorities.at(other, span.events.0));
        let is_lower = other_priority.zip(who.priority).is_some_and(|(other, own)| other > own);
        let inversion = if is_lower { ": priority inversion" } else { "" };
        let other = inner.blame.actor.filter(|_| inner.blame.pid.is_some());
        let more = other.map(|other| format!("; {other} had the CPU meanwhile{inversion}"));
        let evidence = format!("{held}{}", more.unwrap_or_default());
        let blame = Blame::new(CauseKind::Lock, CONCLUDED, evidence).thread(&name, pid);
        Label { blame, what, need: inner.need }
    }
}

/// How sure it is that an interrupt or a softirq took a time. A handler whose end is not in the trace may have ended long
/// before the next event, and one that is silent for long may have been stopped itself.
fn in_handler(kind: CauseKind, span: &Span, length_ns: u64) -> (f64, &'static str) {
    let longest_ns = if kind == CauseKind::Softirq { SOFTIRQ_LONG_NS } else { STOPPED_LEAST_NS };
    match span.closed {
        true if length_ns <= longest_ns => (SHOWN, "events show the start and the end of the handler"),
        true => (CONCLUDED, "the handler began and ended, but the CPU may have stood still in between"),
        // Requests of other CPUs and softirqs have events of their own before and after them.
        false if kind != CauseKind::Irq => {
            (CONCLUDED, "the CPU was in the handler; no event shows the handler's end")
        }
        false => (UNENDED, "the CPU was in the handler; no event shows the handler's end"),
    }
}

/// Something other than a thread had the CPU.
fn plain(kind: CauseKind, actor: String, confidence: f64, reason: &'static str) -> Label {
    Label { what: actor.clone(), blame: Blame::new(kind, confidence, reason).actor(actor), need: None }
}
