//! What the sweep over a window remembers of one CPU.

use crate::states::stacks::{FunctionId, PathId};
use crate::states::state::{Level, Span};
use crate::vocabulary::Class;
use std::collections::HashMap;
use whylate_trace::event::{Event, EventKind};

/// The chains of calls of a CPU: of each thread, of softirqs in it, of interrupts and of NMIs.
#[derive(Default)]
pub(crate) struct Stacks {
    threads: HashMap<Option<u32>, PathId>,
    above: HashMap<StackKey, PathId>,
}

/// Thread and level: 0 for the thread itself, 1 for a softirq in it, 2 for an interrupt, 3 for an NMI.
pub(crate) type StackKey = (Option<u32>, u8);

impl Stacks {
    pub(crate) fn get(&self, key: StackKey) -> PathId {
        let found = if key.1 == 0 { self.threads.get(&key.0) } else { self.above.get(&key) };
        found.copied().unwrap_or(PathId::ROOT)
    }

    pub(crate) fn insert(&mut self, key: StackKey, path: PathId) {
        if key.1 == 0 {
            self.threads.insert(key.0, path)
        } else {
            self.above.insert(key, path)
        };
    }

    /// What runs above the level of `key` has ended.
    pub(crate) fn end_above(&mut self, key: StackKey) {
        if key.1 == 0 && !self.above.is_empty() {
            self.above = HashMap::new();
        }
        // Softirqs of other threads stay.
        for level in key.1.max(1) + 1..=3 {
            self.above.remove(&(None, level));
        }
    }

    /// The thread has ended.
    pub(crate) fn end(&mut self, pid: Option<u32>) {
        self.threads.remove(&pid);
    }
}

/// What the sweep remembers of a CPU.
#[derive(Default)]
pub(crate) struct Cpu {
    pub(crate) last: usize,
    pub(crate) pid: Option<u32>,
    pub(crate) hard: Vec<usize>,
    pub(crate) softirq: Option<Option<u32>>,
    pub(crate) nmi: bool,
    /// Whether interrupts and softirqs are known from flags alone: this holds as long as the next event's flags agree.
    pub(crate) by_flags: bool,
    pub(crate) user: bool,
    pub(crate) scheduling: bool,
    pub(crate) switched: bool,
    /// The thread that the scheduler has taken off, until another one is seen.
    pub(crate) leaving_pid: Option<u32>,
    /// Interrupts disabled and depth of disabled preemption in the thread, from the flags.
    pub(crate) thread_irqs_off: Option<bool>,
    pub(crate) thread_depth: Option<u8>,
    pub(crate) irqs_section: Option<(u64, FunctionId, FunctionId)>,
    pub(crate) preempt_section: Option<(u64, FunctionId, FunctionId)>,
    /// Function that an event announced: a timer's handler, or one that another CPU requested.
    pub(crate) announced: Option<FunctionId>,
    pub(crate) idle_state: Option<u32>,
    pub(crate) stacks: Stacks,
    pub(crate) spans: Vec<Span>,
    /// Number of spans at the entry of the interrupt and of the softirq that events showed.
    pub(crate) hard_from: Option<usize>,
    pub(crate) softirq_from: Option<usize>,
    /// Spans of interrupts before this one are already marked if they are closed.
    pub(crate) hard_closed: usize,
    pub(crate) last_entry: bool,
    /// On the way out of an interrupt, with interrupts still off: functions called there are not the thread's.
    pub(crate) leaving: bool,
}

impl Cpu {
    pub(crate) fn new(last: usize, event: &Event) -> Self {
        Self { last, pid: event.pid, ..Self::default() }
    }

    pub(crate) fn level(&self) -> Level {
        match (self.nmi, self.hard.last(), self.softirq) {
            (true, ..) => Level::Nmi,
            (_, Some(label), _) => Level::HardIrq(*label),
            (_, _, Some(vector)) => Level::Softirq(vector),
            _ => Level::Thread,
        }
    }

    /// Whether an event still belongs to the thread that the scheduler has taken off: the switch is not over.
    pub(crate) fn is_switching(&self, event: &Event) -> bool {
        let over = match event.kind {
            EventKind::Switch { .. } => true,
            // The chosen thread is already runnable: it has run and slept unseen since then.
            EventKind::Wakeup { task, .. } => Some(task.pid) == self.pid,
            _ => false,
        };
        self.leaving_pid.is_some() && event.pid == self.leaving_pid && !event.context.hard_irq && !over
    }

    /// The thread of the next event is on the CPU, unless a switch is under way: then the one that was chosen is next.
    pub(crate) fn follow(&mut self, event: &Event) {
        if self.is_switching(event) {
            return;
        }
        self.leaving_pid = None;
        if event.pid.is_some() && self.pid != event.pid {
            (self.pid, self.scheduling) = (event.pid, false);
        }
    }

    pub(crate) fn stack_key(&self) -> StackKey {
        match self.level() {
            Level::Nmi => (None, 3),
            Level::HardIrq(_) => (None, 2),
            Level::Softirq(_) => (self.pid, 1),
            Level::Thread => (self.pid, 0),
        }
    }
}

/// What the flags show about the thread itself. Functions are traced wherever the thread is. Events are recorded within
/// sections of their own (the scheduler's lock, the timer's, an exception's entry). Disabled interrupts or preemption there
/// show nothing about the code before or after, but enabled ones do.
pub(crate) fn remember_flags(cpu: &mut Cpu, event: &Event, class: Class, opens: bool) {
    let flags = event.context;
    let is_function = matches!(
        event.kind,
        EventKind::Function { .. } | EventKind::GraphEntry { .. } | EventKind::GraphExit { .. }
    );
    match cpu.level() {
        Level::Thread if matches!(class, Class::InterruptEntry(_)) => {}
        Level::Thread | Level::Softirq(_) if cpu.scheduling || opens => {
            cpu.thread_irqs_off = None;
            cpu.thread_depth = None;
        }
        Level::Thread | Level::Softirq(_) => {
            let left = class == Class::InterruptTail
                || matches!(event.kind, EventKind::VectorExit { .. } | EventKind::IrqExit { .. });
            let off = flags.irqs_off.filter(|off| is_function || !off);
            cpu.thread_irqs_off = if left { None } else { off };
            cpu.thread_depth = flags.preempt_depth.filter(|depth| is_function || left || *depth == 0);
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
