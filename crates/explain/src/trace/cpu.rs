//! What the sweep over a window remembers of one CPU.

use super::stacks::{FunctionId, PathId};
use super::state::Level;
use crate::vocabulary::Class;
use std::collections::HashMap;
use whylate_trace::event::{Event, EventKind};
use whylate_trace::reader::Reader;

/// What the sweep remembers of a CPU.
#[derive(Default)]
pub(super) struct Cpu {
    pub(super) last: usize,
    pub(super) pid: Option<u32>,
    pub(super) hard: Vec<usize>,
    pub(super) softirq: Option<Option<u32>>,
    pub(super) nmi: bool,
    /// What the flags alone told of interrupts and softirqs: it holds as long as the next event's flags say so too.
    pub(super) by_flags: bool,
    pub(super) user: bool,
    pub(super) scheduling: bool,
    /// Interrupts off and depth of disabled preemption in the thread, as the flags tell.
    pub(super) thread_irqs_off: Option<bool>,
    pub(super) thread_depth: Option<u8>,
    pub(super) irqs_section: Option<(u64, FunctionId, FunctionId)>,
    pub(super) preempt_section: Option<(u64, FunctionId, FunctionId)>,
    /// Function that an event announced: a timer's handler, or what another CPU asked for.
    pub(super) announced: Option<FunctionId>,
    pub(super) idle_state: Option<u32>,
    pub(super) stacks: HashMap<(Option<u32>, u8), PathId>,
    pub(super) last_entry: bool,
    /// On the way out of an interrupt, interrupts still off: what is called there is not the thread's.
    pub(super) leaving: bool,
}

impl Cpu {
    pub(super) fn new(last: usize, event: &Event) -> Self {
        Self { last, pid: event.pid, ..Self::default() }
    }

    pub(super) fn level(&self) -> Level {
        match (self.nmi, self.hard.last(), self.softirq) {
            (true, ..) => Level::Nmi,
            (_, Some(label), _) => Level::HardIrq(*label),
            (_, _, Some(vector)) => Level::Softirq(vector),
            _ => Level::Thread,
        }
    }

    pub(super) fn stack_key(&self) -> (Option<u32>, u8) {
        match self.level() {
            Level::Nmi => (None, 3),
            Level::HardIrq(_) => (None, 2),
            Level::Softirq(_) => (self.pid, 1),
            Level::Thread => (self.pid, 0),
        }
    }
}

/// What the flags say of the thread itself. The scheduler's own events are recorded with interrupts off and in
/// nested sections: they tell nothing of the code before or after. Neither do those of a page fault.
pub(super) fn remember_flags(cpu: &mut Cpu, event: &Event, class: Class, reader: &dyn Reader) {
    let flags = event.context;
    let opens = match event.kind {
        EventKind::Function { function, .. } => reader.symbol(function).is_some_and(|(name, _)| {
            name.contains("unlock") || name.contains("irqrestore") || name.contains("_enable")
        }),
        _ => false,
    };
    let of_scheduler = cpu.scheduling
        || matches!(
            event.kind,
            EventKind::Switch { .. }
                | EventKind::Waking { .. }
                | EventKind::Wakeup { .. }
                | EventKind::Noise { .. }
                | EventKind::NoiseGap { .. }
                | EventKind::Timerlat { .. }
                | EventKind::TimerStart { .. }
                | EventKind::Migrate { .. }
                // An exception is entered with interrupts off, whatever they were before.
                | EventKind::PageFault { .. }
        );
    match cpu.level() {
        Level::Thread if matches!(class, Class::InterruptEntry(_)) => {}
        Level::Thread | Level::Softirq(_) if of_scheduler || opens => {
            cpu.thread_irqs_off = None;
            cpu.thread_depth = None;
        }
        Level::Thread | Level::Softirq(_) => {
            let left = class == Class::InterruptTail
                || matches!(event.kind, EventKind::VectorExit { .. } | EventKind::IrqExit { .. });
            cpu.thread_irqs_off = if left { None } else { flags.irqs_off };
            cpu.thread_depth = flags.preempt_depth;
        }
        Level::HardIrq(_) => {
            cpu.thread_irqs_off = None;
            let entry = matches!(class, Class::InterruptEntry(_));
            cpu.thread_depth = match (cpu.thread_depth, flags.preempt_depth) {
                (_, depth) if entry => depth,
                (Some(before), Some(depth)) => Some(before.min(depth)),
                (before, depth) => before.or(depth),
            };
        }
        Level::Nmi => {}
    }
}
