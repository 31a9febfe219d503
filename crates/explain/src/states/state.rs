//! What a CPU was doing for a time, and how that is known.

use crate::states::stacks::{FunctionId, PathId};
use crate::vocabulary::Interrupt;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Knowledge {
    ByEvent,
    /// The flags of the events around say so.
    ByFlags,
    /// It is not so.
    Not,
    /// The trace does not show it.
    Unknown,
}

impl Knowledge {
    pub(crate) fn holds(self) -> bool {
        matches!(self, Self::ByEvent | Self::ByFlags)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Level {
    /// A thread, the idle one included.
    Thread,
    /// A softirq; its vector, when it is known.
    Softirq(Option<u32>),
    /// A hard interrupt, by its place in [`States::labels`].
    HardIrq(usize),
    Nmi,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct IrqLabel {
    pub(crate) text: String,
    pub(crate) interrupt: Interrupt,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct State {
    pub(crate) pid: Option<u32>,
    pub(crate) level: Level,
    pub(crate) irqs_off: Knowledge,
    pub(crate) preempt_off: Knowledge,
    pub(crate) need_resched: bool,
    pub(crate) need_resched_lazy: bool,
    /// The thread was in user mode.
    pub(crate) user: bool,
    /// The last function that was seen belongs to the scheduler.
    pub(crate) scheduling: bool,
    /// The last function that was seen ends a switch: what follows is the thread's own.
    pub(crate) switched: bool,
    /// The scheduler has chosen the thread, and the previous one still has the CPU: the switch itself.
    pub(crate) switching: bool,
    pub(crate) path: PathId,
    /// Start of a section with interrupts disabled that an event showed, and who began it.
    pub(crate) irqs_section: Option<(u64, FunctionId, FunctionId)>,
    /// The same for preemption.
    pub(crate) preempt_section: Option<(u64, FunctionId, FunctionId)>,
    /// Function that an event announced: a timer's handler, or one that another CPU requested.
    pub(crate) announced: Option<FunctionId>,
    pub(crate) idle_state: Option<u32>,
}

/// A state that lasted from one event of its CPU to the next.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub(crate) from: u64,
    pub(crate) to: u64,
    pub(crate) state: State,
    /// Places of the events at its start and end in the window.
    pub(crate) events: (usize, usize),
    /// The event at its end is the entry of an interrupt.
    pub(crate) ends_in_interrupt: bool,
    /// Events showed the start and the end of the interrupt or softirq that it is in.
    pub(crate) closed: bool,
}
