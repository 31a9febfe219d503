//! The list of warning codes: the name for scripts, the effect, and the remedy if it is always the same.

use crate::words::words;

macro_rules! codes {
    ($(#[doc = $effect:literal] $code:ident = $name:tt $(, $fix:literal)?;)+) => {
        words! {
            /// What a [`Warning`](super::Warning) is about. The names are stable.
            pub enum WarningCode: "a warning" {
                $(#[doc = $effect] $code = $name,)+
            }
        }

        impl WarningCode {
            /// What is wrong, and its effect, in one line.
            pub const fn effect(self) -> &'static str {
                match self {
                    $(Self::$code => $effect.trim_ascii(),)+
                }
            }

            /// What to do about it, if that is the same on every machine.
            pub const fn fix(self) -> Option<&'static str> {
                match self {
                    $(Self::$code => codes!(@fix $($fix)?),)+
                }
            }
        }
    };
    (@fix) => { None };
    (@fix $fix:literal) => { Some($fix) };
}

codes! {
    /// No real-time priority may be set.
    NoRealtimePriority = "no-realtime-priority";
    /// Only real-time priorities below the probes' default may be set.
    RealtimePriorityLimited = "realtime-priority-limited";
    /// RT_GROUP_SCHED gives this process's group no real-time budget, or less than a period.
    RtGroupBudget = "rt-group-budget";
    /// Little memory may be locked.
    NoMemoryLock = "no-memory-lock";
    /// Deep idle states cannot be kept off through `/dev/cpu_dma_latency`.
    NoCpuDmaLatency = "no-cpu-dma-latency";
    /// tracefs can neither be written nor mounted.
    NoTracefs = "no-tracefs";
    /// A trace has more threads, texts, stacks or CPUs than are kept in memory: what is beyond that is only counted.
    TraceBeyondMemory = "trace-beyond-memory";
    /// Activations of watched tasks, or records of them, are missing.
    TaskRecordsLost = "task-records-lost", "watch fewer threads, or choose a smaller --worst";
    /// It is not certain where activations of watched tasks begin and end.
    ActivationsUncertain = "activations-uncertain",
        "marks (--begin, --end) say where the work begins and ends; --per-period takes one activation for each period, --per-wakeup one for each wake-up";
    /// The watched command ended with an error.
    CommandFailed = "command-failed";
    /// Ordinary threads that are watched sleep for a time: the kernel may let their timers expire later.
    TimerSlack = "timer-slack",
        "give the thread a real-time policy, or a smaller slack: TimerSlackNSec= of its unit, prctl(PR_SET_TIMERSLACK) in the thread";
    /// Runtime verification monitors of the kernel warned of watched threads (in runs of earlier versions).
    KernelMonitorWarned = "kernel-monitor-warned", "Documentation/trace/rv/monitor_rtapp.rst says what each monitor looks for";
    /// Runtime verification monitors of the kernel were off (in runs of earlier versions).
    KernelMonitorsOff = "kernel-monitors-off";
    /// The machine is a virtual one.
    VirtualMachine = "virtual-machine";
    /// The hypervisor ran something else on a target.
    StealTime = "steal-time";
    /// The process runs in a container.
    Container = "container";
    /// A CPU quota stops the tasks of this process's group.
    CpuQuota = "cpu-quota";
    /// The firmware has interrupted the machine.
    FirmwareInterrupts = "firmware-interrupts";
    /// A run that is compared was not measured whole.
    ComparedIncomplete = "compared-incomplete",
        "`whylate report RUN` says what is missing; `whylate run --resume RUN` goes on with one that did not end";
    /// Runs of one side of a comparison differ in their plan or machine: what they have in common is all that is compared.
    ComparedMixed = "compared-mixed", "put runs of one plan, kernel and machine on each side";
    /// A JSON document of many CPUs is kept small: histograms and time series are empty.
    HistogramsLeftOut = "histograms-left-out", "whylate report RUN --json --histograms";
    /// Which microcode the processor runs.
    Microcode = "microcode";
    /// The clock is slow to read, or may be.
    SlowClock = "slow-clock";
    /// The time-stamp counter is not invariant.
    CounterNotInvariant = "counter-not-invariant";
    /// The kernel is not PREEMPT_RT.
    KernelNotRealtime = "kernel-not-realtime";
    /// Real-time loops that never sleep are stopped now and then.
    RtThrottling = "rt-throttling";
    /// Options of the command line that matter to latency.
    BootOptions = "boot-options";
    /// The lockup watchdogs run on a target.
    WatchdogOn = "watchdog-on";
    /// The kernel was booted with debugging options.
    DebugOptions = "debug-options";
    /// Mitigations of processor vulnerabilities are on.
    Mitigations = "mitigations";
    /// The kernel is tainted in a way that may change its timing.
    KernelTainted = "kernel-tainted";
    /// The kernel is locked down so far that tracing is refused (found by `collect`).
    KernelLockdown = "kernel-lockdown";
    /// The command line has words that the kernel does not know.
    BootOptionUnknown = "boot-option-unknown";
    /// The kernel does not do what its command line asks for.
    BootOptionWithoutEffect = "boot-option-without-effect";
    /// Options of the command line contradict each other.
    BootOptionsContradict = "boot-options-contradict";
    /// Programs read registers or statistics of every CPU now and then.
    PollingPrograms = "polling-programs";
    /// Isolated CPUs may run timers of other CPUs.
    PulledTimers = "pulled-timers";
    /// The firmware may be called at any time.
    FirmwareCalls = "firmware-calls";
    /// Pressure stall information is kept.
    PressureAccounting = "pressure-accounting";
    /// The stated times to leave idle states cannot be right.
    IdleExitsDoubtful = "idle-exits-doubtful";
    /// Lines or CPUs of a trace are not in the file.
    CpusMissing = "lines-missing";
    /// A figure is that of a known mechanism.
    KnownSignature = "known-signature";
    /// Another tool saw nothing above its threshold.
    NothingSeen = "nothing-seen";
    /// The kernel wrote a message that speaks of latency.
    KernelLog = "kernel-log", "whylate explain --why KIND says what the message means";
    /// A target is open to all other tasks.
    NotIsolated = "not-isolated";
    /// A target shares its core with an online CPU.
    SmtSiblingOnline = "smt-sibling-online";
    /// A target keeps its periodic tick.
    TickOnTarget = "tick-on-target";
    /// CPU 0 is a target.
    CpuZeroTarget = "cpu-0-target";
    /// Threads of the kernel that are pinned to a target.
    PinnedThreads = "pinned-threads";
    /// RCU callbacks are run on a target.
    RcuCallbacks = "rcu-callbacks";
    /// Unbound workqueues may run on a target.
    WorkqueueMask = "workqueue-mask";
    /// Memory statistics (vmstat) are updated on a target every second.
    VmstatInterval = "vmstat-interval";
    /// Timers of others are armed on a target.
    TimersOnTarget = "timers-on-target";
    /// The targets are different kinds of core.
    MixedCoreKinds = "mixed-core-kinds";
    /// Interrupts that could be moved may reach a target.
    InterruptsOnTarget = "interrupts-on-target";
    /// Interrupts that cannot be moved reach a target.
    ManagedInterrupts = "managed-interrupts";
    /// Interrupts that are set up later may reach a target.
    DefaultIrqAffinity = "default-irq-affinity";
    /// irqbalance moves interrupts around.
    IrqBalance = "irqbalance";
    /// A target's frequency follows its load.
    GovernorNotPerformance = "governor-not-performance";
    /// A target's frequency has room to change.
    FrequencyRange = "frequency-range";
    /// Turbo is on: CPUs run above their nominal frequency while power and temperature allow it.
    Turbo = "turbo";
    /// A target may enter idle states that take long to leave.
    DeepIdleStates = "deep-idle-states";
    /// A target reports no cache sizes.
    NoCacheSizes = "no-cache-sizes";
    /// The last-level cache of a target is shared and could be partitioned.
    CacheShared = "cache-shared";
    /// Transparent huge pages are `always`.
    HugePagesAlways = "huge-pages-always";
    /// Equal pages are merged.
    PageMerging = "page-merging";
    /// Swap is on.
    SwapOn = "swap-on";
    /// NUMA balancing is on.
    NumaBalancing = "numa-balancing";
    /// A graphics device may be powered down while measuring.
    GpuRuntimePower = "gpu-runtime-power";
    /// The clock of a graphics device follows its load.
    GpuFrequency = "gpu-frequency";
    /// A graphics device is in use; its interrupt lines, memory, load and processes are listed.
    GpuInUse = "gpu-in-use";
    /// A graphics driver's own power saving is on.
    GpuDriverOptions = "gpu-driver-options";
    /// A Matrox graphics device writes its memory write-combining.
    MatroxWriteCombining = "matrox-write-combining";
    /// The NVIDIA module runs on a PREEMPT_RT kernel.
    NvidiaOnRealtime = "nvidia-on-realtime";
    /// A file is there but could not be read or understood (found by `collect`).
    FactUnreadable = "fact-unreadable";
    /// Other resctrl groups share the part of the cache that is set apart.
    CacheGroupsOverlap = "cache-groups-overlap";
    /// Devices write into the part of the cache that is set apart.
    CacheSharedWithDevices = "cache-shared-with-devices", "give the targets a smaller share";
    /// Records of what the kernel did were lost: spikes may have other causes.
    CauseRecordsLost = "cause-records-lost";
    /// Causes come from a trace buffer: without stacks and senders, at a higher cost.
    CausesFromTracefs = "causes-from-tracefs";
    /// BPF programs did not see all wake-ups of the probe: the causes of the others are not known.
    WakeupsUnseen = "wakeups-unseen", "compare with causes from tracefs (causes_from = \"tracefs\", --causes-from tracefs)";
    /// Some kinds of causes cannot be seen on this kernel.
    CausesIncomplete = "causes-incomplete";
    /// The CPUs' time-stamp counters disagree: some ways of round trips have no time of their own.
    CountersDisagree = "counters-disagree";
    /// A file of the run directory was altered or removed after the run.
    AlteredFile = "altered-file";
    /// The header and the events of a trace, or the clocks of its CPUs, contradict each other.
    ContradictoryTrace = "contradictory-trace";
    /// Rows of the run directory contradict each other and are left out.
    ContradictoryRows = "contradictory-rows";
    /// Memory is not of the type that was asked for: its figures are those of another type.
    MemoryModeNotEffective = "memory-mode-not-effective";
    /// Some copies arrived altered: their method is left out.
    CopyAltered = "copy-altered";
    /// A type of memory could not be opened.
    MemoryModeRefused = "memory-mode-refused";
    /// CPU 0 is shielded, where the kernel does work that cannot be moved.
    Cpu0Shielded = "cpu-0-shielded", "shield another CPU";
    /// The manifest of the run directory is missing or altered: what else is, may not be noticed.
    DamagedManifest = "damaged-manifest";
    /// A part of a table of the run directory cannot be read and is left out.
    DamagedSegment = "damaged-segment";
    /// Dispatch latencies are not divided into their parts.
    DispatchWholeOnly = "dispatch-whole-only";
    /// An event that was asked for is not recorded.
    EventNotRecorded = "event-not-recorded";
    /// The kernel lacks events of the profile.
    EventsMissing = "events-missing";
    /// The expected moment is computed from the latency that the task wrote into the trace.
    ExpectedFromMarker = "expected-from-marker";
    /// The expected moment is estimated from the task's last sleep and its period.
    ExpectedFromPeriod = "expected-from-period";
    /// The expected moment is that of the wake-up: what was late before it is not seen.
    ExpectedFromWakeup = "expected-from-wakeup";
    /// The timer's expiry is handled in a softirq thread: the latency includes waking it.
    ExpiryInSoftirq = "expiry-in-softirq", "use `nanosleep`, whose expiry is handled in the hard interrupt for real-time tasks";
    /// The source does not say for which moment its interrupt was programmed.
    ExpiryUnknown = "expiry-unknown";
    /// Only a part of the buffer is in huge pages.
    FewHugePages = "few-huge-pages";
    /// Flushes of translations are not seen on this kernel.
    FlushesUnseen = "flushes-unseen";
    /// The clock of other CPUs changes with that of the targets.
    FrequencyShared = "frequency-shared";
    /// The clock of a graphics device stays as it is.
    GpuClockUnchanged = "gpu-clock-unchanged";
    /// A histogram that was asked for cannot be counted on this kernel.
    HistogramMissing = "histogram-missing";
    /// Histograms are counted from a trace buffer, at a higher cost.
    HistogramsFromTracefs = "histograms-from-tracefs";
    /// Wake-ups that should be in the histograms are not.
    HistogramsLost = "histograms-lost";
    /// Leaving idle took longer than the driver states.
    IdleExitsLong = "idle-exits-long";
    /// Idle states are limited already.
    IdleShallowAlready = "idle-shallow-already";
    /// An interval of a killed run is incomplete and is left out.
    IncompleteInterval = "incomplete-interval";
    /// The container hides the interrupt lines.
    InterruptLinesHidden = "interrupt-lines-hidden", "run it outside the container";
    /// Interrupts that cannot be moved stay on shielded CPUs.
    InterruptsStay = "interrupts-stay";
    /// Interrupts from other CPUs were not counted because a table was full.
    IpiRecordsLost = "ipi-records-lost";
    /// Interrupts from other CPUs are not counted.
    IpisNotCounted = "ipis-not-counted";
    /// An interrupt is managed by the kernel and cannot be moved.
    IrqManaged = "irq-managed";
    /// The journal of treatments could not be read or written.
    Journal = "journal";
    /// A line of the journal of treatments is damaged.
    JournalDamaged = "journal-damaged";
    /// The records of the largest latencies could not be stored.
    LatencyRecordsNotKept = "latency-records-not-kept";
    /// The tick stays on shielded CPUs.
    LocalTimerStays = "local-timer-stays";
    /// Events of the trace were lost.
    LostEvents = "lost-events", "record with a larger buffer, or fewer events";
    /// Older intervals were made longer to save room on the disk.
    OlderCoarser = "older-coarser", "allow more room with --disk";
    /// Settings of the machine differ from before the run.
    MachineChanged = "machine-changed";
    /// The main thread of the probe runs on a measured CPU.
    MainThreadNotMoved = "main-thread-not-moved";
    /// A method of the round trip cannot be measured here.
    MethodUnavailable = "method-unavailable";
    /// Causes of spikes could not be looked for.
    NoCauses = "no-causes";
    /// `whylate histograms` cannot be controlled while it runs.
    NoControlSocket = "no-control-socket";
    /// No function is known for a part of the time.
    NoFunctions = "no-functions";
    /// The kernel's histograms are not counted.
    NoHistograms = "no-histograms";
    /// The buffer is in pages of normal size.
    NoHugePages = "no-huge-pages";
    /// The trace does not say which idle state the CPU had to leave.
    NoIdleStates = "no-idle-states";
    /// Interrupts are not counted.
    NoInterruptCounts = "no-interrupt-counts";
    /// The stall probe reads the kernel's clock, and its loop turns are longer.
    NoInvariantCounter = "no-invariant-counter";
    /// Interrupts from other CPUs are not in the result.
    NoIpis = "no-ipis";
    /// The trace does not say when interrupts and preemption were disabled.
    NoIrqPreemptEvents = "no-irq-preempt-events";
    /// The stall check without load cannot run.
    NoNoiseFloor = "no-noise-floor";
    /// The load uses ordinary stores.
    NoNonTemporalStores = "no-non-temporal-stores";
    /// The two ways of a round trip have no time of their own.
    NoOneWayTimes = "no-one-way-times";
    /// System-management interrupts are not counted.
    NoSmiCounter = "no-smi-counter";
    /// Spinning needs two CPUs and is left out.
    NoSpinOnOneCpu = "no-spin-on-one-cpu";
    /// The trace holds no context switches.
    NoSwitches = "no-switches", "record sched:sched_switch and sched:sched_waking too";
    /// No task was found whose spikes could be explained.
    NoTask = "no-task", "name the task with --task, and record sched:sched_switch";
    /// A latency tracer of the kernel (hwlat, osnoise, timerlat) cannot be used.
    NoTracer = "no-tracer";
    /// The run directory has no manifest: what is missing from it is not noticed.
    NotSealed = "not-sealed";
    /// Spikes are not traced.
    NoTraces = "no-traces";
    /// No wake-up was counted.
    NoWakeups = "no-wakeups";
    /// Output of the command could not be kept.
    OutputLost = "output-lost", "make room, or choose another place";
    /// The pattern matched no line of the command's output: the load has no rate.
    RateNeverMatched = "rate-never-matched";
    /// What the pattern matched is not a number.
    RateNotANumber = "rate-not-a-number";
    /// RCU callbacks are run on shielded CPUs.
    RcuCallbacksStay = "rcu-callbacks-stay";
    /// The load's interrupts do not reach CPUs on which none of its threads runs.
    ReachesOwnProcessOnly = "reaches-own-process-only", "measure with timer or dispatch, or with `stall --policy other`";
    /// Reading the trace showed something that may matter.
    Reader = "reader";
    /// The machine was rebooted in the middle of the run.
    ResumedAfterReboot = "resumed-after-reboot";
    /// The round trip runs as an ordinary task.
    RoundtripWithoutPriority = "roundtrip-without-priority";
    /// The shield only sets affinities: a thread that sets its own affinity may still run there.
    ShieldByAffinity = "shield-by-affinity";
    /// SMT is off already.
    SmtOffAlready = "smt-off-already";
    /// Spinning is done as an ordinary task.
    SpinWithoutPriority = "spin-without-priority";
    /// Another whylate measures on the same CPU.
    OtherWhylate = "other-whylate";
    /// The stall probe runs as an ordinary task: the time of other tasks shows as gaps.
    StallWithoutPriority = "stall-without-priority";
    /// The end of a context switch is not seen.
    SwitchEndUnknown = "switch-end-unknown", "a kernel that lets probes be set (CONFIG_KPROBES, not locked down), or Linux 6.14 or newer";
    /// A thread cannot be moved.
    TaskBound = "task-bound";
    /// Threads were moved off their CPUs.
    ThreadsEvicted = "threads-evicted";
    /// Threads of other users or containers are not seen.
    ThreadsHidden = "threads-hidden";
    /// Armed timers are not seen.
    TimersHidden = "timers-hidden", "run it as root";
    /// The metadata of a trace could not be written.
    TraceWithoutNote = "trace-without-note";
    /// Events are recorded while the probes measure, which costs time.
    Traced = "traced", "compare with runs that are traced as well";
    /// Lines of the tracer were lost.
    TracerLinesLost = "tracer-lines-lost";
    /// The priority of the tracer's threads could not be set.
    TracerPriority = "tracer-priority";
    /// Tracing was stopped at the break and stays so.
    TracingStopped = "tracing-stopped", "save /sys/kernel/tracing/trace, then `echo 1 > /sys/kernel/tracing/tracing_on`";
    /// A part of a treatment could not be applied.
    TreatmentIncomplete = "treatment-incomplete";
    /// A setting was not restored.
    TreatmentNotRestored = "treatment-not-restored", "whylate treat restore";
    /// Treatments of others are in force.
    TreatmentsInForce = "treatments-in-force", "whylate treat restore";
    /// An optional treatment cannot be applied here: its cells run without it.
    TreatmentLeftOut = "treatment-left-out";
    /// The record of the treatments could not be stored.
    TreatmentsNotKept = "treatments-not-kept";
    /// What a killed process left was undone.
    TreatmentsRecovered = "treatments-recovered";
    /// Spikes came faster than their causes could be looked for.
    UnexplainedSpikes = "unexplained-spikes", "raise the threshold";
    /// The record of a largest latency cannot be read.
    UnreadableLatencyRecord = "unreadable-latency-record";
    /// A trace cannot be read.
    UnreadableTrace = "unreadable-trace";
    /// The metadata of a trace cannot be read.
    UnreadableTraceNote = "unreadable-trace-note";
    /// Spikes have no trace because another one was being saved.
    UntracedSpikes = "untraced-spikes";
    /// A result of another tool does not say all that ours do.
    ForeignResult = "foreign-result";
    /// A row of the run directory cannot be used and is left out.
    UnusableRow = "unusable-row";
}

impl PartialEq<WarningCode> for String {
    fn eq(&self, code: &WarningCode) -> bool {
        self == code.name()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_code_is_unique_and_in_kebab_case() {
        let names: BTreeSet<&str> = WarningCode::ALL.iter().map(|code| code.name()).collect();
        assert_eq!(names.len(), WarningCode::ALL.len());
        let is_word = |word: &str| {
            !word.is_empty() && word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit())
        };
        assert!(names.iter().all(|name| name.split('-').all(is_word)), "{names:?}");
        for code in WarningCode::ALL {
            assert!(code.effect().ends_with('.') && code.fix() != Some(""), "{code}");
        }
    }
}
