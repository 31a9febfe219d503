//! What the programs for watched tasks and their loader share: the counterpart of the end of `bpf/layout.h`.

use super::Command;
use std::mem::offset_of;
use whylate_core::plan::Mark;
use whylate_core::recording::Counts;
use zerocopy::{FromBytes, FromZeros as _, Immutable, IntoBytes, KnownLayout, TryFromBytes};

/// The id of a thread gives its slot.
pub(crate) const TASK_SLOTS: u32 = 65_536;
pub(crate) const SLOT_WATCHED: u32 = 1;
/// The threads and processes that it starts are watched, too.
pub(crate) const SLOT_INHERITS: u32 = 2;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct RawPlace {
    /// 0: free.
    pub(crate) thread: u32,
    pub(crate) flags: u32,
}

const _: () = assert!(size_of::<RawPlace>() == 8);

/// What a record of a watched task describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, TryFromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(u32)]
#[allow(dead_code, reason = "the programs make them")]
pub(crate) enum TaskEvent {
    None,
    /// It had a CPU, from one switch to the next.
    Stretch,
    /// It is watched from now on.
    New,
    /// It ended, or has another name now.
    Gone,
    /// It passed the mark at which its activations begin.
    Begin,
    /// It passed the mark at which they end.
    End,
    /// No task: the clock of the CPU `next` has `waker` kHz from now on.
    Frequency,
    /// It ran in the system call `syscall` from `ready_ns` on; `futex_owner` is the owner of a futex.
    Call,
    /// A sample of it while it ran: [`RawStretch::sample`].
    Sample,
    /// It left an audited system call that took longer than all before: [`RawStretch::audited`].
    Audited,
    /// The trigger `waker` came, for the `ready_ns`-th time.
    Trigger,
    /// A piece of the stack of the sample that follows: [`RawStretch::piece`].
    Stack,
    /// It passed the end of a chain with the rule `waker`: [`RawStretch::pass`].
    Pass,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, TryFromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(u32)]
#[allow(dead_code, reason = "the programs make them")]
pub(crate) enum Began {
    Unknown,
    Woken,
    Preempted,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, TryFromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(u32)]
#[allow(dead_code, reason = "the programs make them")]
pub(crate) enum Waker {
    Thread,
    Timer,
    Irq,
    Vector,
    Softirq,
    /// A thread that sends a datagram to its own machine.
    Sender,
}

/// What woke a task, and when its timer was to expire.
#[derive(Clone, Debug, TryFromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct RawWoken {
    /// 0: no timer.
    pub(crate) expires_ns: u64,
    pub(crate) waker: u32,
    pub(crate) waker_kind: Waker,
    pub(crate) waker_command: Command,
    /// The priority of the thread that ran then, whether it is the waker or not.
    pub(crate) waker_prio: i32,
    pub(crate) unused: u32,
}

/// What is in progress for one watched task.
#[derive(Clone, Debug, TryFromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct RawSlot {
    /// Its last wake-up; 0: none was seen.
    pub(crate) waking_ns: u64,
    /// When it last left a CPU; 0: it did not.
    pub(crate) left_ns: u64,
    /// Since when it has had the CPU; 0: it has none.
    pub(crate) run_ns: u64,
    /// When it became runnable, before it ran.
    pub(crate) ready_ns: u64,
    pub(crate) moved_ns: u64,
    pub(crate) fault_ns: u64,
    pub(crate) call_ns: u64,
    pub(crate) in_fault_ns: u64,
    pub(crate) faults_took_ns: u64,
    pub(crate) calls_took_ns: u64,
    /// How long it ran since its last sleep, before it came to the CPU that it has; how long it usually does.
    pub(crate) ran_ns: u64,
    pub(crate) usual_run_ns: u64,
    /// Its runs that ended with a sleep.
    pub(crate) runs: u64,
    /// Where it called the library in which it last slept, and its stack pointer then.
    pub(crate) place: u64,
    pub(crate) place_stack: u64,
    /// When it entered the audited system call that it is in; 0: in none.
    pub(crate) audit_ns: u64,
    pub(crate) audit_call: u32,
    pub(crate) audit_detail: u32,
    pub(crate) began: Began,
    pub(crate) faults: u32,
    pub(crate) lost: u32,
    pub(crate) previous: u32,
    pub(crate) previous_prio: i32,
    /// Whether it could run when it left the CPU.
    pub(crate) was_runnable: u8,
    pub(crate) budget: u8,
    pub(crate) moved_from: u8,
    pub(crate) place_word: u8,
    pub(crate) call_owner: u32,
    pub(crate) unused_end: u32,
    pub(crate) previous_command: Command,
    /// The last wake-up, and the one after which it runs.
    pub(crate) waking: RawWoken,
    pub(crate) woken: RawWoken,
}

const _: () = assert!(size_of::<RawSlot>() == 264 && offset_of!(RawSlot, waking) == 184);

/// A watched task had a CPU: from one switch to the next. For tasks that come and go only the identity is set, and `waker`,
/// the thread that started it.
#[derive(Clone, Debug, TryFromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct RawStretch {
    /// 1 + its number.
    pub(crate) number: u64,
    pub(crate) end_ns: u64,
    pub(crate) kind: TaskEvent,
    pub(crate) thread: u32,
    pub(crate) process: u32,
    pub(crate) prio: i32,
    pub(crate) began: Began,
    pub(crate) waker_kind: Waker,
    /// When it could run; 0: not known.
    pub(crate) ready_ns: u64,
    /// The programmed expiry of the timer that woke it; 0: no timer.
    pub(crate) expires_ns: u64,
    pub(crate) run_ns: u64,
    /// When it was moved to another CPU before it ran; 0: it was not.
    pub(crate) moved_ns: u64,
    /// Its last page fault; 0: none.
    pub(crate) fault_ns: u64,
    /// The futex in whose system call it fell asleep; of [`TaskEvent::Gone`]: its runs that ended with a sleep.
    pub(crate) futex: u64,
    /// The first arguments of the system call in which it fell asleep.
    pub(crate) arguments: [u64; 2],
    /// Where its program made that call; 0: not known.
    pub(crate) caller: u64,
    /// How long it ran in its page faults.
    pub(crate) faults_took_ns: u64,
    /// The same in system calls, while they are timed.
    pub(crate) calls_took_ns: u64,
    /// The state bits of a task that fell asleep.
    pub(crate) state: u32,
    /// In which it fell asleep; -1: none, -2: not known.
    pub(crate) syscall: i32,
    pub(crate) futex_command: u32,
    pub(crate) futex_value: u32,
    /// The word of a futex with priority inheritance.
    pub(crate) futex_word: u32,
    /// The word after the futex in glibc's mutexes.
    pub(crate) futex_owner: u32,
    pub(crate) faults: u32,
    /// Records of it that were lost for lack of room before this one.
    pub(crate) lost: u32,
    pub(crate) waker: u32,
    pub(crate) next: u32,
    pub(crate) next_prio: i32,
    /// The thread that had the CPU before.
    pub(crate) previous: u32,
    pub(crate) previous_prio: i32,
    pub(crate) waker_prio: i32,
    /// Only for [`TaskEvent::Gone`]: threads of its process that do not exit yet; -1: not known.
    pub(crate) threads_left: i32,
    pub(crate) is_runnable: u8,
    /// Which budget was used up when it left the CPU, and when it was woken: 0 none, 1 its group's quota, 2 its runtime of
    /// SCHED_DEADLINE, 3 its group's real-time runtime.
    pub(crate) budget: u8,
    pub(crate) budget_before: u8,
    /// The CPU that it was on before it was last moved, and 1; 0: not known.
    pub(crate) moved_from: u8,
    pub(crate) command: Command,
    pub(crate) waker_command: Command,
    pub(crate) next_command: Command,
    pub(crate) previous_command: Command,
}

const _: () = assert!(size_of::<RawStretch>() == 256 && offset_of!(RawStretch, ready_ns) == 40);
const _: () = assert!(offset_of!(RawStretch, command) == 192);

/// The counters of a CPU: bits of [`RawCounts::known`], and the map of each.
pub(crate) const COUNTERS: usize = 3;
pub(crate) const COUNTER_MAPS: [&str; COUNTERS] = ["instructions", "cycles", "cache_misses"];

/// What the counters of a CPU counted in the time of the [`RawStretch`] at the same place: instructions, cycles, cache misses.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct RawCounts {
    values: [u64; COUNTERS],
    known: u64,
}

const _: () = assert!(size_of::<RawCounts>() == 32);

impl RawCounts {
    pub(crate) fn counts(&self) -> Counts {
        let of = |kind: usize| (self.known >> kind & 1 != 0).then_some(self.values[kind]);
        Counts { instructions: of(0), cycles: of(1), cache_misses: of(2) }
    }
}

/// Return addresses of a program that a sample has.
pub(crate) const SAMPLE_DEPTH: usize = 26;

/// What a record of [`TaskEvent::Sample`] has from `ready_ns` on.
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct RawSample {
    /// The stack of the program, innermost first.
    stack: [u64; SAMPLE_DEPTH],
    /// How many bytes of it are valid; negative: none.
    stack_bytes: i32,
    is_in_kernel: u32,
}

const _: () = assert!(size_of::<RawSample>() == size_of::<RawStretch>() - offset_of!(RawStretch, ready_ns));

impl RawSample {
    pub(crate) fn stack(&self) -> &[u64] {
        let depth = usize::try_from(self.stack_bytes).unwrap_or_default() / size_of::<u64>();
        &self.stack[..depth.min(SAMPLE_DEPTH)]
    }

    /// Whether the thread was in the kernel, on behalf of its program.
    pub(crate) fn is_in_kernel(&self) -> bool {
        self.is_in_kernel != 0
    }
}

/// The words of a piece of a program's stack.
pub(crate) const STACK_WORDS: usize = 22;

/// What a record of [`TaskEvent::Stack`] has from `ready_ns` on.
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct RawPiece {
    pub(crate) words: [u64; STACK_WORDS],
    /// The address of the first one; 0: the stack ends here, or is not in memory.
    pub(crate) at: u64,
    /// The registers of the program.
    pub(crate) instruction: u64,
    pub(crate) frame: u64,
    /// On arm64: the link register.
    pub(crate) link: u64,
}

const _: () = assert!(size_of::<RawPiece>() <= size_of::<RawSample>());

/// One more than the bytes that are kept of a text after the part that is compared.
pub(crate) const PASS_TEXT_BYTES: usize = 32;

/// What a record of [`TaskEvent::Pass`] has from `ready_ns` on.
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct RawPass {
    pub(crate) value: i64,
    pub(crate) has_value: u64,
    /// The number of the pass of its rule, from 1.
    pub(crate) number: u64,
    /// Zeros follow the end of the text.
    pub(crate) text: [u8; PASS_TEXT_BYTES],
}

const _: () =
    assert!(size_of::<RawPass>() <= offset_of!(RawStretch, state) - offset_of!(RawStretch, ready_ns));

/// Return addresses of a program that an audited call has.
pub(crate) const AUDIT_DEPTH: usize = 23;

/// What a record of [`TaskEvent::Audited`] has from `ready_ns` on.
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct RawAudited {
    /// The stack of the program, innermost first.
    stack: [u64; AUDIT_DEPTH],
    /// Where the program called the library that made the call; 0: not known.
    pub(crate) caller: u64,
    pub(crate) took_ns: u64,
    /// How many bytes of the stack are valid; negative: none.
    stack_bytes: i32,
    pub(crate) call: u32,
    pub(crate) detail: u32,
    unused: u32,
}

const _: () = assert!(size_of::<RawAudited>() == size_of::<RawSample>());

impl RawAudited {
    /// The addresses on the stack, innermost first. A function of a library without a frame of its own hides its caller, which
    /// is known otherwise.
    pub(crate) fn stack(&self) -> Vec<u64> {
        let depth = usize::try_from(self.stack_bytes).unwrap_or_default() / size_of::<u64>();
        let mut stack = self.stack[..depth.min(AUDIT_DEPTH)].to_vec();
        if self.caller != 0 && !stack.contains(&self.caller) {
            stack.insert(stack.len().min(1), self.caller);
        }
        stack
    }
}

/// What distinguishes audited calls of one number: `enum detail` of `bpf/layout.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Detail {
    /// Nothing does.
    None = 1,
    /// A file descriptor.
    File,
    /// A clock, and flags in the upper half.
    Clock,
}

/// System calls whose numbers are at least this large are not audited.
pub(crate) const AUDIT_CALLS: u32 = 512;

#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub(crate) struct RawAuditKey {
    pub(crate) thread: u32,
    pub(crate) call: u32,
    pub(crate) detail: u32,
    pub(crate) unused: u32,
}

/// The audited calls of one thread that have the same number and detail.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct RawAuditCount {
    pub(crate) calls: u64,
    /// Runs with at least one of them.
    pub(crate) runs: u64,
    pub(crate) last_run: u64,
    pub(crate) took_ns: u64,
    pub(crate) longest_ns: u64,
}

const _: () = assert!(size_of::<RawAuditKey>() == 16 && size_of::<RawAuditCount>() == 40);

impl RawStretch {
    /// What the record of an audited call has; `None` of other records.
    pub(crate) fn audited(&self) -> Option<RawAudited> {
        let audited = &self.as_bytes()[offset_of!(Self, ready_ns)..];
        RawAudited::read_from_bytes(audited).ok().filter(|_| self.kind == TaskEvent::Audited)
    }

    /// A piece of a program's stack; `None` of other records.
    pub(crate) fn piece(&self) -> Option<RawPiece> {
        let piece = &self.as_bytes()[offset_of!(Self, ready_ns)..];
        RawPiece::read_from_prefix(piece).ok().map(|it| it.0).filter(|_| self.kind == TaskEvent::Stack)
    }

    /// A pass of the end of a chain; `None` of other records.
    pub(crate) fn pass(&self) -> Option<RawPass> {
        let pass = &self.as_bytes()[offset_of!(Self, ready_ns)..];
        RawPass::read_from_prefix(pass).ok().map(|it| it.0).filter(|_| self.kind == TaskEvent::Pass)
    }

    /// What a sample has; `None` of other records.
    pub(crate) fn sample(&self) -> Option<RawSample> {
        let sample = &self.as_bytes()[offset_of!(Self, ready_ns)..];
        RawSample::read_from_bytes(sample).ok().filter(|_| self.kind == TaskEvent::Sample)
    }
}

/// What could not be recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct RawTaskLosses {
    /// Records of tasks that came and went.
    pub(crate) events: u64,
    /// Tasks that are not watched because another one has their slot.
    pub(crate) collisions: u64,
    /// Texts for trace_marker that could not be read.
    pub(crate) unread_texts: u64,
    /// Audited system calls that found no room.
    pub(crate) unaudited: u64,
}

const _: () = assert!(size_of::<RawTaskLosses>() == 32);

/// One more than the number of bytes compared in a text for trace_marker.
pub(crate) const MARK_BYTES: usize = 64;

const _: () = assert!(Mark::TEXT_MAX == MARK_BYTES - 1);

/// The start of a text that is a mark.
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct RawMarkText {
    text: [u8; MARK_BYTES],
    /// All ones if it has a byte.
    mask: [u8; MARK_BYTES],
}

const _: () = assert!(size_of::<RawMarkText>() == 128);

impl RawMarkText {
    /// Makes it from a text of at most [`Mark::TEXT_MAX`] bytes.
    pub(crate) fn new(text: &str) -> Self {
        let mut raw = Self::new_zeroed();
        for (place, byte) in text.bytes().take(Mark::TEXT_MAX).enumerate() {
            (raw.text[place], raw.mask[place]) = (byte, u8::MAX);
        }
        raw
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::tests::{constant, names};

    #[test]
    fn both_sides_have_the_same_words_for_watched_tasks() {
        let of = |one: &dyn std::fmt::Debug, prefix: &str| format!("{prefix}{one:?}");
        let events = (0u32..13).map(|it| TaskEvent::try_read_from_bytes(it.as_bytes()).unwrap());
        assert_eq!(names("task_event"), events.map(|it| of(&it, "Task")).collect::<Vec<_>>());
        let began = (0u32..3).map(|it| Began::try_read_from_bytes(it.as_bytes()).unwrap());
        assert_eq!(names("began"), began.map(|it| of(&it, "Began")).collect::<Vec<_>>());
        let wakers = (0u32..6).map(|it| Waker::try_read_from_bytes(it.as_bytes()).unwrap());
        assert_eq!(names("waker"), wakers.map(|it| of(&it, "Waker")).collect::<Vec<_>>());
    }

    #[test]
    fn both_sides_have_the_same_constants_for_watched_tasks() {
        for (name, value) in
            [("TASK_SLOTS", TASK_SLOTS), ("SLOT_WATCHED", SLOT_WATCHED), ("SLOT_INHERITS", SLOT_INHERITS)]
        {
            assert_eq!(constant(name), value as usize, "{name}");
        }
        let counters = ["CounterInstructions", "CounterCycles", "CounterCacheMisses", "Counters"];
        assert_eq!((names("counter"), COUNTERS), (counters.map(str::to_owned).to_vec(), 3));
        assert_eq!(constant("MARK_BYTES"), MARK_BYTES);
        assert_eq!(constant("SAMPLE_DEPTH"), SAMPLE_DEPTH);
        assert_eq!(constant("STACK_WORDS"), STACK_WORDS);
        assert_eq!(constant("AUDIT_DEPTH"), AUDIT_DEPTH);
        assert_eq!(constant("PASS_TEXT_BYTES"), PASS_TEXT_BYTES);
        assert_eq!(constant("AUDIT_CALLS"), AUDIT_CALLS as usize);
        let details = ["DetailNotAudited", "DetailNone", "DetailFile", "DetailClock"];
        assert_eq!((names("detail"), Detail::Clock as usize), (details.map(str::to_owned).to_vec(), 3));
    }
}
