//! What took a CPU, from when to when, as the BPF programs record it; and who made a task late, from that alone.

mod blame;
mod decompose;
mod recorded;
#[cfg(test)]
mod tests;
mod throttling;
mod timer;

pub(crate) use blame::DEADLINE;
pub use decompose::{Surroundings, Window, decompose};
pub(crate) use decompose::{causes_of, pieces};
pub(crate) use throttling::begun_in;
pub use throttling::looks_back;

use crate::activation::Waker;
use crate::vocabulary;
use whylate_core::CpuId;
use whylate_core::result::CauseKind;

/// A priority below that of every thread: an ordinary task has no right to a CPU, so that nobody who has one kept it from
/// its own.
pub(crate) const NO_RIGHT: i32 = i32::MIN;

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
        /// The kernel's flags of the kind of lock: 1 spin, 2 read, 4 write, 8 rt, 16 per-CPU, 32 mutex.
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
    /// The CPU woke a thread, whoever that was; recorded where tasks are watched. From the programmed expiry of the timer that
    /// did it, where one did.
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

/// Who asked another CPU to run a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sender {
    pub cpu: CpuId,
    pub pid: u32,
    pub process: u32,
    pub command: String,
}

/// What is known of a stretch of time on one CPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recording {
    /// What took the CPU, in the order in which it ended.
    pub segments: Vec<Segment>,
    /// What ended before was not read or is gone; 0 when nothing of it is missing.
    pub complete_from_ns: u64,
    /// Records of that time that are gone.
    pub lost: u64,
}

impl Recording {
    /// What reaches into [`from_ns`, `to_ns`].
    pub fn within(&self, from_ns: u64, to_ns: u64) -> Self {
        let reaches = |segment: &&Segment| segment.to_ns >= from_ns && segment.from_ns <= to_ns;
        Self {
            segments: self.segments.iter().filter(reaches).cloned().collect(),
            complete_from_ns: self.complete_from_ns,
            lost: self.lost + u64::from(self.complete_from_ns > from_ns),
        }
    }
}

impl Activity {
    /// Who has the CPU: what kind of thing, its name and its function; `None` for events and for an idle CPU. `device` names
    /// the device of an interrupt's line.
    pub fn actor(
        &self,
        device: impl Fn(u32) -> Option<String>,
    ) -> Option<(CauseKind, String, Option<String>)> {
        Some(match self {
            Self::Irq { line } => (CauseKind::Irq, vocabulary::irq(*line, device(*line).as_deref()), None),
            Self::Vector { vector } => {
                let known = vocabulary::Interrupt::of_vector(*vector);
                let name = known.map_or_else(|| format!("vector {vector:#x}"), |it| it.label().to_owned());
                (known.map_or(CauseKind::Irq, vocabulary::Interrupt::kind), name, None)
            }
            Self::Softirq { number } => (CauseKind::Softirq, vocabulary::softirq(Some(*number)), None),
            Self::Nmi { handler } => (CauseKind::Nmi, vocabulary::NMI.to_owned(), Some(handler.clone())),
            Self::Function { function, sender } => {
                let name = sender.as_ref().map(|sender| sender.command.as_str());
                let name = name.filter(|name| !name.is_empty()).unwrap_or(vocabulary::ANOTHER_CPU);
                (CauseKind::Ipi, name.to_owned(), Some(function.clone()))
            }
            Self::Thread { thread, .. } if thread.pid != 0 => {
                (CauseKind::Thread, thread.command.clone(), None)
            }
            _ => return None,
        })
    }

    /// What interrupts what: of the activities that cover a time, the one with the highest rank has the CPU. `None` for
    /// an event.
    pub(crate) fn rank(&self) -> Option<u32> {
        Some(match self {
            Self::Nmi { .. } => 7,
            Self::Function { .. } => 6,
            Self::Irq { .. } => 5,
            Self::Vector { .. } => 4,
            Self::Softirq { .. } => 3,
            Self::Lock { .. } => 2,
            Self::Idle { .. } => 1,
            Self::Thread { .. } => 0,
            Self::PageFault { .. }
            | Self::Migration { .. }
            | Self::Timer { .. }
            | Self::Wakeup { .. }
            | Self::SlowClock { .. }
            | Self::Waking { .. } => return None,
        })
    }

    /// Whether it interrupts a loop that never sleeps.
    pub(crate) fn is_interrupt(&self) -> bool {
        matches!(self, Self::Nmi { .. } | Self::Irq { .. } | Self::Vector { .. } | Self::Softirq { .. })
    }
}
