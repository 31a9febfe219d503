//! What is planted for the corpus, on which machine, and what has to be found: the table behind `fixtures/traces/planted`.

use crate::machine::Profile;

#[derive(Clone, Copy, Debug)]
pub(super) enum Planter {
    /// A command of plant.ko; `LENGTH` stands for the length.
    Module(&'static str),
    /// A shell command that prints what it did; `MS` and `US` stand for the length.
    Program(&'static str),
    /// The whole machine is stopped from outside, which the shell command in the guest sees.
    Freeze(&'static str),
    /// Something that delays no task, or nothing at all: a shell command.
    Nothing(&'static str),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Recording {
    /// The events of the light profile, and the stack that each timer interrupt found: as `trace.dat` and as the kernel's
    /// own text.
    Events,
    /// The same events without stacks, and functions: as `trace.dat`.
    Functions,
}

impl Recording {
    pub(super) const ALL: [Self; 2] = [Self::Events, Self::Functions];

    /// Endings of its files, before that of the packing.
    pub(super) fn endings(self) -> &'static [&'static str] {
        match self {
            Self::Events => &["dat", "txt"],
            Self::Functions => &["dat"],
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Events => "events",
            Self::Functions => "functions",
        }
    }
}

/// What names the function that took the time.
#[derive(Clone, Copy, Debug)]
pub(super) enum Function {
    /// No recording does, or there is no such function.
    Never,
    Traced(&'static str),
    /// Every recording: an event, or the stack that the late timer interrupt found.
    Always(&'static str),
}

/// A planted cause and its right answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Recipe {
    pub(super) name: &'static str,
    /// What is done, in a sentence, for the reader of the answer.
    pub(super) what: &'static str,
    pub(super) profile: Profile,
    pub(super) cpu: u32,
    /// Shell commands before anything is recorded.
    pub(super) prepare: &'static str,
    /// The measured cyclictest's priority; `None` without one.
    pub(super) priority: Option<u8>,
    pub(super) planter: Planter,
    /// Whether the stack of each timer interrupt is recorded, which takes an emulated CPU longer than some interrupts do.
    pub(super) stacks: bool,
    /// One for each recording.
    pub(super) lengths_us: [u64; 2],
    /// Whose spikes are looked for, if explain gets a task.
    pub(super) task: Option<&'static str>,
    /// The kind of cause; `None` if nothing is planted.
    pub(super) kind: Option<&'static str>,
    /// `IRQ_THREAD` stands for the thread of the planted interrupt.
    pub(super) actor: Option<&'static str>,
    pub(super) function: Function,
}

const COUNTED: Recipe = Recipe {
    name: "",
    what: "",
    profile: Profile::Counted,
    cpu: 0,
    prepare: "",
    priority: Some(80),
    planter: Planter::Nothing(""),
    stacks: true,
    lengths_us: [1_500, 4_000],
    task: None,
    kind: None,
    actor: None,
    function: Function::Never,
};

/// If a host may stop a CPU for long, a cause has to last longer.
const PAIR: Recipe = Recipe { profile: Profile::Threads, cpu: 1, lengths_us: [150_000, 220_000], ..COUNTED };

pub(super) const RECIPES: &[Recipe] = &[
    Recipe {
        name: "irqs-off",
        what: "a kernel thread disables interrupts",
        planter: Planter::Module("irq-off LENGTH cpu=0 after=20ms"),
        kind: Some("irqs_off"),
        actor: Some("plant-irq-off"),
        function: Function::Always("plant_irq_off_stall"),
        ..COUNTED
    },
    Recipe {
        name: "preempt-off",
        what: "a kernel thread disables preemption",
        planter: Planter::Module("preempt-off LENGTH cpu=0 after=20ms"),
        kind: Some("preempt_off"),
        actor: Some("plant-preempt-o"),
        // Interrupts come all the time; whether one hits the function itself is chance.
        function: Function::Traced("plant_preempt_off_stall"),
        ..COUNTED
    },
    Recipe {
        name: "rt-thread",
        what: "a thread of higher priority (98) computes",
        planter: Planter::Module("rt-thread LENGTH cpu=0 after=20ms"),
        kind: Some("thread"),
        actor: Some("plant-rt-thread"),
        function: Function::Traced("plant_rt_thread_stall"),
        ..COUNTED
    },
    Recipe {
        name: "irq-thread",
        what: "an interrupt comes each 400 us, and its thread (priority 50) takes 300 us each time",
        priority: Some(40),
        planter: Planter::Module("irq-thread LENGTH cpu=0 after=20ms"),
        stacks: false,
        lengths_us: [10_000, 15_000],
        kind: Some("thread"),
        actor: Some("IRQ_THREAD"),
        function: Function::Traced("plant_irq_thread_stall"),
        ..COUNTED
    },
    Recipe {
        name: "hard-irq",
        what: "a handler in the timer interrupt takes long",
        planter: Planter::Module("hard-irq LENGTH cpu=0 after=20ms"),
        kind: Some("irq"),
        actor: Some("local timer"),
        function: Function::Always("plant_hard_irq_stall"),
        ..COUNTED
    },
    Recipe {
        name: "softirq",
        what: "a tasklet takes long; where softirqs run in threads, ksoftirqd has been given priority 60",
        // Threaded softirqs belong to a thread that all others may preempt.
        prepare: "[ ! -e /sys/kernel/realtime ] || chrt -f -p 60 $(pgrep -x ksoftirqd/0)",
        priority: Some(40),
        planter: Planter::Module("softirq LENGTH cpu=0 after=20ms"),
        kind: Some("softirq"),
        actor: Some("TASKLET softirq"),
        function: Function::Traced("plant_softirq_stall"),
        ..COUNTED
    },
    Recipe {
        name: "priority-inversion",
        what: "a thread of priority 1 holds an rt_mutex that a thread of priority 98 waits for",
        planter: Planter::Module("rt-mutex LENGTH cpu=0 after=20ms"),
        task: Some("plant-rt-mutex"),
        kind: Some("lock"),
        actor: Some("plant-owner"),
        function: Function::Traced("plant_rt_mutex_owner"),
        ..COUNTED
    },
    Recipe {
        name: "boosted-owner",
        what: "a thread of priority 1 holds an rt_mutex and was lent priority 98, above the measured task's",
        planter: Planter::Module("rt-mutex LENGTH cpu=0 after=20ms"),
        task: Some("cyclictest"),
        kind: Some("thread"),
        actor: Some("plant-owner"),
        function: Function::Traced("plant_rt_mutex_owner"),
        ..COUNTED
    },
    Recipe {
        name: "page-fault",
        what: "the task touches a page that another process provides after a while",
        priority: None,
        planter: Planter::Program("/lab/page-fault 0 US"),
        task: Some("page-fault"),
        kind: Some("page_fault"),
        ..COUNTED
    },
    Recipe {
        name: "throttled",
        what: "a SCHED_FIFO thread never sleeps: the kernel throttles all real-time tasks of the CPU",
        priority: Some(98),
        prepare: "sysctl -q kernel.sched_rt_runtime_us=$((1000000 - US))",
        planter: Planter::Program("/lab/throttle 0 2200"),
        lengths_us: [20_000, 50_000],
        kind: Some("throttled"),
        ..COUNTED
    },
    Recipe {
        name: "timer-late",
        what: "the hardware timer of an idle CPU is set later than the kernel asked for",
        planter: Planter::Module("timer-late LENGTH cpu=0 after=20ms"),
        kind: Some("timer_late"),
        ..COUNTED
    },
    Recipe {
        name: "raw-spinlock",
        what: "a kernel thread spins, with interrupts disabled, for a raw spinlock that another CPU holds",
        planter: Planter::Module("raw-spinlock LENGTH cpu=1 from=0 after=20ms"),
        kind: Some("irqs_off"),
        actor: Some("plant-raw-spinl"),
        function: Function::Always("plant_raw_spinlock_stall"),
        ..PAIR
    },
    Recipe {
        name: "ipi",
        what: "another CPU has a function called on this one",
        planter: Planter::Module("ipi LENGTH cpu=1 from=0 after=20ms"),
        kind: Some("ipi"),
        function: Function::Traced("plant_ipi_stall"),
        ..PAIR
    },
    Recipe {
        name: "stopped",
        what: "the whole virtual machine is stopped, as firmware would do it",
        planter: Planter::Freeze("/lab/gaps 0 2500 100"),
        kind: Some("hardware"),
        ..PAIR
    },
    Recipe {
        name: "nothing-alone",
        what: "nothing is planted: cyclictest is alone",
        planter: Planter::Nothing("sleep 0.05"),
        ..COUNTED
    },
    Recipe {
        name: "nothing-below",
        what: "nothing is planted that delays: a thread of lower priority computes",
        // In user mode: in the plain kernel, a thread in the kernel is not preempted.
        planter: Planter::Nothing("chrt -f 30 sh -c 'i=0; while [ $i -lt 4000 ]; do i=$((i + 1)); done'"),
        ..COUNTED
    },
    Recipe {
        name: "nothing-busy",
        what: "nothing is planted that delays: an ordinary process computes",
        planter: Planter::Nothing("sh -c 'i=0; while [ $i -lt 4000 ]; do i=$((i + 1)); done'"),
        ..COUNTED
    },
];
