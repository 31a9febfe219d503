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
    /// This process may not set a real-time priority: probes run as ordinary tasks, and every other task delays them.
    NoRealtimePriority = "no-realtime-priority";
    /// This process may only set real-time priorities below the probes' default: tasks with a higher priority delay the probes.
    RealtimePriorityLimited = "realtime-priority-limited";
    /// RT_GROUP_SCHED limits the real-time runtime of this process's control group: real-time tasks are refused or throttled.
    RtGroupBudget = "rt-group-budget";
    /// This process may lock only a little memory: latencies may include page faults of the measuring thread.
    NoMemoryLock = "no-memory-lock";
    /// Deep idle states cannot be prevented through `/dev/cpu_dma_latency`: latencies include the time to leave them.
    NoCpuDmaLatency = "no-cpu-dma-latency";
    /// tracefs is not writable and cannot be mounted: whylate can neither mark spikes in a trace nor stop the trace.
    NoTracefs = "no-tracefs";
    /// A trace has more threads, texts, stacks or CPUs than fit in memory: the rest is only counted, not analysed.
    TraceBeyondMemory = "trace-beyond-memory";
    /// Records of watched tasks were lost: some activations (pieces of work) are missing or incomplete.
    TaskRecordsLost = "task-records-lost",
        "watch fewer threads, choose a smaller --worst, or leave a CPU without watched threads, so that whylate can read the records in time";
    /// It is not certain where each piece of work (activation) of a watched task begins and ends: responses may be wrong.
    ActivationsUncertain = "activations-uncertain",
        "mark where the work begins and ends (--begin, --end), or count each period (--per-period) or each wake-up (--per-wakeup) as one piece of work";
    /// Watched threads did not sleep during the watch, so none of their activations has ended.
    NeverSlept = "never-slept", "mark where the work begins and ends (--begin, --end)";
    /// The plan measures for a shorter time than a pass needs: even without a latency above the limit, the verdict is `incomplete`.
    TooShortToPass = "too-short-to-pass", "increase `duration` or `repeats`";
    /// The watched command ended with an error: the figures may cover only a part of its work.
    CommandFailed = "command-failed";
    /// Some watched threads are ordinary tasks that use timers: the kernel may let these timers expire late.
    TimerSlack = "timer-slack",
        "give the thread a real-time policy or a smaller timer slack: TimerSlackNSec= in its systemd unit, or prctl(PR_SET_TIMERSLACK) in the thread";
    /// The kernel's runtime verification monitors warned about watched threads. Current versions of whylate do not use these monitors.
    KernelMonitorWarned = "kernel-monitor-warned", "Documentation/trace/rv/monitor_rtapp.rst says what each monitor looks for";
    /// The kernel's runtime verification monitors were off, so this run has no warnings of the monitors. Current versions of whylate do not use these monitors.
    KernelMonitorsOff = "kernel-monitors-off";
    /// This is a virtual machine: its host can stop a CPU at any moment and so cause spikes.
    VirtualMachine = "virtual-machine";
    /// The hypervisor took time from a target CPU (steal time), during which no task ran on this CPU.
    StealTime = "steal-time";
    /// The process runs in a container, whose limits may stop tasks and which hides other programs.
    Container = "container";
    /// A CPU quota throttles this process's control group: its ordinary tasks may stop for a part of each period.
    CpuQuota = "cpu-quota";
    /// The firmware has interrupted the machine (SMI): each SMI stops all CPUs, and the kernel does not notice.
    FirmwareInterrupts = "firmware-interrupts";
    /// A compared run is incomplete: repeats or cells are missing from the comparison.
    ComparedIncomplete = "compared-incomplete",
        "`whylate report RUN` says what is missing; `whylate run --resume RUN` continues a run that did not end";
    /// Runs of one side of a comparison differ in plan or machine: only what they have in common is compared.
    ComparedMixed = "compared-mixed", "all runs of one side should have the same plan, kernel and machine; the two sides may differ";
    /// Histograms and time series are left out of this JSON document, because it has many CPUs.
    HistogramsLeftOut = "histograms-left-out", "whylate report RUN --json --histograms";
    /// The microcode version of the processor is reported: compare runs only at the same version.
    Microcode = "microcode";
    /// Reading the clock is slow, or may be slow, and latencies include this time.
    SlowClock = "slow-clock";
    /// The time-stamp counter is not invariant: the stall probe reads the kernel's slower clock instead.
    CounterNotInvariant = "counter-not-invariant";
    /// The kernel is not PREEMPT_RT: interrupt handlers, softirqs and code under spinlocks delay real-time tasks.
    KernelNotRealtime = "kernel-not-realtime";
    /// Real-time throttling is on: real-time loops that never sleep are stopped for a part of each period.
    RtThrottling = "rt-throttling";
    /// Without real-time options on the kernel command line, ticks and RCU callbacks stay on target CPUs.
    BootOptions = "boot-options";
    /// The lockup detectors run on a target CPU: their timer interrupts this CPU every few seconds.
    WatchdogOn = "watchdog-on";
    /// The kernel was booted with debug options, which make kernel code slower.
    DebugOptions = "debug-options";
    /// Mitigations of processor vulnerabilities are on, which may slow system calls, interrupts and context switches.
    Mitigations = "mitigations";
    /// The kernel is tainted in a way that may change its timing.
    KernelTainted = "kernel-tainted";
    /// Kernel lockdown refuses tracing: spikes can be counted, but not explained.
    KernelLockdown = "kernel-lockdown";
    /// The kernel command line has options that the kernel does not know: they have no effect.
    BootOptionUnknown = "boot-option-unknown";
    /// An option of the kernel command line has no effect: other tasks, interrupts or ticks can still delay the measured task.
    BootOptionWithoutEffect = "boot-option-without-effect";
    /// Options of the kernel command line contradict each other: CPUs are less isolated than intended.
    BootOptionsContradict = "boot-options-contradict";
    /// Some programs periodically read registers or statistics of every CPU: this interrupts even isolated CPUs.
    PollingPrograms = "polling-programs";
    /// Isolated CPUs may have to handle timers of other CPUs.
    PulledTimers = "pulled-timers";
    /// The kernel may call into the firmware at any time: each call runs with preemption disabled, some for milliseconds.
    FirmwareCalls = "firmware-calls";
    /// Pressure stall information (PSI) is on, which adds work to each context switch and wake-up.
    PressureAccounting = "pressure-accounting";
    /// The idle driver states exit latencies that cannot be right: wake-ups from idle may be later than a limit allows.
    IdleExitsDoubtful = "idle-exits-doubtful";
    /// The trace file lacks lines or CPUs of the trace: causes may be missing.
    CpusMissing = "lines-missing";
    /// A figure is typical of a known cause of latency.
    KnownSignature = "known-signature";
    /// The tool that made this result recorded nothing above its threshold.
    NothingSeen = "nothing-seen";
    /// The kernel log has a message about a cause of latency.
    KernelLog = "kernel-log", "whylate explain --why KIND says what the message means";
    /// A target CPU is not isolated: other tasks may run on it and delay the measured task.
    NotIsolated = "not-isolated";
    /// The SMT sibling of a target CPU is online: tasks on the sibling slow the target CPU down.
    SmtSiblingOnline = "smt-sibling-online";
    /// The periodic tick runs on a target CPU: each tick is a short interruption.
    TickOnTarget = "tick-on-target";
    /// CPU 0 is a target CPU: by default it handles timekeeping and many interrupts for the whole machine.
    CpuZeroTarget = "cpu-0-target";
    /// Kernel threads are pinned to a target CPU and run when work is queued for this CPU.
    PinnedThreads = "pinned-threads";
    /// RCU callbacks run on a target CPU and may delay its tasks.
    RcuCallbacks = "rcu-callbacks";
    /// Work items of unbound workqueues may run on a target CPU, some of them for milliseconds.
    WorkqueueMask = "workqueue-mask";
    /// The kernel updates memory statistics (vmstat) on a target CPU every second.
    VmstatInterval = "vmstat-interval";
    /// Other programs or the kernel have armed timers on a target CPU: each timer interrupts this CPU.
    TimersOnTarget = "timers-on-target";
    /// The target CPUs are of different core types: figures of one type do not apply to another.
    MixedCoreKinds = "mixed-core-kinds";
    /// Movable interrupts may be delivered to a target CPU and delay the measured task.
    InterruptsOnTarget = "interrupts-on-target";
    /// Interrupts that cannot be moved are delivered to a target CPU when one of its tasks uses the device.
    ManagedInterrupts = "managed-interrupts";
    /// Interrupts that are set up later may be delivered to a target CPU.
    DefaultIrqAffinity = "default-irq-affinity";
    /// irqbalance runs, and may move interrupts to target CPUs.
    IrqBalance = "irqbalance";
    /// The frequency of a target CPU follows its load: after an idle period, code runs slower for a while.
    GovernorNotPerformance = "governor-not-performance";
    /// The frequency of a target CPU is not fixed, so the run time of code varies.
    FrequencyRange = "frequency-range";
    /// Turbo is on: the speed of a core depends on the load of the other cores.
    Turbo = "turbo";
    /// A target CPU may enter idle states that take long to leave, which delays wake-ups.
    DeepIdleStates = "deep-idle-states";
    /// The kernel reports no cache sizes for a target CPU: sizes relative to a cache are assumed, or cannot be used.
    NoCacheSizes = "no-cache-sizes";
    /// The last-level cache of a target CPU is shared: other CPUs evict the measured task's cache lines.
    CacheShared = "cache-shared";
    /// Transparent huge pages are set to `always`: a page fault may have to clear a whole huge page.
    HugePagesAlways = "huge-pages-always";
    /// The kernel merges identical pages (KSM): the next write to a merged page is a page fault.
    PageMerging = "page-merging";
    /// Swap is on: memory that is not locked may be swapped out, and its next use waits for the disk.
    SwapOn = "swap-on";
    /// NUMA balancing is on: it causes page faults, and moves pages and tasks between nodes.
    NumaBalancing = "numa-balancing";
    /// A graphics device may be powered down during the measurement, which delays real-time tasks with some drivers.
    GpuRuntimePower = "gpu-runtime-power";
    /// The clock of a graphics device follows its load: the driver changes it, sometimes with interrupts disabled.
    GpuFrequency = "gpu-frequency";
    /// A graphics device is in use: its interrupts and driver threads may delay the measured task.
    GpuInUse = "gpu-in-use";
    /// Power saving of a graphics driver is on: power states change at unpredictable moments.
    GpuDriverOptions = "gpu-driver-options";
    /// The driver of a Matrox graphics device maps video memory write-combining: a CPU that draws stalls other CPUs, even isolated ones.
    MatroxWriteCombining = "matrox-write-combining";
    /// The NVIDIA module runs on a PREEMPT_RT kernel, which NVIDIA does not support: the machine may hang.
    NvidiaOnRealtime = "nvidia-on-realtime";
    /// A file of the kernel exists but could not be read or parsed: a fact of the machine is missing.
    FactUnreadable = "fact-unreadable";
    /// Other resctrl groups share the reserved part of the cache, and their tasks may evict its lines.
    CacheGroupsOverlap = "cache-groups-overlap";
    /// Devices write into the reserved part of the cache and may evict its lines.
    CacheSharedWithDevices = "cache-shared-with-devices", "reserve a smaller share for the target CPUs";
    /// Records of the kernel's activity were lost: spikes may have other causes than the report says.
    CauseRecordsLost = "cause-records-lost";
    /// Causes come from the tracefs buffer, which costs more than BPF programs; stacks and the senders of interrupts are missing.
    CausesFromTracefs = "causes-from-tracefs";
    /// The BPF programs missed some wake-ups of the probe, so the causes of some latencies are not known.
    WakeupsUnseen = "wakeups-unseen", "compare with causes from tracefs (causes_from = \"tracefs\", --causes-from tracefs)";
    /// Some kinds of causes cannot be detected on this kernel: their spikes may remain unexplained.
    CausesIncomplete = "causes-incomplete";
    /// The time-stamp counters of the CPUs disagree: for some round trips only the total time is known.
    CountersDisagree = "counters-disagree";
    /// A file of the run directory was altered or removed after the run: figures from this file may be wrong.
    AlteredFile = "altered-file";
    /// The header and the events of a trace, or the clocks of its CPUs, contradict each other: times and causes may be wrong.
    ContradictoryTrace = "contradictory-trace";
    /// Rows of a table in the run directory contradict each other and are left out.
    ContradictoryRows = "contradictory-rows";
    /// Memory does not have the requested type: the figures apply to another type.
    MemoryModeNotEffective = "memory-mode-not-effective";
    /// A copy method produced wrong data and is left out.
    CopyAltered = "copy-altered";
    /// Memory of a requested type could not be opened, and is not measured.
    MemoryModeRefused = "memory-mode-refused";
    /// CPU 0 is shielded, but the kernel does work on CPU 0 that cannot be moved.
    Cpu0Shielded = "cpu-0-shielded", "shield another CPU";
    /// The manifest of the run directory is missing or altered: other missing or altered files may not be noticed.
    DamagedManifest = "damaged-manifest";
    /// A part of a table of the run directory cannot be read and is left out.
    DamagedSegment = "damaged-segment";
    /// Dispatch latencies are only reported as a whole, without their parts.
    DispatchWholeOnly = "dispatch-whole-only";
    /// A requested event is not recorded: traces lack this event.
    EventNotRecorded = "event-not-recorded";
    /// The kernel lacks some events of the trace profile: causes that need these events are not found.
    EventsMissing = "events-missing";
    /// The expected wake-up time is computed from the latency that the task wrote into the trace.
    ExpectedFromMarker = "expected-from-marker";
    /// The expected wake-up time is estimated from the task's last sleep and its period: latencies are estimates.
    ExpectedFromPeriod = "expected-from-period";
    /// Latency is counted from the wake-up: a delay before the wake-up is not seen.
    ExpectedFromWakeup = "expected-from-wakeup";
    /// The timer's expiry is handled in a softirq thread: the latency includes the wake-up of that thread.
    ExpiryInSoftirq = "expiry-in-softirq", "use `nanosleep`: for real-time tasks its expiry is handled in the hard interrupt";
    /// The source of the interrupt does not report the programmed time: latencies count from the earliest recent interrupt.
    ExpiryUnknown = "expiry-unknown";
    /// Only a part of the buffer uses huge pages.
    FewHugePages = "few-huge-pages";
    /// TLB flushes cannot be traced on this kernel.
    FlushesUnseen = "flushes-unseen";
    /// Other CPUs share their clock with the target CPUs and change frequency when the target CPUs do.
    FrequencyShared = "frequency-shared";
    /// The clock of a graphics device was not changed and may still follow the load.
    GpuClockUnchanged = "gpu-clock-unchanged";
    /// A requested histogram is not available on this kernel and is left out.
    HistogramMissing = "histogram-missing";
    /// Histograms come from the tracefs buffer, which costs more than BPF programs.
    HistogramsFromTracefs = "histograms-from-tracefs";
    /// Some wake-ups are missing from the histograms.
    HistogramsLost = "histograms-lost";
    /// Leaving an idle state took longer than the idle driver states: a limit on exit latencies may not work.
    IdleExitsLong = "idle-exits-long";
    /// Idle states are already limited: the treatment changes nothing.
    IdleShallowAlready = "idle-shallow-already";
    /// An interval of a killed run is incomplete and is left out.
    IncompleteInterval = "incomplete-interval";
    /// The container hides the interrupt lines.
    InterruptLinesHidden = "interrupt-lines-hidden", "run whylate outside the container";
    /// Interrupts that cannot be moved remain on shielded CPUs and may delay their tasks.
    InterruptsStay = "interrupts-stay";
    /// Some interrupts from other CPUs (IPIs) were not counted because a table was full: the counts are too low.
    IpiRecordsLost = "ipi-records-lost";
    /// Interrupts from other CPUs (IPIs) are not counted: the result does not show their senders.
    IpisNotCounted = "ipis-not-counted";
    /// An interrupt is managed by the kernel and cannot be moved.
    IrqManaged = "irq-managed";
    /// The journal, which lists changed settings, could not be read or written.
    Journal = "journal";
    /// A line of the journal, which lists changed settings, is damaged: some changes may be unknown.
    JournalDamaged = "journal-damaged";
    /// The record of the largest latencies could not be stored.
    LatencyRecordsNotKept = "latency-records-not-kept";
    /// The periodic tick still runs on shielded CPUs: each tick is a short interruption.
    LocalTimerStays = "local-timer-stays";
    /// Events of the trace were lost: causes may be missing or wrong.
    LostEvents = "lost-events", "record with a larger buffer, or fewer events";
    /// Older intervals were merged into longer ones to save disk space.
    OlderCoarser = "older-coarser", "allow more disk space with --disk";
    /// Settings of the machine are not the same as before the run.
    MachineChanged = "machine-changed";
    /// The main thread of the probe may run on a measured CPU and disturb the measurement.
    MainThreadNotMoved = "main-thread-not-moved";
    /// A round-trip method is not available on this machine and is left out.
    MethodUnavailable = "method-unavailable";
    /// Causes of spikes could not be recorded.
    NoCauses = "no-causes";
    /// `whylate histograms` cannot be controlled while it runs.
    NoControlSocket = "no-control-socket";
    /// For a part of the late time, the kernel function that ran is not known.
    NoFunctions = "no-functions";
    /// The kernel's latency histograms are not available.
    NoHistograms = "no-histograms";
    /// The buffer uses pages of normal size, not huge pages.
    NoHugePages = "no-huge-pages";
    /// The trace does not say which idle state the CPU had to leave.
    NoIdleStates = "no-idle-states";
    /// Interrupts of the measured CPUs could not be counted: the result does not list them.
    NoInterruptCounts = "no-interrupt-counts";
    /// The stall probe reads the kernel's clock instead of the time-stamp counter, so each turn of its loop takes longer.
    NoInvariantCounter = "no-invariant-counter";
    /// Interrupts from other CPUs (IPIs) are missing from the result.
    NoIpis = "no-ipis";
    /// The trace does not say when interrupts and preemption were disabled.
    NoIrqPreemptEvents = "no-irq-preempt-events";
    /// The noise floor cannot be measured: the stall check without load cannot run.
    NoNoiseFloor = "no-noise-floor";
    /// The CPU has no non-temporal stores: the load uses ordinary stores.
    NoNonTemporalStores = "no-non-temporal-stores";
    /// Only the total time of a round trip is known, not the time of each direction.
    NoOneWayTimes = "no-one-way-times";
    /// System-management interrupts (SMIs) are not counted: delays by the firmware remain unexplained.
    NoSmiCounter = "no-smi-counter";
    /// The round-trip method `spin` needs two CPUs and is left out.
    NoSpinOnOneCpu = "no-spin-on-one-cpu";
    /// The trace contains no context switches, so it cannot show which thread had the CPU.
    NoSwitches = "no-switches", "record sched:sched_switch and sched:sched_waking too";
    /// No task was found whose spikes could be explained.
    NoTask = "no-task", "name the task with --task, and record sched:sched_switch";
    /// A latency tracer of the kernel (hwlat, osnoise, timerlat) cannot be used.
    NoTracer = "no-tracer";
    /// The run directory has no manifest: missing files are not noticed.
    NotSealed = "not-sealed";
    /// Traces of spikes cannot be recorded.
    NoTraces = "no-traces";
    /// The CPUs' counters of instructions, cycles or cache misses cannot be read: the cause `own_work` does not say whether the task did more work, or the same work more slowly.
    NoWorkCounters = "no-work-counters";
    /// No wake-up was counted: the histograms are empty.
    NoWakeups = "no-wakeups";
    /// Output of the command could not be kept.
    OutputLost = "output-lost", "free disk space, or choose another place";
    /// A trace lacks switches to the task after some of its wake-ups: there may be more and longer latencies.
    RunsUnseen = "runs-unseen";
    /// The task of a trace was at work for longer than its period: its latencies leave out the cycles that then began late.
    OwnOverruns = "own-overruns";
    /// The pattern for the load's rate matched no line of the command's output: the load has no rate.
    RateNeverMatched = "rate-never-matched";
    /// The pattern for the load's rate matched text that is not a number.
    RateNotANumber = "rate-not-a-number";
    /// RCU callbacks still run on shielded CPUs and may delay their tasks.
    RcuCallbacksStay = "rcu-callbacks-stay";
    /// The load's interrupts only reach CPUs on which threads of the load run.
    ReachesOwnProcessOnly = "reaches-own-process-only", "measure with timer or dispatch, or with `stall --policy other`";
    /// Something in the trace may affect the result.
    Reader = "reader";
    /// The machine was rebooted in the middle of the run: repeats before and after the reboot may differ.
    ResumedAfterReboot = "resumed-after-reboot";
    /// The round-trip probe runs as an ordinary task, without real-time priority: other tasks may delay it.
    RoundtripWithoutPriority = "roundtrip-without-priority";
    /// The shield only sets affinities: a thread that sets its own affinity may still run on shielded CPUs.
    ShieldByAffinity = "shield-by-affinity";
    /// SMT is already off: the treatment changes nothing.
    SmtOffAlready = "smt-off-already";
    /// The round-trip method `spin` runs as an ordinary task, without real-time priority: other tasks may delay it.
    SpinWithoutPriority = "spin-without-priority";
    /// Another whylate process measures on the same CPU: both disturb each other.
    OtherWhylate = "other-whylate";
    /// The stall probe runs as an ordinary task: the run time of other tasks shows as gaps.
    StallWithoutPriority = "stall-without-priority";
    /// The end of context switches cannot be recorded: latencies do not include the switch itself.
    SwitchEndUnknown = "switch-end-unknown", "use a kernel that allows kprobes (CONFIG_KPROBES, no lockdown), or Linux 6.14 or newer";
    /// A thread is bound to its CPU and cannot be moved.
    TaskBound = "task-bound";
    /// Some threads had to be moved off their CPUs.
    ThreadsEvicted = "threads-evicted";
    /// Threads of other users or containers are not visible: the list of threads is incomplete.
    ThreadsHidden = "threads-hidden";
    /// Armed timers are not visible: timers on target CPUs may go unnoticed.
    TimersHidden = "timers-hidden", "run whylate as root";
    /// The metadata of a trace could not be written.
    TraceWithoutNote = "trace-without-note";
    /// The kernel's events are recorded while the probes measure, which adds latency.
    Traced = "traced", "compare with runs that are traced as well";
    /// Some lines of the tracer's output were lost: samples are missing.
    TracerLinesLost = "tracer-lines-lost";
    /// The priority of the tracer's threads could not be set.
    TracerPriority = "tracer-priority";
    /// Tracing was stopped at the first latency above --break (--tracemark) and remains stopped.
    TracingStopped = "tracing-stopped", "save /sys/kernel/tracing/trace, then `echo 1 > /sys/kernel/tracing/tracing_on`";
    /// A part of a treatment could not be applied: the figures show a weaker treatment.
    TreatmentIncomplete = "treatment-incomplete";
    /// A setting was not restored.
    TreatmentNotRestored = "treatment-not-restored", "whylate treat restore";
    /// Treatments that another run or command applied are in force, and affect these figures.
    TreatmentsInForce = "treatments-in-force", "whylate treat restore";
    /// An optional treatment cannot be applied on this machine: cells with this treatment run without it.
    TreatmentLeftOut = "treatment-left-out";
    /// The record of the treatments could not be stored.
    TreatmentsNotKept = "treatments-not-kept";
    /// Settings that a killed process had changed were restored.
    TreatmentsRecovered = "treatments-recovered";
    /// Some spikes have no known cause: spikes came faster than their causes could be determined.
    UnexplainedSpikes = "unexplained-spikes", "raise the threshold";
    /// A record of the largest latencies cannot be read.
    UnreadableLatencyRecord = "unreadable-latency-record";
    /// A trace cannot be read.
    UnreadableTrace = "unreadable-trace";
    /// The metadata of a trace cannot be read.
    UnreadableTraceNote = "unreadable-trace-note";
    /// Some spikes have no trace, because another trace was being saved.
    UntracedSpikes = "untraced-spikes";
    /// A result of another tool has less information than a run of whylate.
    ForeignResult = "foreign-result";
    /// A row of a table in the run directory is not usable and is left out.
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
