//! The timer that the measured thread waited for: when it was due, and what held its interrupt off.

use super::blame::Context;
use super::window::Slice;
use super::{Activity, Thread};
use crate::blame::piece::{Blame, EDGE_MAX_NS};
use crate::confidence::{CONCLUDED, LIKELY, RECORDED, STATED};
use crate::stack;
use crate::vocabulary;
use whylate_core::figure;
use whylate_core::result::CauseKind as Kind;

impl<'r> Context<'r> {
    /// The kernel lets the timer of an ordinary thread expire later than requested, so that one interrupt serves several
    /// timers. Until then the thread that has the CPU delays no other.
    pub(super) fn slack(&self, slice: &Slice<'_>) -> Option<Blame> {
        let due_ns = self.due_ns.filter(|due_ns| self.window.is_timer && slice.to_ns <= *due_ns)?;
        let slack = figure::nanoseconds(due_ns.saturating_sub(self.window.from_ns));
        let evidence = format!(
            "the kernel may let the timer expire up to {slack} after the moment that the thread requested"
        );
        (self.priority <= 0 && !self.is_before_sleep(slice))
            .then(|| Blame::new(Kind::TimerSlack, RECORDED, evidence))
    }

    /// When the CPU last ended another interrupt while the timer's was due. Interrupts that came one right after another up to the
    /// timer's waited as it did.
    pub(super) fn others_came_in(&self) -> Option<u64> {
        let (woken_ns, _) = self.woken.filter(|_| self.window.is_timer)?;
        let margin_ns = self.surroundings.margin_ns();
        let asked_ns = self.window.from_ns.max(self.slept_ns.unwrap_or_default());
        let due_ns = self.due_ns.unwrap_or_default().max(asked_ns).saturating_add(margin_ns);
        let mut came_in: Vec<(u64, u64)> = { self.recording.segments.iter() }
            .filter(|segment| matches!(segment.what, Activity::Irq { .. } | Activity::Vector { .. }))
            .map(|segment| (segment.to_ns, segment.from_ns))
            .filter(|(_, from_ns)| *from_ns > due_ns && *from_ns <= woken_ns)
            .collect();
        came_in.sort_unstable();
        let mut waited_ns = woken_ns;
        for (to_ns, from_ns) in came_in.into_iter().rev() {
            if to_ns.saturating_add(2 * margin_ns) < waited_ns {
                return Some(to_ns);
            }
            waited_ns = waited_ns.min(from_ns);
        }
        None
    }

    /// Whether the timer should have expired by then and its interrupt had not come.
    pub(super) fn is_pending(&self, slice: &Slice<'_>) -> bool {
        self.window.is_timer
            && self.woken.is_some_and(|(woken_ns, _)| slice.from_ns < woken_ns)
            && !self.is_before_sleep(slice)
    }

    /// Whether the task did not sleep yet, although the moment that it was going to wait for had come.
    pub(super) fn is_before_sleep(&self, slice: &Slice<'_>) -> bool {
        self.slept_ns.is_some_and(|slept_ns| slice.from_ns < slept_ns)
    }

    /// What the timer's late interrupt interrupted, innermost first; empty for user mode.
    pub(super) fn interrupted(&self) -> Option<&'r [String]> {
        self.woken.and_then(|(_, stack)| stack::below_interrupt(stack))
    }

    /// The timer should have expired and its interrupt did not come. A thread that ran meanwhile with interrupts enabled did
    /// not delay it: the evidence names it, but it is not the actor.
    pub(super) fn timer_pending(&self, slice: &Slice<'_>, thread: Option<&Thread>) -> Blame {
        let late = "the timer's interrupt was late";
        let innermost = self.interrupted().and_then(|below| below.first());
        let is_released = innermost.is_some_and(|name| vocabulary::is_release(name));
        // The code that finally enables interrupts may have disabled them after the last of the other interrupts.
        if self.handled_until_ns.is_some_and(|until_ns| slice.from_ns < until_ns || !is_released) {
            let ran = thread.map(|thread| format!(" ({} ran)", thread.command)).unwrap_or_default();
            let evidence = format!(
                "{late}, and other interrupts were handled meanwhile{ran}, so interrupts were enabled"
            );
            return Blame::new(Kind::TimerLate, CONCLUDED, evidence);
        }
        let Some(below) = self.interrupted() else {
            return self.without_stack(thread);
        };
        let whose = thread.map(|thread| format!(" of {}", thread.command)).unwrap_or_default();
        if below.is_empty() {
            let evidence = format!("{late} and interrupted user mode{whose}, where interrupts are enabled");
            return self.stood_still(&evidence);
        }
        let named = stack::innermost(below);
        if let Some((function, _)) = &named
            && slice.to_ns - slice.from_ns > EDGE_MAX_NS
            && vocabulary::is_edge(function)
        {
            // The task itself may have been there: a timer that is set after its moment expires at once.
            if let Some(thread) = self.above(thread).filter(|_| vocabulary::sets_timer(function)) {
                let more = format!(
                    "{late} and interrupted {function}, so the task may have set the timer after its moment"
                );
                return behind(thread, LIKELY, &more);
            }
            return self.stood_still(&format!(
                "{late} and interrupted {function} in kernel code{whose}; {function} is too short to cause this delay"
            ));
        }
        let sure = if is_released && self.handled_until_ns.is_none() { STATED } else { CONCLUDED };
        let (confidence, more) = match self.surroundings.is_virtual {
            true => (LIKELY, "; the hypervisor may have delivered the interrupt late"),
            false => (sure, ""),
        };
        let code = named.as_ref().map_or("kernel code", |(function, _)| function.as_str());
        let evidence = format!("{late} and interrupted {code}{more}");
        let blame = Blame::new(Kind::IrqsOff, confidence, evidence).named(named);
        match thread {
            Some(thread) => blame.thread(&thread.command, thread.pid),
            None => blame,
        }
    }

    /// The timer's interrupt was late for an unknown reason. A thread that the task cannot preempt would have kept it from
    /// the CPU even after a timely interrupt.
    fn without_stack(&self, thread: Option<&Thread>) -> Blame {
        let late = "the timer's interrupt was late, and no stack shows the interrupted code";
        // If the wake-up is not known either, it may be among the lost records.
        match self.above(thread).filter(|_| self.woken.is_some()) {
            Some(thread) => behind(thread, CONCLUDED, late),
            None => Blame::unattributed_as(late),
        }
    }

    /// The thread, if the task cannot preempt it.
    fn above<'t>(&self, thread: Option<&'t Thread>) -> Option<&'t Thread> {
        thread.filter(|thread| thread.priority > self.priority.max(0))
    }
}

/// The task waited behind a thread that it cannot preempt.
fn behind(thread: &Thread, confidence: f64, more: &str) -> Blame {
    let (command, scheduled) = (&thread.command, figure::scheduled(thread.priority));
    let evidence = format!("{command} ({scheduled}) had a higher priority than the task; {more}");
    Blame::new(Kind::Thread, confidence, evidence).thread(command, thread.pid)
}
