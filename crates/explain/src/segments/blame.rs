//! Whom to blame for one piece of a spike's window, and what speaks for it.

use super::decompose::{Blame, Piece, Surroundings, Who, Window};
use super::stack::{Interrupted, interrupted, preempted};
use super::{Activity, Recording, Segment, Thread};
use whylate_core::CpuId;
use whylate_core::result::CauseKind as Kind;

/// The actor of what this program does to the CPUs that it measures.
pub const OWN: &str = "whylate itself";
/// How sure a cause is whose begin and end were recorded.
pub(super) const RECORDED: f64 = 1.0;
/// How sure what is next to an interrupt is its doing, where a hypervisor lets it in.
const BESIDE_IN_GUEST: f64 = 0.8;
/// How sure it is that interrupts were off, where it may be the hypervisor that sent the timer's interrupt late.
const LATE_IN_GUEST: f64 = 0.7;
/// A CPU with two threads that want it has a tick, every 10 ms at the slowest: this is two of them and a half.
const TICKS_MISSED_NS: u64 = 25_000_000;

/// Who stops whom: at each moment what has the highest rank has the CPU. `None` for what is only a moment.
pub(crate) fn rank(what: &Activity) -> Option<u32> {
    Some(match what {
        Activity::Nmi { .. } => 7,
        Activity::Function { .. } => 6,
        Activity::Irq { .. } => 5,
        Activity::Vector { .. } => 4,
        Activity::Softirq { .. } => 3,
        Activity::Lock { .. } => 2,
        Activity::Idle { .. } => 1,
        Activity::Thread { .. } => 0,
        Activity::PageFault { .. }
        | Activity::Migration { .. }
        | Activity::Timer { .. }
        | Activity::Wakeup { .. } => return None,
    })
}

/// Whether it comes into a loop that never sleeps from outside.
pub(crate) fn is_interrupt(what: &Activity) -> bool {
    matches!(
        what,
        Activity::Nmi { .. } | Activity::Irq { .. } | Activity::Vector { .. } | Activity::Softirq { .. }
    )
}

/// What the whole recording says, for the explanation of its pieces.
pub(crate) struct Context<'r> {
    window: &'r Window,
    pub(super) recording: &'r Recording,
    pub(super) surroundings: &'r Surroundings,
    /// When the measured task was woken, and the stack of that moment.
    woken: Option<(u64, &'r [String])>,
    /// When it got the CPU after that, and the stack of the thread that had it.
    running: Option<(u64, &'r [String])>,
    /// From when on it could have run and the scheduler chose a lesser thread.
    throttled_from_ns: Option<u64>,
    first_fault_ns: Option<u64>,
    /// When the measured task was moved, and where to.
    moved: Option<(u64, CpuId)>,
}

impl<'r> Context<'r> {
    pub(crate) fn of(window: &'r Window, recording: &'r Recording, surroundings: &'r Surroundings) -> Self {
        let mut context = Self {
            window,
            recording,
            surroundings,
            woken: None,
            running: None,
            throttled_from_ns: None,
            first_fault_ns: None,
            moved: None,
        };
        let measured = context.measured_thread();
        for segment in &recording.segments {
            context.look_at(segment, measured);
        }
        context.throttled_from_ns = context.throttled();
        context
    }

    /// The thread of the measured process that began to run last: the one that was late. Others of its process sleep and
    /// are woken as well.
    fn measured_thread(&self) -> Option<u32> {
        let begins = self.recording.segments.iter().filter_map(|segment| match &segment.what {
            Activity::Wakeup { pid, process, .. } if self.is_own(*process) => Some((segment.to_ns, *pid)),
            _ => None,
        });
        begins.filter(|(at_ns, _)| self.is_inside(*at_ns)).max().map(|(_, pid)| pid)
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

    /// When the scheduler first chose a thread of lower priority although the measured one could have run.
    fn throttled(&self) -> Option<u64> {
        let threads = self.recording.segments.iter().filter_map(|segment| match &segment.what {
            Activity::Thread { thread, process, was_runnable, next_priority } => {
                Some((segment, thread, *process, *was_runnable, *next_priority))
            }
            _ => None,
        });
        let mut first: Option<u64> = None;
        for (segment, thread, process, was_runnable, next_priority) in threads {
            let at_ns = if self.window.process != 0 && process == self.window.process {
                // It gave way to a lesser one, unwillingly.
                let gave_way = was_runnable && next_priority < self.window.priority;
                Some(segment.to_ns).filter(|_| gave_way)
            } else {
                // A lesser one began after the wake-up.
                let (woken_ns, _) = self.woken.unwrap_or((u64::MAX, &[]));
                let is_lesser = thread.priority < self.window.priority;
                Some(segment.from_ns).filter(|at_ns| is_lesser && *at_ns > woken_ns)
            };
            let at_ns = at_ns.filter(|at_ns| *at_ns < self.window.to_ns);
            first = first.into_iter().chain(at_ns).min();
        }
        first
    }

    pub(crate) fn blame(&self, piece: &Piece<'_>) -> Blame {
        let Some(segment) = piece.segment else {
            return self.migration(piece).unwrap_or_else(|| self.nothing_recorded(piece));
        };
        if let Activity::Idle { .. } | Activity::Thread { .. } = &segment.what
            && let Some(blame) = self.migration(piece)
        {
            return blame;
        }
        match &segment.what {
            Activity::Idle { .. } => self.idle(piece, segment),
            Activity::Thread { thread, .. } if thread.pid == 0 => self.idle(piece, segment),
            Activity::Thread { thread, process, .. } => {
                let is_own = self.window.process != 0 && *process == self.window.process;
                if is_own { self.nothing_recorded(piece) } else { self.other_thread(piece, thread) }
            }
            Activity::Vector { .. } => self.vector(piece, segment),
            _ => self.recorded(piece, segment),
        }
    }

    /// The kernel's thread that moves the measured one; and from the move on, what this CPU does keeps nobody waiting.
    fn migration(&self, piece: &Piece<'_>) -> Option<Blame> {
        let is_mover = matches!(
            piece.segment.map(|segment| &segment.what),
            Some(Activity::Thread { thread, .. }) if thread.command.starts_with("migration/")
        );
        let (_, to) = self.moved.filter(|(moved_ns, _)| is_mover || piece.from_ns >= *moved_ns)?;
        let evidence = format!("the task was moved from CPU {} to CPU {to}", self.window.cpu);
        Some(Blame { who: Who::new(Kind::Migration), confidence: 0.9, callers: Vec::new(), evidence })
    }

    fn idle(&self, piece: &Piece<'_>, segment: &Segment) -> Blame {
        if self.is_throttled(piece) {
            return throttled("the CPU was idle although the task could have run");
        }
        if !self.window.is_timer {
            return unknown();
        }
        let state = match segment.what {
            Activity::Idle { state } => format!("idle state {state}"),
            _ => "the idle task".to_owned(),
        };
        let (when, confidence) = match self.woken {
            Some((woken_ns, _)) if piece.from_ns >= woken_ns => ("after the wake-up", 0.9),
            _ => ("when the timer should have expired", 0.7),
        };
        let hypervisor = if self.surroundings.is_virtual { ", under a hypervisor" } else { "" };
        let evidence = format!("the CPU was in {state} {when}{hypervisor}");
        Blame { who: Who::new(Kind::IdleExit), confidence, callers: Vec::new(), evidence }
    }

    fn is_throttled(&self, piece: &Piece<'_>) -> bool {
        self.throttled_from_ns.is_some_and(|from_ns| piece.from_ns >= from_ns)
    }

    fn other_thread(&self, piece: &Piece<'_>, thread: &Thread) -> Blame {
        if thread.priority < self.window.priority && self.is_throttled(piece) {
            return throttled("a thread of lower priority was chosen although the task could have run");
        }
        let who = Who::new(Kind::Thread).actor(thread.command.clone()).pid(thread.pid);
        let ran = Blame {
            who,
            confidence: RECORDED,
            callers: Vec::new(),
            evidence: format!("it ran at priority {}", thread.priority),
        };
        if !self.window.is_timer {
            return ran;
        }
        match self.woken {
            Some((woken_ns, stack)) if piece.from_ns < woken_ns => self.timer_pending(stack, Some(thread)),
            None => self.timer_pending(&[], Some(thread)),
            Some(_) if thread.priority >= self.window.priority => ran,
            Some(_) if self.lacks_ticks(piece) => self.interrupts_off(thread),
            Some(_) => self.preemption_off(thread),
        }
    }

    /// The timer should have expired and its interrupt did not come.
    fn timer_pending(&self, stack: &[String], thread: Option<&Thread>) -> Blame {
        match interrupted(stack) {
            Interrupted::Kernel { function, callers, is_release } => {
                let mut who = Who::new(Kind::IrqsOff).function(function);
                if let Some(thread) = thread {
                    who = who.actor(thread.command.clone()).pid(thread.pid);
                }
                let sure: f64 = if is_release { 0.95 } else { 0.8 };
                let late = "the timer's interrupt was late, and this is what it interrupted";
                let (confidence, evidence) = match self.surroundings.is_virtual {
                    true => {
                        (sure.min(LATE_IN_GUEST), format!("{late}; the hypervisor may have sent it late"))
                    }
                    false => (sure, late.to_owned()),
                };
                Blame { who, confidence, callers, evidence }
            }
            Interrupted::User => self.outside("the timer's interrupt was late, and it interrupted user mode"),
            Interrupted::Unknown => unknown(),
        }
    }

    /// Whether not even the tick came into it, although interrupts are recorded: one came at its end.
    fn lacks_ticks(&self, piece: &Piece<'_>) -> bool {
        let begins_at_end = |segment: &Segment| is_interrupt(&segment.what) && segment.from_ns == piece.to_ns;
        self.recording.lost == 0
            && piece.to_ns - piece.from_ns >= TICKS_MISSED_NS
            && self.recording.segments.iter().any(begins_at_end)
    }

    /// A lesser thread went on running after the wake-up, and let no interrupt in.
    fn interrupts_off(&self, thread: &Thread) -> Blame {
        let kept = self.preemption_off(thread);
        let who = Who { kind: Kind::IrqsOff, ..kept.who };
        let evidence =
            format!("{}; no tick came meanwhile, and an interrupt at once after it", kept.evidence);
        Blame { who, confidence: 0.8, evidence, ..kept }
    }

    /// A lesser thread went on running after the wake-up.
    fn preemption_off(&self, thread: &Thread) -> Blame {
        let who = Who::new(Kind::PreemptOff).actor(thread.command.clone()).pid(thread.pid);
        let found = self.running.and_then(|(_, stack)| preempted(stack));
        let (who, callers, confidence) = match found {
            Some((function, callers)) => (who.function(function), callers, 0.9),
            None => (who, Vec::new(), 0.7),
        };
        let priority = thread.priority;
        let evidence = format!("it kept the CPU after the wake-up of the task, at priority {priority}");
        Blame { who, confidence, callers, evidence }
    }

    /// Nothing but the measured task itself had the CPU as far as the kernel knows.
    fn nothing_recorded(&self, piece: &Piece<'_>) -> Blame {
        if self.first_fault_ns.is_some_and(|fault_ns| piece.from_ns >= fault_ns) {
            let evidence = "the task touched memory that was not there".to_owned();
            return Blame { who: Who::new(Kind::PageFault), confidence: 0.9, callers: Vec::new(), evidence };
        }
        if self.window.is_timer {
            return match self.woken {
                Some((woken_ns, stack)) if piece.from_ns < woken_ns => self.timer_pending(stack, None),
                _ => unknown(),
            };
        }
        if let Some(neighbour) = piece.neighbour {
            return self.beside(piece, neighbour);
        }
        if self.recording.lost > 0 {
            return unknown();
        }
        self.outside("the loop ran in user mode with interrupts on, and the kernel did nothing")
    }

    /// What is next to an interrupt is its entry or exit; the hypervisor's part of that is not told from other work of its.
    fn beside(&self, piece: &Piece<'_>, neighbour: &Segment) -> Blame {
        let blame = self.blame(&Piece { segment: Some(neighbour), neighbour: None, ..piece.clone() });
        if !self.surroundings.is_virtual {
            return blame;
        }
        let evidence = "next to it the hypervisor let it in, or was told of its end".to_owned();
        Blame { confidence: blame.confidence.min(BESIDE_IN_GUEST), evidence, ..blame }
    }

    /// Neither the kernel nor the task had the CPU.
    fn outside(&self, evidence: &str) -> Blame {
        let (kind, confidence, more) = match (self.surroundings.smis, self.surroundings.steal_ns) {
            (Some(1..), _) => (Kind::Smi, 0.9, "; a system-management interrupt was counted"),
            (_, Some(1..)) => (Kind::Steal, 0.9, "; the hypervisor counted stolen time"),
            _ if self.surroundings.is_virtual => (Kind::Hardware, 0.6, "; below it is a hypervisor"),
            _ => (Kind::Hardware, 0.9, ""),
        };
        Blame { who: Who::new(kind), confidence, callers: Vec::new(), evidence: format!("{evidence}{more}") }
    }
}

pub(super) fn unknown() -> Blame {
    Blame { who: Who::new(Kind::Unattributed), confidence: 0.0, callers: Vec::new(), evidence: String::new() }
}

fn throttled(evidence: &str) -> Blame {
    let who = Who::new(Kind::Throttled).actor("real-time throttling or the fair server");
    Blame { who, confidence: 0.95, callers: Vec::new(), evidence: evidence.to_owned() }
}
