//! What one stored interval of a probe or a load holds: the rows of the run directory's tables.
//!
//! Moments (`*_at_ns`, `start_ns`, `end_ns`) are CLOCK_MONOTONIC nanoseconds of the measured machine.

use crate::quantity::{Quantities, Quantity, Valued};
use crate::result::{Cause, CauseKind, HwlatSample};
use crate::units::CpuId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What one probe saw on one CPU in one stored interval.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Interval {
    /// The measured CPU.
    pub cpu: CpuId,
    /// Start of the interval.
    pub start_ns: u64,
    /// End of the interval.
    pub end_ns: u64,
    /// The series of the probe, or `SERIES/PART` for a part of its samples: `futex`, `futex/there`; absent for probes
    /// with one series.
    pub series: Option<String>,
    /// Samples in the interval (timer: periods that ran; stall: loop turns).
    pub samples: u64,
    /// Sum of the samples' values; `sum_ns / samples` is the exact mean.
    pub sum_ns: u64,
    /// Smallest sample, exact; absent without samples.
    pub min_ns: Option<u64>,
    /// Largest sample, exact; absent without samples.
    pub max_ns: Option<u64>,
    /// What else the probe reports.
    #[serde(flatten)]
    pub quantities: Quantities,
    /// Spike records that did not fit the buffer between two reads; always counted.
    #[serde(default)]
    pub spikes_dropped: u64,
    /// `[lower edge in ns, count]` of every bucket with samples, ascending.
    pub histogram: Vec<(u64, u64)>,
}

impl Interval {
    pub fn get<T: Valued + Copy>(&self, quantity: Quantity<T>) -> Option<T> {
        self.quantities.get(quantity)
    }
}

/// One moment above the threshold, as recorded by the measuring thread.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SpikeRecord {
    /// The measured CPU.
    pub cpu: CpuId,
    /// The series of the probe; absent for probes with one series.
    pub series: Option<String>,
    /// End of the spike: the moment at which the task ran again.
    pub at_ns: u64,
    /// How late the task was, or how long the gap was.
    pub latency_ns: u64,
    /// Number of the sample (timer: period number, missed ones included; stall: number of the gap), from 0.
    pub sample: u64,
    /// The CPU on which a watched thread was at the end of the spike, if it is not `cpu`.
    pub ended_on: Option<CpuId>,
}

impl SpikeRecord {
    /// Whose spike it is, with nothing else.
    pub fn of(cpu: CpuId, series: Option<String>) -> Self {
        Self { cpu, series, ..Self::default() }
    }
}

/// One sample of the hwlat tracer, whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HwlatRecord {
    /// The CPU on which the tracer looked.
    pub cpu: CpuId,
    /// End of the window, when the tracer wrote the line. A spike with this CPU and moment is this sample.
    pub at_ns: u64,
    /// As the tracer recorded it.
    #[serde(flatten)]
    pub sample: HwlatSample,
}

/// The rate that a load achieved over one interval.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RateRecord {
    /// End of the interval.
    pub at_ns: u64,
    /// Length of the interval.
    pub interval_ns: u64,
    /// Mean rate over the interval, in the load's unit.
    pub value: f64,
}

/// One figure of a graphics device at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GpuRecord {
    /// `card0`, or the PCI address of a device without a card.
    pub device: String,
    /// Name of the figure, with its unit: `memory_bytes`, `busy_percent/render` (for one kind of engine), ….
    pub quantity: String,
    /// When the figure was read.
    pub at_ns: u64,
    /// Time since the figure was last read, to which shares of time refer; 0 the first time.
    pub interval_ns: u64,
    /// The figure.
    pub value: f64,
}

/// How often one interrupt line or softirq vector was handled on one CPU.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InterruptRecord {
    /// The CPU that handled the interrupt.
    pub cpu: CpuId,
    /// `24`, `LOC`, `CAL` from /proc/interrupts, or `softirq:TIMER` from /proc/softirqs.
    pub line: String,
    /// The rest of the line in /proc/interrupts: chip and devices.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Number of these interrupts in the interval.
    pub count: u64,
}

/// How often one CPU interrupted another CPU to run one function.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct IpiRecord {
    /// The CPU that was interrupted.
    pub cpu: CpuId,
    /// The function that this CPU ran: `do_flush_tlb_all`; for interrupts without one `reschedule`, `irq_work`, …
    pub function: String,
    /// The kernel function that sent the interrupt; absent if the kernel does not report it.
    pub caller: Option<String>,
    /// The CPU that sent the interrupt; absent if the kernel does not report it.
    pub from_cpu: Option<CpuId>,
    /// Name of the thread that sent the interrupt; absent if the kernel does not report it. `whylate itself`: the
    /// measurement sent the interrupt, for example to read a counter of the CPU.
    pub from_task: Option<String>,
    /// Kernel stack of the sender at the first of these interrupts, innermost function first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stack: Vec<String>,
    /// Number of these interrupts in the interval.
    pub count: u64,
}

/// What one source took from a loop that never sleeps.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SourceRecord {
    /// The measured CPU.
    pub cpu: CpuId,
    /// The kind of source.
    pub kind: CauseKind,
    /// Who took the time: a thread's name, an interrupt's line and devices, or a softirq vector.
    pub actor: Option<String>,
    /// The kernel function, if it is known.
    pub function: Option<String>,
    /// Gaps in which the source had the CPU.
    pub gaps: u64,
    /// The time that the source had the CPU in all gaps.
    pub total_ns: u64,
    /// The longest time that the source had the CPU in one gap.
    pub max_ns: u64,
}

/// How samples of one bucket of the histogram become the machine's own latency: what the hypervisor or the firmware
/// took of them is subtracted. A row without counts says that samples were checked.
#[serde_with::skip_serializing_none]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OwnRecord {
    /// The measured CPU.
    pub cpu: CpuId,
    /// Lower edge of the bucket.
    pub lower_ns: u64,
    /// Samples that leave it.
    pub removed: u64,
    /// Samples that move into it.
    pub added: u64,
    /// The largest of those that move into it.
    pub max_ns: Option<u64>,
    /// The sum that is subtracted from those that leave.
    pub taken_ns: u64,
}

/// What one thread of the user did in one stored interval.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TaskRecord {
    /// The CPU under which the thread is listed: the CPU on which it was first seen.
    pub cpu: CpuId,
    /// The thread's series: its name, with a number if several threads have the same name.
    pub series: Option<String>,
    /// The thread id.
    pub thread: u32,
    /// The process id.
    pub process: u32,
    /// The thread's name.
    pub command: String,
    /// The thread's priority as tools print it: 1 to 99 real time, 100 deadline, below 0 ordinary tasks.
    pub priority: i32,
    /// How long the thread ran in its activations.
    pub run_ns: u64,
    /// How long the thread was preempted in the middle of an activation.
    pub preempted_ns: u64,
    /// How long the thread slept in the middle of an activation: for a lock, a page or a disk.
    pub blocked_ns: u64,
    /// How long the thread's control group had no CPU time left.
    pub quota_ns: u64,
    /// How often the thread migrated to another CPU.
    pub migrations: u64,
    /// Page faults of the thread.
    pub faults: u64,
    /// Activations whose instructions were counted; absent without counters, like the sums over these activations.
    pub counted: Option<u64>,
    /// Instructions that the CPUs executed while the thread ran in counted activations.
    pub instructions: Option<u64>,
    /// Cycles of the CPUs' clocks in the same time; absent if an activation's cycles were not counted.
    pub cycles: Option<u64>,
    /// Cache misses in the same time; absent if an activation's misses were not counted.
    pub cache_misses: Option<u64>,
    /// The system call in which the thread waits for its next activation; absent if it is not known.
    pub sleeps_in: Option<String>,
    /// Who woke the thread last: `timer`, `an interrupt`, or the name of a thread.
    pub woken_by: Option<String>,
}

impl TaskRecord {
    /// How an ordinary thread gets a real-time priority; `None` if it has one.
    pub fn real_time_advice(&self) -> Option<String> {
        let (name, thread) = (&self.command, self.thread);
        (self.priority <= 0).then(|| {
            format!(
                "`chrt -f -p 50 {thread}` gives {name} a real-time priority while it runs, and `chrt -f 50 COMMAND` starts it with one; \
                 this needs sudo, or an `rtprio` limit of at least 50 (`whylate check` says how). The thread must sleep in each \
                 period"
            )
        })
    }

    /// Adds what a later interval says of the same thread: times and counts add up.
    pub fn add(&mut self, later: Self) {
        let sum = |one: u64, other: u64| one.saturating_add(other);
        let either =
            |one: Option<u64>, other: Option<u64>| one.map(|it| sum(it, other.unwrap_or(0))).or(other);
        // Without one of them, a sum of the others would be divided by too many activations.
        let is_only_one = [self.counted, later.counted].contains(&None);
        let both = |one: Option<u64>, other: Option<u64>| match is_only_one {
            true => one.or(other),
            false => Some(sum(one?, other?)),
        };
        *self = Self {
            run_ns: sum(self.run_ns, later.run_ns),
            preempted_ns: sum(self.preempted_ns, later.preempted_ns),
            blocked_ns: sum(self.blocked_ns, later.blocked_ns),
            quota_ns: sum(self.quota_ns, later.quota_ns),
            migrations: sum(self.migrations, later.migrations),
            faults: sum(self.faults, later.faults),
            counted: either(self.counted, later.counted),
            instructions: either(self.instructions, later.instructions),
            cycles: both(self.cycles, later.cycles),
            cache_misses: both(self.cache_misses, later.cache_misses),
            sleeps_in: later.sleeps_in.or_else(|| self.sleeps_in.take()),
            woken_by: later.woken_by.or_else(|| self.woken_by.take()),
            ..later
        };
    }
}

/// Who made one spike late.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SpikeCauses {
    /// The measured CPU.
    pub cpu: CpuId,
    /// The series of the probe that saw the spike; absent for probes with one series.
    pub series: Option<String>,
    /// When the spike ended.
    pub at_ns: u64,
    /// How late the task was, or how long the gap was.
    pub latency_ns: u64,
    /// The contributors, largest share first.
    pub causes: Vec<Cause>,
    /// Records of what the kernel did that were lost in the spike's window.
    #[serde(default)]
    pub lost: u64,
}

/// What the kernel's counters say of one CPU over one interval.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CounterRecord {
    /// The CPU.
    pub cpu: CpuId,
    /// Time in which the hypervisor ran something else (steal time from /proc/stat, in clock ticks); absent if the
    /// kernel does not count it.
    pub steal_ns: Option<u64>,
    /// System-management interrupts; absent if no counter can be read.
    pub smis: Option<u64>,
    /// Involuntary context switches of the measuring thread.
    pub involuntary_switches: Option<u64>,
    /// Page faults of the measuring thread after its preparation.
    pub page_faults: Option<u64>,
    /// Wake-ups of the measuring thread by its timer that the BPF programs saw while samples counted; absent without
    /// causes from BPF programs. Compare with the probe's `samples`.
    pub wakeups_seen: Option<u64>,
}
