//! The cause of one piece of a spike's window, and the evidence for it.

use super::sweep::Sweep;
use super::window::{Slice, Surroundings, Window};
use super::{Activity, Recording, Segment, Thread};
use crate::blame::piece::{Blame, EDGE_MAX_NS, HALT_EXIT_MAX_NS, IDLE_EXIT_MAX_NS, may_run_before};
use crate::confidence::{CONCLUDED, LIKELY, POSSIBLE, RECORDED, SHOWN, STATED};
use crate::stack;
use crate::vocabulary;
use whylate_core::CpuId;
use whylate_core::figure;
use whylate_core::order::InOrder;
use whylate_core::recording::{FAIR_SERVER, GROUP_RUNTIME, OWN, OWN_RUNTIME};
use whylate_core::result::CauseKind as Kind;

/// A CPU with two runnable threads has a tick, every 10 ms at the slowest: this is two and a half ticks.
const TICKS_MISSED_NS: u64 = 25_000_000;

/// By default the fair server takes at most two times 50 ms within one second.
const FAIR_SERVER_TOO_LONG_NS: std::ops::Range<u64> = 105_000_000..1_000_000_000;

pub(super) const MAY_HAVE_STOPPED: &str = "a hypervisor may have stopped the CPU meanwhile";

/// Priorities from here on are those of SCHED_DEADLINE, where each thread has a budget of its own.
pub(crate) const DEADLINE: i32 = 100;

/// Facts of the whole recording, for the explanation of its pieces.
pub(super) struct Context<'r> {
    pub(super) window: &'r Window,
    pub(super) priority: i32,
    pub(super) recording: &'r Recording,
    pub(super) sweep: Sweep<'r>,
    pub(super) surroundings: &'r Surroundings,
    /// When the measured task was woken, and the stack of that moment.
    pub(super) woken: Option<(u64, &'r [String])>,
    /// When the timer that woke it was due at the latest.
    pub(super) due_ns: Option<u64>,
    /// When it went to sleep before that, if the timer was already due: until then it was on the CPU, or waited for it.
    pub(super) slept_ns: Option<u64>,
    /// When it got the CPU after that, and the stack of the thread that had it.
    running: Option<(u64, &'r [String])>,
    /// Since when it was runnable while the scheduler chose a lower-priority thread.
    throttled_from_ns: Option<u64>,
    /// Only an idle CPU that took interrupts shows it.
    is_throttling_inferred: bool,
    first_fault_ns: Option<u64>,
    /// The measured thread, if a wake-up of it is on record.
    measured: Option<u32>,
    /// When the measured task was moved, and where to.
    moved: Option<(u64, CpuId)>,
    /// Until when other interrupts were handled while the timer's was pending, which came only later.
    pub(super) handled_until_ns: Option<u64>,
}

impl<'r> Context<'r> {
    pub(super) fn of(window: &'r Window, recording: &'r Recording, surroundings: &'r Surroundings) -> Self {
        let mut context = Self {
            window,
            priority: window.priority,
            recording,
            sweep: Sweep::of(&recording.segments),
            surroundings,
            woken: None,
            due_ns: None,
            slept_ns: None,
            running: None,
            throttled_from_ns: None,
            is_throttling_inferred: false,
            first_fault_ns: None,
            measured: None,
            moved: None,
            handled_until_ns: None,
        };
        let measured = context.measured_thread();
        context.measured = measured;
        context.priority = context.recorded_priority(measured).unwrap_or(window.priority);
        for segment in &recording.segments {
            context.look_at(segment, measured);
        }
        context.slept_ns = context.slept_late(measured);
        context.throttled_from_ns = context.throttled();
        let woken_ns = context.woken.map(|(woken_ns, _)| woken_ns);
        if let Some(woken_ns) =
            woken_ns.filter(|at| context.throttled_from_ns.is_none() && context.idled_at_work(*at))
        {
            (context.throttled_from_ns, context.is_throttling_inferred) = (Some(woken_ns), true);
        }
        context.handled_until_ns = context.others_came_in();
        context
    }

    /// The thread of the measured process that began to run last: the late one. Its other threads sleep and are woken as
    /// well.
    fn measured_thread(&self) -> Option<u32> {
        let begins = self.recording.segments.iter().filter_map(|segment| match &segment.what {
            Activity::Wakeup { pid, process, .. } if self.is_own(*process) => Some((segment.to_ns, *pid)),
            _ => None,
        });
        begins.filter(|(at_ns, _)| self.is_inside(*at_ns)).max().map(|(_, pid)| pid)
    }

    /// What the scheduler recorded of the measured thread when it left the CPU: some run as ordinary threads although the
    /// plan says otherwise. Without its id it is the thread that was still runnable.
    fn recorded_priority(&self, measured: Option<u32>) -> Option<i32> {
        let own = self.recording.segments.iter().filter_map(|segment| match &segment.what {
            Activity::Thread { thread, process, was_runnable, .. }
                if self.is_measured(*process, thread.pid) =>
            {
                let is_it = measured.map_or(*was_runnable, |pid| pid == thread.pid);
                is_it.then_some((segment.to_ns, thread.priority))
            }
            _ => None,
        });
        own.max_by_key(|(to_ns, _)| *to_ns).map(|(_, priority)| priority)
    }

    fn is_inside(&self, at_ns: u64) -> bool {
        (self.window.from_ns..=self.window.to_ns).contains(&at_ns)
    }

    fn look_at(&mut self, segment: &'r Segment, measured: Option<u32>) {
        let is_measured =
            |process: u32, pid: u32| self.is_own(process) && measured.is_none_or(|measured| measured == pid);
        match &segment.what {
            Activity::Timer { pid, process, stack }
                if is_measured(*process, *pid) && self.is_inside(segment.to_ns) =>
            {
                self.woken = Some((segment.to_ns, stack));
                self.due_ns = Some(segment.from_ns);
            }
            Activity::Wakeup { pid, process, stack, .. }
                if is_measured(*process, *pid) && self.is_inside(segment.to_ns) =>
            {
                self.woken.get_or_insert((segment.from_ns, &[]));
                self.running = Some((segment.to_ns, stack));
            }
            Activity::PageFault { .. } if self.is_inside(segment.from_ns) => {
                let first = self.first_fault_ns.unwrap_or(segment.from_ns);
                self.first_fault_ns = Some(first.min(segment.from_ns));
            }
            Activity::Migration { process, to, .. }
                if self.is_own(*process) && self.is_inside(segment.from_ns) =>
            {
                self.moved.get_or_insert((segment.from_ns, *to));
            }
            _ => {}
        }
    }

    fn is_own(&self, process: u32) -> bool {
        self.window.process == 0 || process == self.window.process
    }

    /// A late task may still be at its work, or preempted in it, when its next timer is due.
    fn slept_late(&self, measured: Option<u32>) -> Option<u64> {
        let Window { from_ns, to_ns, .. } = *self.window;
        let threads = || {
            self.recording.segments.iter().filter_map(|segment| match &segment.what {
                Activity::Thread { thread, process, was_runnable, .. } => {
                    Some((segment, thread.pid, *process, *was_runnable))
                }
                _ => None,
            })
        };
        let slept_ns = match self.woken {
            Some((woken_ns, _)) => threads()
                .filter(|(.., pid, _, was_runnable)| !was_runnable && measured == Some(*pid))
                .map(|(segment, ..)| segment.to_ns)
                .filter(|at_ns| *at_ns <= woken_ns)
                .max(),
            // Nothing woke it, and it has the CPU: it did not sleep at all.
            None => threads()
                .filter(|(_, pid, process, _)| self.recording.lost == 0 && self.is_measured(*process, *pid))
                .find(|(segment, ..)| (segment.from_ns..=segment.to_ns).contains(&to_ns))
                .map(|_| to_ns),
        };
        slept_ns.filter(|at_ns| self.window.is_timer && *at_ns > from_ns)
    }

    /// When the scheduler first chose a thread of lower priority although the measured one was runnable.
    fn throttled(&self) -> Option<u64> {
        let (woken_ns, _) = self.woken.unwrap_or((u64::MAX, &[]));
        let chosen = self.recording.segments.iter().filter_map(|segment| match &segment.what {
            // It was preempted, and a thread of lower priority ran next.
            Activity::Thread { thread, process, was_runnable, next_priority, .. }
                if self.is_measured(*process, thread.pid) =>
            {
                (*was_runnable && self.is_lesser(*next_priority)).then_some(segment.to_ns)
            }
            // A thread of lower priority began to run after the wake-up. Another real-time thread gave way to such a thread
            // before, and no real-time thread has run since.
            Activity::Thread { thread, was_runnable: true, next_priority, .. }
                if segment.to_ns <= self.window.from_ns
                    && (1..DEADLINE).contains(&thread.priority)
                    && self.is_lesser(*next_priority)
                    && *next_priority < thread.priority =>
            {
                Some(self.woken.map_or(self.window.from_ns, |(woken_ns, _)| woken_ns))
            }
            Activity::Thread { thread, .. } => {
                let is_lesser = self.is_lesser(thread.priority);
                (is_lesser && segment.from_ns > woken_ns).then_some(segment.from_ns)
            }
            _ => None,
        });
        chosen.filter(|at_ns| *at_ns < self.window.to_ns).min()
    }

    /// Whether the CPU was idle for most of the time after the wake-up of a real-time task, and took interrupts all the time: it did not
    /// stand still.
    fn idled_at_work(&self, woken_ns: u64) -> bool {
        let to_ns = self.window.to_ns;
        let whole_ns = to_ns.saturating_sub(woken_ns);
        if !(1..DEADLINE).contains(&self.priority) || whole_ns == 0 {
            return false;
        }
        let mut interrupts: Vec<u64> = self
            .recording
            .segments
            .iter()
            .filter(|it| it.what.is_interrupt() && it.from_ns > woken_ns && it.from_ns < to_ns)
            .map(|it| it.from_ns)
            .collect();
        interrupts.order();
        let ends = interrupts.iter().copied().chain([to_ns]);
        let gaps = std::iter::once(woken_ns).chain(interrupts.iter().copied()).zip(ends);
        let longest_ns = gaps.map(|(from, to)| to.saturating_sub(from)).max().unwrap_or(whole_ns);
        let idle_ns: u64 = self
            .recording
            .segments
            .iter()
            .filter(|segment| match &segment.what {
                Activity::Idle { .. } => true,
                Activity::Thread { thread, .. } => thread.pid == 0,
                _ => false,
            })
            .map(|it| it.to_ns.min(to_ns).saturating_sub(it.from_ns.max(woken_ns)))
            .sum();
        interrupts.len() >= INTERRUPTS_LEAST
            && longest_ns.saturating_mul(4) <= whole_ns
            && idle_ns.saturating_mul(2) >= whole_ns
    }

    /// Whether it is the measured process, if that is known, and its measured thread.
    fn is_measured(&self, process: u32, thread: u32) -> bool {
        self.window.process != 0
            && process == self.window.process
            && self.window.thread.is_none_or(|measured| measured == thread)
    }

    pub(super) fn blame(&self, slice: &Slice<'_>) -> Blame {
        match self.slack(slice) {
            Some(blame) => blame,
            None => self.with_called(slice, self.unnamed(slice)),
        }
    }

    fn unnamed(&self, slice: &Slice<'_>) -> Blame {
        let Some(segment) = slice.segment else {
            return self.migration(slice).unwrap_or_else(|| self.nothing_recorded(slice));
        };
        if let Activity::Idle { .. } | Activity::Thread { .. } = &segment.what
            && let Some(blame) = self.migration(slice)
        {
            return blame;
        }
        match &segment.what {
            Activity::Idle { state } => self.idle(slice, &format!("idle state {state}"), *state > 0),
            Activity::Thread { thread, .. } if thread.pid == 0 => self.idle(slice, "the idle task", false),
            Activity::Thread { thread, process, .. } if self.is_measured(*process, thread.pid) => {
                self.own_time(slice, thread.pid)
            }
            // Threads of the watched process are that program's, even if it is this one.
            Activity::Thread { thread, process, .. }
                if self.surroundings.is_own(*process)
                    && !(self.window.thread.is_some() && *process == self.window.process) =>
            {
                let own = Thread { pid: *process, command: OWN.to_owned(), ..thread.clone() };
                self.other_thread(slice, &own)
            }
            Activity::Thread { thread, .. } => self.other_thread(slice, thread),
            Activity::Vector { vector } => self.vector(slice, segment, *vector),
            _ => self.recorded(slice, segment),
        }
    }

    /// The kernel's thread that moves the measured one. After the move, the activity of this CPU delays no measured thread.
    fn migration(&self, slice: &Slice<'_>) -> Option<Blame> {
        let is_mover = matches!(
            slice.segment.map(|segment| &segment.what),
            Some(Activity::Thread { thread, .. }) if thread.command.starts_with("migration/")
        );
        let (_, to) = self.moved.filter(|(moved_ns, _)| is_mover || slice.from_ns >= *moved_ns)?;
        let evidence = format!("the task was moved from CPU {} to CPU {to}", self.window.cpu);
        Some(Blame::new(Kind::Migration, SHOWN, evidence))
    }

    /// An idle CPU; `is_deep` if its idle state may take long to leave, also that of a guest.
    fn idle(&self, slice: &Slice<'_>, state: &str, is_deep: bool) -> Blame {
        let is_halted = self.surroundings.is_virtual && !is_deep;
        let longest_ns = if is_halted { HALT_EXIT_MAX_NS } else { IDLE_EXIT_MAX_NS };
        if self.is_throttled(slice) {
            return self.passed_over("the CPU was idle although the task was runnable");
        }
        if !self.window.is_timer {
            return Blame::unattributed();
        }
        let (when, confidence) = match self.woken {
            Some((woken_ns, _)) if slice.from_ns >= woken_ns => ("after the wake-up", SHOWN),
            _ => ("when the timer should have expired", LIKELY),
        };
        if self.idled_ns(slice) > longest_ns {
            let evidence =
                format!("the CPU was in {state} {when}, for longer than it takes to leave any idle state");
            return match confidence {
                LIKELY => self.stood_still(&evidence),
                _ if self.surroundings.is_virtual => self.stood_still(&evidence),
                _ => self.counted(&evidence).unwrap_or_else(|| Blame::new(Kind::Unattributed, 0.0, evidence)),
            };
        }
        let hypervisor = if self.surroundings.is_virtual { " (in a virtual machine)" } else { "" };
        Blame::new(Kind::IdleExit, confidence, format!("the CPU was in {state} {when}{hypervisor}"))
    }

    /// How long the CPU was in the idle state of a slice, without interruptions; other records may cut it into pieces.
    fn idled_ns(&self, slice: &Slice<'_>) -> u64 {
        let Some(idle) = slice.segment else { return 0 };
        let (from_ns, to_ns) = (idle.from_ns.max(self.window.from_ns), idle.to_ns.min(self.window.to_ns));
        let overlap =
            |segment: &Segment| segment.to_ns.min(to_ns).saturating_sub(segment.from_ns.max(from_ns));
        let above = self.sweep.above_in(from_ns, to_ns);
        let interrupts = above.filter(|segment| segment.what.rank() > idle.what.rank());
        to_ns.saturating_sub(from_ns).saturating_sub(interrupts.map(overlap).sum())
    }

    /// Whether the measured task would preempt a thread of that priority.
    fn is_lesser(&self, priority: i32) -> bool {
        !may_run_before(priority, self.priority)
    }

    fn is_throttled(&self, slice: &Slice<'_>) -> bool {
        self.throttled_from_ns.is_some_and(|from_ns| slice.from_ns >= from_ns)
    }

    fn other_thread(&self, slice: &Slice<'_>, thread: &Thread) -> Blame {
        if self.is_lesser(thread.priority) && self.is_throttled(slice) {
            return self
                .passed_over("the scheduler chose a lower-priority thread although the task was runnable");
        }
        let ran = || {
            let ran = format!("{} ({}) had the CPU", thread.command, figure::scheduled(thread.priority));
            let (sure, evidence) =
                match self.surroundings.is_virtual && slice.to_ns - slice.from_ns >= TICKS_MISSED_NS {
                    true => (CONCLUDED, format!("{ran} without an interrupt; {MAY_HAVE_STOPPED}")),
                    false => (RECORDED, ran),
                };
            Blame::new(Kind::Thread, sure, evidence).thread(&thread.command, thread.pid)
        };
        if !self.window.is_timer {
            return ran();
        }
        match self.woken {
            None if self.is_before_sleep(slice) && !self.is_lesser(thread.priority) => ran(),
            None => self.timer_pending(slice, Some(thread)),
            Some(_) if self.is_pending(slice) => self.timer_pending(slice, Some(thread)),
            Some(_) if !self.is_lesser(thread.priority) => ran(),
            Some(_) if self.is_before_sleep(slice) => Blame::unattributed(),
            Some(_) => self.not_preempted(slice, thread),
        }
    }

    fn passed_over(&self, evidence: &str) -> Blame {
        if self.is_throttling_inferred {
            let evidence = format!("{evidence}, and took interrupts all the time");
            return throttled(
                evidence,
                LIKELY,
                self.priority,
                &Surroundings { throttler: None, ..self.surroundings.clone() },
            );
        }
        let is_server = self.surroundings.throttler == Some(FAIR_SERVER) && self.priority < DEADLINE;
        // The fair server gives time to ordinary threads, and never leaves a CPU idle.
        if is_server && self.idled_throttled() {
            let evidence = format!(
                "{evidence}: {GROUP_RUNTIME}, because the CPU was also idle, which the fair server does not cause"
            );
            return Blame::new(Kind::Throttled, CONCLUDED, evidence).actor(GROUP_RUNTIME);
        }
        let blame = throttled(evidence, STATED, self.priority, self.surroundings);
        let took_ns = self.throttled_from_ns.map_or(0, |from_ns| self.window.to_ns.saturating_sub(from_ns));
        if !is_server || !self.surroundings.is_virtual || !FAIR_SERVER_TOO_LONG_NS.contains(&took_ns) {
            return blame;
        }
        let evidence =
            format!("{}; its default is 50 ms of each second, so {MAY_HAVE_STOPPED}", blame.evidence);
        Blame { confidence: POSSIBLE, evidence: evidence.into(), ..blame }
    }

    /// Whether the CPU was idle while the measured thread was passed over.
    fn idled_throttled(&self) -> bool {
        let Some(from_ns) = self.throttled_from_ns else { return false };
        self.recording.segments.iter().any(|segment| {
            let is_idle = match &segment.what {
                Activity::Idle { .. } => true,
                Activity::Thread { thread, .. } => thread.pid == 0,
                _ => false,
            };
            let (from_ns, to_ns) = (segment.from_ns.max(from_ns), segment.to_ns.min(self.window.to_ns));
            is_idle && to_ns > from_ns.saturating_add(EDGE_MAX_NS)
        })
    }

    /// A lower-priority thread went on running after the wake-up.
    fn not_preempted(&self, slice: &Slice<'_>, thread: &Thread) -> Blame {
        let named = self.running.and_then(|(_, stack)| stack::preempted(stack));
        let is_edge = named.as_ref().is_some_and(|(function, _)| vocabulary::is_edge(function));
        let in_user = self.running.is_some_and(|(_, stack)| stack::preempted_in_user(stack));
        let is_long = slice.to_ns - slice.from_ns > EDGE_MAX_NS;
        if in_user && !is_long {
            return Blame::new(
                Kind::ContextSwitch,
                SHOWN,
                format!("{} was preempted in user mode, where nothing delays the switch", thread.command),
            );
        }
        if (is_edge || in_user) && is_long {
            let evidence = format!(
                "{} was returning from an interrupt, where nothing can delay the context switch",
                thread.command
            );
            return self.stood_still(&evidence);
        }
        let (command, scheduled) = (&thread.command, figure::scheduled(thread.priority));
        let evidence = format!(
            "the lower-priority thread {command} ({scheduled}) kept the CPU after the task was woken"
        );
        let blame = if self.lacks_ticks(slice) {
            let evidence = format!(
                "{evidence}; no tick came during this delay, and an interrupt came right after this delay: \
                 {command} probably had interrupts disabled"
            );
            Blame::new(Kind::IrqsOff, CONCLUDED, evidence)
        } else {
            // Without a function it may also have had a higher priority for a while.
            Blame::new(Kind::PreemptOff, if named.is_some() { SHOWN } else { POSSIBLE }, evidence)
        };
        blame.thread(&thread.command, thread.pid).named(named)
    }

    /// Whether even the tick did not interrupt it, although interrupts are recorded: one came at its end.
    fn lacks_ticks(&self, slice: &Slice<'_>) -> bool {
        let begins_at_end = |segment: &Segment| segment.what.is_interrupt();
        self.recording.lost == 0
            && slice.to_ns - slice.from_ns >= TICKS_MISSED_NS
            && self.sweep.begun_in(slice.to_ns, slice.to_ns).any(begins_at_end)
    }

    /// A thread of the measured process had the CPU. Its work takes microseconds. If nothing else is recorded for longer, the
    /// guest's CPU was stopped, for example because the host fetched a page of the guest's memory.
    fn own_time(&self, slice: &Slice<'_>, pid: u32) -> Blame {
        let is_long = slice.to_ns - slice.from_ns > HALT_EXIT_MAX_NS;
        let is_own = self.measured.is_none_or(|measured| measured == pid) && !self.is_pending(slice);
        let is_known = self.first_fault_ns.is_none() && self.recording.lost == 0;
        if self.window.is_probe
            && self.window.is_timer
            && self.surroundings.is_virtual
            && is_long
            && is_own
            && is_known
        {
            return self.stood_still("the task had the CPU, and the kernel recorded nothing else");
        }
        self.nothing_recorded(slice)
    }

    /// As far as the kernel knows, only the measured task had the CPU.
    fn nothing_recorded(&self, slice: &Slice<'_>) -> Blame {
        if self.first_fault_ns.is_some_and(|fault_ns| slice.from_ns >= fault_ns) {
            return Blame::new(Kind::PageFault, SHOWN, "the task accessed memory that was not mapped");
        }
        if self.window.is_timer {
            return if self.is_pending(slice) {
                self.timer_pending(slice, None)
            } else if self.woken.is_some() && self.is_before_sleep(slice) {
                Blame::unattributed_as(vocabulary::STILL_AT_WORK)
            } else {
                Blame::unattributed()
            };
        }
        if let Some(neighbour) = slice.neighbour {
            return self.next_to(slice, neighbour);
        }
        if self.recording.lost > 0 {
            return Blame::unattributed();
        }
        self.outside("the loop ran in user mode with interrupts enabled, and the kernel did nothing")
    }

    /// Time next to an interrupt is its entry or exit. The hypervisor's part of it cannot be distinguished from its other
    /// work.
    fn next_to(&self, slice: &Slice<'_>, neighbour: &Segment) -> Blame {
        let blame = self.blame(&Slice { segment: Some(neighbour), neighbour: None, ..slice.clone() });
        if !self.surroundings.is_virtual {
            return blame;
        }
        let evidence =
            "the gap is next to an interrupt: the hypervisor delivered the interrupt, or handled its end (EOI)"
                .into();
        Blame { confidence: blame.confidence.min(CONCLUDED), evidence, ..blame }
    }

    /// Neither the kernel nor the task had the CPU.
    fn outside(&self, evidence: &str) -> Blame {
        self.counted(evidence).unwrap_or_else(|| {
            if self.surroundings.is_virtual {
                return host_stall(evidence);
            }
            let sibling = self.surroundings.siblings.get(&self.window.cpu);
            let (confidence, more) = match sibling {
                Some(cpus) => (
                    LIKELY,
                    format!("; CPU {cpus}, the other thread of the core, may have slowed down this CPU"),
                ),
                None => (SHOWN, String::new()),
            };
            Blame::new(Kind::Hardware, confidence, format!("{evidence}{more}"))
        })
    }

    /// The CPU recorded nothing for longer than the code at which it was found can take.
    pub(super) fn stood_still(&self, evidence: &str) -> Blame {
        self.counted(evidence).unwrap_or_else(|| match self.surroundings.is_virtual {
            true => host_stall(evidence),
            false => Blame::new(Kind::TimerLate, LIKELY, format!("{evidence}; the CPU may have stood still")),
        })
    }

    /// What took the CPU from the kernel, if a counter shows it.
    pub(super) fn counted(&self, evidence: &str) -> Option<Blame> {
        let (kind, more) = match (self.surroundings.smis, self.surroundings.steal_ns) {
            (Some(1..), _) => (Kind::Smi, "a system-management interrupt was counted"),
            (_, Some(1..)) => (Kind::Steal, "the hypervisor counted stolen time"),
            _ => return None,
        };
        Some(Blame::new(kind, SHOWN, format!("{evidence}; {more}")))
    }
}

fn host_stall(evidence: &str) -> Blame {
    Blame::new(Kind::HostStall, CONCLUDED, format!("{evidence}; the hypervisor counted no stolen time"))
}

/// With this many interrupts, spread over the time after a wake-up, an idle CPU did not stand still.
const INTERRUPTS_LEAST: usize = 8;

/// The scheduler chose a lower-priority thread: names the throttling that applies to a task of that priority.
pub(crate) fn throttled(
    evidence: impl std::fmt::Display,
    confidence: f64,
    priority: i32,
    surroundings: &Surroundings,
) -> Blame {
    let authority = if priority >= DEADLINE { Some(OWN_RUNTIME) } else { surroundings.throttler };
    let why = authority.unwrap_or("real-time throttling, or the fair server");
    let blame = Blame::new(Kind::Throttled, confidence, format!("{evidence}: {why}"));
    match authority {
        Some(authority) => blame.actor(authority),
        None => blame,
    }
}
