//! The kinds of messages: one row each. If a line matches several, the order decides.

use whylate_core::result::{CauseKind, Severity};

/// A kind of kernel message that is about latency.
#[derive(Debug)]
pub struct MessageKind {
    /// The stable name that scripts see.
    pub code: &'static str,
    pub severity: Severity,
    /// As `pattern.rs` reads them. One with `+` adds to the message before it.
    pub patterns: &'static [&'static str],
    /// What happened, and its effect on latency.
    pub meaning: &'static str,
    /// The meaning of its CPU, thread and figure, and what it does not say.
    pub names: &'static str,
    pub fix: &'static str,
    /// Where the kernel prints it.
    pub source: &'static str,
    /// The kind of cause that it may be.
    pub cause: Option<CauseKind>,
    /// A later line with one of these takes it back.
    pub undone_by: &'static [&'static str],
}

/// Rows of a severity: code, cause, source, patterns; meaning; names; fix.
macro_rules! kinds {
    ($($severity:ident $code:literal, $cause:expr, $source:literal, [$($pattern:literal),+ $(,)?] $(undone by [$($undone:literal),+])?;
        $meaning:literal; $names:literal; $fix:literal;)+) => {
        /// Every kind.
        pub const KINDS: &[MessageKind] = &[$(MessageKind {
            code: $code,
            severity: Severity::$severity,
            patterns: &[$($pattern),+],
            meaning: $meaning,
            names: $names,
            fix: $fix,
            source: $source,
            cause: $cause,
            undone_by: &[$($($undone),+)?],
        },)+];
    };
}

const NONE: Option<CauseKind> = None;
const THROTTLED: Option<CauseKind> = Some(CauseKind::Throttled);
const IRQ: Option<CauseKind> = Some(CauseKind::Irq);
const NMI: Option<CauseKind> = Some(CauseKind::Nmi);
const SMI: Option<CauseKind> = Some(CauseKind::Smi);
const HARDWARE: Option<CauseKind> = Some(CauseKind::Hardware);
const THREAD: Option<CauseKind> = Some(CauseKind::Thread);
const IRQS_OFF: Option<CauseKind> = Some(CauseKind::IrqsOff);
const PREEMPT_OFF: Option<CauseKind> = Some(CauseKind::PreemptOff);
const SOFTIRQ: Option<CauseKind> = Some(CauseKind::Softirq);
const IPI: Option<CauseKind> = Some(CauseKind::Ipi);
const TIMER_LATE: Option<CauseKind> = Some(CauseKind::TimerLate);

kinds! {
    Serious "rt_throttling", THROTTLED, "kernel/sched/rt.c", ["RT throttling activated"];
        "real-time tasks used up sched_rt_runtime_us (950 ms) of sched_rt_period_us (1 s) on a CPU, and the kernel stopped all real-time tasks of that CPU until the next period: each is late by up to 50 ms, whatever its priority";
        "the line names neither the CPU nor the task, and the kernel prints it only once or now and then: the number of lines is not how often it happened";
        "find the real-time task that does not sleep and let it sleep, or `sysctl -w kernel.sched_rt_runtime_us=-1` if no real-time task can take a CPU for ever (a housekeeping CPU would hang); Linux 6.12 and later have the fair server instead";
    Serious "dl_lag", THROTTLED, "kernel/sched/deadline.c", ["sched: DL replenish lagged too much", "sched: DL de-boosted task PID"];
        "a SCHED_DEADLINE task or the fair server got its budget so late that the kernel set its deadline anew: the CPU did not run the scheduler for a period or longer";
        "the line names neither the CPU nor the task, and is printed once";
        "look for what held up the CPU (interrupts disabled, SMI, a host that did not run the virtual CPU); `whylate run --trace` on that machine shows it";
    Info "dl_server_off", THROTTLED, "kernel/sched/debug.c", ["server disabled in CPU {cpu}, system may crash", "server disabled on CPU {cpu}, system may crash"];
        "the fair server was switched off on that CPU: ordinary tasks no longer get 50 ms of each second when real-time tasks use all of it";
        "the CPU is the one whose fair server was switched off";
        "wanted for real-time loops that do not sleep; on housekeeping CPUs, write the runtime back to /sys/kernel/debug/sched/fair_server/cpuN/runtime";
    Serious "xenomai_watchdog", THREAD, "kernel/cobalt/sched.c, kernel/evl/sched", ["watchdog triggered on CPU #{cpu} -- runaway thread '{task}' signaled"];
        "a thread of Xenomai or EVL used its CPU for seconds without a pause, and the watchdog stopped it";
        "the CPU and the thread are those that ran away";
        "look for the loop in that thread that does not sleep";
    Serious "sched_unexpected", NONE, "kernel/sched/core.c", ["BUG: scheduling while atomic: {task}/{pid}/"];
        "code that disabled preemption or interrupts went to sleep: the kernel or a driver is wrong, and latencies on that CPU cannot be relied on";
        "the thread is the one that slept; the call trace after it has the driver";
        "update or leave out the driver in the call trace, and report it with the trace";
    Serious "sleeping_in_atomic", NONE, "kernel/sched/core.c", ["BUG: sleeping function called from invalid context at {function}", "[ BUG: Invalid wait context ]", "BUG: Invalid wait context"];
        "a function that may sleep was called with preemption or interrupts disabled; on PREEMPT_RT ordinary spinlocks sleep, so a driver that takes one there is wrong";
        "the place is where it was called; the call trace after it has the driver";
        "update the driver in the call trace, or report it with the trace (its lock must be a raw_spinlock_t, or the section preemptible)";
    Serious "need_resched", PREEMPT_OFF, "kernel/sched/debug.c", ["CPU {cpu}: need_resched set for > {ns} ns ({*} ticks) without schedule", "CPU {cpu} need_resched set for > {ns} ns", "CPU {cpu} need_resched_lazy set for > {ns} ns"];
        "a thread should have been preempted and went on in the kernel for that long: the CPU did not schedule, so every other thread of the CPU waited";
        "the CPU is the one that did not schedule; the call trace after it is of the thread that ran";
        "the function in the call trace needs a preemption point: try PREEMPT_LAZY, PREEMPT or PREEMPT_RT, and report it";
    Serious "soft_lockup", PREEMPT_OFF, "kernel/watchdog.c", ["BUG: soft lockup - CPU#{cpu} stuck for {s}s! [{task}:{pid}]", "BUG: soft lockup - CPU#{cpu} stuck for {s}s!", "BUG: soft lockup detected on CPU#{cpu}"];
        "the watchdog's thread of the highest priority could not run on that CPU for that long: the thread that is named did not leave the kernel, or the host did not run the virtual CPU";
        "the CPU is the one that stood; the thread is the one that ran when the watchdog looked, often the one at fault, and in a virtual machine often a bystander";
        "read the call trace after it; in a virtual machine look at the steal time of the host first";
    Serious "hard_lockup", IRQS_OFF, "kernel/watchdog.c", ["Watchdog detected hard LOCKUP on cpu {cpu}", "Watchdog detected LOCKUP on CPU{cpu}"];
        "interrupts were disabled on that CPU for about 10 s or longer (watchdog_thresh)";
        "the CPU is the one whose timer interrupt did not come";
        "read the call trace after it: the function there disabled interrupts or spins on a lock; firmware and a stopped virtual CPU look the same";
    Serious "spinlock_lockup", Some(CauseKind::Lock), "kernel/locking/spinlock_debug.c", ["BUG: spinlock lockup suspected on CPU#{cpu}, {task}/{pid}", "BUG: spinlock lockup on CPU#{cpu}, {task}/{pid}"];
        "a CPU spun for a lock for a second or longer";
        "the CPU and the thread are those that waited; `.owner` in the next line holds the lock";
        "read what the owner did in its call trace";
    Serious "rcu_stall", PREEMPT_OFF, "kernel/rcu/tree_stall.h", ["INFO: {*} self-detected stall on CPU", "INFO: {*} detected stalls on CPUs/tasks", "INFO: {*} detected stall on CPU {cpu}", "INFO: {*} detected stalls on tasks", "+{cpu} ({*} ticks this GP)"];
        "a grace period of RCU did not end for the stall time (21 s unless set): a CPU stayed in the kernel, with interrupts or preemption disabled, or a preempted reader did not get to run (a real-time thread above it took the CPU)";
        "the CPU is the one that did not pass a quiescent state; a virtual CPU that its host does not run looks the same";
        "read the call trace of that CPU; a real-time thread that never sleeps needs `rcutree.kthread_prio` above it, RCU_BOOST, or rcu_nocbs";
    Serious "rcu_expedited_stall", PREEMPT_OFF, "kernel/rcu/tree_exp.h", ["INFO: {*} detected expedited stalls on CPUs/tasks: {*} {cpu}-", "INFO: {*} detected expedited stalls on CPUs/tasks"];
        "an expedited grace period waits for a CPU that does not answer; expedited grace periods interrupt every CPU";
        "the CPU in braces is the one that did not answer";
        "read its call trace; on isolated CPUs `rcupdate.rcu_normal=1` (`rcu_normal_after_boot`, the default of PREEMPT_RT) avoids the interrupts";
    Serious "rcu_kthread_starved", THREAD, "kernel/rcu/tree_stall.h", ["{*} kthread starved for {*} jiffies!", "+->cpu={cpu}"];
        "the kernel thread of RCU did not get the CPU for that long: real-time threads of a higher priority took it; memory that RCU frees piles up";
        "the CPU is where the thread waited; who had the CPU is in the call trace after it";
        "let the real-time thread on that CPU sleep, move the rcu threads to housekeeping CPUs, or raise `rcutree.kthread_prio`";
    Serious "rcu_timer_missing", TIMER_LATE, "kernel/rcu/tree_stall.h", ["kthread timer wakeup didn't happen for", "+Possible timer handling issue on cpu={cpu}"];
        "a timer of a few ms did not fire for seconds: the timer interrupt or its softirq did not run on that CPU";
        "the CPU is the one whose timers are late";
        "look for disabled interrupts, a starved ksoftirqd or ktimers thread, or a stopped virtual CPU";
    Serious "csd_lock", IPI, "kernel/smp.c", ["Detected non-responsive CSD lock (#{*}) on CPU#{*}, waiting {ns} ns for CPU#{cpu} {function}("];
        "a CPU did not answer a call from another CPU for that long: it had interrupts disabled, or it did not run at all";
        "the CPU is the one that did not answer; the other one waited in a busy loop";
        "read the backtrace of the CPU that did not answer; firmware (SMI) and a stopped virtual CPU look the same";
    Serious "workqueue_lockup", THREAD, "kernel/workqueue.c", ["BUG: workqueue lockup - pool cpus={cpu} {*} stuck for {s}s!", "BUG: workqueue lockup - pool"];
        "work items of that CPU did not start for that long: either real-time threads took the CPU and the kworker could not run, or the work item that it runs does not end";
        "the CPU is where the work waits; 'Showing busy workqueues' after it lists the items";
        "let real-time threads on that CPU sleep, or keep per-CPU work away from it (shield it)";
    Advice "workqueue_hog", THREAD, "kernel/workqueue.c", ["workqueue: {function} hogged CPU for >{us}us {count} times", "workqueue: {function} hogged CPU for >{us}us"];
        "this work item ran for longer than the figure each time, on a per-CPU kworker: ordinary tasks of that CPU waited meanwhile; a real-time task above the kworker (SCHED_OTHER) did not, unless the item disables preemption";
        "the function is the work item; the number of times is the kernel's running count, not one for each line; the CPU is not known";
        "keep the work off the measured CPU (a shield cannot move per-CPU work that is queued there: queue it elsewhere), update the driver, or switch off what queues it; for output_poll_execute and i915_hpd_poll_init_work: `drm_kms_helper.poll=0`, or a kernel with the patches that move them to an unbound workqueue";
    Serious "hung_task", Some(CauseKind::Lock), "kernel/hung_task.c", ["INFO: task {task}:{pid} blocked for more than {s} seconds", "INFO: task {task}:{pid} is blocked on"];
        "the thread slept uninterruptibly for that long: it waits for a lock or a device";
        "the thread is the one that waited, not the one at fault";
        "read its call trace for what it waits for; `echo w > /proc/sysrq-trigger` lists all that wait";
    Serious "hangcheck", HARDWARE, "drivers/char/hangcheck-timer.c", ["Hangcheck: hangcheck value past margin"];
        "the whole machine or the virtual machine stood still for longer than the margin";
        "it names neither CPU nor task";
        "look for suspension of the virtual machine, SMIs, or a halted bus";
    Advice "hrtimer_interrupt", IRQ, "kernel/time/hrtimer.c", ["hrtimer: interrupt took {ns} ns"];
        "after three rounds a timer interrupt still had expired timers to handle, and the kernel put the next timer interrupt off by that time: every timer of that CPU was late by up to that much";
        "which CPU, which timer and which task was late cannot be seen from it; the first one is printed, later ones are only counted (/proc/timer_list, nr_hangs)";
        "in a virtual machine: the host did not run the virtual CPU (steal time). On a bare machine: SMIs, a slow clock source (hpet), or a callback that runs for long; `whylate run --trace` tells them apart";
    Advice "perf_interrupt", NMI, "kernel/events/core.c", ["perf: interrupt took too long ({ns} > {*}), lowering kernel.perf_event_max_sample_rate", "perf samples too long ({ns} > {*}), lowering kernel.perf_event_max_sample_rate", "perf interrupt took too long ({ns} > {*}), lowering kernel.perf_event_max_sample_rate"];
        "perf's sampling interrupt (an NMI on x86) took that long on average: this machine is being profiled, and each sample delays what runs";
        "the figure is a running average of the interrupts; the CPU is not known";
        "do not profile while measuring; `perf_event_max_sample_rate` bounds it; `nmi_watchdog=0` frees the watchdog's counter";
    Serious "nmi_handler", NMI, "arch/x86/kernel/nmi.c", ["INFO: NMI handler ({function}) took too long to run: {ms} msecs"];
        "a non-maskable interrupt ran for that long: no other task ran on that CPU, real-time or not; often an SMI came in the middle, or a host did not run the virtual CPU";
        "the function is the handler (perf_event_nmi_handler: profiling or the NMI watchdog; ghes_notify_nmi: hardware errors); the CPU is not known";
        "`nmi_watchdog=0`, no profiling while measuring; for ghes look at the machine's error log";
    Advice "nmi_unknown", NMI, "arch/x86/kernel/nmi.c", ["NMI received for unknown reason {*} on CPU {cpu}", "NMI: PCI system error (SERR) for reason", "NMI: IOCK error"];
        "a non-maskable interrupt came that no handler knows: often a hardware error, or the firmware";
        "the CPU is the one that got it";
        "look for hardware errors (memory, PCIe) in the firmware's log";
    Info "nmi_watchdog", NMI, "kernel/watchdog.c", ["NMI watchdog: Enabled. Permanently consumes one hw-PMU counter"];
        "the hard-lockup watchdog interrupts every CPU that it watches by an NMI every few seconds of its run time";
        "it applies to all CPUs of the watchdog's mask";
        "`nmi_watchdog=0`, or `sysctl -w kernel.nmi_watchdog=0`";
    Serious "tsc_unstable", TIMER_LATE, "arch/x86/kernel/tsc.c", ["Marking TSC unstable due to {*}", "Clocksource tsc unstable (delta = {*})", "TSC found unstable after boot"];
        "the kernel gave up the time-stamp counter until the next boot: each reading of the clock is now a system call and an access to a slow shared device (hpet or acpi_pm, about 1 us or more): it costs latency, and makes what is measured worse";
        "no CPU or task is at fault by this line; known reasons: firmware that writes the counter, tools that change P-states or MSRs, a virtual CPU that its host did not run while the watchdog looked";
        "reboot to get it back; `tsc=nowatchdog` or `tsc=reliable` only on machines whose counter is known to be good (constant_tsc, nonstop_tsc, one socket); look for the reason first";
    Serious "clocksource_watchdog", TIMER_LATE, "kernel/time/clocksource.c", ["timekeeping watchdog on CPU{cpu}: Marking clocksource '{*}' as unstable because the skew is too large", "timekeeping watchdog on CPU{cpu}: Marking clocksource", "Marking clocksource '{*}' as unstable"];
        "the clock source disagreed with the watchdog's clock, and the kernel gave it up";
        "the CPU is the one that made the check; it is not at fault";
        "look at the clock that is used now: `cat /sys/devices/system/clocksource/clocksource0/current_clocksource`";
    Advice "clocksource_read_delay", HARDWARE, "kernel/time/clocksource.c", ["excessive read-back delay of {ns}ns vs. limit", "wd-wd read-back delay of {ns}ns", "read-back delay of {ns}ns, attempt {count}, marking unstable", "Long readout interval, skipping watchdog check: cs_nsec: {ns}"];
        "reading the watchdog's clock (hpet) took that long with interrupts disabled: a slow bus, an SMI, or a host that did not run the virtual CPU";
        "the CPU in it is the one that made the check; it is not at fault";
        "on machines whose counter is known to be good, `tsc=nowatchdog` ends these reads";
    Serious "tsc_warp", NONE, "arch/x86/kernel/tsc_sync.c", ["cycles TSC warp between CPUs, turning off TSC clock"];
        "the counters of the CPUs differ: the kernel does not use them, and its clock is slow to read";
        "it applies to the whole machine";
        "update the firmware: it must not write the counter";
    Advice "tsc_adjust", SMI, "arch/x86/kernel/tsc_sync.c", ["TSC ADJUST differs", "TSC ADJUST compensate"];
        "the firmware writes the time-stamp counter, as some do to hide the time of SMIs";
        "the CPUs are those whose counters were written";
        "update the firmware; look for SMIs: `whylate run` counts them";
    Serious "slow_clocksource", NONE, "kernel/time/clocksource.c", ["Switched to clocksource hpet", "Switched to clocksource acpi_pm", "Switched to clocksource refined-jiffies", "Switched to clocksource jiffies", "Switching to clocksource hpet", "Switching to clocksource acpi_pm"] undone by ["Switched to clocksource tsc", "Switched to clocksource arch", "Switched to clocksource kvm", "Switched to clocksource hyperv"];
        "the clock is read from a slow device, without the vDSO: each clock_gettime() is a system call and about 1 us or more, and CPUs that read at the same time wait for each other";
        "it applies to the whole machine";
        "find why the counter was given up (`dmesg | grep -i tsc`), and reboot with the reason removed";
    Advice "clockevent_min_delta", TIMER_LATE, "kernel/time/clockevents.c", ["increased min_delta_ns to {ns} nsec", "increasing min_delta_ns to {ns} nsec", "CE: Reprogramming failure. Giving up"];
        "the timer device could not be programmed in time, and the kernel now sets timers at least that far ahead: every timer may be late by it";
        "the figure is of one timer device";
        "use the local timer (`lapic`, not hpet); in a virtual machine the figure shows how long the host interrupted the guest";
    Advice "nohz_softirq_pending", SOFTIRQ, "kernel/time/tick-sched.c", ["NOHZ tick-stop error: {*} softirq work is pending, handler", "NOHZ: local_softirq_pending"];
        "a CPU went idle with softirq work pending, which then waits until the next interrupt: network or timer work on it was late";
        "the handler is the mask of softirqs (08: NET_RX, 80: SCHED, 200: RCU); the CPU is not known";
        "a driver raises a softirq outside of a section with softirqs disabled; update the kernel and the driver";
    Serious "unknown_parameters", NONE, "init/main.c", ["Unknown kernel command line parameters \"{function}\", will be passed to user space", "Unknown kernel command line parameters \"{function}\"", "Unknown kernel command line parameters"];
        "the kernel does not know these words of its command line: they have no effect";
        "words of user space (BOOT_IMAGE, splash) are listed, too";
        "check the spelling, and whether this kernel was built with the option's CONFIG";
    Serious "parameter_refused", NONE, "kernel/sched/isolation.c, init/main.c, kernel/time/tick-sched.c", ["Housekeeping: nohz unsupported", "Housekeeping: nohz_full= must match isolcpus=", "Housekeeping: nohz_full= or isolcpus= incorrect CPU range", "Housekeeping: must include one present CPU", "isolcpus: Skipped unknown flag {function}", "isolcpus: Invalid flag {function}", "Malformed early option '{function}'", "NO_HZ: Can't run full dynticks because", "NO_HZ: Clearing {cpu} from nohz_full range"];
        "the kernel refused an option of its command line, or took a part of it: isolation differs from what was requested";
        "it says which option";
        "correct the option; CONFIG_NO_HZ_FULL and CONFIG_RCU_NOCB_CPU must be built in";
    Serious "irq_nobody_cared", IRQ, "kernel/irq/spurious.c", ["irq {count}: nobody cared", "Disabling IRQ #{count}"];
        "an interrupt came 100,000 times and no handler wanted it: the kernel switched the line off, and the device is now polled or dead; until then the CPU did nothing else";
        "the number is the interrupt line; the handlers are listed after it";
        "update the driver or the firmware; `irqpoll` only to find out which";
    Advice "irq_no_handler", IRQ, "arch/x86/kernel/irq.c", ["No irq handler for vector", "spurious 8259A interrupt"];
        "an interrupt without a handler came: mostly a firmware that raises it, or a moved interrupt";
        "the number before the dot is the CPU that got it";
        "harmless when rare; update the firmware when it repeats";
    Advice "affinity_lost", IRQ, "kernel/irq/cpuhotplug.c, kernel/cpuset.c", ["IRQ {count}: no longer affine to CPU{cpu}", "process {pid} ({task}) no longer affine to cpu{cpu}", "IRQ{count}: set affinity failed", "set affinity failed("];
        "an interrupt or a thread was moved off the CPU that it was set to";
        "the CPU is the one that it was set to";
        "set the affinity again after CPUs went offline, and check it: `whylate cpus`";
    Info "cpu_offline", NONE, "kernel/cpu.c", ["smpboot: CPU {cpu} is now offline", "psci: CPU{cpu} killed", "CPU{cpu}: shutdown"];
        "a CPU was taken offline, which stops all CPUs for some time";
        "the CPU is the one that went";
        "do not change CPUs while real-time tasks run";
    Serious "thermal_throttle", HARDWARE, "drivers/thermal/intel/therm_throt.c", ["CPU{cpu}: Core temperature above threshold, cpu clock throttled (total events = {count})", "CPU{cpu}: Core temperature is above threshold, cpu clock is throttled (total events = {count})", "CPU{cpu}: Package temperature above threshold, cpu clock throttled (total events = {count})", "CPU{cpu}: Package temperature is above threshold, cpu clock is throttled (total events = {count})", "temperature above threshold, cpu clock throttled"];
        "the processor was too hot and slowed itself: everything on it takes longer, and the interrupt itself takes time";
        "the CPU is the one that is hot; the count of events is since boot";
        "cool it; bound the frequency instead (`whylate run` with the treatment `governor`)";
    Advice "power_limit", HARDWARE, "drivers/thermal/intel/therm_throt.c", ["CPU{cpu}: {*} power limit notification (total events = {count})"];
        "the processor reached its power limit and slowed itself";
        "the CPU is the one that got the interrupt";
        "raise the limit in the firmware, or bound the frequency";
    Serious "thermal_critical", HARDWARE, "drivers/thermal", ["critical temperature reached", "thermal_zone{count}: failed to read out"];
        "a part of the machine is too hot";
        "it names the zone";
        "cool it";
    Serious "under_voltage", HARDWARE, "drivers/hwmon/raspberrypi-hwmon.c", ["Undervoltage detected!", "Under-voltage detected!"];
        "the supply is too weak: the firmware slows the processor, and everything on it takes longer";
        "it applies to the whole board";
        "a better power supply and cable";
    Advice "machine_check", HARDWARE, "arch/x86/kernel/cpu/mce", ["[Hardware Error]: Machine check events logged", "mce: [Hardware Error]: CPU {cpu}: Machine Check", "Hardware error from APEI Generic Hardware Error Source", "CMCI storm detected", "CPU{cpu}: Machine Check"];
        "the hardware reported an error; many machines report corrected errors by an SMI or an NMI of milliseconds";
        "the CPU is the one that reported it";
        "`rasdaemon` or `mcelog` says which part; replace it";
    Advice "memory_errors", SMI, "drivers/edac", [" CE memory read error on ", " CE memory scrubbing error", " UE memory "];
        "a memory module has errors; firmware that logs them does so by SMIs of milliseconds";
        "it names the module";
        "replace the module";
    Advice "pcie_errors", HARDWARE, "drivers/pci/pcie/aer.c", ["AER: Corrected error received", "AER: Corrected error message received", "AER: Multiple Corrected error", "PCIe Bus Error: severity=Corrected", "AER: Uncorrected (Non-Fatal) error", "PCIe Bus Error: severity=Uncorrected"];
        "a PCIe link has errors: transfers are repeated, reads of registers stall the CPU meanwhile, and each report is an interrupt";
        "it names the device";
        "reseat the card; try `pcie_aspm=off`; update its firmware";
    Advice "smi_chipset", SMI, "kernel/cobalt/arch/x86/smi.c", ["SMI-enabled chipset", "SMI-enabled {*} chipset found", "SMI workaround failed"];
        "the chipset can interrupt the machine by SMIs, which the kernel does not see";
        "it applies to the whole machine";
        "switch SMI sources off in the firmware (legacy USB, thermal, power button); `whylate run` counts SMIs";
    Advice "acpi_ec", IRQ, "drivers/acpi/ec.c", ["EC: GPE storm detected", "ACPI: EC: missing confirmations", "ACPI: EC: input buffer is not empty"];
        "the embedded controller interrupts too often or does not answer: ACPI polls it, which takes milliseconds in a kworker";
        "it is about the embedded controller (fans, battery, keys)";
        "update the firmware; stop what reads batteries and sensors often";
    Info "acpi_error", NONE, "drivers/acpi/acpica", ["ACPI Error: Aborting method {function} due to previous error", "ACPI Error: Method parse/execution failed"];
        "a method of the firmware failed: ACPI may try it again and again";
        "the path is the method";
        "update the firmware; unload the driver that calls it";
    Advice "tpm", HARDWARE, "drivers/char/tpm", ["TPM interrupt storm detected", "A TPM error ({*}) occurred", "tpm_try_transmit: "];
        "the TPM is slow or wrong: its driver waits for the device, and on some machines the bus and the CPU stand meanwhile (the TPM read is a known stall of Apollo Lake)";
        "it names the device";
        "do not read the TPM (its random numbers too) while real-time tasks run: `tpm_tis.interrupts=0`, hwrng off";
    Advice "split_lock", IRQS_OFF, "arch/x86/kernel/cpu/bus_lock.c", ["split lock detection: #AC: {task}/{pid} took a split_lock trap", "took a split_lock trap at address", "split lock detection: #DB: {task}/{pid} took a bus_lock trap", "took a bus_lock trap at address"];
        "the task locked a value that lies across two cache lines: the memory bus is locked for all CPUs for about a thousand cycles each time; with the default setting the kernel also makes the task wait 10 ms";
        "the task is the one that took the lock; if it is the thread of a virtual CPU, a program in the guest did. Others are delayed by it";
        "align the data in that program; `split_lock_detect=` and `kernel.split_lock_mitigate` choose what the kernel does";
    Advice "i915_atomic_update", IRQS_OFF, "drivers/gpu/drm/i915/display", ["Atomic update failure on pipe {*}) time {us} us", "Atomic update failure on pipe"];
        "the graphics driver could not write its registers within the time before the frame, which it does with interrupts disabled: something held that CPU up for that long; it says so of any delay, its own too";
        "the figure is how long the update took; the driver measured it and may be the victim";
        "if the delay came during graphics work, keep the display server's threads off the real-time CPUs";
    Advice "i915_underrun", NONE, "drivers/gpu/drm/i915", ["FIFO underrun"];
        "the display did not get its data in time: memory is busy";
        "it names the pipe; no task is late by it";
        "look at what loads the memory, and at the frequency settings of the memory";
    Serious "gpu_hang", NONE, "drivers/gpu/drm", ["GPU HANG: ecode", "*ERROR* ring {function} timeout", "amdgpu: ring {function} timeout", "GPU reset begin", "Resetting chip for ", "fifo: fault {*} engine"];
        "a graphics processor hung, and its driver reset it: resets disable interrupts or wait in busy loops for milliseconds";
        "it names the engine; what ran on it is in the lines after it";
        "update the driver and its firmware";
    Serious "nvidia_xid", NONE, "NVIDIA driver", ["NVRM: Xid (PCI:{*}): {count}", "NVRM: GPU at {*} has fallen off the bus", "Idling display engine timed out"];
        "the NVIDIA driver reports an error of the graphics processor; it recovers with interrupts disabled, or by waits in busy loops";
        "the number is the Xid";
        "look the Xid up in NVIDIA's list; update the driver";
    Info "drm_timeout", NONE, "drivers/gpu/drm/drm_atomic_helper.c", ["flip_done timed out", "vblank wait timed out on crtc", "commit wait timed out"];
        "a display did not finish a frame for 10 s";
        "it names the display's part";
        "update the driver";
    Advice "hpd_storm", IRQ, "drivers/gpu/drm/i915/display/intel_hotplug_irq.c", ["HPD interrupt storm detected on connector {function}:"];
        "a display connector interrupts all the time";
        "it names the connector";
        "try another cable; unplug adapters without a display";
    Serious "xhci_stuck", NONE, "drivers/usb/host/xhci.c", ["xHCI host not responding to stop endpoint command", "xHCI host controller not responding, assume dead", "HC died; cleaning up", "WARN Event TRB for slot", "Abort failed to stop command ring"];
        "a USB controller does not answer: its driver waits for it with interrupts disabled, for milliseconds and longer";
        "it names the controller";
        "try another port, cable or device; update the firmware; keep its interrupt off the real-time CPUs";
    Info "usb_reset", NONE, "drivers/usb/core/hub.c", ["usb {*}: reset {*} USB device number", "device descriptor read/64, error", "device not accepting address"];
        "a USB device was reset: transfers wait for 100 ms and longer";
        "it names the device";
        "try another cable, port or supply; `usbcore.autosuspend=-1`";
    Serious "netdev_watchdog", NONE, "net/sched/sch_generic.c", ["NETDEV WATCHDOG: {function}:", "NETDEV WATCHDOG: {function} (", "Detected Hardware Unit Hang", "transmit queue {*} timed out"];
        "a network device did not send for seconds, and its driver resets it: frames were late or lost; resets write many registers in busy loops";
        "it names the device";
        "update the driver; switch off its power saving (`ethtool --set-eee`, `pcie_aspm=off`)";
    Advice "nvme_timeout", NONE, "drivers/nvme/host/pci.c", ["nvme {*}: I/O {*} timeout", "completion polled", "nvme {*}: controller is down"];
        "a request to the disk took 30 s or its interrupt was lost";
        "it names the device";
        "`nvme_core.default_ps_max_latency_us=0`, `pcie_aspm=off`, new firmware; real-time tasks must not wait for the disk";
    Advice "ata_reset", NONE, "drivers/ata/libata-eh.c", ["hard resetting link", "exception Emask", "link is slow to respond"];
        "a disk's link was reset: reads and writes wait for seconds";
        "it names the port";
        "check the disk and its cable; real-time tasks must not wait for the disk (lock their memory)";
    Advice "mmc_timeout", NONE, "drivers/mmc/host/sdhci.c", ["Timeout waiting for hardware interrupt", "mmc{count}: Timeout waiting", "Card stuck being busy"];
        "the SD card or eMMC did not answer for 10 s";
        "it names the slot";
        "try another card; real-time tasks must not wait for it";
    Advice "audit_flood", THREAD, "kernel/audit.c", ["audit: audit_backlog={count} > audit_backlog_limit", "audit: kauditd hold queue overflow", "audit: audit_lost={count}", "audit: rate limit exceeded", "audit: backlog limit exceeded"];
        "audit makes more records than its reader takes: system calls of any task wait for up to audit_backlog_wait_time (60 s)";
        "the count is of records";
        "`auditctl -e 0`, or boot with `audit=0`, or drop the rules that make them";
    Advice "printk_flood", IRQS_OFF, "kernel/printk/printk.c, lib/ratelimit.c", ["** {count} printk messages dropped **", "{function} {count} callbacks suppressed", "output lines suppressed due to ratelimiting"];
        "the kernel wrote more messages than its console or its limit takes: on a serial console each letter takes 87 us at 115200 baud, and without PREEMPT_RT's threaded consoles with interrupts or preemption disabled";
        "the function is the one that wrote; the count is of lines that were left out";
        "boot with `loglevel=3` or `quiet` and without a serial console, and stop what writes the messages";
    Info "serial_console", IRQS_OFF, "kernel/printk/printk.c", ["console [ttyS{count}] enabled", "console [ttyAMA{count}] enabled", "console [ttymxc{count}] enabled", "console [ttyPS{count}] enabled", "console [ttyO{count}] enabled"];
        "messages go to a serial console: each letter takes 87 us at 115200 baud, and kernels before 6.12 write with interrupts or preemption disabled";
        "the number is the port";
        "`loglevel=3` or `quiet`, or no `console=ttyS…`";
    Serious "serial_overrun", NONE, "drivers/tty/serial", ["input overrun(s)", "too much work for irq{count}"];
        "the serial port's interrupt came too late and bytes were lost, or it did not end: interrupts were disabled for longer than its FIFO lasts";
        "it names the port or the line; not what disabled interrupts";
        "record it: `whylate run --trace`; a larger FIFO trigger level helps against loss";
    Serious "rtc_lost", TIMER_LATE, "drivers/char/rtc.c, arch/x86/kernel/hpet.c", ["rtc: lost some interrupts at", "hpet: Lost {count} RTC interrupts", "lost {count} rtc interrupts"];
        "interrupts of the real-time clock were lost: they came faster than the CPU could take them";
        "the count is of interrupts";
        "look for disabled interrupts or SMIs: `whylate run --trace`";
    Serious "pcm_xrun", NONE, "sound/core/pcm_lib.c", ["XRUN: {function}", "BUG: pcmC{*}, pos = "];
        "a sound device ran out of data: the audio task was late, or the driver's position is wrong";
        "it names the stream; not what made the task late";
        "watch the task: `whylate watch --task NAME`";
    Advice "hda_polling", IRQ, "sound/hda", ["azx_get_response timeout, switching to polling mode", "spurious response", "No response from codec"];
        "the sound controller does not answer by interrupts: its driver polls it";
        "it names the controller";
        "`snd_hda_intel.enable_msi=1`, or unload it";
    Advice "iommu_faults", IRQ, "drivers/iommu", ["DMAR: DRHD: handling fault status", "[IO_PAGE_FAULT ", "arm-smmu {*}: Unhandled context fault"];
        "a device reached for memory that it may not use; each fault is an interrupt and a line in the log";
        "it names the device";
        "update the driver of the device";
    Advice "swiotlb_full", NONE, "kernel/dma/swiotlb.c", ["swiotlb buffer is full"];
        "transfers of devices are copied through a buffer that is full: copies take CPU time, and transfers fail";
        "it names the device";
        "raise `swiotlb=`, or use a device and IOMMU that reach all memory";
    Advice "page_allocation_failure", Some(CauseKind::PageFault), "mm/page_alloc.c", ["{task} page allocation failure: order:{count}", "page allocation failure"];
        "there was no free memory of that order at once: others wait for reclaim and compaction, which takes milliseconds and longer";
        "the thread is the one that asked, not the one that used the memory up";
        "raise `vm.min_free_kbytes`; lock the memory of real-time tasks (mlockall) and allocate before they start";
    Advice "allocation_stall", Some(CauseKind::PageFault), "mm/page_alloc.c", ["page allocation stalls for {ms}ms, order:{count}"];
        "a task waited for memory for that long: reclaim or compaction ran meanwhile";
        "the thread before it is the one that waited";
        "raise `vm.min_free_kbytes`; lock the memory of real-time tasks (mlockall)";
    Serious "oom", NONE, "mm/oom_kill.c", ["{task} invoked oom-killer: ", "Out of memory: Killed process {pid} ({task})", "Memory cgroup out of memory: Killed process {pid} ({task})", "Out of memory: Kill process {pid} ({task})"];
        "memory ran out, and the kernel ended a process; before that every task that needed memory waited in reclaim, for seconds";
        "the task is the one that asked for memory or was ended, not the one that used it up";
        "bound the memory of ordinary programs by control groups; lock that of real-time tasks";
    Advice "lockdep", NONE, "kernel/locking/lockdep.c", ["possible circular locking dependency detected", "possible recursive locking detected", "inconsistent lock state", "possible irq lock inversion dependency detected", "suspicious RCU usage"];
        "lockdep found a locking error: this is a debug kernel, whose latencies are many times those of a production kernel";
        "it names the locks and the task that took them";
        "measure without CONFIG_PROVE_LOCKING; report the error";
    Advice "debug_kernel", NONE, "kernel/locking/lockdep.c, kernel/trace/trace.c", ["Lock dependency validator: Copyright", "trace_printk() being used. Allocating extra memory", "RCU lockdep checking is enabled", "kmemleak: Kernel memory leak detector initialized", "KASAN: ", "KernelAddressSanitizer initialized"];
        "this is a debug kernel: every lock and memory access costs more, and latencies are many times those of a production kernel";
        "it applies to the whole kernel";
        "measure on a kernel without these options";
    Serious "kernel_oops", NONE, "arch/x86/mm/fault.c, kernel/panic.c", ["BUG: unable to handle ", "Internal error: Oops", "general protection fault", "Kernel panic - not syncing", "kernel BUG at "];
        "the kernel made an error: what follows it (locks held for ever, a dead thread) can delay anything";
        "the call trace after it says where";
        "do not measure until it is gone: reboot, update, report it";
    Advice "kernel_warning", IRQS_OFF, "kernel/panic.c", ["WARNING: CPU: {cpu} PID: {pid} at {function}"];
        "the kernel warned of something that must not happen; writing the call trace takes milliseconds, and much longer on a serial console, with interrupts disabled";
        "the CPU and the thread are where it happened; the place is in the source";
        "read the lines above and below it";
    Info "suspend", NONE, "kernel/power/suspend.c", ["PM: suspend entry", "PM: hibernation: hibernation entry"];
        "the machine was suspended: timers fire late by the time that it slept";
        "it applies to the whole machine";
        "do not suspend: `systemctl mask sleep.target`";
    Info "leap_second", NONE, "kernel/time/ntp.c", ["Clock: inserting leap second", "Clock: deleting leap second"];
        "the clock was changed by a second: tasks that sleep by CLOCK_REALTIME wake early or late";
        "it applies to the whole machine";
        "sleep by CLOCK_MONOTONIC";
    Info "energy_bias", NONE, "arch/x86/kernel/cpu/intel_epb.c", ["ENERGY_PERF_BIAS: Set to 'normal'", "ENERGY_PERF_BIAS: Set to"];
        "the firmware requested performance and the kernel set the middle setting: the processor may be slow to raise its frequency";
        "it applies to all CPUs";
        "`cpupower set -b 0`";
    Advice "cpufreq_failed", NONE, "drivers/cpufreq", ["Failed to change cpu frequency", "cpufreq: cpufreq_online: CPU{cpu}: Running at unlisted"];
        "the frequency could not be changed: the CPU may run at its lowest";
        "the CPU is the one with the request";
        "look at scaling_cur_freq; update the firmware";
    Info "vm_clock", Some(CauseKind::Steal), "arch/x86/kernel/kvmclock.c, arch/x86/kernel/cpu/vmware.c", ["Hypervisor detected: {function}", "Booting paravirtualized kernel on KVM", "Booting paravirtualized kernel on Xen"];
        "this is a virtual machine: its host may stop a virtual CPU at any time, which looks like a late timer or disabled interrupts";
        "it applies to the whole machine";
        "pin the virtual CPUs to isolated CPUs of the host, at real-time priority; look at steal time";
}

/// The kind of that code.
pub fn kind(code: &str) -> Option<&'static MessageKind> {
    KINDS.iter().find(|kind| kind.code == code)
}

impl MessageKind {
    /// Its page of the field guide, as Markdown.
    pub fn guide(&self) -> String {
        let Self { code, meaning, names, fix, source, .. } = self;
        let lines: Vec<&str> = self.patterns.iter().filter(|it| !it.starts_with('+')).copied().collect();
        let cause = self.cause.map_or(String::new(), |cause| {
            format!("\n\n`whylate explain --why {cause}` is the page of the cause that it may be. A log alone does not show that a task was late by it.")
        });
        format!(
            "# {code}: a message of the kernel\n\n## What the kernel writes\n\n```\n{}\n```\n\nIn {source}.\n\n## What it means\n\n{}{cause}\n\n## \
             Whom it names\n\n{}\n\n## What to do\n\n{}\n",
            lines.join("\n"),
            sentence(meaning),
            sentence(names),
            sentence(fix),
        )
    }
}

/// With a capital, unless it begins with code, and a full stop.
pub(crate) fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|first| first.to_uppercase().to_string()).unwrap_or_default();
    let end = if text.ends_with('.') { "" } else { "." };
    format!("{first}{}{end}", letters.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_kind_has_a_name_of_its_own_and_a_page() {
        let codes: BTreeSet<&str> = KINDS.iter().map(|kind| kind.code).collect();
        assert_eq!(codes.len(), KINDS.len());
        assert!(KINDS.len() >= 40);
        for kind in KINDS {
            assert!(CauseKind::from_name(kind.code).is_none(), "{} is a kind of cause", kind.code);
            assert!(kind.patterns.iter().all(|it| it.trim_start_matches('+').len() >= 5), "{}", kind.code);
            assert!(kind.guide().contains(kind.code));
        }
    }
}
