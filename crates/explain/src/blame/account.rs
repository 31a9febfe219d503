//! Divides the time between the expected and the actual moment into pieces: who had the CPU that the task waited for.
//!
//! The pieces have neither gaps nor overlaps. Before the wake-up, the waker of the task is followed: the timer's interrupt on
//! its CPU, or a thread on another CPU, which may have been late itself.

use crate::blame::label::{Label, Labeller, Need, Phase, Who};
use crate::blame::piece::{Blame, STOPPED_LEAST_NS};
use crate::confidence::CONCLUDED;
use crate::find::late::{Late, LateKind};
use crate::find::sleeps::OWN_EVENTS_MAX;
use crate::states::States;
use crate::states::state::{Level, Span, State};
use crate::time;
use crate::vocabulary::{self, Interrupt};
use crate::window::Window;
use whylate_core::CpuId;
use whylate_core::result::CauseKind;
use whylate_trace::event::{Event, EventKind, TaskState};

/// How far wakers of wakers are followed.
const DEPTH_MAX: u32 = 3;

/// What is known of a piece in addition to who had the CPU.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) cpu: CpuId,
    /// What went on, in a few words.
    pub(crate) what: String,
    pub(crate) need: Option<Need>,
    /// The place of its span among those of the CPU; `None` if the CPU has no events.
    pub(crate) place: Option<u32>,
}

impl Place {
    /// The span, for its functions and events.
    pub(crate) fn span<'s>(&self, states: &'s States) -> Option<&'s Span> {
        states.spans.get(&self.cpu)?.get(self.place? as usize)
    }
}

pub(crate) type Piece = crate::blame::piece::Piece<Place>;

/// Moment, CPU and place of an event that made a task runnable.
#[derive(Clone, Copy, Debug)]
struct Wake {
    at_ns: u64,
    cpu: CpuId,
    target: CpuId,
    index: usize,
}

/// A time in which the waker of the task had a CPU.
#[derive(Clone, Copy, Debug)]
struct Stint {
    came: Wake,
    /// When it had been preempted before.
    left: Option<Wake>,
}

/// Divides the time of one spike.
pub(crate) struct Accountant<'a> {
    pub(crate) window: &'a Window,
    pub(crate) states: &'a States,
    pub(crate) labeller: &'a Labeller<'a>,
    pub(crate) late: &'a Late,
    pub(crate) pieces: Vec<Piece>,
}

impl Accountant<'_> {
    /// Divides all of it.
    pub(crate) fn run(&mut self) {
        let who = Who { pid: self.late.pid, priority: self.late.priority };
        let (from, to) = (self.late.expected_ns, self.late.actual_ns);
        if let LateKind::Timerlat { irq } = self.late.kind
            && self.by_noises(irq)
        {
            return;
        }
        if matches!(self.late.kind, LateKind::NoiseGap { interference: 1.. }) && self.gap_by_noises() {
            return;
        }
        match self.late.kind {
            LateKind::Preempted { cpu, .. } => {
                let out = Wake { at_ns: from, cpu, target: cpu, index: 0 };
                self.until_run(who, out, self.late.cpu, from, to);
            }
            LateKind::Blocked if self.had_fault(from) => {
                self.walk(Phase::Fault, who, self.late.cpu, from, to);
            }
            _ => self.wait(who, self.late.cpu, from, to, 0),
        }
    }

    /// Whether the task had a page fault just before it blocked at `out_ns`, without a system call in between.
    pub(crate) fn had_fault(&self, out_ns: u64) -> bool {
        let is_own = |event: &&Event| event.pid == self.late.pid && event.cpu == self.late.cpu;
        let found =
            self.before(out_ns).filter(is_own).take(OWN_EVENTS_MAX).find_map(|event| match event.kind {
                EventKind::PageFault { .. } => Some(true),
                EventKind::SyscallEnter { .. } | EventKind::LockWait { .. } => Some(false),
                _ => None,
            });
        found == Some(true)
    }

    /// Whether the task waited for a lock, or lent its priority, just before it blocked at `out_ns`.
    pub(crate) fn waited_for_lock(&self, out_ns: u64) -> bool {
        let pid = self.late.pid;
        let own = self.before(out_ns).filter(|event| event.pid == pid).take(OWN_EVENTS_MAX);
        let found = { own }.find_map(|event| match event.kind {
            EventKind::LockWait { .. } => Some(true),
            EventKind::PriorityInherited { task, .. } if Some(task.pid) != pid => Some(true),
            EventKind::LockWaitEnd { .. } => Some(false),
            EventKind::Switch { next, .. } if Some(next.pid) == pid => Some(false),
            _ => None,
        });
        found == Some(true)
    }

    /// The events up to that moment, the last one first.
    fn before(&self, out_ns: u64) -> impl Iterator<Item = &Event> {
        self.window.events.iter().rev().filter(move |event| event.at_ns <= out_ns)
    }

    /// `who` should have run on `cpu` from `from`, and ran at `to`.
    fn wait(&mut self, who: Who, cpu: CpuId, from: u64, to: u64, depth: u32) {
        let wake = self.wake_of(who, to);
        let until = wake.map_or(to, |wake| wake.at_ns);
        let slept = self.slept_late(who, from, until).filter(|_| depth == 0);
        if let Some((slept, cpu)) = slept {
            self.walk(Phase::AtWork, who, cpu, from, slept);
        }
        let from = slept.map_or(from, |(slept, _)| slept);
        let Some(wake) = wake else {
            let entry = self.timer_entry(cpu, from.saturating_sub(self.late.error_ns), to, false);
            let entry = entry.map_or(from, |at| time::within(at, from, to));
            self.walk(Phase::TimerDue, who, cpu, from, entry);
            self.walk(Phase::Runnable, who, cpu, entry, to);
            return;
        };
        let woken = time::within(wake.at_ns, from, to);
        if woken > from {
            self.before_wake(who, wake, from, woken, depth);
        }
        self.until_run(who, wake, cpu, woken, to);
    }

    /// The first event that woke the task since it slept, not after `to`.
    fn wake_of(&self, who: Who, to: u64) -> Option<Wake> {
        let pid = who.pid?;
        let (mut wake, mut over) = (None, false);
        for (index, event) in self.window.events.iter().enumerate() {
            if event.at_ns > to {
                break;
            }
            match event.kind {
                EventKind::Waking { task, target_cpu } | EventKind::Wakeup { task, target_cpu }
                    if task.pid == pid =>
                {
                    let new = Wake { at_ns: event.at_ns, cpu: event.cpu, target: target_cpu, index };
                    // `sched_wakeup` follows `sched_waking`, and names the chosen CPU. After it a task is woken again only if
                    // it ran and slept unseen.
                    wake = Some(match wake {
                        Some(first) if !over => Wake { target: target_cpu, ..first },
                        _ => new,
                    });
                    over = matches!(event.kind, EventKind::Wakeup { .. });
                }
                // The task ran or slept in between: discard what was before.
                EventKind::Switch { previous, .. } if previous.pid == pid && event.at_ns < to => {
                    (wake, over) = (None, false);
                }
                _ => {}
            }
        }
        wake
    }

    /// When and where the task finally went to sleep, if that was after the expected moment.
    fn slept_late(&self, who: Who, from: u64, until: u64) -> Option<(u64, CpuId)> {
        let sleeps = self.before(until).take_while(|event| event.at_ns > from);
        { sleeps }.find_map(|event| match event.kind {
            EventKind::Switch { previous, state, .. } if Some(previous.pid) == who.pid => {
                (state != TaskState::Runnable).then_some((event.at_ns, event.cpu))
            }
            _ => None,
        })
    }

    /// A timer interrupt of the CPU between two moments: the last one, or the first.
    fn timer_entry(&self, cpu: CpuId, from: u64, to: u64, last: bool) -> Option<u64> {
        let moments = self.states.timer_entries.iter().filter(|(own, _)| *own == cpu);
        let mut moments =
            moments.map(|(_, index)| self.window.events[*index].at_ns).filter(|at| (from..=to).contains(at));
        if last { moments.next_back() } else { moments.next() }
    }

    /// From the expected moment to the wake-up.
    fn before_wake(&mut self, who: Who, wake: Wake, from: u64, woken: u64, depth: u32) {
        let event = &self.window.events[wake.index];
        let waker = event.pid.filter(|pid| *pid != 0 && Some(*pid) != who.pid);
        let state = self.state_at(wake.cpu, wake.index);
        let in_interrupt =
            event.context.hard_irq || state.is_some_and(|state| matches!(state.level, Level::HardIrq(_)));
        let serves_softirqs = |pid: u32| vocabulary::serves_softirqs(&self.labeller.thread(Some(pid)));
        let thread = waker.filter(|pid| !in_interrupt && (!event.context.softirq || serves_softirqs(*pid)));
        let owner = self.late.kind == LateKind::Blocked && depth == 0 && self.waited_for_lock(from);
        match thread {
            Some(pid) => self.behind_waker(who, pid, owner, wake, from, woken, depth),
            None => {
                if let Some(by) = state.and_then(|state| self.device_of(state))
                    && self.late.kind == LateKind::Blocked
                {
                    return self.push(wake.cpu, from, woken, self.until_woken(who, depth, by), None);
                }
                let entry = self.timer_entry(wake.cpu, from, woken, true);
                let running = self.timer_entry(wake.cpu, 0, woken, true).is_some();
                // It was entered before the expected moment: the handler ran all the time.
                let entry = entry.unwrap_or(if running && in_interrupt { from } else { woken });
                let began = from;
                let due = (depth > 0).then(|| self.due_of(wake)).flatten();
                let due = due.filter(|due| *due > from).map(|due| due.min(entry));
                let from = due.unwrap_or(from);
                if let Some(due) = due {
                    self.push(wake.cpu, began, due, self.asleep(who), None);
                }
                self.walk(Phase::TimerDue, who, wake.cpu, from, entry);
                self.walk(Phase::Handling, who, wake.cpu, entry, woken);
            }
        }
    }

    /// When the timer was due whose interrupt made a wake-up.
    fn due_of(&self, wake: Wake) -> Option<u64> {
        let mut armed = self.window.armed.clone();
        let mut due = None;
        for event in &self.window.events[..wake.index] {
            let late_ns = armed.follow(event);
            if event.cpu == wake.cpu {
                match event.kind {
                    EventKind::TimerExpire { .. } => {
                        due = late_ns.map(|late_ns| event.at_ns.saturating_sub(late_ns));
                    }
                    EventKind::TimerExpireExit { .. } | EventKind::VectorExit { .. } => due = None,
                    _ => {}
                }
            }
        }
        due
    }

    /// What serves a device in that state; `None` for timers and the scheduler.
    fn device_of(&self, state: State) -> Option<String> {
        match state.level {
            Level::HardIrq(label) => {
                let label = &self.states.labels[label];
                (label.interrupt == Interrupt::Device).then(|| label.text.clone())
            }
            Level::Softirq(vector) => {
                vocabulary::is_softirq_of_devices(vector).then(|| vocabulary::softirq(vector))
            }
            Level::Thread | Level::Nmi => None,
        }
    }

    /// The task, or the thread that is to wake it, sleeps in the middle of its work until a device has done its part.
    fn until_woken(&self, who: Who, depth: u32, by: String) -> Label {
        let evidence = match depth {
            0 => format!("the task slept, and {by} woke it"),
            _ => {
                let waker = self.labeller.thread(who.pid);
                format!("{waker}, which woke the task, slept, and {by} woke {waker}")
            }
        };
        let what = format!("waiting for {by}");
        let delayed = Some(self.labeller.thread(who.pid));
        let blame = Blame { delayed, ..Blame::new(CauseKind::Wait, CONCLUDED, evidence).actor(by) };
        Label { blame, what, need: None }
    }

    /// The thread that is to wake the task sleeps, and its own timer is not due yet.
    fn asleep(&self, who: Who) -> Label {
        if let (LateKind::Blocked, Some(pid)) = (self.late.kind, who.pid) {
            let name = self.labeller.thread(Some(pid));
            let evidence =
                format!("the task slept until {name} woke it, and {name} slept until its own timer expired");
            let what = format!("{name} sleeps until its timer expires");
            let blame = Blame::new(CauseKind::Wait, CONCLUDED, evidence).thread(&name, pid);
            let delayed = Some(self.labeller.thread(self.late.pid));
            return Label { blame: Blame { delayed, ..blame }, what, need: None };
        }
        let known = "the thread that woke the task slept until its own timer expired: the sleep is no delay, \
                     or the expected moment is wrong";
        let what = format!("{} sleeps until its timer expires", self.labeller.thread(who.pid));
        Label { blame: Blame::unattributed_as(known), what, need: None }
    }

    /// A thread woke the task: what kept it from doing so earlier.
    #[allow(clippy::too_many_arguments, reason = "two tasks, two moments and the wake-up between them")]
    fn behind_waker(
        &mut self,
        who: Who,
        pid: u32,
        owner: bool,
        wake: Wake,
        from: u64,
        woken: u64,
        depth: u32,
    ) {
        let phase = Phase::Waker { pid, owner };
        let stints = match owner || depth >= DEPTH_MAX {
            true => Vec::new(),
            false => self.stints(pid, wake, from),
        };
        let Some(first) = stints.last() else {
            self.walk(phase, who, wake.cpu, from, woken);
            return;
        };
        let waker = |index| Who { pid: Some(pid), priority: self.labeller.priorities.at(pid, index) };
        match first.left {
            None => self.wait(waker(first.came.index), first.came.cpu, from, first.came.at_ns, depth + 1),
            Some(left) if left.at_ns > from => self.walk(phase, who, left.cpu, from, left.at_ns),
            Some(_) => {}
        }
        for (nth, stint) in stints.iter().enumerate().rev() {
            if let Some(left) = stint.left {
                let left_ns = left.at_ns.max(from);
                let left = Wake { at_ns: left_ns, ..left };
                self.until_run(waker(left.index), left, stint.came.cpu, left_ns, stint.came.at_ns);
            }
            let next = nth.checked_sub(1).and_then(|next| stints[next].left);
            let until_ns = next.map_or(woken, |next| next.at_ns);
            self.walk(phase, who, stint.came.cpu, stint.came.at_ns, until_ns);
        }
    }

    /// When the thread `pid` got a CPU before a wake-up by it, the last time first, back to its last sleep or to `from`.
    fn stints(&self, pid: u32, wake: Wake, from: u64) -> Vec<Stint> {
        let events = &self.window.events;
        let (mut stints, mut end) = (Vec::new(), wake.index);
        let at = |index: usize| {
            let Event { at_ns, cpu, .. } = events[index];
            Wake { at_ns: at_ns.min(wake.at_ns), cpu, target: cpu, index }
        };
        let came = |event: &Event| matches!(event.kind, EventKind::Switch { next, .. } if next.pid == pid);
        while let Some(index) = events[..end].iter().rposition(came).filter(|it| events[*it].at_ns > from) {
            let left = events[..index].iter().enumerate().rev().find_map(|(left, event)| match event.kind {
                EventKind::Switch { previous, state, .. } if previous.pid == pid => Some((left, state)),
                _ => None,
            });
            // It lost its CPU in the middle of what it did before it woke the task.
            let left = left.filter(|(_, state)| *state == TaskState::Runnable).map(|(left, _)| left);
            stints.push(Stint { came: at(index), left: left.map(at) });
            match left {
                Some(left) => end = left,
                None => break,
            }
        }
        stints
    }

    /// From the wake-up to the moment at which the task ran, on the CPUs that it was queued on.
    fn until_run(&mut self, who: Who, wake: Wake, cpu: CpuId, woken: u64, to: u64) {
        let moves = self.window.events.iter().filter_map(|event| match event.kind {
            EventKind::Migrate { task, to_cpu, .. } if Some(task.pid) == who.pid => {
                Some((event.at_ns, to_cpu))
            }
            _ => None,
        });
        let moves: Vec<(u64, CpuId)> = moves.filter(|(at, _)| (woken..to).contains(at)).collect();
        let last = moves.last().map_or(wake.target, |(_, cpu)| *cpu);
        if last != cpu {
            // Migrations that were not recorded: use the CPU on which it ran.
            self.walk(Phase::Runnable, who, cpu, woken, to);
            return;
        }
        let (mut at, mut on) = (woken, wake.target);
        for (moved, next) in moves {
            self.walk(Phase::Runnable, who, on, at, moved);
            (at, on) = (moved, next);
        }
        self.walk(Phase::Runnable, who, on, at, to);
    }

    /// State of a CPU after an event.
    fn state_at(&self, cpu: CpuId, index: usize) -> Option<State> {
        let spans = self.states.spans.get(&cpu)?;
        let place = spans.partition_point(|span| span.events.0 < index);
        spans.get(place).filter(|span| span.events.0 == index).map(|span| span.state)
    }

    /// The spans of a CPU in `[from, to]`, each with its meaning for the task.
    pub(crate) fn walk(&mut self, phase: Phase, who: Who, cpu: CpuId, from: u64, to: u64) {
        let mut at = from;
        let spans = self.states.spans.get(&cpu).map_or(&[][..], Vec::as_slice);
        let first = spans.partition_point(|span| span.to <= from);
        for (place, span) in spans.iter().enumerate().skip(first) {
            if span.from >= to || at >= to {
                break;
            }
            if span.from > at {
                self.untraced(cpu, at, span.from);
                at = span.from;
            }
            let end = span.to.min(to);
            // If only the header states the latency, the time before the first line of a CPU is unknown.
            let is_before = span.events.0 == span.events.1 && span.from < span.to && self.is_first(span);
            if is_before && self.late.kind == LateKind::Header && end - at > STOPPED_LEAST_NS {
                self.untraced(cpu, at, end);
                at = end;
                continue;
            }
            let mut label = self.labeller.label(phase, who, span, end - at);
            if who.pid.is_some() && who.pid != self.late.pid {
                label = label.on_behalf(self.labeller.thread(who.pid));
            }
            self.push(cpu, at, end, label, Some(place as u32));
            at = end;
        }
        if at < to {
            self.untraced(cpu, at, to);
        }
    }

    /// Whether a span ends in the first event of its CPU.
    fn is_first(&self, span: &Span) -> bool {
        span.to <= self.window.events[span.events.1].at_ns
    }

    fn push(&mut self, cpu: CpuId, from: u64, to: u64, label: Label, place: Option<u32>) {
        use CauseKind::{IrqsOff, PreemptOff};
        let Label { blame, what, need } = label;
        let detail = Place { cpu, what, need, place };
        let span = detail.span(self.states);
        let state = span.map(|span| span.state);
        let section = match blame.kind {
            Some(IrqsOff) => state.and_then(|state| state.irqs_section),
            Some(PreemptOff) => state.and_then(|state| state.preempt_section),
            _ => None,
        };
        let began = section.map(|(at, ..)| at).or(span.map(|span| span.from)).unwrap_or(from);
        self.pieces.push(Piece { from, to, began, blame, detail });
    }

    fn untraced(&mut self, cpu: CpuId, from: u64, to: u64) {
        self.push(cpu, from, to, Label::unattributed("nothing was traced on this CPU"), None);
    }
}
