//! The catalogue of findings: the name, theme, source and treatment of each.

use whylate_core::result::{Finding, Severity, Theme};
use whylate_core::warning::Warning;

macro_rules! catalogue {
    ($($(#[$doc:meta])* $name:ident, $id:literal, $theme:ident, $source:expr, $treatment:expr;)*) => {
        /// What [`preflight`](super::preflight) and [`check`](super::check) can find, and
        /// [`collect`](crate::facts::collect) while reading.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum FindingCode {
            $($(#[$doc])* $name,)*
        }

        impl FindingCode {
            /// Every code.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The stable name that scripts see in [`Finding::id`] and [`Warning::code`].
            pub const fn code(self) -> &'static str {
                match self {
                    $(Self::$name => $id,)*
                }
            }

            const fn theme(self) -> Theme {
                match self {
                    $(Self::$name => Theme::$theme,)*
                }
            }

            const fn source(self) -> &'static str {
                match self {
                    $(Self::$name => $source,)*
                }
            }

            /// The treatment that changes it, by kind.
            pub const fn treatment(self) -> Option<&'static str> {
                match self {
                    $(Self::$name => $treatment,)*
                }
            }
        }
    };
}

const PARAMETERS: &str = "Documentation/admin-guide/kernel-parameters.txt";
const KTHREADS: &str = "Documentation/admin-guide/kernel-per-CPU-kthreads.rst";
const IRQ_AFFINITY: &str = "Documentation/core-api/irq/irq-affinity.rst";
const CPUIDLE: &str = "Documentation/admin-guide/pm/cpuidle.rst";
const CPUFREQ: &str = "Documentation/admin-guide/pm/cpufreq.rst";
const TIMEKEEPING: &str = "Documentation/virt/kvm/x86/timekeeping.rst";

catalogue! {
    /// No real-time priority may be set.
    NoRealtimePriority, "no-realtime-priority", Rights, "sched(7), limits.conf(5)", None;
    /// Only real-time priorities below the probes' default may be set.
    RealtimePriorityLimited, "realtime-priority-limited", Rights, "sched(7), limits.conf(5)", None;
    /// RT_GROUP_SCHED gives this process's group no real-time budget, or less than a period.
    RtGroupBudget, "rt-group-budget", Rights, "Documentation/scheduler/sched-rt-group.rst", None;
    /// Little memory may be locked.
    NoMemoryLock, "no-memory-lock", Rights, "mlock(2), getrlimit(2)", None;
    /// Deep idle states cannot be kept off through `/dev/cpu_dma_latency`.
    NoCpuDmaLatency, "no-cpu-dma-latency", Rights, "Documentation/power/pm_qos_interface.rst", None;
    /// tracefs cannot be written.
    NoTracefs, "no-tracefs", Rights, "Documentation/trace/ftrace.rst", None;
    /// The machine is a virtual one.
    VirtualMachine, "virtual-machine", Platform,
        "Abeni and Faggioli, An Experimental Analysis of the Xen and KVM Latencies (ISORC 2019)", None;
    /// The hypervisor ran something else on a target.
    StealTime, "steal-time", Platform, "proc(5), /proc/stat", None;
    /// The process runs in a container.
    Container, "container", Platform, "Documentation/admin-guide/cgroup-v2.rst", None;
    /// A CPU quota stops the tasks of this process's group.
    CpuQuota, "cpu-quota", Platform, "Documentation/scheduler/sched-bwc.rst", None;
    /// The firmware has interrupted the machine.
    FirmwareInterrupts, "firmware-interrupts", Platform, "Documentation/trace/hwlat_detector.rst", None;
    /// Which microcode the processor runs.
    Microcode, "microcode", Platform, "Documentation/arch/x86/microcode.rst", None;
    /// The clock is slow to read, or may be.
    SlowClock, "slow-clock", Platform, TIMEKEEPING, None;
    /// The time-stamp counter is not invariant.
    CounterNotInvariant, "counter-not-invariant", Platform, TIMEKEEPING, None;
    /// The kernel is not PREEMPT_RT.
    KernelNotRealtime, "kernel-not-realtime", Kernel,
        "Reghenzani, Massari and Fornaciari, The Real-Time Linux Kernel: A Survey on PREEMPT_RT (ACM CSUR 2019)", None;
    /// Real-time loops that never sleep are stopped now and then.
    RtThrottling, "rt-throttling", Kernel, "Documentation/scheduler/sched-rt-group.rst", Some("rt-throttling");
    /// Options of the command line that matter to latency.
    BootOptions, "boot-options", Kernel, PARAMETERS, None;
    /// The lockup watchdogs run on a target.
    WatchdogOn, "watchdog-on", Kernel, "Documentation/admin-guide/lockup-watchdogs.rst", Some("watchdog");
    /// The kernel was booted with debugging options.
    DebugOptions, "debug-options", Kernel, PARAMETERS, None;
    /// Mitigations of processor vulnerabilities are on.
    Mitigations, "mitigations", Kernel, "Documentation/admin-guide/hw-vuln/index.rst", None;
    /// The kernel is tainted in a way that may change its timing.
    KernelTainted, "kernel-tainted", Kernel, "Documentation/admin-guide/tainted-kernels.rst", None;
    /// The kernel is locked down so far that tracing is refused (found by `collect`).
    KernelLockdown, "kernel-lockdown", Kernel, "kernel_lockdown(7)", None;
    /// A target is open to all other tasks.
    NotIsolated, "not-isolated", Isolation, "Documentation/admin-guide/cgroup-v2.rst, cpuset.cpus.partition", Some("shield");
    /// A target shares its core with an online CPU.
    SmtSiblingOnline, "smt-sibling-online", Isolation, "Documentation/admin-guide/hw-vuln/core-scheduling.rst", Some("smt-off");
    /// A target keeps its periodic tick.
    TickOnTarget, "tick-on-target", Isolation, "Documentation/timers/no_hz.rst", None;
    /// CPU 0 is a target.
    CpuZeroTarget, "cpu-0-target", Isolation, "Documentation/timers/no_hz.rst", None;
    /// Threads of the kernel that are pinned to a target.
    PinnedThreads, "pinned-threads", Isolation, KTHREADS, None;
    /// RCU callbacks are run on a target.
    RcuCallbacks, "rcu-callbacks", Isolation, KTHREADS, Some("shield");
    /// Work without a CPU of its own may run on a target.
    WorkqueueMask, "workqueue-mask", Isolation, "Documentation/core-api/workqueue.rst", Some("shield");
    /// Statistics of memory are folded on a target every second.
    VmstatInterval, "vmstat-interval", Isolation, "Documentation/admin-guide/sysctl/vm.rst", Some("shield");
    /// Timers of others are armed on a target.
    TimersOnTarget, "timers-on-target", Isolation, KTHREADS, None;
    /// The targets are different kinds of core.
    MixedCoreKinds, "mixed-core-kinds", Isolation, "Documentation/scheduler/sched-capacity.rst", None;
    /// Interrupts that could be moved may reach a target.
    InterruptsOnTarget, "interrupts-on-target", Interrupts, IRQ_AFFINITY, Some("irq-affinity");
    /// Interrupts that cannot be moved reach a target.
    ManagedInterrupts, "managed-interrupts", Interrupts, PARAMETERS, None;
    /// Interrupts that are set up later may reach a target.
    DefaultIrqAffinity, "default-irq-affinity", Interrupts, IRQ_AFFINITY, Some("irq-affinity");
    /// irqbalance moves interrupts around.
    IrqBalance, "irqbalance", Interrupts, "irqbalance(1)", Some("irq-affinity");
    /// A target's frequency follows its load.
    GovernorNotPerformance, "governor-not-performance", Power, CPUFREQ, Some("governor");
    /// A target's frequency has room to change.
    FrequencyRange, "frequency-range", Power, CPUFREQ, Some("governor");
    /// Frequencies above the nominal one are used while there is room for them.
    Turbo, "turbo", Power, "Documentation/admin-guide/pm/intel_pstate.rst", Some("governor");
    /// A target may enter idle states that take long to leave.
    DeepIdleStates, "deep-idle-states", Power, CPUIDLE, Some("idle");
    /// A target reports no cache sizes.
    NoCacheSizes, "no-cache-sizes", Memory, "Documentation/ABI/testing/sysfs-devices-system-cpu", None;
    /// The last-level cache of a target is shared and could be parted.
    CacheShared, "cache-shared", Memory, "Documentation/filesystems/resctrl.rst", Some("cache-partition");
    /// Transparent huge pages are `always`.
    HugePagesAlways, "huge-pages-always", Memory, "Documentation/admin-guide/mm/transhuge.rst", Some("thp");
    /// Equal pages are merged.
    PageMerging, "page-merging", Memory, "Documentation/admin-guide/mm/ksm.rst", Some("ksm");
    /// Swap is on.
    SwapOn, "swap-on", Memory, "swapon(8), mlock(2)", None;
    /// NUMA balancing is on.
    NumaBalancing, "numa-balancing", Memory, "Documentation/admin-guide/sysctl/kernel.rst", Some("numa-balancing");
    /// A graphics device may be powered down while measuring.
    GpuRuntimePower, "gpu-runtime-power", Graphics, "Documentation/power/runtime_pm.rst", Some("gpu-power");
    /// The clock of a graphics device follows its load.
    GpuFrequency, "gpu-frequency", Graphics, "Documentation/gpu/amdgpu/thermal.rst, Documentation/gpu/i915.rst", Some("gpu-power");
    /// A graphics driver's own power saving is on.
    GpuDriverOptions, "gpu-driver-options", Graphics,
        "modinfo(8) of i915 and amdgpu, README of the NVIDIA driver (Dynamic Power Management)", Some("module-parameter");
    /// A Matrox graphics device writes its memory write-combining.
    MatroxWriteCombining, "matrox-write-combining", Graphics, "drivers/gpu/drm/mgag200/Kconfig, DRM_MGAG200_DISABLE_WRITECOMBINE", None;
    /// The NVIDIA module runs on a PREEMPT_RT kernel.
    NvidiaOnRealtime, "nvidia-on-realtime", Graphics, "README of open-gpu-kernel-modules (IGNORE_PREEMPT_RT_PRESENCE)", None;
    /// A file is there but could not be read or understood (found by `collect`).
    FactUnreadable, "fact-unreadable", Platform, "proc(5), sysfs(5)", None;
}

impl FindingCode {
    /// A finding that wants something changed, or is worth knowing.
    pub(super) fn found(self, severity: Severity, text: impl Into<String>) -> Finding {
        Finding {
            id: self.code().to_owned(),
            theme: self.theme(),
            severity,
            text: text.into(),
            effect: None,
            evidence: Vec::new(),
            source: Some(self.source().to_owned()),
            fix_now: None,
            fix_boot: None,
            treatment: self.treatment().map(str::to_owned),
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

    /// All is well: there is nothing to change.
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
        Warning::new(self.code(), text, fix)
    }

    pub(in crate::facts) fn warning_without_fix(self, text: impl Into<String>) -> Warning {
        Warning::without_fix(self.code(), text)
    }
}
