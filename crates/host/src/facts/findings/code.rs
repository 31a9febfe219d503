//! The catalogue of findings: the name, theme, source and treatment of each.

use whylate_core::result::{Finding, Severity, Theme};
use whylate_core::{Warning, WarningCode};

macro_rules! catalogue {
    ($($name:ident, $theme:ident, $source:expr, $treatment:expr;)*) => {
        /// What [`preflight`](super::preflight) and [`check`](super::check) can find, and
        /// [`collect`](crate::facts::collect) while reading.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum FindingCode {
            $(#[doc = concat!("[`WarningCode::", stringify!($name), "`].")] $name,)*
        }

        impl FindingCode {
            /// Every code.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The stable name that scripts see in [`Finding::id`] and [`Warning::code`].
            pub const fn code(self) -> &'static str {
                self.warning_code().name()
            }

            /// The same in the list of all codes.
            pub const fn warning_code(self) -> WarningCode {
                match self {
                    $(Self::$name => WarningCode::$name,)*
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
    NoRealtimePriority, Rights, "sched(7), limits.conf(5)", None;
    RealtimePriorityLimited, Rights, "sched(7), limits.conf(5)", None;
    RtGroupBudget, Rights, "Documentation/scheduler/sched-rt-group.rst", None;
    NoMemoryLock, Rights, "mlock(2), getrlimit(2)", None;
    NoCpuDmaLatency, Rights, "Documentation/power/pm_qos_interface.rst", None;
    NoTracefs, Rights, "Documentation/trace/ftrace.rst", None;
    VirtualMachine, Platform,
        "Abeni and Faggioli, An Experimental Analysis of the Xen and KVM Latencies (ISORC 2019)", None;
    StealTime, Platform, "proc(5), /proc/stat", None;
    Container, Platform, "Documentation/admin-guide/cgroup-v2.rst", None;
    CpuQuota, Platform, "Documentation/scheduler/sched-bwc.rst", None;
    FirmwareInterrupts, Platform, "Documentation/trace/hwlat_detector.rst", None;
    Microcode, Platform, "Documentation/arch/x86/microcode.rst", None;
    SlowClock, Platform, TIMEKEEPING, None;
    CounterNotInvariant, Platform, TIMEKEEPING, None;
    KernelNotRealtime, Kernel,
        "Reghenzani, Massari and Fornaciari, The Real-Time Linux Kernel: A Survey on PREEMPT_RT (ACM CSUR 2019)", None;
    RtThrottling, Kernel, "Documentation/scheduler/sched-rt-group.rst", Some("rt-throttling");
    BootOptions, Kernel, PARAMETERS, None;
    WatchdogOn, Kernel, "Documentation/admin-guide/lockup-watchdogs.rst", Some("watchdog");
    DebugOptions, Kernel, PARAMETERS, None;
    Mitigations, Kernel, "Documentation/admin-guide/hw-vuln/index.rst", None;
    KernelTainted, Kernel, "Documentation/admin-guide/tainted-kernels.rst", None;
    KernelLockdown, Kernel, "kernel_lockdown(7)", None;
    NotIsolated, Isolation, "Documentation/admin-guide/cgroup-v2.rst, cpuset.cpus.partition", Some("shield");
    SmtSiblingOnline, Isolation, "Documentation/admin-guide/hw-vuln/core-scheduling.rst", Some("smt-off");
    TickOnTarget, Isolation, "Documentation/timers/no_hz.rst", None;
    CpuZeroTarget, Isolation, "Documentation/timers/no_hz.rst", None;
    PinnedThreads, Isolation, KTHREADS, None;
    RcuCallbacks, Isolation, KTHREADS, Some("shield");
    WorkqueueMask, Isolation, "Documentation/core-api/workqueue.rst", Some("shield");
    VmstatInterval, Isolation, "Documentation/admin-guide/sysctl/vm.rst", Some("shield");
    TimersOnTarget, Isolation, KTHREADS, None;
    MixedCoreKinds, Isolation, "Documentation/scheduler/sched-capacity.rst", None;
    InterruptsOnTarget, Interrupts, IRQ_AFFINITY, Some("irq-affinity");
    ManagedInterrupts, Interrupts, PARAMETERS, None;
    DefaultIrqAffinity, Interrupts, IRQ_AFFINITY, Some("irq-affinity");
    IrqBalance, Interrupts, "irqbalance(1)", Some("irq-affinity");
    GovernorNotPerformance, Power, CPUFREQ, Some("governor");
    FrequencyRange, Power, CPUFREQ, Some("governor");
    Turbo, Power, "Documentation/admin-guide/pm/intel_pstate.rst", Some("governor");
    DeepIdleStates, Power, CPUIDLE, Some("idle");
    NoCacheSizes, Memory, "Documentation/ABI/testing/sysfs-devices-system-cpu", None;
    CacheShared, Memory, "Documentation/filesystems/resctrl.rst", Some("cache-partition");
    HugePagesAlways, Memory, "Documentation/admin-guide/mm/transhuge.rst", Some("thp");
    PageMerging, Memory, "Documentation/admin-guide/mm/ksm.rst", Some("ksm");
    SwapOn, Memory, "swapon(8), mlock(2)", None;
    NumaBalancing, Memory, "Documentation/admin-guide/sysctl/kernel.rst", Some("numa-balancing");
    GpuRuntimePower, Graphics, "Documentation/power/runtime_pm.rst", Some("gpu-power");
    GpuFrequency, Graphics, "Documentation/gpu/amdgpu/thermal.rst, Documentation/gpu/i915.rst", Some("gpu-power");
    GpuDriverOptions, Graphics,
        "modinfo(8) of i915 and amdgpu, README of the NVIDIA driver (Dynamic Power Management)", Some("module-parameter");
    MatroxWriteCombining, Graphics, "drivers/gpu/drm/mgag200/Kconfig, DRM_MGAG200_DISABLE_WRITECOMBINE", None;
    NvidiaOnRealtime, Graphics, "README of open-gpu-kernel-modules (IGNORE_PREEMPT_RT_PRESENCE)", None;
    FactUnreadable, Platform, "proc(5), sysfs(5)", None;
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
        Warning::with_fix(self.warning_code(), text, fix)
    }

    pub(in crate::facts) fn warning_without_fix(self, text: impl Into<String>) -> Warning {
        Warning::new(self.warning_code(), text)
    }
}
