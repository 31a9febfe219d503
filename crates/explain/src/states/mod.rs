//! What each CPU was doing between any two events: thread, interrupt, softirq, interrupts and preemption disabled, and the
//! functions that were being called.
//!
//! In: the events of a window. Out: for each CPU, spans without a gap between its first and its last event. What the trace
//! does not show stays [`Knowledge::Unknown`]; the code here does not decide who is to blame.

pub(crate) mod consistency;
pub(crate) mod cpu;
pub(crate) mod priorities;
pub(crate) mod stacks;
pub(crate) mod state;

use crate::states::consistency::close_interrupt;
use crate::states::cpu::{Cpu, remember_flags};
use crate::states::stacks::{Functions, PathId, Paths};
use crate::states::state::{IrqLabel, Knowledge, Level, Span, State};
use crate::vocabulary::{self, Class, Interrupt};
use crate::window::Window;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap};
use whylate_core::CpuId;
use whylate_trace::event::{Context, Event, EventKind, TaskState, Vector};
use whylate_trace::reader::Reader;

/// If the trace has no events of handlers, flags of interrupts this far apart belong to two interrupts: few handlers take longer.
const TWO_INTERRUPTS_NS: u64 = 50_000;

/// The result of the sweep.
#[derive(Debug, Default)]
pub(crate) struct States {
    pub(crate) spans: BTreeMap<CpuId, Vec<Span>>,
    pub(crate) labels: Vec<IrqLabel>,
    label_places: HashMap<IrqLabel, usize>,
    pub(crate) functions: Functions,
    pub(crate) paths: Paths,
    /// Entries of timer interrupts: CPU and place of the event.
    pub(crate) timer_entries: Vec<(CpuId, usize)>,
    /// Whether events showed when interrupts went off and on.
    pub(crate) irq_events: bool,
    pub(crate) has_functions: bool,
    /// Whether anything but flags showed how long interrupts lasted, not only what a handler in them did.
    has_interrupts: bool,
    /// Whether events show when handlers of timers ended.
    has_timer_ends: bool,
    /// Whether the scheduler's switches were traced.
    pub(crate) has_switches: bool,
    /// Moments at which events of a CPU contradict each other: some between them are missing.
    pub(crate) breaks: Vec<(CpuId, u64)>,
    /// Those at which the thread on the CPU changed unseen.
    pub(crate) unseen: Vec<(CpuId, u64)>,
    /// The function of the work item that each worker of a workqueue runs.
    works: HashMap<u32, stacks::FunctionId>,
}

pub(crate) fn sweep(window: &Window, reader: &dyn Reader) -> States {
    let mut states = States {
        irq_events: window
            .events
            .iter()
            .any(|event| matches!(event.kind, EventKind::IrqsOff { .. } | EventKind::IrqsOn { .. })),
        has_interrupts: window.events.iter().any(tells_of_interrupts),
        has_timer_ends: window
            .events
            .iter()
            .any(|event| matches!(event.kind, EventKind::TimerExpireExit { .. })),
        has_switches: window.events.iter().any(|event| matches!(event.kind, EventKind::Switch { .. })),
        ..States::default()
    };
    let mut cpus: BTreeMap<CpuId, Cpu> = BTreeMap::new();
    for (index, event) in window.events.iter().enumerate() {
        let (cpu, begin) = match cpus.entry(event.cpu) {
            Entry::Occupied(known) => {
                let cpu = known.into_mut();
                let begin = window.events[cpu.last].at_ns;
                (cpu, begin)
            }
            Entry::Vacant(new) => (new.insert(Cpu::new(index, event)), window.from),
        };
        let class = states.class_of(event, reader);
        states.close(cpu, window, begin, (event, class), index);
        states.update(cpu, index, event, class, reader);
    }
    // Before the first and after the last event of a CPU its state is unchanged.
    for (id, mut cpu) in cpus {
        let last = &window.events[cpu.last];
        let end = Event { at_ns: window.to.max(last.at_ns), cpu: id, context: Context::default(), ..*last };
        let index = cpu.last;
        states.close(&mut cpu, window, last.at_ns, (&end, Class::Ordinary), index);
        states.spans.extend((!cpu.spans.is_empty()).then_some((id, cpu.spans)));
    }
    states
}

fn tells_of_interrupts(event: &Event) -> bool {
    matches!(
        event.kind,
        EventKind::VectorEntry { .. }
            | EventKind::VectorExit { .. }
            | EventKind::Function { .. }
            | EventKind::GraphEntry { .. }
            | EventKind::Timerlat { .. }
            | EventKind::Noise { .. }
    )
}

impl States {
    /// What the function of an event means; [`Class::Ordinary`] for events that are not functions.
    fn class_of(&mut self, event: &Event, reader: &dyn Reader) -> Class {
        match event.kind {
            EventKind::Function { function, caller } => {
                let (function, caller) =
                    (self.functions.id(function, reader), self.functions.id(caller, reader));
                self.functions.class(function, Some(caller))
            }
            EventKind::GraphEntry { function, .. } => {
                let function = self.functions.id(function, reader);
                self.functions.class(function, None)
            }
            EventKind::VectorEntry { vector } => Class::InterruptEntry(interrupt_of(vector, reader)),
            EventKind::IrqEntry { .. } => Class::InterruptEntry(Interrupt::Device),
            EventKind::Timerlat { context: whylate_trace::event::TimerlatContext::Irq, .. } => {
                Class::InterruptEntry(Interrupt::Timer)
            }
            _ => Class::Ordinary,
        }
    }

    /// Ends the span from `begin` to an event.
    fn close(
        &self,
        cpu: &mut Cpu,
        window: &Window,
        begin: u64,
        (after, class): (&Event, Class),
        index: usize,
    ) {
        let before = &window.events[cpu.last];
        if after.at_ns <= begin {
            return;
        }
        let ends_in_interrupt = matches!(class, Class::InterruptEntry(_)) && cpu.hard.is_empty();
        let enters_user =
            matches!(after.kind, EventKind::SyscallEnter { .. } | EventKind::PageFault { user: true, .. });
        let irqs_off = match (cpu.thread_irqs_off, after.context.irqs_off) {
            _ if cpu.irqs_section.is_some() => Knowledge::ByEvent,
            _ if self.irq_events => Knowledge::Not,
            (Some(true), _) if ends_in_interrupt => Knowledge::ByFlags,
            (Some(true), Some(true)) => Knowledge::ByFlags,
            (Some(false), Some(false)) => Knowledge::Not,
            _ => Knowledge::Unknown,
        };
        let preempt_off = match cpu.thread_depth {
            _ if cpu.preempt_section.is_some() => Knowledge::ByEvent,
            Some(0) => Knowledge::Not,
            Some(_) => Knowledge::ByFlags,
            None => Knowledge::Unknown,
        };
        let flags = after.context;
        // A tracer takes its time for the stack of the event before, in the same interrupt.
        let is_stack = matches!(after.kind, EventKind::Stack { .. });
        // The handler of a timer lasts until its end, where ends are recorded. What is known from flags alone does not.
        let is_in_handler = cpu.announced.is_some() && self.has_timer_ends;
        let is_long = after.at_ns - begin > TWO_INTERRUPTS_NS;
        let apart = is_long && !self.has_interrupts && !is_in_handler && !is_stack;
        // An interrupt of a softirq has the flags of both.
        let goes_on = match cpu.level() {
            Level::Softirq(_) => flags.softirq || flags.nmi,
            _ => flags.hard_irq || flags.softirq || flags.nmi,
        };
        let left = cpu.by_flags && (apart || !goes_on);
        let level = if left { Level::Thread } else { cpu.level() };
        // A switch that was not recorded: the thread that the interrupt found had interrupts disabled.
        let found = after.pid.filter(|_| ends_in_interrupt && !self.has_switches);
        let state = State {
            pid: found.or(cpu.pid),
            level,
            irqs_off,
            preempt_off,
            need_resched: before.context.need_resched,
            need_resched_lazy: before.context.need_resched_lazy,
            user: cpu.user || (enters_user && level == Level::Thread),
            scheduling: cpu.scheduling,
            switched: cpu.switched,
            switching: cpu.is_switching(after),
            path: cpu.stacks.get(cpu.stack_key()),
            irqs_section: cpu.irqs_section,
            preempt_section: cpu.preempt_section,
            announced: cpu
                .announced
                .or_else(|| self.works.get(&cpu.pid?).copied().filter(|_| level == Level::Thread)),
            idle_state: cpu.idle_state,
        };
        let events = (cpu.last, index);
        let span = Span { from: begin, to: after.at_ns, state, events, ends_in_interrupt, closed: false };
        cpu.spans.push(span);
    }

    /// What the CPU does after an event.
    fn update(&mut self, cpu: &mut Cpu, index: usize, event: &Event, class: Class, reader: &dyn Reader) {
        cpu.last = index;
        if self.contradicts(cpu, event, class) {
            self.breaks.push((event.cpu, event.at_ns));
            let own = if let EventKind::Switch { previous, .. } = event.kind {
                Some(previous.pid)
            } else {
                event.pid
            };
            if own.is_some() && cpu.pid.is_some() && own != cpu.pid {
                self.unseen.push((event.cpu, event.at_ns));
            }
        }
        let spans = cpu.spans.len();
        cpu.follow(event);
        let level = cpu.level();
        close_interrupt(cpu, event, class);
        self.enter_or_leave_interrupt(cpu, index, event, class, reader);
        if cpu.level() != level {
            cpu.announced = None;
        }
        match (class, event.kind) {
            (Class::InterruptEntry(_), _) if !cpu.by_flags => _ = cpu.hard_from.get_or_insert(spans),
            (_, EventKind::SoftirqEntry { .. }) => cpu.softirq_from = Some(spans),
            _ if cpu.hard.is_empty() => cpu.hard_from = None,
            _ => {}
        }
        let switched = matches!(event.kind, EventKind::Switch { .. });
        let off = event.context.irqs_off == Some(true) && !switched;
        cpu.leaving = class == Class::InterruptTail || (cpu.leaving && off);
        cpu.user = class == Class::UserEdge || matches!(event.kind, EventKind::SyscallExit { .. });
        match event.kind {
            EventKind::Function { .. } | EventKind::GraphEntry { .. } | EventKind::GraphExit { .. } => {
                self.call(cpu, event, class, reader);
            }
            EventKind::Switch { next, state, previous } => {
                cpu.pid = Some(next.pid);
                cpu.scheduling = false;
                cpu.leaving_pid = Some(previous.pid).filter(|pid| *pid != next.pid);
                if matches!(state, TaskState::Blocked('X' | 'Z')) {
                    cpu.stacks.end(Some(previous.pid));
                }
            }
            // It is recorded when the thread leaves the CPU to a thread that the next event names.
            EventKind::Noise { source: whylate_trace::event::NoiseSource::Thread { .. }, .. } => {
                cpu.pid = None;
            }
            EventKind::Idle { state } => cpu.idle_state = state,
            EventKind::IrqsOff { caller, parent } => {
                let section =
                    (event.at_ns, self.functions.id(caller, reader), self.functions.id(parent, reader));
                cpu.irqs_section.get_or_insert(section);
            }
            EventKind::IrqsOn { .. } => cpu.irqs_section = None,
            EventKind::PreemptOff { caller, parent } => {
                let section =
                    (event.at_ns, self.functions.id(caller, reader), self.functions.id(parent, reader));
                cpu.preempt_section.get_or_insert(section);
            }
            EventKind::PreemptOn { .. } => cpu.preempt_section = None,
            EventKind::RemoteFunctionEntry { function } => {
                cpu.announced = Some(self.functions.id(function, reader));
            }
            EventKind::TimerExpire { function, .. } => {
                cpu.announced = Some(self.functions.id(function, reader));
            }
            EventKind::WheelExpire { function, .. } => {
                cpu.announced = Some(self.functions.id(function, reader));
            }
            EventKind::RemoteFunctionExit { .. }
            | EventKind::TimerExpireExit { .. }
            | EventKind::WheelExpireExit { .. } => cpu.announced = None,
            EventKind::WorkBegin { function, .. } => {
                let function = self.functions.id(function, reader);
                self.works.extend(event.pid.map(|pid| (pid, function)));
            }
            EventKind::WorkEnd { .. } => _ = event.pid.map(|pid| self.works.remove(&pid)),
            _ => cpu.scheduling &= !matches!(event.kind, EventKind::SyscallEnter { .. }),
        }
        let opens = match event.kind {
            EventKind::Function { function, .. } => {
                let function = self.functions.id(function, reader);
                self.functions.opens(function)
            }
            _ => false,
        };
        remember_flags(cpu, event, class, opens);
    }

    fn enter_or_leave_interrupt(
        &mut self,
        cpu: &mut Cpu,
        index: usize,
        event: &Event,
        class: Class,
        reader: &dyn Reader,
    ) {
        let flags = event.context;
        let has_flags = flags.irqs_off.is_some();
        cpu.nmi = flags.nmi;
        cpu.by_flags = flags.nmi || (cpu.by_flags && (flags.hard_irq || flags.softirq));
        if let Class::InterruptEntry(interrupt) = class {
            let label = self.label(event, interrupt, reader);
            if interrupt == Interrupt::Timer && !cpu.last_entry {
                self.timer_entries.push((event.cpu, index));
            }
            cpu.last_entry = interrupt == Interrupt::Timer;
            if std::mem::take(&mut cpu.by_flags) {
                // Interrupts do not nest: this is the one that flags announced, or that one has ended.
                cpu.hard.clear();
            }
            match cpu.hard.last() {
                Some(last) if *last == label => {}
                // Keep the name of the device: a function event only says that an interrupt runs.
                Some(_) if matches!(event.kind, EventKind::Function { .. }) && flags.hard_irq => {}
                _ => cpu.hard.push(label),
            }
            return;
        }
        if class == Class::InterruptTail {
            cpu.hard.clear();
            cpu.by_flags = false;
            cpu.last_entry = false;
            return;
        }
        match event.kind {
            EventKind::VectorExit { .. } | EventKind::IrqExit { .. } => {
                cpu.hard.pop();
                cpu.last_entry = false;
            }
            EventKind::Noise { source: whylate_trace::event::NoiseSource::Irq { .. }, .. } => {
                cpu.hard.pop();
                cpu.last_entry = false;
            }
            EventKind::SoftirqEntry { vector } => cpu.softirq = Some(Some(vector)),
            EventKind::SoftirqExit { .. } => cpu.softirq = None,
            EventKind::Noise { .. } => cpu.softirq = None,
            _ if has_flags && flags.hard_irq && cpu.hard.is_empty() => {
                let timer = matches!(event.kind, EventKind::TimerExpire { .. });
                let interrupt = if timer { Interrupt::Timer } else { Interrupt::Device };
                let text = if timer { interrupt.label() } else { "interrupt" };
                let label = self.intern(text.to_owned(), interrupt);
                cpu.hard.push(label);
                cpu.by_flags = true;
            }
            _ if has_flags && !flags.hard_irq => {
                cpu.hard.clear();
                cpu.last_entry = false;
            }
            _ => {}
        }
        if has_flags && !matches!(event.kind, EventKind::SoftirqEntry { .. } | EventKind::SoftirqExit { .. })
        {
            cpu.by_flags |= flags.softirq && cpu.softirq.is_none();
            cpu.softirq = if flags.softirq { cpu.softirq.or(Some(None)) } else { None };
        }
    }

    fn label(&mut self, event: &Event, interrupt: Interrupt, reader: &dyn Reader) -> usize {
        let text = match event.kind {
            EventKind::IrqEntry { irq, name } => vocabulary::irq(irq, Some(reader.names().text(name))),
            EventKind::VectorEntry { vector: Vector::Other(name) } => {
                let name = reader.names().text(name);
                let name = if name.starts_with("local_timer") { interrupt.label() } else { name };
                name.to_owned()
            }
            _ => interrupt.label().to_owned(),
        };
        self.intern(text, interrupt)
    }

    fn intern(&mut self, text: String, interrupt: Interrupt) -> usize {
        let label = IrqLabel { text, interrupt };
        match self.label_places.get(&label) {
            Some(place) => *place,
            None => {
                self.labels.push(label.clone());
                self.label_places.insert(label, self.labels.len() - 1);
                self.labels.len() - 1
            }
        }
    }

    /// A function is entered or left.
    fn call(&mut self, cpu: &mut Cpu, event: &Event, class: Class, reader: &dyn Reader) {
        self.has_functions = true;
        let helps = matches!(class, Class::Ordinary | Class::Helper);
        if class == Class::InterruptTail || (cpu.leaving && helps && cpu.level() == Level::Thread) {
            // The interrupted thread continues.
            return;
        }
        let key = cpu.stack_key();
        // Everything above this level has ended.
        cpu.stacks.end_above(key);
        let path = cpu.stacks.get(key);
        let path = match event.kind {
            EventKind::Function { function, caller } => {
                let (function, caller) =
                    (self.functions.id(function, reader), self.functions.id(caller, reader));
                self.paths.enter(path, function, caller, &self.functions)
            }
            EventKind::GraphEntry { function, depth } => {
                let function = self.functions.id(function, reader);
                self.paths.enter_at(path, function, depth)
            }
            EventKind::GraphExit { depth, .. } => self.paths.cut(path, depth),
            _ => path,
        };
        cpu.stacks.insert(key, path);
        // It returns at once if preemption is disabled.
        let declined =
            class == Class::Preemption && event.context.preempt_depth.is_some_and(|depth| depth > 0);
        cpu.scheduling = match class {
            _ if declined => false,
            Class::Scheduler | Class::Preemption => {
                let function = self.paths.split(path).map(|(_, function)| self.functions.name(function));
                cpu.switched = function.is_some_and(|name| name.starts_with("finish_task_switch"));
                true
            }
            // The scheduler holds a lock all along; a function of an unknown caller does not end it.
            _ => {
                let flags = event.context;
                let locked =
                    flags.irqs_off == Some(true) && flags.preempt_depth.is_some_and(|depth| depth > 0);
                let lost = locked && self.paths.depth(path) <= 2;
                cpu.scheduling && (lost || self.is_called_by_scheduler(path))
            }
        };
    }

    fn is_called_by_scheduler(&self, path: PathId) -> bool {
        let is_scheduler =
            |id| matches!(self.functions.class(id, None), Class::Scheduler | Class::Preemption);
        self.paths.functions(path).take(12).any(is_scheduler)
    }
}

fn interrupt_of(vector: Vector, reader: &dyn Reader) -> Interrupt {
    match vector {
        Vector::LocalTimer => Interrupt::Timer,
        Vector::Reschedule => Interrupt::Reschedule,
        Vector::CallFunction | Vector::CallFunctionSingle => Interrupt::CallFunction,
        Vector::IrqWork => Interrupt::IrqWork,
        Vector::Other(name) => match reader.names().text(name).split(':').next().unwrap_or("") {
            "local_timer" => Interrupt::Timer,
            "reschedule" => Interrupt::Reschedule,
            "call_function" | "call_function_single" => Interrupt::CallFunction,
            "irq_work" => Interrupt::IrqWork,
            _ => Interrupt::Device,
        },
    }
}
