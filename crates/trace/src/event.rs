//! The one event model of all readers, independent of the file format.
//!
//! Events are small and `Copy`: texts are interned ([`Name`]), functions are names or addresses that the reader's
//! symbol table resolves on demand ([`Symbol`]). Only what the explanation uses is decoded; everything else is
//! [`EventKind::Other`] with its system and name.

use crate::index::Index;
use whylate_core::CpuId;

/// A text in the trace's [`Names`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(pub(crate) u32);

impl Name {
    /// Its position in the trace's [`Names`].
    pub fn number(self) -> u32 {
        self.0
    }
}

/// Texts of a trace that are kept, and their bytes: a trace of 10 GB can have a new text in each event.
const NAMES_MAX: usize = 1 << 21;
const NAME_BYTES_MAX: usize = 32 << 20;
/// Replaces a text that is not kept.
const TOO_MANY: &str = "(not kept: too many texts)";

/// The texts of a trace, each once.
#[derive(Clone, Debug, Default)]
pub struct Names {
    texts: String,
    /// Where each ends; it begins where the one before it ends.
    ends: Vec<u32>,
    index: Index,
    /// How often a text was not kept.
    pub(crate) dropped: u64,
}

impl Names {
    /// The name of `text`, which is added if it is new; with too many texts, the name of a text that says so.
    pub fn intern(&mut self, text: &str) -> Name {
        if let Some(name) = self.find(text) {
            return name;
        }
        if self.ends.len() >= NAMES_MAX || self.texts.len() + text.len() > NAME_BYTES_MAX {
            self.dropped += 1;
            return self.find(TOO_MANY).unwrap_or_else(|| self.add(TOO_MANY));
        }
        self.add(text)
    }

    fn find(&self, text: &str) -> Option<Name> {
        self.index.find(text, |number| self.text(Name(number)) == text).map(Name)
    }

    fn add(&mut self, text: &str) -> Name {
        let name = Name(self.ends.len() as u32);
        self.texts.push_str(text);
        self.ends.push(self.texts.len() as u32);
        let (texts, ends) = (&self.texts, &self.ends);
        self.index.insert(name.0, text, |number| text_of(texts, ends, number));
        name
    }

    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is none yet.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// All names with their texts, in the order in which they came.
    pub fn iter(&self) -> impl Iterator<Item = (Name, &str)> {
        (0..self.ends.len() as u32).map(|number| (Name(number), self.text(Name(number))))
    }

    /// The text; empty for a name of other [`Names`].
    #[inline]
    pub fn text(&self, name: Name) -> &str {
        text_of(&self.texts, &self.ends, name.0)
    }
}

#[inline]
fn text_of<'t>(texts: &'t str, ends: &[u32], number: u32) -> &'t str {
    let number = number as usize;
    let Some(end) = ends.get(number) else { return "" };
    let begin = number.checked_sub(1).map_or(0, |before| ends[before]);
    texts.get(begin as usize..*end as usize).unwrap_or("")
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Symbol {
    /// Its name is in the trace.
    Name(Name),
    /// Only its address is; the reader may know the symbol.
    Address(u64),
}

/// Where the CPU was when an event was recorded: the flags of the common header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Context {
    /// Interrupts were off; `None` if the trace does not say (architectures without the flag, perf.data).
    pub irqs_off: Option<bool>,
    /// The running task was to be preempted at the next point that allows it.
    pub need_resched: bool,
    /// The same, at the next point that lazy preemption allows.
    pub need_resched_lazy: bool,
    pub hard_irq: bool,
    pub softirq: bool,
    pub nmi: bool,
    /// Depth of disabled preemption; `None` if the trace does not say.
    pub preempt_depth: Option<u8>,
    /// Depth of disabled migration; `None` if the trace does not say.
    pub migrate_disable: Option<u8>,
}

/// One event.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Event {
    /// When, in nanoseconds of the trace's clock; text in microseconds ends in 000.
    pub at_ns: u64,
    pub cpu: CpuId,
    /// Thread that ran there; 0 is idle. `None` if the trace does not say.
    pub pid: Option<u32>,
    /// Its command, when the trace says (`<...>` counts as unknown).
    pub command: Option<Name>,
    pub context: Context,
    /// Where in the file: byte offset of the line or record, for evidence.
    pub offset: u64,
    pub kind: EventKind,
}

/// A task in a scheduler event. Priorities are the kernel's: 0 to 98 real time (99 − the user's), 100 to 139 others,
/// −1 for deadline tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Task {
    /// Thread id; 0 is idle.
    pub pid: u32,
    pub command: Name,
    pub priority: i32,
}

/// What a task was when it was switched away from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskState {
    /// It was still runnable: it was preempted (`R`, `R+`).
    Runnable,
    /// It waited or ended: the kernel's letters (`S`, `D`, …) of the first bit set.
    Blocked(char),
}

/// Which hard interrupt other than a device's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Vector {
    LocalTimer,
    Reschedule,
    /// Runs functions sent by other CPUs.
    CallFunction,
    /// Runs one function sent by another CPU.
    CallFunctionSingle,
    /// Runs deferred work in interrupt context.
    IrqWork,
    /// Any other: `thermal_apic`, `error_apic`, `spurious_apic`, `x86_platform_ipi`, …
    Other(Name),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum EventKind {
    /// `sched:sched_switch`.
    Switch {
        previous: Task,
        state: TaskState,
        next: Task,
    },
    /// `sched:sched_waking`: the task is woken.
    Waking {
        task: Task,
        target_cpu: CpuId,
    },
    /// `sched:sched_wakeup`, `sched:sched_wakeup_new`: the task is on the run queue.
    Wakeup {
        task: Task,
        target_cpu: CpuId,
    },
    /// `sched:sched_migrate_task`.
    Migrate {
        task: Task,
        from_cpu: CpuId,
        to_cpu: CpuId,
    },
    /// `sched:sched_pi_setprio`: priority inheritance changes a priority.
    PriorityInherited {
        task: Task,
        new_priority: i32,
    },
    /// `timer:hrtimer_start`; `expires_ns` is on the timer's clock (CLOCK_MONOTONIC mostly).
    TimerStart {
        timer: u64,
        function: Symbol,
        expires_ns: u64,
    },
    /// `timer:hrtimer_cancel`.
    TimerCancel {
        timer: u64,
    },
    /// `timer:hrtimer_expire_entry`; `now_ns` is on the timer's clock.
    TimerExpire {
        timer: u64,
        function: Symbol,
        now_ns: u64,
    },
    /// `timer:hrtimer_expire_exit`.
    TimerExpireExit {
        timer: u64,
    },
    /// `timer:timer_expire_entry`: a timer of the timer wheel.
    WheelExpire {
        timer: u64,
        function: Symbol,
    },
    /// `timer:timer_expire_exit`.
    WheelExpireExit {
        timer: u64,
    },
    /// `workqueue:workqueue_execute_start`, in the worker.
    WorkBegin {
        work: u64,
        function: Symbol,
    },
    /// `workqueue:workqueue_execute_end`.
    WorkEnd {
        work: u64,
    },
    /// `irq:irq_handler_entry`.
    IrqEntry {
        irq: u32,
        name: Name,
    },
    /// `irq:irq_handler_exit`.
    IrqExit {
        irq: u32,
    },
    /// `irq:softirq_raise`.
    SoftirqRaise {
        vector: u32,
    },
    /// `irq:softirq_entry`.
    SoftirqEntry {
        vector: u32,
    },
    /// `irq:softirq_exit`.
    SoftirqExit {
        vector: u32,
    },
    /// `irq_vectors:*_entry`; `ipi:ipi_entry` on arm64.
    VectorEntry {
        vector: Vector,
    },
    /// `irq_vectors:*_exit`; `ipi:ipi_exit` on arm64.
    VectorExit {
        vector: Vector,
    },
    /// `nmi:nmi_handler`: at its end.
    Nmi {
        handler: Symbol,
        duration_ns: u64,
    },
    /// `ipi:ipi_send_cpu`, `ipi:ipi_send_cpumask` and `ipi:ipi_raise`; `target_cpu` is absent for a mask.
    IpiSend {
        target_cpu: Option<CpuId>,
        call_site: Option<Symbol>,
        callback: Option<Symbol>,
    },
    /// `csd:csd_function_entry`.
    RemoteFunctionEntry {
        function: Symbol,
    },
    /// `csd:csd_function_exit`.
    RemoteFunctionExit {
        function: Symbol,
    },
    /// `exceptions:page_fault_user`, `exceptions:page_fault_kernel`.
    PageFault {
        address: u64,
        instruction: u64,
        user: bool,
    },
    /// `raw_syscalls:sys_enter` (number), `syscalls:sys_enter_*` (name).
    SyscallEnter {
        number: Option<u32>,
        name: Option<Name>,
    },
    /// `raw_syscalls:sys_exit`, `syscalls:sys_exit_*`.
    SyscallExit {
        number: Option<u32>,
        name: Option<Name>,
    },
    /// `power:cpu_idle`; `None` if the CPU leaves idle.
    Idle {
        state: Option<u32>,
    },
    /// `preemptirq:irq_disable`.
    IrqsOff {
        caller: Symbol,
        parent: Symbol,
    },
    /// `preemptirq:irq_enable`.
    IrqsOn {
        caller: Symbol,
        parent: Symbol,
    },
    /// `preemptirq:preempt_disable`.
    PreemptOff {
        caller: Symbol,
        parent: Symbol,
    },
    /// `preemptirq:preempt_enable`.
    PreemptOn {
        caller: Symbol,
        parent: Symbol,
    },
    /// `lock:contention_begin`; `flags` are the kernel's `LCB_F_*`.
    LockWait {
        lock: u64,
        flags: u32,
    },
    /// `lock:contention_end`.
    LockWaitEnd {
        lock: u64,
    },
    /// The function tracer: `function <-caller`.
    Function {
        function: Symbol,
        caller: Symbol,
    },
    /// The function-graph tracer: a function is entered.
    GraphEntry {
        function: Symbol,
        depth: u32,
    },
    /// The function-graph tracer: a function returns (a leaf's entry and exit are one line in text).
    GraphExit {
        function: Symbol,
        depth: u32,
        duration_ns: u64,
    },
    /// A kernel stack; its frames are [`Frames`] of the reader.
    Stack {
        frames: Frames,
    },
    /// `trace_marker`, `trace_printk`, `bprint`, `bputs`; cyclictest's break marker is one of them.
    Print {
        text: Name,
    },
    /// A sample of the hwlat tracer; `wall_ns` is its own time, since 1970.
    Hwlat {
        sequence: u32,
        inner_ns: u64,
        outer_ns: u64,
        count: Option<u32>,
        nmi_ns: Option<u64>,
        nmi_count: Option<u32>,
        wall_ns: Option<u64>,
    },
    /// A sample of the osnoise tracer.
    Osnoise(OsnoiseSample),
    /// A sample of the timerlat tracer.
    Timerlat {
        sequence: u32,
        context: TimerlatContext,
        latency_ns: u64,
    },
    /// `osnoise:*_noise`: noise that the tracer attributed itself; `start_ns` is on the trace's clock.
    Noise {
        source: NoiseSource,
        start_ns: u64,
        duration_ns: u64,
    },
    /// `osnoise:sample_threshold`: a gap that the osnoise tracer saw.
    NoiseGap {
        start_ns: u64,
        duration_ns: u64,
        interference: u32,
    },
    /// Summary line of a latency tracer (`wakeup_rt`, `irqsoff`, …): see the reader's info instead.
    Lost {
        events: Option<u64>,
    },
    Other {
        system: Option<Name>,
        name: Name,
    },
}

/// A stack in the reader's store of stacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Frames(pub u32);

/// The osnoise tracer's line for one period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OsnoiseSample {
    pub runtime_ns: u64,
    /// Sum of the noise.
    pub noise_ns: u64,
    /// Largest single noise.
    pub noise_max_ns: u64,
    /// Number of noises from hardware, NMI, IRQ, softirq and threads.
    pub counts: [u64; 5],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TimerlatContext {
    Irq,
    Thread,
    User,
}

/// What an `osnoise:*_noise` event names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NoiseSource {
    Irq {
        /// Its number or vector.
        vector: i32,
        name: Name,
    },
    Softirq {
        vector: u32,
    },
    Nmi,
    Thread {
        pid: u32,
        command: Name,
    },
}

impl Default for Event {
    /// A loss at time 0: a placeholder that readers overwrite.
    fn default() -> Self {
        Self::lost(0, CpuId(0), 0, None)
    }
}

impl Event {
    /// Events of a CPU were lost.
    pub(crate) fn lost(at_ns: u64, cpu: CpuId, offset: u64, events: Option<u64>) -> Self {
        let (context, kind) = (Context::default(), EventKind::Lost { events });
        Self { at_ns, cpu, pid: None, command: None, context, offset, kind }
    }
}
