//! The catalogue of findings: the name, theme, source, treatment and question of each.

use super::{
    Inquiry, command_line, cpus, graphics, interrupts, isolation, memory, platform, power, rights, system,
};
use whylate_core::result::{Finding, Severity, Theme};
use whylate_core::{Warning, WarningCode};

/// Gives the finding of a code. `None` means "not known" or "does not exist here".
pub(super) type FindingQuestion = fn(&Inquiry, FindingCode) -> Option<Finding>;

/// A row for each finding: its code, theme, source, the treatment that changes it, and the question that gives it.
macro_rules! catalogue {
    ($($name:ident, $theme:ident, $source:expr, $treatment:expr $(=> $question:path)?;)*) => {
        /// What [`preflight`](super::preflight) and [`check`](super::check) can find, and
        /// [`collect`](crate::facts::collect) while reading.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum FindingCode {
            $(#[doc = concat!("[`WarningCode::", stringify!($name), "`].")] $name,)*
        }

        impl FindingCode {
            /// Every code.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The same code in the list of all codes.
            pub const fn warning_code(self) -> WarningCode {
                match self {
                    $(Self::$name => WarningCode::$name,)*
                }
            }

            /// Theme, source, treatment.
            const fn row(self) -> (Theme, &'static str, Option<&'static str>) {
                match self {
                    $(Self::$name => (Theme::$theme, $source, $treatment),)*
                }
            }
        }

        /// Every question, those that change the figures most first.
        pub(super) const QUESTIONS: &[(FindingCode, FindingQuestion)] = &[$($((FindingCode::$name, $question),)?)*];
    };
}

const PARAMETERS: &str = "Documentation/admin-guide/kernel-parameters.txt";
const KTHREADS: &str = "Documentation/admin-guide/kernel-per-CPU-kthreads.rst";
const IRQ_AFFINITY: &str = "Documentation/core-api/irq/irq-affinity.rst";
const CPUIDLE: &str = "Documentation/admin-guide/pm/cpuidle.rst";
const CPUFREQ: &str = "Documentation/admin-guide/pm/cpufreq.rst";
const TIMEKEEPING: &str = "Documentation/virt/kvm/x86/timekeeping.rst";

catalogue! {
    NoRealtimePriority, Rights, "sched(7), limits.conf(5)", None => rights::realtime_priority;
    RtGroupBudget, Rights, "Documentation/scheduler/sched-rt-group.rst", None => rights::group_budget;
    NoMemoryLock, Rights, "mlock(2), getrlimit(2)", None => rights::memory_lock;
    VirtualMachine, Platform, "Abeni and Faggioli, An Experimental Analysis of the Xen and KVM Latencies (ISORC 2019)",
        None => platform::virtual_machine;
    Container, Platform, "Documentation/admin-guide/cgroup-v2.rst", None => platform::container;
    RtThrottling, Kernel, "Documentation/scheduler/sched-rt-group.rst",
        Some("rt-throttling") => system::throttling;
    KernelNotRealtime, Kernel, "Reghenzani, Massari and Fornaciari, The Real-Time Linux Kernel: A Survey on PREEMPT_RT (ACM CSUR 2019)",
        None => system::preemption;
    NotIsolated, Isolation, "Documentation/admin-guide/cgroup-v2.rst, cpuset.cpus.partition",
        Some("shield") => cpus::isolation;
    TickOnTarget, Isolation, "Documentation/timers/no_hz.rst", None => cpus::tick;
    CpuZeroTarget, Isolation, "Documentation/timers/no_hz.rst", None => cpus::first_cpu;
    SmtSiblingOnline, Isolation, "Documentation/admin-guide/hw-vuln/core-scheduling.rst",
        Some("smt-off") => cpus::siblings;
    GovernorNotPerformance, Power, CPUFREQ, Some("governor") => power::governor;
    DeepIdleStates, Power, CPUIDLE, Some("idle") => power::idle_states;
    NoCpuDmaLatency, Rights, "Documentation/power/pm_qos_interface.rst", None => rights::latency_request;
    SlowClock, Platform, TIMEKEEPING, None => platform::clock_source;
    CounterNotInvariant, Platform, TIMEKEEPING, None => platform::counter;
    MixedCoreKinds, Isolation, "Documentation/scheduler/sched-capacity.rst", None => cpus::kinds;
    NoCacheSizes, Memory, "Documentation/ABI/testing/sysfs-devices-system-cpu", None => memory::cache_sizes;
    NoTracefs, Rights, "Documentation/trace/ftrace.rst", None => rights::tracing;
    HugePagesAlways, Memory, "Documentation/admin-guide/mm/transhuge.rst",
        Some("thp") => memory::huge_pages;
    SwapOn, Memory, "swapon(8), mlock(2)", None => memory::swap;
    NumaBalancing, Memory, "Documentation/admin-guide/sysctl/kernel.rst",
        Some("numa-balancing") => memory::numa_balancing;
    WatchdogOn, Kernel, "Documentation/admin-guide/lockup-watchdogs.rst",
        Some("watchdog") => system::watchdog;
    DebugOptions, Kernel, PARAMETERS, None => system::debug_options;
    Mitigations, Kernel, "Documentation/admin-guide/hw-vuln/index.rst", None => system::mitigations;
    KernelTainted, Kernel, "Documentation/admin-guide/tainted-kernels.rst", None => system::taint;
    GpuRuntimePower, Graphics, "Documentation/power/runtime_pm.rst",
        Some("gpu-power") => graphics::runtime_power;
    // From here on they need the running machine.
    StealTime, Platform, "proc(5), /proc/stat", None => platform::steal;
    CpuQuota, Platform, "Documentation/scheduler/sched-bwc.rst", None => platform::quota;
    FirmwareInterrupts, Platform, "Documentation/trace/hwlat_detector.rst", None => platform::firmware;
    Microcode, Platform, "Documentation/arch/x86/microcode.rst", None => platform::microcode;
    BootOptions, Kernel, PARAMETERS, None => system::boot_options;
    BootOptionUnknown, Kernel, PARAMETERS, None => command_line::unknown;
    BootOptionWithoutEffect, Kernel, PARAMETERS, None => command_line::without_effect;
    BootOptionsContradict, Kernel, PARAMETERS, None => command_line::contradictions;
    PollingPrograms, Isolation, "msr(4), arch/x86/kernel/msr.c: rdmsr_safe_on_cpu", None => command_line::pollers;
    PulledTimers, Isolation, "kernel/time/timer_migration.c", None => command_line::pulled_timers;
    FirmwareCalls, Platform, PARAMETERS, None => command_line::firmware_calls;
    PressureAccounting, Kernel, "Documentation/accounting/psi.rst", None => command_line::pressure;
    IdleExitsDoubtful, Power, CPUIDLE, None => power::doubtful_exits;
    PinnedThreads, Isolation, KTHREADS, None => isolation::pinned_threads;
    RcuCallbacks, Isolation, KTHREADS, Some("shield") => isolation::rcu_callbacks;
    WorkqueueMask, Isolation, "Documentation/core-api/workqueue.rst",
        Some("shield") => isolation::workqueues;
    VmstatInterval, Isolation, "Documentation/admin-guide/sysctl/vm.rst",
        Some("shield") => isolation::vmstat;
    TimersOnTarget, Isolation, KTHREADS, None => isolation::timers;
    InterruptsOnTarget, Interrupts, IRQ_AFFINITY, Some("irq-affinity") => interrupts::movable;
    ManagedInterrupts, Interrupts, PARAMETERS, None => interrupts::managed;
    DefaultIrqAffinity, Interrupts, IRQ_AFFINITY, Some("irq-affinity") => interrupts::later;
    IrqBalance, Interrupts, "irqbalance(1)", Some("irq-affinity") => interrupts::irqbalance;
    FrequencyRange, Power, CPUFREQ, Some("governor") => power::frequency_range;
    Turbo, Power, "Documentation/admin-guide/pm/intel_pstate.rst", Some("governor") => power::turbo;
    CacheShared, Memory, "Documentation/filesystems/resctrl.rst",
        Some("cache-partition") => memory::shared_cache;
    PageMerging, Memory, "Documentation/admin-guide/mm/ksm.rst", Some("ksm") => memory::page_merging;
    GpuFrequency, Graphics, "Documentation/gpu/amdgpu/thermal.rst, Documentation/gpu/i915.rst",
        Some("gpu-power") => graphics::frequency;
    GpuInUse, Graphics, "Documentation/gpu/drm-usage-stats.rst", Some("irq-affinity") => graphics::in_use;
    GpuDriverOptions, Graphics, "modinfo(8) of i915 and amdgpu, README of the NVIDIA driver (Dynamic Power Management)",
        Some("module-parameter") => graphics::driver_options;
    MatroxWriteCombining, Graphics, "drivers/gpu/drm/mgag200/Kconfig, DRM_MGAG200_DISABLE_WRITECOMBINE",
        None => graphics::matrox;
    NvidiaOnRealtime, Graphics, "README of open-gpu-kernel-modules (IGNORE_PREEMPT_RT_PRESENCE)",
        None => graphics::nvidia;
    // Codes without a question of their own.
    RealtimePriorityLimited, Rights, "sched(7), limits.conf(5)", None;
    KernelLockdown, Kernel, "kernel_lockdown(7)", None;
    FactUnreadable, Platform, "proc(5), sysfs(5)", None;
    KernelLog, Kernel, "dmesg(1); whylate explain --why CODE", None;
}

impl FindingCode {
    /// The stable name that scripts see in [`Finding::id`] and [`Warning::code`].
    pub const fn code(self) -> &'static str {
        self.warning_code().name()
    }

    /// The treatment that changes it, by kind.
    pub const fn treatment(self) -> Option<&'static str> {
        self.row().2
    }

    /// A finding that recommends a change, or is worth knowing.
    pub(super) fn found(self, severity: Severity, text: impl Into<String>) -> Finding {
        let (theme, source, treatment) = self.row();
        Finding {
            id: self.code().to_owned(),
            theme,
            severity,
            text: text.into(),
            effect: None,
            evidence: Vec::new(),
            source: Some(source.to_owned()),
            fix_now: None,
            fix_boot: None,
            treatment: treatment.map(str::to_owned),
        }
    }

    /// [`Severity::Serious`].
    pub(super) fn serious(self, text: impl Into<String>) -> Finding {
        self.found(Severity::Serious, text)
    }

    /// [`Severity::Advice`].
    pub(super) fn advice(self, text: impl Into<String>) -> Finding {
        self.found(Severity::Advice, text)
    }

    /// [`Severity::Info`].
    pub(super) fn info(self, text: impl Into<String>) -> Finding {
        self.found(Severity::Info, text)
    }

    /// All is well: nothing needs a change.
    pub(super) fn fine(self, text: impl Into<String>) -> Finding {
        Finding { source: None, treatment: None, ..self.found(Severity::Ok, text) }
    }

    /// The same, with its evidence.
    pub(super) fn well(
        self,
        text: impl Into<String>,
        path: impl Into<String>,
        value: impl Into<String>,
    ) -> Option<Finding> {
        Some(self.fine(text).seen(path, value))
    }

    pub(in crate::facts) fn warning(self, text: impl Into<String>, fix: impl Into<String>) -> Warning {
        Warning::with_fix(self.warning_code(), text, fix)
    }

    pub(in crate::facts) fn warning_without_fix(self, text: impl Into<String>) -> Warning {
        Warning::new(self.warning_code(), text)
    }
}
