//! What a machine lacks for real-time work: each finding with its effect on the figures and its remedy.
//!
//! Findings follow from the facts alone, so they can be redone from a result on any machine. They are statements
//! about settings, not measurements: a machine with many of them may still be fast enough, and only a run shows
//! it. Numbers in the texts are the machine's own, or have their source beside the code.

mod cpus;
mod rights;
mod system;

use whylate_core::Facts;
use whylate_core::cpus::CpuSet;
use whylate_core::warning::Warning;

/// What [`preflight`] can find in the facts, and [`collect`](super::collect) while reading them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Finding {
    /// No real-time priority may be set.
    NoRealtimePriority,
    /// Only real-time priorities below the probes' default may be set.
    RealtimePriorityLimited,
    /// RT_GROUP_SCHED gives this process's group no real-time budget, or less than a period.
    RtGroupBudget,
    /// Little memory may be locked.
    NoMemoryLock,
    /// Deep idle states cannot be kept off through `/dev/cpu_dma_latency`.
    NoCpuDmaLatency,
    /// tracefs cannot be written.
    NoTracefs,
    /// The machine is a virtual one.
    VirtualMachine,
    /// The process runs in a container.
    Container,
    /// A target shares its core with an online CPU.
    SmtSiblingOnline,
    /// A target is open to all other tasks.
    NotIsolated,
    /// An isolated target keeps its periodic tick.
    TickOnTarget,
    /// CPU 0 is a target.
    CpuZeroTarget,
    /// A target's frequency follows its load.
    GovernorNotPerformance,
    /// A target may enter idle states that take long to leave.
    DeepIdleStates,
    /// The targets are different kinds of core.
    MixedCoreKinds,
    /// A target reports no cache sizes.
    NoCacheSizes,
    /// The kernel is not PREEMPT_RT.
    KernelNotRealtime,
    /// Real-time loops that never sleep are stopped now and then.
    RtThrottling,
    /// The clock is slow to read, or may be.
    SlowClock,
    /// The time-stamp counter is not invariant.
    CounterNotInvariant,
    /// Transparent huge pages are `always`.
    HugePagesAlways,
    /// Swap is on.
    SwapOn,
    /// NUMA balancing is on.
    NumaBalancing,
    /// The lockup watchdogs run on a target.
    WatchdogOn,
    /// The kernel was booted with debugging options.
    DebugOptions,
    /// Mitigations of processor vulnerabilities are on.
    Mitigations,
    /// The kernel is tainted in a way that may change its timing.
    KernelTainted,
    /// A graphics device may be powered down while measuring.
    GpuRuntimePower,
    /// The kernel is locked down so far that tracing is refused (found by `collect`).
    KernelLockdown,
    /// A file is there but could not be read or understood (found by `collect`).
    FactUnreadable,
}

impl Finding {
    /// The stable name that scripts see in [`Warning::code`].
    pub const fn code(self) -> &'static str {
        match self {
            Self::NoRealtimePriority => "no-realtime-priority",
            Self::RealtimePriorityLimited => "realtime-priority-limited",
            Self::RtGroupBudget => "rt-group-budget",
            Self::NoMemoryLock => "no-memory-lock",
            Self::NoCpuDmaLatency => "no-cpu-dma-latency",
            Self::NoTracefs => "no-tracefs",
            Self::VirtualMachine => "virtual-machine",
            Self::Container => "container",
            Self::SmtSiblingOnline => "smt-sibling-online",
            Self::NotIsolated => "not-isolated",
            Self::TickOnTarget => "tick-on-target",
            Self::CpuZeroTarget => "cpu-0-target",
            Self::GovernorNotPerformance => "governor-not-performance",
            Self::DeepIdleStates => "deep-idle-states",
            Self::MixedCoreKinds => "mixed-core-kinds",
            Self::NoCacheSizes => "no-cache-sizes",
            Self::KernelNotRealtime => "kernel-not-realtime",
            Self::RtThrottling => "rt-throttling",
            Self::SlowClock => "slow-clock",
            Self::CounterNotInvariant => "counter-not-invariant",
            Self::HugePagesAlways => "huge-pages-always",
            Self::SwapOn => "swap-on",
            Self::NumaBalancing => "numa-balancing",
            Self::WatchdogOn => "watchdog-on",
            Self::DebugOptions => "debug-options",
            Self::Mitigations => "mitigations",
            Self::KernelTainted => "kernel-tainted",
            Self::GpuRuntimePower => "gpu-runtime-power",
            Self::KernelLockdown => "kernel-lockdown",
            Self::FactUnreadable => "fact-unreadable",
        }
    }

    pub(super) fn warning(self, text: impl Into<String>, fix: impl Into<String>) -> Warning {
        Warning::new(self.code(), text, fix)
    }

    pub(super) fn warning_without_fix(self, text: impl Into<String>) -> Warning {
        Warning::without_fix(self.code(), text)
    }
}

/// One question about a machine and the CPUs to be measured on it.
type Check = fn(&Facts, &CpuSet) -> Option<Warning>;

/// Every check, the ones that change the figures most first.
const CHECKS: &[Check] = &[
    rights::realtime_priority,
    rights::group_budget,
    rights::memory_lock,
    system::virtual_machine,
    system::container,
    system::throttling,
    system::preemption,
    cpus::isolation,
    cpus::tick,
    cpus::first_cpu,
    cpus::siblings,
    cpus::governor,
    cpus::idle_states,
    rights::latency_request,
    system::clock_source,
    system::counter,
    cpus::kinds,
    cpus::cache_sizes,
    rights::tracing,
    system::huge_pages,
    system::swap,
    system::numa_balancing,
    system::watchdog,
    system::debug_options,
    system::mitigations,
    system::taint,
    system::gpu_power,
];

/// What the machine of `facts` lacks for measuring a real-time task on `targets`, the most important first.
///
/// Each code occurs at most once. Nothing is found for a fact that is absent.
pub fn preflight(facts: &Facts, targets: &CpuSet) -> Vec<Warning> {
    CHECKS.iter().filter_map(|check| check(facts, targets)).collect()
}

/// `CPU 3`, `CPUs 3-5`.
fn named(cpus: &CpuSet) -> String {
    format!("CPU{} {cpus}", if cpus.len() == 1 { "" } else { "s" })
}

/// `one` for a single CPU, `many` for several: the verb behind [`named`].
fn verb<'a>(cpus: &CpuSet, one: &'a str, many: &'a str) -> &'a str {
    if cpus.len() == 1 { one } else { many }
}
