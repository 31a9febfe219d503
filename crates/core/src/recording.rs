//! What had a CPU from when to when, and what a watched task did. Sources of events (BPF programs, trace buffers,
//! traces) produce it; the analysis reads it.

use crate::CpuId;
use std::ops::Range;
use std::sync::Arc;

/// The actor for what this program does to the CPUs that it measures.
pub const OWN: &str = "whylate itself";

/// Something that had a CPU, or an event that tells of it. Times are CLOCK_MONOTONIC nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    pub from_ns: u64,
    pub to_ns: u64,
    pub what: Activity,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Activity {
    /// The handler of a device's interrupt.
    Irq {
        line: u32,
    },
    /// An interrupt that has a vector of its own (x86).
    Vector {
        vector: u32,
    },
    Softirq {
        number: u32,
    },
    Nmi {
        handler: String,
    },
    /// A function that another CPU asked for.
    Function {
        function: String,
        sender: Option<Sender>,
    },
    /// A function that a timer's interrupt, a softirq or a worker of a workqueue called, and who set the timer or queued the work
    /// item. Short ones are not recorded.
    Called {
        function: String,
        sender: Option<Sender>,
    },
    /// A thread that has left the CPU.
    Thread {
        thread: Thread,
        process: u32,
        /// Whether it would have run on.
        was_runnable: bool,
        /// Priority of the thread that ran next.
        next_priority: i32,
    },
    Idle {
        /// The number of the idle state.
        state: u32,
    },
    /// A thread waited for a lock.
    Lock {
        pid: u32,
        process: u32,
        /// The kernel's flags for the kind of lock: 1 spin, 2 read, 4 write, 8 rt, 16 per-CPU, 32 mutex.
        flags: u32,
    },
    /// A thread of the measured process touched memory that was not there.
    PageFault {
        pid: u32,
        address: u64,
    },
    /// A thread of the measured process was moved to another CPU.
    Migration {
        pid: u32,
        process: u32,
        /// Where it runs from now on.
        to: CpuId,
    },
    /// The CPU woke a thread, recorded where tasks are watched. It starts at the programmed expiry of the timer that
    /// woke the thread, if a timer did.
    Waking {
        pid: u32,
        waker: Waker,
    },
    /// The clock of the CPU was below its highest frequency.
    SlowClock {
        /// Its frequency, in kHz.
        khz: u64,
        /// The highest one, which the processor has for all of its work, in kHz.
        highest_khz: u64,
    },
    /// From the programmed expiry of a timer to the wake-up of its thread.
    Timer {
        pid: u32,
        process: u32,
        /// Functions on the stack of the wake-up, innermost first: the interrupt, then what it interrupted. Kept only
        /// when it was later than usual.
        stack: Vec<String>,
    },
    /// From a wake-up to the thread that got the CPU.
    Wakeup {
        pid: u32,
        process: u32,
        /// The thread that had the CPU before; its name is known only with the stack.
        previous: Thread,
        /// Functions on that thread's stack when it gave the CPU up, innermost first. Kept only when it was later than
        /// usual.
        stack: Vec<String>,
    },
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Thread {
    /// Its id; 0 is the idle task.
    pub pid: u32,
    /// Its priority: 99 minus the kernel's number.
    pub priority: i32,
    pub command: String,
}

/// The CPU that asked another one to run a function, and the thread that ran there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sender {
    pub cpu: CpuId,
    pub pid: u32,
    pub process: u32,
    pub command: String,
}

/// What is known about a stretch of time on one CPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recording {
    /// What took the CPU, in the order in which it ended.
    pub segments: Vec<Segment>,
    /// Everything that ended before this moment was not read or is gone; 0 if nothing is missing.
    pub complete_from_ns: u64,
    /// Records of that time that were lost.
    pub lost: u64,
}

impl Recording {
    /// What reaches into [`from_ns`, `to_ns`].
    pub fn within(&self, from_ns: u64, to_ns: u64) -> Self {
        self.within_places(0..self.segments.len(), from_ns, to_ns)
    }

    /// The same, if no segment at another place reaches into that time.
    pub fn within_places(&self, places: Range<usize>, from_ns: u64, to_ns: u64) -> Self {
        let reaches = |segment: &&Segment| segment.to_ns >= from_ns && segment.from_ns <= to_ns;
        Self {
            segments: self.segments[places].iter().filter(reaches).cloned().collect(),
            complete_from_ns: self.complete_from_ns,
            lost: self.lost_since(from_ns),
        }
    }

    /// Records of a time that were lost; one more if its start was not read.
    pub fn lost_since(&self, from_ns: u64) -> u64 {
        self.lost + u64::from(self.complete_from_ns > from_ns)
    }
}

impl Activity {
    /// Which activity interrupts which: the one with the highest rank of those that cover a time has the CPU. `None`
    /// for an event.
    pub fn rank(&self) -> Option<u32> {
        Some(match self {
            Self::Nmi { .. } => 7,
            Self::Function { .. } => 6,
            Self::Irq { .. } => 5,
            Self::Vector { .. } => 4,
            Self::Softirq { .. } => 3,
            Self::Lock { .. } => 2,
            Self::Idle { .. } => 1,
            Self::Thread { .. } => 0,
            Self::Called { .. }
            | Self::PageFault { .. }
            | Self::Migration { .. }
            | Self::Timer { .. }
            | Self::Wakeup { .. }
            | Self::SlowClock { .. }
            | Self::Waking { .. } => return None,
        })
    }

    /// Whether it interrupts a loop that never sleeps.
    pub fn is_interrupt(&self) -> bool {
        matches!(self, Self::Nmi { .. } | Self::Irq { .. } | Self::Vector { .. } | Self::Softirq { .. })
    }
}

/// What one task did from its expected start to its next sleep. Times are CLOCK_MONOTONIC nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Activation {
    pub thread: Thread,
    pub process: u32,
    /// When it was expected to start: the programmed expiry of its timer, or the wake-up.
    pub due_ns: u64,
    /// When it was woken.
    pub woken_ns: u64,
    pub waker: Waker,
    /// The stages, one after another without a gap, from `due_ns` to the end.
    pub stages: Vec<Stage>,
    /// Where it slept before that; `None` if that was not seen.
    pub woke_from: Option<Site>,
    /// Why it fell asleep at the end, and where.
    pub slept: Wait,
    pub slept_at: Site,
    /// The word of the futex in which it fell asleep; 0: none.
    pub slept_word: u64,
    /// The sleep before it, or one in its middle, ended with the end of the thread for which it waited.
    pub joins: bool,
    pub faults: u64,
    /// The least time that a page fault takes on this machine, if the time of each is not recorded.
    pub fault_ns: Option<u64>,
    /// What its own work consisted of; `None` if that was not recorded.
    pub work: Option<Divided>,
    /// What the CPUs' counters counted while it ran, with the interrupts in that time.
    pub counts: Counts,
    /// The same of activations of its thread that run no longer than usual; `None` if too few are known.
    pub usual: Option<UsualCounts>,
    /// System calls in which it ran long without a sleep, in the order of time.
    pub calls: Vec<LongCall>,
    /// Samples of it, in the order of time: most of them while it ran for longer than usual.
    pub samples: Vec<OwnSample>,
    /// What its thread does in other activations; `None` if no samples of these are known.
    pub habits: Option<Arc<Habits>>,
    /// How often it was on another CPU than before.
    pub migrations: u64,
    /// Only its runs and preemptions are known: not when it was woken, nor what it slept for.
    pub is_partial: bool,
    /// How long it may have waited for a CPU before its first run, at most, where the wake-up is not known.
    pub wait_max_ns: Option<u64>,
    /// From when to when the thread may have had another activation before this one, which was not seen.
    pub gap: Option<(u64, u64)>,
    /// It had not ended when the watch did: its last stage goes on.
    pub is_unended: bool,
    /// What a new thread did before its first period began, which is no response. Until periods are known: the first activation of
    /// a new thread.
    pub is_start: bool,
    /// How many more periods of the thread's timer began before it ended; 0 without such a timer.
    pub later_periods: u64,
}

/// How long a thread ran in its own system calls and page faults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Divided {
    pub calls_ns: u64,
    /// `None` if the kernel does not report when a page fault ends.
    pub faults_ns: Option<u64>,
}

/// What the CPUs' counters counted while a thread ran; `None` of a counter that a CPU lacks, or that did not count all the time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub instructions: Option<u64>,
    pub cycles: Option<u64>,
    pub cache_misses: Option<u64>,
}

impl Counts {
    /// The counts of a thread that has not run yet.
    pub const NOTHING: Self = Self { instructions: Some(0), cycles: Some(0), cache_misses: Some(0) };

    /// The counts of two times together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        let sum = |one: Option<u64>, other: Option<u64>| Some(one?.saturating_add(other?));
        Self {
            instructions: sum(self.instructions, other.instructions),
            cycles: sum(self.cycles, other.cycles),
            cache_misses: sum(self.cache_misses, other.cache_misses),
        }
    }
}

/// What the counters usually count in an activation: medians.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UsualCounts {
    pub counts: Counts,
    pub run_ns: u64,
    /// The number of activations.
    pub activations: u64,
}

/// Where a thread was at a moment at which it ran.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnSample {
    pub at_ns: u64,
    /// It was in the kernel, on behalf of its program.
    pub is_in_kernel: bool,
    /// The functions of its program, innermost first.
    pub stack: Vec<Frame>,
    /// None of them is missing: the tables for exceptions lead to the outermost one.
    pub is_whole: bool,
}

impl OwnSample {
    /// Samples in the order of time, without those that are much nearer to each other than later ones: the first ones are, and would
    /// count too much.
    pub fn spread<'a>(samples: impl Iterator<Item = &'a Self>) -> Vec<&'a Self> {
        let mut samples: Vec<&Self> = samples.collect();
        let mut between: Vec<u64> =
            samples.windows(2).map(|pair| pair[1].at_ns.saturating_sub(pair[0].at_ns)).collect();
        between.sort_unstable();
        // A few may follow a pause of the clock.
        let near_ns = between.get(between.len() / 8).copied().unwrap_or_default();
        let is_slower = between.iter().filter(|ns| **ns >= near_ns.saturating_mul(3)).count() >= 2;
        let least_ns = if is_slower { near_ns.saturating_mul(3) } else { 0 };
        let mut last_ns = None;
        samples.retain(|sample| {
            let is_apart = last_ns.is_none_or(|last_ns| sample.at_ns >= last_ns + least_ns);
            last_ns = if is_apart { Some(sample.at_ns) } else { last_ns };
            is_apart
        });
        samples
    }
}

/// Samples of a thread's activations: the functions of the program, innermost first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Profile {
    pub stacks: Vec<Vec<Frame>>,
    /// The average time of an activation over which the samples are spread.
    pub sampled_ns: u64,
}

/// What a thread does in its activations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Habits {
    /// In those that run no longer than usual, all the time.
    pub ordinary: Profile,
    /// In the longer ones, from their first sample on.
    pub long: Profile,
}

/// A function on the stack of a program.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Frame {
    /// Its name; where that is not known, the file and the offset in it: `control+0x1240`.
    pub name: String,
    /// Whether the name is known.
    pub is_named: bool,
    /// The name of the file that has it; empty where none does.
    pub file: String,
}

/// A time in which a thread ran in a system call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LongCall {
    pub call: String,
    pub from_ns: u64,
    pub to_ns: u64,
    /// It waited, without sleeping, for a lock that this thread held on another CPU.
    pub spins_for: Option<(u32, String)>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Waker {
    /// Not known.
    #[default]
    Unknown,
    Timer,
    /// An interrupt; the interrupted thread had no part in it.
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
    /// It was expected to start or was woken, and did not run yet.
    Waking {
        /// The thread that had the CPU until it ran.
        previous: Thread,
        /// Whether it had CPU time left.
        budget: Budget,
    },
    Running,
    /// It was runnable, and another thread ran.
    Preempted {
        by: Thread,
        /// Whether it had CPU time left.
        budget: Budget,
    },
    /// It had the CPU or waited for one: the kernel did not show when it got it.
    Unseen,
    /// It slept in the middle of its work.
    Blocked {
        wait: Wait,
        waker: Waker,
    },
}

/// Whether a task that could run had CPU time left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Budget {
    #[default]
    Left,
    /// Its control group had used up its quota (`cpu.max`).
    Quota,
    /// It had used up its own runtime of SCHED_DEADLINE.
    Runtime,
    /// Its control group had used up its real-time runtime.
    GroupRuntime,
}

impl Budget {
    /// What keeps a real-time task from its CPU, if that is throttling.
    pub fn throttler(self) -> Option<&'static str> {
        match self {
            Self::Left | Self::Quota => None,
            Self::Runtime => Some(OWN_RUNTIME),
            Self::GroupRuntime => Some(GROUP_RUNTIME),
        }
    }
}

/// The actors of throttling.
pub const OWN_RUNTIME: &str = "its own runtime of SCHED_DEADLINE";
pub const GROUP_RUNTIME: &str = "the real-time runtime of its control group";
pub const RT_THROTTLING: &str = "real-time throttling";
pub const FAIR_SERVER: &str = "the fair server";

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
        /// The variable of the program or library that it lies in.
        name: Option<String>,
        /// The holder when the wait began: thread id and name; `None` if the lock does not record its owner.
        owner: Option<(u32, String)>,
        /// Whether the owner gets the priority of the waiter.
        inherits_priority: bool,
    },
    /// In the middle of its work, in a system call that signals end: one in which no thread waits for work, or one
    /// that belongs to its work by the rhythm of the thread.
    Inside { call: String, object: Object },
    /// For a page of its memory.
    Page,
    /// In the kernel, where signals do not wake it: for a disk or a lock of the kernel. The system call.
    Kernel(Option<String>),
}

/// What a system call is for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Object {
    #[default]
    Unknown,
    /// The address of a futex, and the variable that has it, if that was looked up: `_PyRuntime of libpython3.11.so.1.0`.
    Word(u64, Option<String>),
    /// An open file: its number, and the name that the kernel has for it, if that was read.
    File(u32, Option<String>),
}

impl Object {
    /// `the word at 0x7f00`, `file 5 (pipe:[1234])`; empty if nothing is known.
    pub fn describe(&self) -> String {
        match self {
            Self::Unknown => String::new(),
            Self::Word(address, None) => format!("the word at {address:#x}"),
            Self::Word(address, Some(name)) => format!("the word at {address:#x} (in {name})"),
            Self::File(number, None) => format!("file {number}"),
            Self::File(number, Some(name)) => format!("file {number} ({name})"),
        }
    }
}

/// Where a thread sleeps: a system call, with what distinguishes its uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Site {
    /// Its number; -1: none, -2: not known.
    pub call: i32,
    /// The file, the word of the futex, the clock; 0 if the call has no argument that stays the same.
    pub object: u64,
    /// A second argument, for example whether a sleep is until a moment or for a time.
    pub mode: u64,
    /// The address in its executable from which the call was made; 0: not known.
    pub caller: u64,
}

impl Default for Site {
    fn default() -> Self {
        Self { call: -2, object: 0, mode: 0, caller: 0 }
    }
}

impl Wait {
    /// Whether it is a part of its work, after which it goes on.
    pub fn is_inside(&self) -> bool {
        matches!(self, Self::Lock { .. } | Self::Page | Self::Kernel(_) | Self::Inside { .. })
    }

    /// In a few words: `clock_nanosleep`, `a lock`.
    pub fn describe(&self) -> &str {
        match self {
            Self::Unknown | Self::Work(None) => "not known",
            Self::Work(Some(call)) | Self::Inside { call, .. } => call,
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

    /// From the expected start to the sleep.
    pub fn response_ns(&self) -> u64 {
        self.end_ns().saturating_sub(self.due_ns)
    }

    /// The activation with the longest wait for a CPU that is possible before its first run, where the wake-up is not known.
    pub fn with_longest_wait(&self) -> Self {
        let mut longest = self.clone();
        if let Some(wait_ns) = self.wait_max_ns.filter(|wait_ns| *wait_ns > 0) {
            longest.due_ns = self.due_ns.saturating_sub(wait_ns);
            let what = Doing::Preempted { by: Thread::default(), budget: Budget::Left };
            let cpu = self.stages.first().map_or(CpuId(0), |stage| stage.cpu);
            longest.stages.insert(0, Stage { from_ns: longest.due_ns, to_ns: self.due_ns, cpu, what });
        }
        longest
    }

    /// What it had done by a moment. What is known only of all of it is left out if it ran on for long.
    #[must_use]
    pub fn until(&self, at_ns: u64) -> Self {
        let mut part = self.clone();
        if self.end_ns() <= at_ns {
            return part;
        }
        part.stages.retain(|stage| stage.from_ns < at_ns);
        if let Some(last) = part.stages.last_mut() {
            last.to_ns = last.to_ns.min(at_ns);
        }
        part.samples.retain(|sample| sample.at_ns <= at_ns);
        part.calls.retain(|call| call.from_ns < at_ns);
        part.calls.iter_mut().for_each(|call| call.to_ns = call.to_ns.min(at_ns));
        part.later_periods = 0;
        if part.running_ns() * 10 < self.running_ns() * 9 {
            (part.work, part.usual, part.faults, part.counts) = (None, None, 0, Counts::default());
        }
        part
    }

    /// When it first ran; where that was not seen, when it was woken; the end if it had not run by then.
    pub fn run_ns(&self) -> u64 {
        let unseen_ns = if self.is_unended { self.end_ns() } else { self.due_ns };
        self.first_run().map_or(unseen_ns, |stage| stage.from_ns)
    }

    /// Whether the wake-up and the switch to it were seen.
    pub fn is_wakeup_seen(&self) -> bool {
        let begins_running = self.stages.first().is_some_and(|stage| stage.what == Doing::Running);
        !begins_running && self.first_run().is_none_or(|stage| stage.what == Doing::Running)
    }

    fn first_run(&self) -> Option<&Stage> {
        self.stages.iter().find(|stage| matches!(stage.what, Doing::Running | Doing::Unseen))
    }

    /// From the expected start to running.
    pub fn wakeup_ns(&self) -> u64 {
        self.run_ns().saturating_sub(self.due_ns)
    }

    pub fn running_ns(&self) -> u64 {
        self.sum(|what| *what == Doing::Running)
    }

    /// How long it was preempted after it had begun.
    pub fn preempted_ns(&self) -> u64 {
        self.sum(|what| matches!(what, Doing::Preempted { .. })) + self.waking_again_ns()
    }

    /// How long it slept in the middle of its work.
    pub fn blocked_ns(&self) -> u64 {
        self.sum(|what| matches!(what, Doing::Blocked { .. }))
    }

    /// How long its control group was out of CPU time.
    pub fn quota_ns(&self) -> u64 {
        self.sum(|what| {
            matches!(
                what,
                Doing::Preempted { budget: Budget::Quota, .. } | Doing::Waking { budget: Budget::Quota, .. }
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
        Self { stages, counts: Counts::default(), ..self.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_that_are_nearer_than_most_are_left_out_and_those_of_short_runs_are_not() {
        let spread = |all: &[u64]| {
            let samples: Vec<OwnSample> =
                all.iter().map(|at_ns| OwnSample { at_ns: *at_ns, ..OwnSample::default() }).collect();
            OwnSample::spread(samples.iter()).iter().map(|it| it.at_ns).collect::<Vec<_>>()
        };
        assert_eq!(spread(&[250, 500, 750, 1_750, 2_750, 3_750, 4_750]), [250, 1_750, 2_750, 3_750, 4_750]);
        let fast: Vec<u64> = (1..=16).map(|nth| 125 * nth).collect();
        let mixed = [&fast[..], &[2_500, 3_000, 3_500, 4_000]].concat();
        assert_eq!(spread(&mixed), [125, 500, 875, 1_250, 1_625, 2_000, 2_500, 3_000, 3_500, 4_000]);
        assert_eq!(spread(&fast), fast);
        assert_eq!(spread(&[250, 500, 750]), [250, 500, 750]);
        assert_eq!((spread(&[]), spread(&[5])), (vec![], vec![5]));
    }

    #[test]
    fn what_was_done_by_a_moment_leaves_out_what_came_later() {
        let stage = |from_ns, to_ns, what| Stage { from_ns, to_ns, cpu: CpuId(0), what };
        let whole = Activation {
            due_ns: 100,
            stages: vec![
                stage(100, 200, Doing::Running),
                stage(200, 300, Doing::Unseen),
                stage(300, 1_000, Doing::Running),
            ],
            samples: vec![
                OwnSample { at_ns: 150, ..OwnSample::default() },
                OwnSample { at_ns: 900, ..OwnSample::default() },
            ],
            work: Some(Divided::default()),
            is_unended: true,
            ..Activation::default()
        };
        let part = whole.until(320);
        assert_eq!((part.response_ns(), part.running_ns(), part.samples.len()), (220, 120, 1));
        assert_eq!((part.work, part.is_unended), (None, true), "its sums are mostly of what came later");
        assert_eq!(whole.until(990).work, Some(Divided::default()));
        assert_eq!(whole.until(1_000), whole);
        assert_eq!(whole.until(100).stages.len(), 0);
    }
}
