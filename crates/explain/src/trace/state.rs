//! What a CPU was doing for a while, and how that is known.

use super::stacks::{FunctionId, PathId};
use crate::vocabulary::Interrupt;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Knowledge {
    ByEvent,
    /// The flags of the events around say so.
    ByFlags,
    /// It is not so.
    Not,
    /// The trace does not show it.
    Unknown,
}

impl Knowledge {
    pub(super) fn holds(self) -> bool {
        matches!(self, Self::ByEvent | Self::ByFlags)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Level {
    /// A thread, the idle one included.
    Thread,
    /// A softirq; its vector, when it is known.
    Softirq(Option<u32>),
    /// A hard interrupt, by its place in [`States::labels`].
    HardIrq(usize),
    Nmi,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct IrqLabel {
    pub(super) text: String,
    pub(super) interrupt: Interrupt,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct State {
    pub(super) pid: Option<u32>,
    pub(super) level: Level,
    pub(super) irqs_off: Knowledge,
    pub(super) preempt_off: Knowledge,
    pub(super) need_resched: bool,
    pub(super) need_resched_lazy: bool,
    /// The thread was in user mode.
    pub(super) user: bool,
    /// The last function that was seen belongs to the scheduler.
    pub(super) scheduling: bool,
    /// The last function that was seen ends a switch: what follows is the thread's own.
    pub(super) switched: bool,
    /// The scheduler has chosen the thread, and the one before it still has the CPU: the switch itself.
    pub(super) switching: bool,
    pub(super) path: PathId,
    /// Start of a section of interrupts off that an event told, and who began it.
    pub(super) irqs_section: Option<(u64, FunctionId, FunctionId)>,
    /// The same for preemption.
    pub(super) preempt_section: Option<(u64, FunctionId, FunctionId)>,
    /// Function that an event announced: a timer's handler, or what another CPU asked for.
    pub(super) announced: Option<FunctionId>,
    pub(super) idle_state: Option<u32>,
}

/// A state that lasted from one event of its CPU to the next.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) state: State,
    /// Places of the events at its start and end in the window.
    pub(super) events: (usize, usize),
    /// The event at its end is the entry of an interrupt.
    pub(super) ends_in_interrupt: bool,
    /// Events showed the start and the end of the interrupt or softirq that it is in.
    pub(super) closed: bool,
}
