//! Assembles the kernel's events to segments (what had a CPU, from when to when), as the BPF programs do in the kernel.
//!
//! In: the events of the measured CPUs in the order of time. Out: segments of each CPU in the order of their ends, and the
//! time from which they are complete. It touches no machine. Wake-ups, migrations and page faults are recorded only for the
//! measured threads.

mod armed;
mod own;

pub use armed::Armed;
pub use own::{OwnThreads, Seen};

use crate::event::{Event, EventKind, Names, Symbol, Task, TaskState, Vector};
use crate::reader::Reader;
use std::collections::{BTreeMap, HashMap, VecDeque};
use whylate_core::CpuId;
use whylate_core::figure::PRIORITY_TOP;
use whylate_core::recording::{Activity, Recording, Segment, Thread};

/// At most this many segments of a CPU are kept.
const KEPT_MAX: usize = 1 << 16;
/// The most armed timers that are kept. If there are more, cancelled ones fill the table, and it is cleared.
const TIMERS_MAX: usize = 1 << 16;
/// A called function that took less explains nothing.
const CALLED_LEAST_NS: u64 = 2_000;
/// Workers whose work items are kept: there are fewer on a CPU.
const WORKERS_MAX: usize = 1 << 10;

/// What is in progress on one CPU.
#[derive(Debug, Default)]
struct CpuState {
    /// From when on everything is known.
    complete_from_ns: u64,
    segments: VecDeque<Segment>,
    irq_ns: Option<u64>,
    vector_ns: Option<u64>,
    softirq_ns: Option<u64>,
    function_ns: Option<u64>,
    idle: Option<(u32, u64)>,
    /// Address and flags of the lock, and the thread that waits.
    lock: Option<(u64, u32, u32, u64)>,
    /// Since when the running thread has the CPU.
    running_since_ns: u64,
    /// Programmed expiry of the timer whose handler runs.
    expires_hard_ns: Option<u64>,
    /// With the thread in which the handler runs.
    expires_soft: Option<(u64, u32)>,
    /// The stack of the timer's interrupt.
    stack: Vec<Symbol>,
    /// The functions of timers that run, in a hard interrupt and in a softirq.
    hard_function: Option<(Symbol, u64)>,
    soft_function: Option<(Symbol, u64)>,
    /// The functions of work items that are at work, by the worker, and since when each has the CPU.
    works: HashMap<u32, (Symbol, u64)>,
}

impl CpuState {
    /// Nothing before `at_ns` is known.
    fn begin(&mut self, at_ns: u64) {
        let segments = std::mem::take(&mut self.segments);
        *self = Self { complete_from_ns: at_ns, running_since_ns: at_ns, segments, ..Self::default() };
    }

    fn push(&mut self, from_ns: u64, to_ns: u64, what: Activity) {
        if self.segments.len() >= KEPT_MAX
            && let Some(oldest) = self.segments.pop_front()
        {
            self.complete_from_ns = self.complete_from_ns.max(oldest.to_ns + 1);
        }
        self.segments.push_back(Segment { from_ns, to_ns, what });
    }

    /// Ends a function that something on this CPU called.
    fn called(&mut self, began: Option<(Symbol, u64)>, to_ns: u64, named: &dyn Fn(Symbol) -> String) {
        if let Some((function, from_ns)) = began.filter(|(_, from_ns)| from_ns + CALLED_LEAST_NS <= to_ns) {
            self.push(from_ns, to_ns, Activity::Called { function: named(function), sender: None });
        }
    }

    /// Ends what began at `began_ns`, if that is known.
    fn end(&mut self, began_ns: Option<u64>, to_ns: u64, what: Activity) {
        if let Some(from_ns) = began_ns {
            self.push(from_ns, to_ns, what);
        }
    }

    /// Takes the start or the end of what interrupts threads, or of an idle state.
    fn handler(&mut self, at_ns: u64, kind: EventKind, names: &Names, named: &dyn Fn(Symbol) -> String) {
        match kind {
            EventKind::IrqEntry { .. } => self.irq_ns = Some(at_ns),
            EventKind::IrqExit { irq } => {
                let began = self.irq_ns.take();
                self.end(began, at_ns, Activity::Irq { line: irq });
            }
            EventKind::VectorEntry { .. } => self.vector_ns = Some(at_ns),
            EventKind::VectorExit { vector } => {
                let (began, vector) = (self.vector_ns.take(), number(vector, names));
                self.end(began, at_ns, Activity::Vector { vector });
            }
            EventKind::SoftirqEntry { .. } => self.softirq_ns = Some(at_ns),
            EventKind::SoftirqExit { vector } => {
                let began = self.softirq_ns.take();
                self.end(began, at_ns, Activity::Softirq { number: vector });
            }
            EventKind::Nmi { handler, duration_ns } => {
                let handler = named(handler);
                self.push(at_ns.saturating_sub(duration_ns), at_ns, Activity::Nmi { handler });
            }
            EventKind::RemoteFunctionEntry { .. } => self.function_ns = Some(at_ns),
            EventKind::RemoteFunctionExit { function } => {
                let (began, function) = (self.function_ns.take(), named(function));
                self.end(began, at_ns, Activity::Function { function, sender: None });
            }
            EventKind::Idle { state: Some(index) } => self.idle = Some((index, at_ns)),
            EventKind::Idle { state: None } => {
                if let Some((index, from_ns)) = self.idle.take() {
                    self.push(from_ns, at_ns, Activity::Idle { state: index });
                }
            }
            _ => {}
        }
    }
}

#[derive(Debug, Default)]
pub struct Assembler {
    cpus: BTreeMap<CpuId, CpuState>,
    timers: HashMap<u64, Armed>,
    /// When measured threads that do not run yet were woken.
    woken: HashMap<u32, u64>,
    /// How late a timer must be on each CPU for its stack to be named; none: never.
    late_ns: BTreeMap<CpuId, u64>,
}

impl Assembler {
    /// The events of these CPUs are complete from `at_ns` on.
    pub fn new(cpus: impl Iterator<Item = CpuId>, at_ns: u64) -> Self {
        let mut assembler = Self::default();
        for cpu in cpus {
            assembler.cpus.entry(cpu).or_default().begin(at_ns);
        }
        assembler
    }

    /// What had a CPU since `from_ns`.
    pub fn since(&self, cpu: CpuId, from_ns: u64) -> Recording {
        let Some(state) = self.cpus.get(&cpu) else { return Recording::default() };
        let newest = state.segments.iter().rev().take_while(|segment| segment.to_ns >= from_ns);
        let mut segments: Vec<Segment> = newest.cloned().collect();
        segments.reverse();
        Recording { segments, complete_from_ns: state.complete_from_ns, lost: 0 }
    }

    /// Names the stacks of timers that are later than that; 0: of none.
    pub fn keep_stacks(&mut self, from_ns: &[(CpuId, u64)]) {
        self.late_ns.extend(from_ns.iter().copied());
        self.late_ns.retain(|_, late_ns| *late_ns > 0);
    }

    /// Takes the next event of a reader. `function` names an address of the kernel.
    pub fn take(
        &mut self,
        event: &Event,
        reader: &dyn Reader,
        own: &OwnThreads,
        function: &dyn Fn(u64) -> String,
    ) {
        let names = reader.names();
        let (at_ns, pid) = (event.at_ns, event.pid.unwrap_or(0));
        let running = Seen { cpu: event.cpu, pid, command: event.command.map(|name| names.text(name)) };
        let named = |symbol: Symbol| match symbol {
            Symbol::Name(name) => names.text(name).to_owned(),
            Symbol::Address(address) => function(address),
        };
        match event.kind {
            EventKind::Lost { .. } => return self.lost(event),
            EventKind::TimerStart { timer, expires_ns, .. } => {
                return self.armed(timer, Armed { expires_ns, at_ns: event.at_ns });
            }
            EventKind::TimerExpire { timer, now_ns, function } => {
                let state = self.cpus.entry(event.cpu).or_default();
                let place =
                    if event.context.hard_irq { &mut state.hard_function } else { &mut state.soft_function };
                *place = Some((function, at_ns));
                return self.expired(event, timer, now_ns);
            }
            EventKind::Waking { task, .. } => {
                let own = own.process(seen(event, task, names)).map(|process| (task.pid, process));
                return own.map_or((), |own| self.waking(event, own, &named));
            }
            EventKind::Switch { previous, state, next } => {
                let threads = (thread(previous, names), thread(next, names));
                self.work_switches(event, (previous.pid, next.pid), &named);
                return self.switch(event, threads, state == TaskState::Runnable, own);
            }
            _ => {}
        }
        let state = self.cpus.entry(event.cpu).or_default();
        match event.kind {
            EventKind::Stack { frames } if state.expires_hard_ns.is_some() => {
                state.stack = reader.frames(frames).to_vec();
            }
            EventKind::TimerExpireExit { .. } if event.context.hard_irq => {
                state.expires_hard_ns = None;
                let began = state.hard_function.take();
                state.called(began, at_ns, &named);
            }
            EventKind::TimerExpireExit { .. } | EventKind::WheelExpireExit { .. } => {
                state.expires_soft = None;
                let began = state.soft_function.take();
                state.called(began, at_ns, &named);
            }
            EventKind::WheelExpire { function, .. } => state.soft_function = Some((function, at_ns)),
            EventKind::WorkBegin { function, .. } => {
                if state.works.len() >= WORKERS_MAX {
                    state.works.clear();
                }
                state.works.insert(pid, (function, at_ns));
            }
            EventKind::WorkEnd { .. } => {
                let began = state.works.remove(&pid);
                state.called(began, at_ns, &named);
            }
            EventKind::LockWait { lock, flags } => state.lock = Some((lock, flags, pid, at_ns)),
            EventKind::LockWaitEnd { lock } => {
                let waited = state.lock.take_if(|(waited_for, ..)| *waited_for == lock);
                if let Some((_, flags, pid, from_ns)) = waited {
                    let process = own.process_of(running);
                    state.push(from_ns, at_ns, Activity::Lock { pid, process, flags });
                }
            }
            EventKind::PageFault { address, .. } if own.process(running).is_some() => {
                state.push(at_ns, at_ns, Activity::PageFault { pid, address });
            }
            EventKind::Migrate { task, to_cpu, .. } => {
                if let Some(process) = own.process(seen(event, task, names)) {
                    let pid = task.pid;
                    state.push(at_ns, at_ns, Activity::Migration { pid, process, to: to_cpu });
                }
            }
            kind => state.handler(at_ns, kind, names, &named),
        }
    }

    /// A worker leaves the CPU in the middle of a work item, or gets it back.
    fn work_switches(&mut self, event: &Event, (left, came): (u32, u32), named: &dyn Fn(Symbol) -> String) {
        let state = self.cpus.entry(event.cpu).or_default();
        let began = state.works.get(&left).copied();
        state.called(began, event.at_ns, named);
        if let Some((_, from_ns)) = state.works.get_mut(&came) {
            *from_ns = event.at_ns;
        }
    }

    /// Events of a CPU were overwritten: earlier activity may not have gone on.
    fn lost(&mut self, event: &Event) {
        self.cpus.entry(event.cpu).or_default().begin(event.at_ns);
        self.timers.clear();
        self.woken.clear();
    }

    fn armed(&mut self, timer: u64, armed: Armed) {
        if self.timers.len() >= TIMERS_MAX {
            self.timers.clear();
        }
        self.timers.insert(timer, armed);
    }

    fn expired(&mut self, event: &Event, timer: u64, now_ns: u64) {
        let Some(armed) = self.timers.remove(&timer) else { return };
        let expires_ns = armed.due_ns(now_ns, event.at_ns);
        let state = self.cpus.entry(event.cpu).or_default();
        state.stack.clear();
        if event.context.hard_irq {
            state.expires_hard_ns = Some(expires_ns);
        } else {
            state.expires_soft = Some((expires_ns, event.pid.unwrap_or(0)));
        }
    }

    /// A measured thread (its number and its process) is woken.
    fn waking(&mut self, event: &Event, (pid, process): (u32, u32), named: &dyn Fn(Symbol) -> String) {
        let at_ns = event.at_ns;
        let late_ns = self.late_ns.get(&event.cpu).copied().unwrap_or(u64::MAX);
        let state = self.cpus.entry(event.cpu).or_default();
        let soft = state.expires_soft.filter(|(_, thread)| Some(*thread) == event.pid);
        if let Some(expires_ns) = state.expires_hard_ns.or(soft.map(|(expires_ns, _)| expires_ns)) {
            // Timers may expire early by their slack.
            let expires_ns = expires_ns.min(at_ns);
            let is_late = at_ns - expires_ns >= late_ns;
            let stack = if is_late { state.stack.iter().copied().map(named).collect() } else { Vec::new() };
            state.push(expires_ns, at_ns, Activity::Timer { pid, process, stack });
        }
        self.woken.insert(pid, at_ns);
    }

    fn switch(
        &mut self,
        event: &Event,
        (previous, next): (Thread, Thread),
        was_runnable: bool,
        own: &OwnThreads,
    ) {
        let at_ns = event.at_ns;
        fn of(cpu: CpuId, thread: &Thread) -> Seen<'_> {
            Seen { cpu, pid: thread.pid, command: Some(&thread.command) }
        }
        let state = self.cpus.entry(event.cpu).or_default();
        let since_ns = std::mem::replace(&mut state.running_since_ns, at_ns);
        let woken_ns = self.woken.remove(&next.pid);
        self.woken.remove(&previous.pid);
        if let Some((woken_ns, process)) = woken_ns.zip(own.process(of(event.cpu, &next))) {
            let what =
                Activity::Wakeup { pid: next.pid, process, previous: previous.clone(), stack: Vec::new() };
            state.push(woken_ns, at_ns, what);
        }
        let process = own.process_of(of(event.cpu, &previous));
        let next_priority = next.priority;
        state.push(
            since_ns,
            at_ns,
            Activity::Thread { thread: previous, process, was_runnable, next_priority },
        );
    }
}

fn seen<'n>(event: &Event, task: Task, names: &'n Names) -> Seen<'n> {
    Seen { cpu: event.cpu, pid: task.pid, command: Some(names.text(task.command)) }
}

/// A thread as the explainer has it.
fn thread(task: Task, names: &Names) -> Thread {
    let command = if task.pid == 0 { "swapper" } else { names.text(task.command) };
    Thread { pid: task.pid, priority: PRIORITY_TOP - task.priority, command: command.to_owned() }
}

/// The number of a vector on x86 (arch/x86/include/asm/irq_vectors.h); 0 for one that is not known.
fn number(vector: Vector, names: &Names) -> u32 {
    match vector {
        Vector::LocalTimer => 0xec,
        Vector::IrqWork => 0xf6,
        Vector::CallFunctionSingle => 0xfb,
        Vector::CallFunction => 0xfc,
        Vector::Reschedule => 0xfd,
        Vector::Other(name) => match names.text(name) {
            "deferred_error_apic" => 0xf4,
            "x86_platform_ipi" => 0xf7,
            "threshold_apic" => 0xf9,
            "thermal_apic" => 0xfa,
            "error_apic" => 0xfe,
            "spurious_apic" => 0xff,
            _ => 0,
        },
    }
}
