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
        "real-time tasks used up sched_rt_runtime_us (950 ms) of sched_rt_period_us (1 s) on a CPU. The kernel stopped all real-time tasks of that CPU until the next period: these tasks are late by up to 50 ms, whatever their priority";
        "the message names neither the CPU nor the task. The kernel does not print this message each time, so the number of lines does not show how often tasks were throttled";
        "find the real-time task that never sleeps, and make it sleep. Remove the limit (`sysctl -w kernel.sched_rt_runtime_us=-1`) only if no real-time task can occupy a CPU for ever, since a housekeeping CPU could hang. Since Linux 6.12 the fair server replaces this limit";
    Serious "dl_lag", THROTTLED, "kernel/sched/deadline.c", ["sched: DL replenish lagged too much", "sched: DL de-boosted task PID"];
        "the budget of a SCHED_DEADLINE task or of the fair server was renewed so late that the kernel set a new deadline. The CPU did not run the scheduler for a period or longer";
        "the message names neither the CPU nor the task, and the kernel prints it only once";
        "look for what held up the CPU: disabled interrupts, an SMI, or a host that did not run the virtual CPU. `whylate run --trace` on that machine shows which";
    Info "dl_server_off", THROTTLED, "kernel/sched/debug.c", ["server disabled in CPU {cpu}, system may crash", "server disabled on CPU {cpu}, system may crash"];
        "the fair server was switched off on the CPU in the message: ordinary tasks no longer get 50 ms of each second when real-time tasks use all of it";
        "the message names the CPU whose fair server was switched off";
        "leave the fair server off on an isolated CPU whose real-time loop never sleeps; on housekeeping CPUs, write the runtime back to /sys/kernel/debug/sched/fair_server/cpuN/runtime";
    Serious "xenomai_watchdog", THREAD, "kernel/cobalt/sched.c, kernel/evl/sched", ["watchdog triggered on CPU #{cpu} -- runaway thread '{task}' signaled"];
        "a thread of Xenomai or EVL used its CPU for seconds without sleeping, and the watchdog stopped it";
        "the message names the thread that did not sleep, and its CPU";
        "look for a loop without a sleep in the thread that the message names";
    Serious "sched_unexpected", NONE, "kernel/sched/core.c", ["BUG: scheduling while atomic: {task}/{pid}/"];
        "a thread slept while preemption or interrupts were disabled: this is a bug in the kernel or a driver, and latencies on the CPU of this thread cannot be relied on";
        "the message names the thread that slept; the call trace after the message shows the driver";
        "update or unload the driver in the call trace, and report the bug with the trace";
    Serious "sleeping_in_atomic", NONE, "kernel/sched/core.c", ["BUG: sleeping function called from invalid context at {function}", "[ BUG: Invalid wait context ]", "BUG: Invalid wait context"];
        "a function that may sleep was called with preemption or interrupts disabled. On PREEMPT_RT, taking a spinlock_t may sleep, too";
        "the message shows where the function was called; the call trace after the message shows the driver";
        "update the driver in the call trace, or report the bug with the trace: the driver's lock must become a raw_spinlock_t, or the code under the lock must be preemptible";
    Serious "need_resched", PREEMPT_OFF, "kernel/sched/debug.c", ["CPU {cpu}: need_resched set for > {ns} ns ({*} ticks) without schedule", "CPU {cpu} need_resched set for > {ns} ns", "CPU {cpu} need_resched_lazy set for > {ns} ns"];
        "a thread should have been preempted, but ran on in the kernel for the time in the message: every other thread of its CPU waited";
        "the message names the CPU that did not schedule; the call trace after the message shows the running thread";
        "the function in the call trace needs a preemption point: try PREEMPT_LAZY, PREEMPT or PREEMPT_RT, and report the function";
    Serious "soft_lockup", PREEMPT_OFF, "kernel/watchdog.c", ["BUG: soft lockup - CPU#{cpu} stuck for {s}s! [{task}:{pid}]", "BUG: soft lockup - CPU#{cpu} stuck for {s}s!", "BUG: soft lockup detected on CPU#{cpu}"];
        "the watchdog's thread, which has the highest priority, could not run on a CPU for about 20 s or longer (twice watchdog_thresh). Either the named thread did not leave the kernel, or the host did not run the virtual CPU";
        "the message names the CPU that was stuck, and the thread that ran when the watchdog looked. The named thread is often at fault, but less often in a virtual machine";
        "read the call trace after the message; in a virtual machine, look at the steal time of the host first";
    Serious "hard_lockup", IRQS_OFF, "kernel/watchdog.c", ["Watchdog detected hard LOCKUP on cpu {cpu}", "Watchdog detected LOCKUP on CPU{cpu}"];
        "interrupts were disabled on a CPU for about 10 s or longer (watchdog_thresh)";
        "the message names the CPU whose timer interrupt did not come";
        "read the call trace after the message: the function in the trace disabled interrupts or spins on a lock. Firmware and a stopped virtual CPU cause the same message";
    Serious "spinlock_lockup", Some(CauseKind::Lock), "kernel/locking/spinlock_debug.c", ["BUG: spinlock lockup suspected on CPU#{cpu}, {task}/{pid}", "BUG: spinlock lockup on CPU#{cpu}, {task}/{pid}"];
        "a CPU spun on a lock for a second or longer";
        "the message names the CPU and the thread that waited; `.owner` in the next line is the thread that holds the lock";
        "look up the owner's call trace, which shows what the owner did with the lock held";
    Serious "rcu_stall", PREEMPT_OFF, "kernel/rcu/tree_stall.h", ["INFO: {*} self-detected stall on CPU", "INFO: {*} detected stalls on CPUs/tasks", "INFO: {*} detected stall on CPU {cpu}", "INFO: {*} detected stalls on tasks", "+{cpu} ({*} ticks this GP)"];
        "an RCU grace period did not end within the stall time (21 s by default). Either a CPU stayed in the kernel with interrupts or preemption disabled, or a real-time thread had preempted an RCU reader";
        "the message names the CPU that did not pass a quiescent state; a virtual CPU that the host does not run causes the same message";
        "read the call trace of the stalled CPU. If a real-time thread on this CPU never sleeps, use RCU_BOOST, rcu_nocbs, or a `rcutree.kthread_prio` above the thread's priority";
    Serious "rcu_expedited_stall", PREEMPT_OFF, "kernel/rcu/tree_exp.h", ["INFO: {*} detected expedited stalls on CPUs/tasks: {*} {cpu}-", "INFO: {*} detected expedited stalls on CPUs/tasks"];
        "an expedited RCU grace period waits for a CPU that does not answer; expedited grace periods interrupt every CPU";
        "the number in braces is the CPU that did not answer";
        "read the call trace of the CPU that did not answer; on isolated CPUs, `rcupdate.rcu_normal=1` avoids these interrupts (PREEMPT_RT sets `rcu_normal_after_boot` by default)";
    Serious "rcu_kthread_starved", THREAD, "kernel/rcu/tree_stall.h", ["{*} kthread starved for {*} jiffies!", "+->cpu={cpu}"];
        "a kernel thread of RCU waited for its CPU for the time in the message, because higher-priority threads used the CPU; memory that RCU should free piles up";
        "the CPU in the message is where the RCU thread waited; the call trace after the message shows the thread that had the CPU";
        "let the real-time thread that used the CPU sleep, move the RCU threads to housekeeping CPUs, or raise `rcutree.kthread_prio`";
    Serious "rcu_timer_missing", TIMER_LATE, "kernel/rcu/tree_stall.h", ["kthread timer wakeup didn't happen for", "+Possible timer handling issue on cpu={cpu}"];
        "a timer of a few ms did not expire for seconds: the timer interrupt or its softirq did not run on the timer's CPU";
        "the message names the CPU whose timers are late";
        "look for disabled interrupts, a starved ksoftirqd or ktimers thread, or a stopped virtual CPU";
    Serious "csd_lock", IPI, "kernel/smp.c", ["Detected non-responsive CSD lock (#{*}) on CPU#{*}, waiting {ns} ns for CPU#{cpu} {function}("];
        "a CPU did not answer a function call from another CPU for the time in the message: the called CPU had interrupts disabled, or did not run at all";
        "the message names the CPU that did not answer; the calling CPU waited in a busy loop";
        "read the backtrace of the CPU that did not answer; firmware (SMI) and a stopped virtual CPU cause the same message";
    Serious "workqueue_lockup", THREAD, "kernel/workqueue.c", ["BUG: workqueue lockup - pool cpus={cpu} {*} stuck for {s}s!", "BUG: workqueue lockup - pool"];
        "work items of a CPU did not start for the time in the message. Either real-time threads had the CPU and the kworker could not run, or the work item that the kworker runs does not end";
        "the message names the CPU on which the work items wait; 'Showing busy workqueues' after the message lists them";
        "let the real-time threads on the named CPU sleep, or shield the CPU, so that less work is queued on it";
    Advice "workqueue_hog", THREAD, "kernel/workqueue.c", ["workqueue: {function} hogged CPU for >{us}us {count} times", "workqueue: {function} hogged CPU for >{us}us"];
        "a work item ran on a per-CPU kworker for longer than the time in the message, and ordinary tasks of that CPU waited. A real-time task had to wait only if the work item disabled preemption";
        "the function is the work item. The number of times is the kernel's running total. The message does not name the CPU";
        "queue the work on another CPU (a shield cannot move per-CPU work), update the driver, or switch off what queues the work. For output_poll_execute and i915_hpd_poll_init_work: `drm_kms_helper.poll=0`, or a kernel that runs these work items on an unbound workqueue";
    Serious "hung_task", Some(CauseKind::Lock), "kernel/hung_task.c", ["INFO: task {task}:{pid} blocked for more than {s} seconds", "INFO: task {task}:{pid} is blocked on"];
        "a thread slept uninterruptibly for the time in the message, waiting for a lock or a device";
        "the message names the thread that waited; another thread is at fault";
        "the call trace of the thread shows what it waits for; `echo w > /proc/sysrq-trigger` lists all threads that sleep uninterruptibly";
    Serious "hangcheck", HARDWARE, "drivers/char/hangcheck-timer.c", ["Hangcheck: hangcheck value past margin"];
        "the whole machine or the virtual machine stood still for longer than the hangcheck timer allows";
        "the message names neither a CPU nor a task";
        "look for a suspended virtual machine, SMIs, or a stalled bus";
    Advice "hrtimer_interrupt", IRQ, "kernel/time/hrtimer.c", ["hrtimer: interrupt took {ns} ns"];
        "after three rounds a timer interrupt still had expired timers to handle, and the kernel delayed the next timer interrupt. Each timer of that CPU was late by up to the time in the message";
        "the message does not show which CPU, timer or task was late. The kernel prints only the first such interrupt, and counts later ones in nr_hangs (/proc/timer_list)";
        "in a virtual machine, check the steal time: the host may not have run the virtual CPU. On bare metal, look for SMIs, a slow clock source (hpet), or a slow timer function; `whylate run --trace` shows which";
    Advice "perf_interrupt", NMI, "kernel/events/core.c", ["perf: interrupt took too long ({ns} > {*}), lowering kernel.perf_event_max_sample_rate", "perf samples too long ({ns} > {*}), lowering kernel.perf_event_max_sample_rate", "perf interrupt took too long ({ns} > {*}), lowering kernel.perf_event_max_sample_rate"];
        "perf's sampling interrupt (an NMI on x86) took too long on average: this machine is being profiled, and each sample delays what runs";
        "the figure is a running average over these interrupts; the message does not name the CPU";
        "do not profile while measuring; `perf_event_max_sample_rate` limits the sampling; `nmi_watchdog=0` stops the watchdog's perf event";
    Serious "nmi_handler", NMI, "arch/x86/kernel/nmi.c", ["INFO: NMI handler ({function}) took too long to run: {ms} msecs"];
        "a non-maskable interrupt ran for the time in the message, and no task ran on its CPU meanwhile. Often an SMI came during the NMI, or the host did not run the virtual CPU";
        "the function is the handler: perf_event_nmi_handler for profiling or the NMI watchdog, ghes_notify_nmi for hardware errors. The message does not name the CPU";
        "boot with `nmi_watchdog=0`, and do not profile while measuring; for ghes_notify_nmi, read the machine's hardware error log";
    Advice "nmi_unknown", NMI, "arch/x86/kernel/nmi.c", ["NMI received for unknown reason {*} on CPU {cpu}", "NMI: PCI system error (SERR) for reason", "NMI: IOCK error"];
        "no handler claimed a non-maskable interrupt: its source is often a hardware error or the firmware";
        "the message names the CPU that got the interrupt";
        "look for hardware errors (memory, PCIe) in the firmware's error log";
    Info "nmi_watchdog", NMI, "kernel/watchdog.c", ["NMI watchdog: Enabled. Permanently consumes one hw-PMU counter"];
        "the hard-lockup watchdog sends an NMI to every CPU that it watches, once every few seconds of the CPU's run time";
        "the message applies to all CPUs in the watchdog's mask";
        "boot with `nmi_watchdog=0`, or `sysctl -w kernel.nmi_watchdog=0`";
    Serious "tsc_unstable", TIMER_LATE, "arch/x86/kernel/tsc.c", ["Marking TSC unstable due to {*}", "Clocksource tsc unstable (delta = {*})", "TSC found unstable after boot"];
        "the kernel stopped using the time-stamp counter until the next boot. Reading the clock now takes a system call and an access to a slow shared device (hpet, acpi_pm), about 1 us or more: latencies grow, and measurements become less exact";
        "the message names no CPU or task. Known reasons: firmware that writes the counter, tools that change P-states or MSRs, a virtual CPU that its host did not run while the watchdog looked";
        "first look for the reason, then reboot to use the counter again. Use `tsc=nowatchdog` or `tsc=reliable` only if the counter is known to be good (constant_tsc, nonstop_tsc, one socket)";
    Serious "clocksource_watchdog", TIMER_LATE, "kernel/time/clocksource.c", ["timekeeping watchdog on CPU{cpu}: Marking clocksource '{*}' as unstable because the skew is too large", "timekeeping watchdog on CPU{cpu}: Marking clocksource", "Marking clocksource '{*}' as unstable"];
        "the clock source disagreed with the watchdog's clock, and the kernel stopped using it";
        "the message names the CPU that made the check, which is not at fault";
        "check which clock source is used now: `cat /sys/devices/system/clocksource/clocksource0/current_clocksource`";
    Advice "clocksource_read_delay", HARDWARE, "kernel/time/clocksource.c", ["excessive read-back delay of {ns}ns vs. limit", "wd-wd read-back delay of {ns}ns", "read-back delay of {ns}ns, attempt {count}, marking unstable", "Long readout interval, skipping watchdog check: cs_nsec: {ns}"];
        "reading the watchdog's clock (hpet) took as long as the message says, with interrupts disabled: a slow bus, an SMI, or a host that did not run the virtual CPU";
        "the message names the CPU that made the check, which is not at fault";
        "if the time-stamp counter is known to be good, `tsc=nowatchdog` stops the reads of the watchdog's clock";
    Serious "tsc_warp", NONE, "arch/x86/kernel/tsc_sync.c", ["cycles TSC warp between CPUs, turning off TSC clock"];
        "the time-stamp counters of the CPUs differ, so the kernel does not use them; the clock that it uses instead is slow to read";
        "the message applies to the whole machine";
        "update the firmware, which must not write the time-stamp counter";
    Advice "tsc_adjust", SMI, "arch/x86/kernel/tsc_sync.c", ["TSC ADJUST differs", "TSC ADJUST compensate"];
        "the firmware writes the time-stamp counter; some firmware does so to hide the time that SMIs take";
        "the message names the CPUs whose counters were written";
        "update the firmware; look for SMIs: `whylate run` counts them";
    Serious "slow_clocksource", NONE, "kernel/time/clocksource.c", ["Switched to clocksource hpet", "Switched to clocksource acpi_pm", "Switched to clocksource refined-jiffies", "Switched to clocksource jiffies", "Switching to clocksource hpet", "Switching to clocksource acpi_pm"] undone by ["Switched to clocksource tsc", "Switched to clocksource arch", "Switched to clocksource kvm", "Switched to clocksource hyperv"];
        "the clock is read from a slow device, without the vDSO. Each clock_gettime() is a system call of about 1 us or more, and CPUs that read the clock at the same time wait for each other";
        "the message applies to the whole machine";
        "find why the kernel stopped using the time-stamp counter (`dmesg | grep -i tsc`), remove the reason, and reboot";
    Advice "clockevent_min_delta", TIMER_LATE, "kernel/time/clockevents.c", ["increased min_delta_ns to {ns} nsec", "increasing min_delta_ns to {ns} nsec", "CE: Reprogramming failure. Giving up"];
        "the timer device could not be programmed in time. The kernel now sets timers at least `min_delta_ns` ahead, so every timer may expire up to `min_delta_ns` late";
        "the figure applies to one timer device";
        "use the local timer (`lapic`, not hpet); in a virtual machine the figure shows how long the host interrupted the guest";
    Advice "nohz_softirq_pending", SOFTIRQ, "kernel/time/tick-sched.c", ["NOHZ tick-stop error: {*} softirq work is pending, handler", "NOHZ: local_softirq_pending"];
        "a CPU went idle with a softirq pending, which then waits for the next interrupt: network or timer work on that CPU was late";
        "the handler is the mask of pending softirqs (08: NET_RX, 80: SCHED, 200: RCU); the message does not name the CPU";
        "a driver raises a softirq where softirqs are not disabled: update the kernel and the driver";
    Serious "unknown_parameters", NONE, "init/main.c", ["Unknown kernel command line parameters \"{function}\", will be passed to user space", "Unknown kernel command line parameters \"{function}\"", "Unknown kernel command line parameters"];
        "the kernel does not know the words in the message, so these words of its command line have no effect";
        "the message also lists words that are meant for user space (BOOT_IMAGE, splash)";
        "check the spelling, and whether this kernel was built with the CONFIG that the option needs";
    Serious "parameter_refused", NONE, "kernel/sched/isolation.c, init/main.c, kernel/time/tick-sched.c", ["Housekeeping: nohz unsupported", "Housekeeping: nohz_full= must match isolcpus=", "Housekeeping: nohz_full= or isolcpus= incorrect CPU range", "Housekeeping: must include one present CPU", "isolcpus: Skipped unknown flag {function}", "isolcpus: Invalid flag {function}", "Malformed early option '{function}'", "NO_HZ: Can't run full dynticks because", "NO_HZ: Clearing {cpu} from nohz_full range"];
        "the kernel refused an option of its command line, or used only a part of it: the isolation differs from what was requested";
        "the message names the option";
        "correct the option; some need a kernel built with CONFIG_NO_HZ_FULL or CONFIG_RCU_NOCB_CPU";
    Serious "irq_nobody_cared", IRQ, "kernel/irq/spurious.c", ["irq {count}: nobody cared", "Disabling IRQ #{count}"];
        "an interrupt came 100,000 times and no handler claimed it. The kernel disabled the line, and the device is now polled or dead. Until the line was disabled, the CPU handled nothing else";
        "the number is the interrupt line; the lines after the message list its handlers";
        "update the driver or the firmware; use `irqpoll` only to find the device";
    Advice "irq_no_handler", IRQ, "arch/x86/kernel/irq.c", ["No irq handler for vector", "spurious 8259A interrupt"];
        "an interrupt came that has no handler, mostly because the firmware raised it or because an interrupt was moved";
        "the number before the dot is the CPU that got the interrupt";
        "ignore the message if it is rare; update the firmware if it repeats";
    Advice "affinity_lost", IRQ, "kernel/irq/cpuhotplug.c, kernel/cpuset.c", ["IRQ {count}: no longer affine to CPU{cpu}", "process {pid} ({task}) no longer affine to cpu{cpu}", "IRQ{count}: set affinity failed", "set affinity failed("];
        "an interrupt or a thread was moved away from the CPU that its affinity named";
        "the message names the CPU that the interrupt or thread was moved away from";
        "set the affinity again after a CPU went offline, and check the affinity with `whylate cpus`";
    Info "cpu_offline", NONE, "kernel/cpu.c", ["smpboot: CPU {cpu} is now offline", "psci: CPU{cpu} killed", "CPU{cpu}: shutdown"];
        "a CPU was taken offline, which stopped all CPUs for some time";
        "the message names the CPU that went offline";
        "do not take CPUs offline or online while real-time tasks run";
    Serious "thermal_throttle", HARDWARE, "drivers/thermal/intel/therm_throt.c", ["CPU{cpu}: Core temperature above threshold, cpu clock throttled (total events = {count})", "CPU{cpu}: Core temperature is above threshold, cpu clock is throttled (total events = {count})", "CPU{cpu}: Package temperature above threshold, cpu clock throttled (total events = {count})", "CPU{cpu}: Package temperature is above threshold, cpu clock is throttled (total events = {count})", "temperature above threshold, cpu clock throttled"];
        "the processor was too hot and lowered its clock: all code on it takes longer, and the thermal interrupt takes time, too";
        "the message names the CPU that is too hot; the number of events is the total since boot";
        "improve the cooling, or limit the frequency (`whylate run` with the treatment `governor`)";
    Advice "power_limit", HARDWARE, "drivers/thermal/intel/therm_throt.c", ["CPU{cpu}: {*} power limit notification (total events = {count})"];
        "the processor reached its power limit and lowered its clock: all code on it takes longer";
        "the message names the CPU that got the interrupt";
        "raise the limit in the firmware, or limit the frequency";
    Serious "thermal_critical", HARDWARE, "drivers/thermal", ["critical temperature reached", "thermal_zone{count}: failed to read out"];
        "a part of the machine is too hot, or its temperature could not be read";
        "the message names the thermal zone";
        "improve the cooling of the part that is too hot";
    Serious "under_voltage", HARDWARE, "drivers/hwmon/raspberrypi-hwmon.c", ["Undervoltage detected!", "Under-voltage detected!"];
        "the supply voltage is too low: the firmware lowers the processor's clock, and all code takes longer";
        "the message applies to the whole board";
        "use a better power supply and cable";
    Advice "machine_check", HARDWARE, "arch/x86/kernel/cpu/mce", ["[Hardware Error]: Machine check events logged", "mce: [Hardware Error]: CPU {cpu}: Machine Check", "Hardware error from APEI Generic Hardware Error Source", "CMCI storm detected", "CPU{cpu}: Machine Check"];
        "the hardware reported an error; many machines report corrected errors by an SMI or NMI that takes milliseconds";
        "a CPU in the message is the CPU that reported the error; some of these messages name no CPU";
        "`rasdaemon` or `mcelog` shows the faulty part; replace it";
    Advice "memory_errors", SMI, "drivers/edac", [" CE memory read error on ", " CE memory scrubbing error", " UE memory "];
        "a memory module has errors; firmware that logs memory errors uses SMIs that take milliseconds";
        "the message names the memory module";
        "replace the memory module";
    Advice "pcie_errors", HARDWARE, "drivers/pci/pcie/aer.c", ["AER: Corrected error received", "AER: Corrected error message received", "AER: Multiple Corrected error", "PCIe Bus Error: severity=Corrected", "AER: Uncorrected (Non-Fatal) error", "PCIe Bus Error: severity=Uncorrected"];
        "a PCIe link has errors: transfers are repeated, reads of device registers stall the CPU, and each report is an interrupt";
        "the message names the device";
        "reseat the card, boot with `pcie_aspm=off`, or update the card's firmware";
    Advice "smi_chipset", SMI, "kernel/cobalt/arch/x86/smi.c", ["SMI-enabled chipset", "SMI-enabled {*} chipset found", "SMI workaround failed"];
        "the chipset can raise SMIs, which interrupt the machine and which the kernel does not see";
        "the message applies to the whole machine";
        "switch SMI sources off in the firmware (legacy USB, thermal, power button); `whylate run` counts SMIs";
    Advice "acpi_ec", IRQ, "drivers/acpi/ec.c", ["EC: GPE storm detected", "ACPI: EC: missing confirmations", "ACPI: EC: input buffer is not empty"];
        "the embedded controller interrupts too often or does not answer: a kworker polls it, which takes milliseconds";
        "the message is about the embedded controller (fans, battery, keys)";
        "update the firmware; stop programs that often read the battery and the sensors";
    Info "acpi_error", NONE, "drivers/acpi/acpica", ["ACPI Error: Aborting method {function} due to previous error", "ACPI Error: Method parse/execution failed"];
        "an ACPI method of the firmware failed, and the kernel may call this method again and again";
        "the message shows the path of the ACPI method";
        "update the firmware, or unload the driver that calls the ACPI method";
    Advice "tpm", HARDWARE, "drivers/char/tpm", ["TPM interrupt storm detected", "A TPM error ({*}) occurred", "tpm_try_transmit: "];
        "the TPM is slow or faulty, and its driver waits for it. On some machines the bus and the CPU stall during that wait (known on Apollo Lake)";
        "the message names the TPM device";
        "do not use the TPM while real-time tasks run, and switch its random-number generator (hwrng) off; boot with `tpm_tis.interrupts=0`";
    Advice "split_lock", IRQS_OFF, "arch/x86/kernel/cpu/bus_lock.c", ["split lock detection: #AC: {task}/{pid} took a split_lock trap", "took a split_lock trap at address", "split lock detection: #DB: {task}/{pid} took a bus_lock trap", "took a bus_lock trap at address"];
        "the task did an atomic access across two cache lines. Each such access locks the memory bus for all CPUs for about a thousand cycles; by default the kernel also makes the task wait for 10 ms";
        "the message names the task that did the access. If that task is the thread of a virtual CPU, a program in the guest did the access. The message does not name the tasks that were delayed";
        "align the data in the program that did the access; `split_lock_detect=` and `kernel.split_lock_mitigate` choose what the kernel does about such an access";
    Advice "i915_atomic_update", IRQS_OFF, "drivers/gpu/drm/i915/display", ["Atomic update failure on pipe {*}) time {us} us", "Atomic update failure on pipe"];
        "the graphics driver did not write its registers in time for the frame. The driver writes them with interrupts disabled. Something delayed its CPU, perhaps the driver itself";
        "the figure is the time that the update took. The driver that reports the failure may be the victim, not the culprit";
        "if the delay came during graphics work, keep the display server's threads away from the real-time CPUs";
    Advice "i915_underrun", NONE, "drivers/gpu/drm/i915", ["FIFO underrun"];
        "the display did not get its data in time, because the memory was busy";
        "the message names the display pipe; an underrun makes no task late";
        "look for loads that use the memory heavily, and check the memory's frequency settings";
    Serious "gpu_hang", NONE, "drivers/gpu/drm", ["GPU HANG: ecode", "*ERROR* ring {function} timeout", "amdgpu: ring {function} timeout", "GPU reset begin", "Resetting chip for ", "fifo: fault {*} engine"];
        "a graphics processor hung, and its driver resets the processor. A reset disables interrupts or waits in busy loops for milliseconds";
        "the message names the engine; the lines after the message show what ran on this engine";
        "update the graphics driver and the firmware of the graphics processor";
    Serious "nvidia_xid", NONE, "NVIDIA driver", ["NVRM: Xid (PCI:{*}): {count}", "NVRM: GPU at {*} has fallen off the bus", "Idling display engine timed out"];
        "the NVIDIA driver reports an error of the graphics processor. The driver recovers with interrupts disabled, or waits in busy loops";
        "the number is NVIDIA's error code, the Xid";
        "look up the Xid in NVIDIA's list; update the driver";
    Info "drm_timeout", NONE, "drivers/gpu/drm/drm_atomic_helper.c", ["flip_done timed out", "vblank wait timed out on crtc", "commit wait timed out"];
        "a display did not finish a frame within 10 s";
        "the message names the part of the display pipeline";
        "update the graphics driver";
    Advice "hpd_storm", IRQ, "drivers/gpu/drm/i915/display/intel_hotplug_irq.c", ["HPD interrupt storm detected on connector {function}:"];
        "a display connector raises interrupts all the time";
        "the message names the connector";
        "try another cable; unplug adapters that have no display";
    Serious "xhci_stuck", NONE, "drivers/usb/host/xhci.c", ["xHCI host not responding to stop endpoint command", "xHCI host controller not responding, assume dead", "HC died; cleaning up", "WARN Event TRB for slot", "Abort failed to stop command ring"];
        "a USB controller does not answer: its driver waits with interrupts disabled, for milliseconds or longer";
        "the message names the controller";
        "try another port, cable or device; update the controller's firmware; move its interrupt away from the real-time CPUs";
    Info "usb_reset", NONE, "drivers/usb/core/hub.c", ["usb {*}: reset {*} USB device number", "device descriptor read/64, error", "device not accepting address"];
        "a USB device was reset: its transfers wait for 100 ms or longer";
        "the message names the device";
        "try another cable, port or power supply; boot with `usbcore.autosuspend=-1`";
    Serious "netdev_watchdog", NONE, "net/sched/sch_generic.c", ["NETDEV WATCHDOG: {function}:", "NETDEV WATCHDOG: {function} (", "Detected Hardware Unit Hang", "transmit queue {*} timed out"];
        "a network device sent nothing for seconds, and its driver resets it: frames were late or lost. The reset writes many registers in busy loops";
        "the message names the network device";
        "update the driver; switch off the device's power saving (`ethtool --set-eee`, `pcie_aspm=off`)";
    Advice "nvme_timeout", NONE, "drivers/nvme/host/pci.c", ["nvme {*}: I/O {*} timeout", "completion polled", "nvme {*}: controller is down"];
        "a request to the disk took 30 s, or its interrupt was lost";
        "the message names the disk";
        "try `nvme_core.default_ps_max_latency_us=0`, `pcie_aspm=off`, and new firmware; real-time tasks must not wait for the disk";
    Advice "ata_reset", NONE, "drivers/ata/libata-eh.c", ["hard resetting link", "exception Emask", "link is slow to respond"];
        "the link to a disk was reset: reads and writes wait for seconds";
        "the message names the port of the disk";
        "check the disk and its cable; real-time tasks must not wait for the disk (lock their memory with mlockall)";
    Advice "mmc_timeout", NONE, "drivers/mmc/host/sdhci.c", ["Timeout waiting for hardware interrupt", "mmc{count}: Timeout waiting", "Card stuck being busy"];
        "the SD card or eMMC did not answer for 10 s";
        "the message names the slot of the card";
        "try another card; real-time tasks must not wait for the card";
    Advice "audit_flood", THREAD, "kernel/audit.c", ["audit: audit_backlog={count} > audit_backlog_limit", "audit: kauditd hold queue overflow", "audit: audit_lost={count}", "audit: rate limit exceeded", "audit: backlog limit exceeded"];
        "audit produces records faster than its daemon reads them. System calls of any task then wait for up to audit_backlog_wait_time (60 s)";
        "the number says how many records wait or were lost";
        "switch audit off (`auditctl -e 0`), boot with `audit=0`, or remove the rules that produce the records";
    Advice "printk_flood", IRQS_OFF, "kernel/printk/printk.c, lib/ratelimit.c", ["** {count} printk messages dropped **", "{function} {count} callbacks suppressed", "output lines suppressed due to ratelimiting"];
        "the kernel produced more messages than its console or its rate limit allows. On a serial console each character takes 87 us at 115200 baud, with interrupts or preemption disabled unless the console is threaded";
        "the number says how many messages were suppressed or dropped; a function in the message is the function that printed these messages";
        "boot with `loglevel=3` or `quiet` and without a serial console, and stop the source of the messages";
    Info "serial_console", IRQS_OFF, "kernel/printk/printk.c", ["console [ttyS{count}] enabled", "console [ttyAMA{count}] enabled", "console [ttymxc{count}] enabled", "console [ttyPS{count}] enabled", "console [ttyO{count}] enabled"];
        "messages go to a serial console: each character takes 87 us at 115200 baud. Kernels before 6.12 print with interrupts or preemption disabled";
        "the message names the serial port";
        "boot with `loglevel=3` or `quiet`, or without `console=ttyS…`";
    Serious "serial_overrun", NONE, "drivers/tty/serial", ["input overrun(s)", "too much work for irq{count}"];
        "interrupts were disabled so long that the serial port's buffer overflowed and bytes were lost, or the port's interrupt did not end";
        "the message names the port or the interrupt line, not the code that disabled interrupts";
        "find the code that disabled interrupts with `whylate run --trace`; a lower trigger level of the receive FIFO helps against lost bytes";
    Serious "rtc_lost", TIMER_LATE, "drivers/char/rtc.c, arch/x86/kernel/hpet.c", ["rtc: lost some interrupts at", "hpet: Lost {count} RTC interrupts", "lost {count} rtc interrupts"];
        "interrupts of the real-time clock were lost: they came faster than the CPU handled them";
        "the number says how many interrupts were lost";
        "look for disabled interrupts or SMIs: `whylate run --trace`";
    Serious "pcm_xrun", NONE, "sound/core/pcm_lib.c", ["XRUN: {function}", "BUG: pcmC{*}, pos = "];
        "a sound device ran out of data: the audio task was late, or the driver reported a wrong position";
        "the message names the stream, not what made the task late";
        "watch the audio task: `whylate watch --task NAME`";
    Advice "hda_polling", IRQ, "sound/hda", ["azx_get_response timeout, switching to polling mode", "spurious response", "No response from codec"];
        "the sound controller does not answer with interrupts, so its driver polls it";
        "the message names the sound controller";
        "boot with `snd_hda_intel.enable_msi=1`, or unload the driver";
    Advice "iommu_faults", IRQ, "drivers/iommu", ["DMAR: DRHD: handling fault status", "[IO_PAGE_FAULT ", "arm-smmu {*}: Unhandled context fault"];
        "a device accessed memory that it may not use; each such fault is an interrupt and a line in the log";
        "the message names the device";
        "update the device's driver";
    Advice "swiotlb_full", NONE, "kernel/dma/swiotlb.c", ["swiotlb buffer is full"];
        "the bounce buffer for device transfers (DMA) is full, and transfers fail. Copying into this buffer also takes CPU time";
        "the message names the device";
        "boot with a larger `swiotlb=`, or use a device or an IOMMU that reaches all memory";
    Advice "page_allocation_failure", Some(CauseKind::PageFault), "mm/page_alloc.c", ["{task} page allocation failure: order:{count}", "page allocation failure"];
        "no free memory of the requested order was available at once. Other tasks then wait for reclaim and compaction, which take milliseconds or longer";
        "the message names the thread that asked for memory, not the thread that used up the memory";
        "raise `vm.min_free_kbytes`; lock the memory of real-time tasks (mlockall) and allocate before they start";
    Advice "allocation_stall", Some(CauseKind::PageFault), "mm/page_alloc.c", ["page allocation stalls for {ms}ms, order:{count}"];
        "a task waited for memory for the time in the message, while the kernel reclaimed or compacted memory";
        "the message begins with the name of the thread that waited";
        "raise `vm.min_free_kbytes`; lock the memory of real-time tasks (mlockall)";
    Serious "oom", NONE, "mm/oom_kill.c", ["{task} invoked oom-killer: ", "Out of memory: Killed process {pid} ({task})", "Memory cgroup out of memory: Killed process {pid} ({task})", "Out of memory: Kill process {pid} ({task})"];
        "memory ran out, and the kernel ended a process. Before that, every task that needed memory waited in reclaim for seconds";
        "the message names the task that asked for memory or was ended, not the task that used up the memory";
        "limit the memory of ordinary programs by control groups; lock the memory of real-time tasks (mlockall)";
    Advice "lockdep", NONE, "kernel/locking/lockdep.c", ["possible circular locking dependency detected", "possible recursive locking detected", "inconsistent lock state", "possible irq lock inversion dependency detected", "suspicious RCU usage"];
        "lockdep found a locking error. This is a debug kernel: its latencies are many times those of a production kernel";
        "the message names the locks and the task that took them";
        "measure on a kernel without CONFIG_PROVE_LOCKING; report the locking error";
    Advice "debug_kernel", NONE, "kernel/locking/lockdep.c, kernel/trace/trace.c", ["Lock dependency validator: Copyright", "trace_printk() being used. Allocating extra memory", "RCU lockdep checking is enabled", "kmemleak: Kernel memory leak detector initialized", "KASAN: ", "KernelAddressSanitizer initialized"];
        "this is a debug kernel: every lock or memory access costs more, and latencies are many times those of a production kernel";
        "the message applies to the whole kernel";
        "measure on a kernel without these debug options";
    Serious "kernel_oops", NONE, "arch/x86/mm/fault.c, kernel/panic.c", ["BUG: unable to handle ", "Internal error: Oops", "general protection fault", "Kernel panic - not syncing", "kernel BUG at "];
        "the kernel crashed in a task or in an interrupt. The consequences can delay any task: locks that are never released, or a kernel thread that ended";
        "the call trace after the message shows where the kernel crashed";
        "do not measure on this kernel: reboot, update the kernel, and report the crash";
    Advice "kernel_warning", IRQS_OFF, "kernel/panic.c", ["WARNING: CPU: {cpu} PID: {pid} at {function}"];
        "the kernel detected a state that must not occur. Printing the call trace takes milliseconds, and much longer on a serial console, with interrupts disabled";
        "the message names the CPU, the thread and the place in the source";
        "read the lines before and after the warning";
    Info "suspend", NONE, "kernel/power/suspend.c", ["PM: suspend entry", "PM: hibernation: hibernation entry"];
        "the machine was suspended: timers expired late by the time that the machine slept";
        "the message applies to the whole machine";
        "do not suspend the machine: `systemctl mask sleep.target`";
    Info "leap_second", NONE, "kernel/time/ntp.c", ["Clock: inserting leap second", "Clock: deleting leap second"];
        "the clock was changed by a second: tasks that sleep on CLOCK_REALTIME wake early or late";
        "the message applies to the whole machine";
        "let tasks sleep on CLOCK_MONOTONIC";
    Info "energy_bias", NONE, "arch/x86/kernel/cpu/intel_epb.c", ["ENERGY_PERF_BIAS: Set to 'normal'", "ENERGY_PERF_BIAS: Set to"];
        "the firmware had set the energy bias to performance, and the kernel changed it to normal: the processor may raise its frequency slowly";
        "the message applies to all CPUs";
        "set the energy bias to performance: `cpupower set -b 0`";
    Advice "cpufreq_failed", NONE, "drivers/cpufreq", ["Failed to change cpu frequency", "cpufreq: cpufreq_online: CPU{cpu}: Running at unlisted"];
        "the frequency of the CPU could not be changed: the CPU may run at its lowest frequency";
        "the message names the CPU whose frequency could not be changed";
        "look at scaling_cur_freq; update the firmware";
    Info "vm_clock", Some(CauseKind::Steal), "arch/x86/kernel/kvmclock.c, arch/x86/kernel/cpu/vmware.c", ["Hypervisor detected: {function}", "Booting paravirtualized kernel on KVM", "Booting paravirtualized kernel on Xen"];
        "this is a virtual machine: its host may stop a virtual CPU at any time, which looks like a late timer or disabled interrupts";
        "the message applies to the whole machine";
        "pin the virtual CPUs to isolated CPUs of the host, at real-time priority; look at the steal time";
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
            format!("\n\n`whylate explain --why {cause}` describes a possible cause. A log alone does not show that this cause made a task late.")
        });
        format!(
            "# {code}: a kernel message\n\n## What the kernel writes\n\n```\n{}\n```\n\nIn {source}.\n\n## What it means\n\n{}{cause}\n\n## \
             What the message names\n\n{}\n\n## What to do\n\n{}\n",
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
