//! What the kernel recorded with its start and end: interrupts, softirqs, functions of other CPUs, waits for locks.

use super::blame::{Context, MAY_HAVE_STOPPED};
use super::window::{Slice, Window};
use super::{Activity, Segment, Sender, Thread};
use crate::blame::piece::{Blame, EDGE_MAX_NS, HALT_EXIT_MAX_NS, STOPPED_LEAST_NS};
use crate::confidence::{CONCLUDED, LIKELY, RECORDED, STATED};
use crate::stack;
use crate::vocabulary::{self, Interrupt};
use std::collections::BTreeMap;
use whylate_core::figure;
use whylate_core::recording::OWN;
use whylate_core::result::CauseKind as Kind;

/// The most time that the timer's interrupt takes if its CPU is not stopped. The limit depends on the function that takes
/// most of it: none, the one that wakes a thread, or the tick. `None` for any other function.
fn timer_max_ns(function: Option<&str>) -> Option<u64> {
    match function {
        None => Some(HALT_EXIT_MAX_NS),
        Some("hrtimer_wakeup") => Some(EDGE_MAX_NS),
        Some("tick_sched_timer" | "tick_nohz_handler") => Some(TICK_MAX_NS),
        Some(_) => None,
    }
}

/// The tick accounts, balances and expires timers: this takes no longer, even on an emulated CPU.
const TICK_MAX_NS: u64 = 1_000_000;

impl<'r> Context<'r> {
    /// What the kernel recorded with its start and end.
    pub(super) fn recorded(&self, slice: &Slice<'_>, segment: &Segment) -> Blame {
        let by = |kind, evidence: String| self.by_record(kind, slice, evidence);
        match &segment.what {
            Activity::Irq { line } => {
                let device = self.surroundings.lines.get(line).map(String::as_str);
                by(Kind::Irq, "the handler's start and end were recorded".to_owned())
                    .actor(vocabulary::irq(*line, device))
            }
            Activity::Softirq { number } => self.softirq(slice).actor(vocabulary::softirq(Some(*number))),
            Activity::Nmi { handler } => by(Kind::Nmi, "the handler's time was recorded".to_owned())
                .actor(vocabulary::NMI)
                .named(Some((handler.clone(), Vec::new()))),
            Activity::Function { function, sender } => {
                let called = "requested this function call, whose start and end were recorded";
                let named = Some((function.clone(), Vec::new()));
                match sender {
                    None => by(Kind::Ipi, format!("another CPU {called}")).named(named),
                    Some(sender) if self.is_ours(sender) => {
                        let ours = "the measurement itself caused this call";
                        by(Kind::Ipi, format!("CPU {} {called}; {ours}", sender.cpu))
                            .named(named)
                            .thread(OWN, sender.pid)
                    }
                    Some(sender) => by(Kind::Ipi, format!("CPU {} {called}", sender.cpu))
                        .named(named)
                        .thread(&sender.command, sender.pid),
                }
            }
            Activity::Lock { flags, .. } => {
                let lock = vocabulary::lock(*flags);
                by(Kind::Lock, format!("the wait for the {lock} was recorded; the lock's holder was not"))
            }
            _ => Blame::unattributed(),
        }
    }

    /// Names the function that took most of an interrupt, a softirq or a worker's turn, if nothing else names one.
    pub(super) fn with_called(&self, slice: &Slice<'_>, blame: Blame) -> Blame {
        use Kind::{Irq, IrqsOff, PreemptOff, Softirq, Thread};
        let can_call = matches!(blame.kind, Some(Irq | IrqsOff | PreemptOff | Softirq | Thread));
        let segment = slice.segment.or(slice.neighbour).filter(|_| can_call && blame.function.is_none());
        let Some((function, sender)) = segment.and_then(|segment| self.called(segment)) else { return blame };
        let (who, what, asked) = match blame.kind {
            Some(Irq) => ("the interrupt", "timer", "set"),
            Some(Softirq) => ("the softirq", "timer", "set"),
            _ => ("the thread", "work", "queued"),
        };
        let by = match sender {
            Some(Sender { pid: 0, cpu, .. }) => format!(", {asked} on CPU {cpu} while CPU {cpu} was idle"),
            Some(Sender { command, pid, cpu, .. }) => format!(", {asked} on CPU {cpu} by {command} ({pid})"),
            None => String::new(),
        };
        let evidence = format!("{}; {who} ran the {what} function {function}{by}", blame.evidence).into();
        Blame { evidence, ..blame }.named(Some((function.to_owned(), Vec::new())))
    }

    /// The function that took at least half of a segment's time in the window, and its caller.
    fn called(&self, segment: &Segment) -> Option<(&str, Option<&Sender>)> {
        let key = std::ptr::from_ref(segment).addr();
        let known = self.sweep.called.borrow().get(&key).copied();
        known.unwrap_or_else(|| {
            let found = self.longest_called(segment);
            self.sweep.called.borrow_mut().insert(key, found);
            found
        })
    }

    /// An interrupt acts for itself, not for the thread that it interrupts.
    fn longest_called(&self, segment: &Segment) -> Option<(&'r str, Option<&'r Sender>)> {
        let mut times: BTreeMap<&str, (u64, Option<&Sender>)> = BTreeMap::new();
        for called in self.sweep.called_by(segment) {
            let Activity::Called { function, sender } = &called.what else { continue };
            let entry = times.entry(function).or_default();
            *entry = (entry.0 + self.time_of_ns(called), sender.as_ref().or(entry.1));
        }
        let (function, (time_ns, sender)) = times.into_iter().max_by_key(|(_, (time_ns, _))| *time_ns)?;
        (time_ns > 0 && 2 * time_ns >= self.time_of_ns(segment)).then_some((function, sender))
    }

    /// How much of a segment is in the window.
    fn time_of_ns(&self, segment: &Segment) -> u64 {
        let Window { from_ns, to_ns, .. } = *self.window;
        segment.to_ns.min(to_ns).saturating_sub(segment.from_ns.max(from_ns))
    }

    /// Softirqs run with interrupts enabled: they delay a task, but not the timer's interrupt.
    fn softirq(&self, slice: &Slice<'_>) -> Blame {
        let evidence = format!("the softirq's start and end were recorded{}", self.softirq_thread(slice));
        let recorded = self.by_record(Kind::Softirq, slice, evidence);
        if !self.is_pending(slice) {
            return recorded;
        }
        let late = format!("{}; the timer's interrupt came late", recorded.evidence);
        let below = self.interrupted().filter(|below| !below.is_empty());
        let named = below.and_then(stack::innermost);
        let (confidence, more) = match &named {
            Some((function, _)) => {
                let confidence = if self.surroundings.is_virtual { LIKELY } else { CONCLUDED };
                (confidence, format!(" and interrupted {function}"))
            }
            None => (LIKELY, ", and no stack tells why: softirqs run with interrupts enabled".to_owned()),
        };
        Blame { confidence, evidence: format!("{late}{more}").into(), ..recorded }.named(named)
    }

    /// The thread that serves softirqs and ran this one, whose priority decides which tasks it delays.
    fn softirq_thread(&self, slice: &Slice<'_>) -> String {
        let ran = slice.thread.and_then(|segment| match &segment.what {
            Activity::Thread { thread, .. } if vocabulary::serves_softirqs(&thread.command) => Some(thread),
            _ => None,
        });
        let in_thread =
            |thread: &Thread| format!(", in {} at {}", thread.command, figure::scheduled(thread.priority));
        ran.map(in_thread).unwrap_or_default()
    }

    /// Blames what was recorded with its start and end.
    fn by_record(&self, kind: Kind, slice: &Slice<'_>, evidence: String) -> Blame {
        let is_long = slice.to_ns - slice.from_ns >= STOPPED_LEAST_NS;
        if self.surroundings.is_virtual && is_long {
            let evidence = format!("{evidence}; {MAY_HAVE_STOPPED}");
            return Blame::new(kind, CONCLUDED, evidence);
        }
        // A guest's clock goes on while the hypervisor has the CPU, so even a short time may be partly the hypervisor's.
        Blame::new(kind, if self.surroundings.is_virtual { STATED } else { RECORDED }, evidence)
    }

    /// Whether this program sent it, for example to read a counter of the CPU.
    fn is_ours(&self, sender: &Sender) -> bool {
        self.surroundings.is_own(sender.process)
    }

    /// An interrupt of the processor's own: the local timer, or one that another CPU sent.
    pub(super) fn vector(&self, slice: &Slice<'_>, segment: &Segment, vector: u32) -> Blame {
        let interrupt = Interrupt::of_vector(vector);
        let is_within = |other: &&Segment| other.to_ns <= segment.to_ns;
        let mut functions = self.sweep.begun_in(segment.from_ns, segment.to_ns).filter(is_within);
        if interrupt == Some(Interrupt::CallFunction)
            && let Some(function) = functions.find(|other| matches!(other.what, Activity::Function { .. }))
        {
            // The time around the function belongs to it.
            return self.recorded(slice, function);
        }
        let (kind, actor) = match interrupt {
            Some(interrupt) => (interrupt.kind(), interrupt.label().to_owned()),
            None => (Kind::Irq, format!("vector {vector:#x}")),
        };
        if interrupt == Some(Interrupt::Timer)
            && self.surroundings.is_virtual
            && timer_max_ns(self.called(segment).map(|(function, _)| function))
                .is_some_and(|longest_ns| self.time_of_ns(segment) > longest_ns)
        {
            return self
                .stood_still("the CPU was in the timer's interrupt for longer than its functions take");
        }
        self.by_record(kind, slice, "the interrupt's start and end were recorded".to_owned()).actor(actor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segments::{Recording, Surroundings, decompose};
    use whylate_core::CpuId;
    use whylate_testing::says;

    #[test]
    fn a_softirq_names_the_thread_that_ran_it() {
        let window = Window {
            cpu: CpuId(1),
            from_ns: 1_000_000,
            to_ns: 1_300_000,
            is_timer: false,
            is_probe: true,
            process: 100,
            thread: None,
            priority: 40,
        };
        let segment = |to_ns, what| Segment { from_ns: 900_000, to_ns, what };
        let evidence = |command: &str| {
            let thread = Thread { pid: 16, priority: 80, command: command.to_owned() };
            let ran = Activity::Thread { thread, process: 16, was_runnable: false, next_priority: 40 };
            let segments = vec![segment(1_290_000, Activity::Softirq { number: 6 }), segment(1_300_000, ran)];
            let recording = Recording { segments, ..Recording::default() };
            let cause = decompose(&window, &recording, &Surroundings::default()).remove(0);
            assert_eq!((cause.kind, cause.actor.as_deref()), (Kind::Softirq, Some("TASKLET softirq")));
            cause.evidence[0].clone()
        };
        assert!(says("its-start-end-recorded", evidence("ksoftirqd/1")));
        assert!(says("its-start-end-recorded-2", evidence("audio")), "it was in the way");
    }
}
