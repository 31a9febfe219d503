//! The words for who has a CPU: interrupts, softirqs, locks, threads. And the meaning of the kernel's function names: where
//! an interrupt begins, where user mode is near, which functions are mere helpers of their callers.
//!
//! Names change between releases: an unknown name counts as an ordinary function, which costs precision, not correctness.

use whylate_core::result::CauseKind;

/// The actor of an interrupt between CPUs whose sender is not known.
pub(crate) const ANOTHER_CPU: &str = "another CPU";
/// The state of a task that had not gone to sleep when its timer was due.
pub(crate) const STILL_AT_WORK: &str =
    "the task was still working, and set its timer for a moment that was already past";
/// The actor of a non-maskable interrupt.
pub(crate) const NMI: &str = "NMI";

const PREEMPTED_BY: &str = " (preempted by ";

/// The actor of a wait for a thread that another one preempted.
pub(crate) fn preempted(thread: &str, by: &str) -> String {
    format!("{thread}{PREEMPTED_BY}{by})")
}

/// The thread that has to leave the CPU for an actor to end: `hog` of `logger (preempted by hog)`.
pub(crate) fn preempting(actor: &str) -> Option<&str> {
    Some(actor.strip_suffix(')')?.rsplit_once(PREEMPTED_BY)?.1)
}

/// Devices of interrupt lines that are each CPU's own timer, on architectures without a separate timer interrupt: arm64 and
/// RISC-V.
const LOCAL_TIMERS: [&str; 2] = ["arch_timer", "riscv-timer"];

/// What a function's name means for the CPU's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    Ordinary,
    InterruptEntry(Interrupt),
    /// The way out of an interrupt whose handler has ended; softirqs that follow have flags and events of their own.
    InterruptTail,
    /// The last steps before user mode, or the first ones after it.
    UserEdge,
    Scheduler,
    /// The way into the scheduler of a task that is preempted.
    Preemption,
    /// The way off the run queue of a task that sleeps.
    Dequeue,
    /// Locks, delays, clocks and tracing: the caller is responsible.
    Helper,
    /// Leaves or enters idle states.
    Idle,
}

/// Which interrupt a function belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Interrupt {
    Timer,
    /// Another CPU asked this one to schedule.
    Reschedule,
    /// Another CPU asked this one to run a function.
    CallFunction,
    IrqWork,
    Device,
    /// Not maskable.
    Nmi,
}

impl Interrupt {
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Timer => "local timer",
            Self::Reschedule => "reschedule IPI",
            Self::CallFunction => "function-call IPI",
            Self::IrqWork => "irq work",
            Self::Device => "device interrupt",
            Self::Nmi => NMI,
        }
    }

    /// The kind of cause. `irq work` is an interrupt that a CPU sends to itself.
    pub(crate) fn kind(self) -> CauseKind {
        match self {
            Self::Reschedule | Self::CallFunction => CauseKind::Ipi,
            Self::Nmi => CauseKind::Nmi,
            Self::Timer | Self::IrqWork | Self::Device => CauseKind::Irq,
        }
    }

    /// The interrupt of a vector of x86 (arch/x86/include/asm/irq_vectors.h); `None` for other vectors.
    pub(crate) fn of_vector(vector: u32) -> Option<Self> {
        Some(match vector {
            0xec => Self::Timer,
            0xf6 => Self::IrqWork,
            0xfb | 0xfc => Self::CallFunction,
            0xfd => Self::Reschedule,
            _ => return None,
        })
    }
}

/// An interrupt's line, with its device if known: `irq 45 (nvkm)`.
pub(crate) fn irq(line: u32, device: Option<&str>) -> String {
    if device.is_some_and(|device| LOCAL_TIMERS.contains(&device)) {
        return Interrupt::Timer.label().to_owned();
    }
    device.map_or_else(|| format!("irq {line}"), |device| format!("irq {line} ({device})"))
}

/// A softirq by its vector: `NET_RX softirq`.
pub(crate) fn softirq(vector: Option<u32>) -> String {
    const NAMES: [&str; 10] =
        ["HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU"];
    let name = vector.and_then(|vector| NAMES.get(vector as usize));
    name.map_or_else(|| "softirq".to_owned(), |name| format!("{name} softirq"))
}

/// Whether a softirq does the work of devices: not of timers, the scheduler or RCU.
pub(crate) fn is_softirq_of_devices(vector: Option<u32>) -> bool {
    matches!(vector, Some(2..=6))
}

/// Whether a tracer records sections with interrupts or preemption disabled.
pub(crate) fn is_section_tracer(tracer: &str) -> bool {
    matches!(tracer, "irqsoff" | "preemptoff" | "preemptirqsoff")
}

/// The kind of lock, by the flags of the kernel's lock events (LCB_F_*).
pub(crate) fn lock(flags: u32) -> &'static str {
    const KINDS: [(u32, &str); 5] =
        [(8, "rt_mutex"), (32, "mutex"), (2, "read lock"), (4, "write lock"), (1, "spinlock")];
    KINDS.iter().find(|(flag, _)| flags & flag != 0).map_or("lock", |(_, name)| name)
}

/// The interrupt whose entry code has that name.
fn interrupt(name: &str) -> Option<Interrupt> {
    let name = name.trim_start_matches("asm_").trim_start_matches("__");
    Some(match name {
        "sysvec_apic_timer_interrupt" | "smp_apic_timer_interrupt" | "apic_timer_interrupt" => {
            Interrupt::Timer
        }
        "hrtimer_interrupt" | "local_apic_timer_interrupt" | "timerlat_irq" => Interrupt::Timer,
        "arch_timer_handler_virt" | "arch_timer_handler_phys" => Interrupt::Timer,
        "sysvec_reschedule_ipi" | "smp_reschedule_interrupt" => Interrupt::Reschedule,
        "sysvec_call_function" | "sysvec_call_function_single" => Interrupt::CallFunction,
        "smp_call_function_interrupt" | "smp_call_function_single_interrupt" => Interrupt::CallFunction,
        "sysvec_irq_work" | "smp_irq_work_interrupt" => Interrupt::IrqWork,
        "common_interrupt" | "do_IRQ" | "gic_handle_irq" | "el1_interrupt" | "el0_interrupt" => {
            Interrupt::Device
        }
        "el1h_64_irq_handler" | "el0t_64_irq_handler" | "el1h_64_irq" | "el0t_64_irq" => Interrupt::Device,
        "exc_nmi" | "nmi_handle" | "default_do_nmi" => Interrupt::Nmi,
        _ => return None,
    })
}

/// What a function's name says, looked up once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Meaning {
    /// Whatever its caller is.
    pub(crate) class: Class,
    interrupt: Option<Interrupt>,
    /// It accounts the entry of an interrupt; its caller is the entry code.
    enters: bool,
    exits: bool,
    /// It may enable interrupts or preemption again.
    pub(crate) opens: bool,
}

impl Meaning {
    pub(crate) fn of(function: &str) -> Self {
        Self {
            class: class_of(function),
            interrupt: interrupt(function),
            enters: matches!(function, "irq_enter_rcu" | "irq_enter" | "nmi_enter"),
            exits: is_interrupt_exit(function),
            opens: ["unlock", "irqrestore", "_enable"].iter().any(|part| function.contains(part)),
        }
    }

    /// The meaning of an event `function <- caller` of the function tracer.
    pub(crate) fn called_by(&self, caller: Option<&Self>) -> Class {
        match self.interrupt {
            Some(interrupt) => Class::InterruptEntry(interrupt),
            None if self.enters => {
                let interrupt = caller.and_then(|caller| caller.interrupt);
                Class::InterruptEntry(interrupt.unwrap_or(Interrupt::Device))
            }
            None if self.exits || caller.is_some_and(|caller| caller.exits) => Class::InterruptTail,
            None => self.class,
        }
    }
}

fn is_interrupt_exit(function: &str) -> bool {
    matches!(function, "irq_exit_rcu" | "__irq_exit_rcu" | "irq_exit")
}

#[rustfmt::skip]
const USER_EDGE: &[&str] = &[
    "exit_to_user_mode_prepare", "exit_to_user_mode_loop", "syscall_exit_to_user_mode",
    "syscall_exit_to_user_mode_prepare", "irqentry_exit_to_user_mode", "arch_exit_to_user_mode",
    "fpregs_assert_state_consistent", "switch_fpu_return", "user_enter", "__context_tracking_enter",
    "do_notify_resume", "prepare_exit_to_usermode",
];

#[rustfmt::skip]
const SCHEDULER: &[&str] = &[
    "__schedule", "schedule", "schedule_idle", "finish_task_switch", "__switch_to", "switch_mm_irqs_off",
    "enter_lazy_tlb", "save_fpregs_to_fpstate", "xfd_validate_state", "raw_spin_rq_unlock",
    "pick_next_task_fair", "pick_next_task_rt", "put_prev_task_rt", "put_prev_task_fair",
    "rcu_note_context_switch", "psi_task_switch", "balance_fair", "balance_rt", "pick_next_task_idle",
];

/// Functions whose callers are to blame for their time.
#[rustfmt::skip]
const HELPERS: &[&str] = &[
    "mutex_lock", "mutex_unlock", "rt_spin_lock", "rt_spin_unlock", "__const_udelay", "__udelay",
    "__ndelay", "delay_tsc", "delay_loop", "delay_tpause", "delay_halt", "read_tsc", "read_hpet",
    "cpu_relax", "ktime_get", "ktime_get_mono_fast_ns", "ktime_get_raw", "ktime_get_with_offset",
    "sched_clock", "local_clock", "preempt_count_add", "preempt_count_sub", "__preempt_count_add",
    "add_preempt_count", "sub_preempt_count", "migrate_disable", "migrate_enable", "trace_hardirqs_off", "trace_hardirqs_on", "tracer_hardirqs_off",
    "queued_spin_lock_slowpath", "native_queued_spin_lock_slowpath", "do_raw_spin_lock",
    "do_raw_spin_unlock", "do_raw_spin_trylock", "touch_softlockup_watchdog", "__local_bh_enable_ip",
    "__local_bh_disable_ip", "debug_smp_processor_id", "kernel_fpu_begin", "kernel_fpu_end",
    // Thunks of indirect calls, and an alias of the function that takes a spinlock.
    "__static_call_text_end", "__lock_text_start",
];
#[rustfmt::skip]
const HELPER_STARTS: &[&str] = &[
    "_raw_spin_", "_raw_read_", "_raw_write_", "__rcu_read_", "__x86_indirect_", "__x86_return_",
    "__traceiter_", "trace_", "arch_counter_",
];

/// What a CPU waits for in a function that accesses a device; `None` for other functions.
pub(crate) fn device_access(function: &str) -> Option<&'static str> {
    #[rustfmt::skip]
    const CONFIGURATION: &[&str] = &[
        "pci_read_config_", "pci_user_read_config_", "pci_bus_read_config_", "pci_write_config_", "pci_user_write_config_",
        "pci_bus_write_config_", "pci_conf1_", "pci_conf2_", "pci_mmcfg_", "raw_pci_", "pci_generic_config_", "pci_read", "pci_write",
        "pci_find_capability", "pci_find_next_cap", "pci_ecam_",
    ];
    #[rustfmt::skip]
    const REGISTERS: &[&str] = &[
        "readb", "readw", "readl", "readq", "__raw_readb", "__raw_readw", "__raw_readl", "__raw_readq", "ioread", "__ioread", "memcpy_fromio", "__memcpy_fromio", "_memcpy_fromio",
        "inb", "inw", "inl", "insb", "insw", "insl", "regmap_mmio_read", "acpi_os_read_", "acpi_hw_read",
    ];
    #[rustfmt::skip]
    const WRITES: &[&str] = &[
        "writeb", "writew", "writel", "writeq", "__raw_writeb", "__raw_writew", "__raw_writel", "__raw_writeq", "iowrite", "__iowrite", "memcpy_toio", "__memcpy_toio", "_memcpy_toio",
        "memset_io", "outb", "outw", "outl", "outsb", "outsw", "outsl", "regmap_mmio_write", "acpi_os_write_", "acpi_hw_write",
    ];
    const MSRS: &[&str] = &[
        "rdmsr",
        "rdmsrl",
        "rdmsrq",
        "__rdmsr",
        "native_read_msr",
        "wrmsr",
        "wrmsrl",
        "wrmsrq",
        "__wrmsr",
        "native_write_msr",
    ];
    const FIRMWARE: &[&str] = &["efi_call", "__efi_call", "__efi_rts", "efi_rts_", "virt_efi_", "acpi_ec_"];
    // `readl_relaxed` accesses a device; `readlink` and `writeback` do not.
    let ends_there = |rest: &str| {
        rest.chars().next().is_none_or(|letter| matches!(letter, '_' | '.') || letter.is_ascii_digit())
    };
    let is_exact = |names: &[&str]| {
        names.iter().any(|name| {
            function.strip_prefix(name).is_some_and(|rest| name.ends_with('_') || ends_there(rest))
        })
    };
    match function {
        _ if is_exact(CONFIGURATION) => Some("an access to the configuration space of a PCI device"),
        _ if is_exact(REGISTERS)
            || ends_with_any(function, &["_readl", "_readw", "_readb", "_rd32", "_rreg"]) =>
        {
            Some("a read of a device's register, which waits for the device")
        }
        _ if is_exact(WRITES)
            || ends_with_any(function, &["_writel", "_writew", "_writeb", "_wr32", "_wreg"]) =>
        {
            Some("a write to a device, which waits until the bus accepts it")
        }
        _ if is_exact(MSRS) => Some("an access to an MSR, which the processor or its firmware handles"),
        _ if is_exact(FIRMWARE) => Some("a call into the firmware"),
        _ => None,
    }
}

fn ends_with_any(name: &str, ends: &[&str]) -> bool {
    ends.iter().any(|end| name.ends_with(end))
}

/// Functions that enter and leave idle states.
#[rustfmt::skip]
const IDLE: &[&str] = &[
    "do_idle", "cpu_startup_entry", "default_idle_call", "cpuidle_enter", "cpuidle_enter_state",
    "native_safe_halt", "acpi_idle_enter", "intel_idle", "tick_nohz_idle_exit", "arch_cpu_idle_enter",
    "arch_cpu_idle_exit", "cpuidle_idle_call", "pv_native_safe_halt",
];

/// The meaning of the function's name alone.
pub(crate) fn class_of(function: &str) -> Class {
    let plain = function.split('.').next().unwrap_or(function);
    match plain {
        name if USER_EDGE.contains(&name) => Class::UserEdge,
        name if SCHEDULER.contains(&name) => Class::Scheduler,
        name if name.starts_with("preempt_schedule") => Class::Preemption,
        "raw_irqentry_exit_cond_resched" | "irqentry_exit_cond_resched" => Class::Preemption,
        name if name.starts_with("dequeue_task") || name == "deactivate_task" => Class::Dequeue,
        name if HELPERS.contains(&name) || starts_with_any(name, HELPER_STARTS) => Class::Helper,
        name if IDLE.contains(&name) => Class::Idle,
        _ => Class::Ordinary,
    }
}

/// Whether the callers of a function are to blame for its time.
pub(crate) fn is_helper(name: &str) -> bool {
    class_of(name) == Class::Helper
}

fn starts_with_any(name: &str, starts: &[&str]) -> bool {
    starts.iter().any(|start| name.starts_with(start))
}

/// The first assembly function of an interrupt, or arm64's entry function: the code below it was interrupted.
pub(crate) fn is_interrupt_entry(name: &str) -> bool {
    #[rustfmt::skip]
    const STARTS: &[&str] = &[
        "asm_sysvec_", "asm_common_interrupt", "asm_exc_", "el1h_64_irq", "el1_interrupt", "el0_interrupt",
        "el0t_64_irq",
    ];
    starts_with_any(name, STARTS)
}

/// The tracers' own functions: they are on stacks and in function traces, and are never to blame.
pub(crate) fn is_of_tracer(name: &str) -> bool {
    #[rustfmt::skip]
    const STARTS: &[&str] = &[
        "trace_hardirqs_", "tracer_hardirqs_", "trace_preempt_", "tracer_preempt_", "__traceiter_", "__ftrace_trace_stack",
        "__trace_stack", "probe_wakeup", "return_to_handler", "ftrace_", "stop_critical_timing", "start_critical_timing",
        "check_critical_timing", "__bpf_trace_", "bpf_trace_run", "trace_event_raw_event_", "perf_trace_",
        "trace_event_buffer_commit", "time_hardirqs_", "irqsoff_", "lockdep_hardirqs_",
    ];
    starts_with_any(name, STARTS)
}

/// Architecture code that enters and leaves the kernel, and code that dispatches interrupts. The code to blame is called by
/// it or was interrupted by it.
pub(crate) fn is_entry(name: &str) -> bool {
    #[rustfmt::skip]
    const STARTS: &[&str] = &[
        "asm_", "entry_SYSCALL", "entry_INT80", "ret_from_", "do_syscall_", "x64_sys_call", "syscall_exit_to_user_mode",
        "irqentry_", "raw_irqentry_", "exit_to_user_mode",
        "sysvec_", "__sysvec_", "common_interrupt", "do_IRQ", "apic_timer_interrupt", "smp_apic_timer_interrupt",
        "el0_", "el1_", "el0t_", "el1h_", "el0t_64", "invoke_syscall", "do_el0_svc", "__irq_svc", "__irq_usr", "vector_",
        "gic_handle_irq", "call_on_irq_stack", "do_interrupt_handler",
        "do_trap_", "do_irq", "handle_riscv_irq", "riscv_intc_irq", "riscv_timer_interrupt", "handle_exception",
        "handle_percpu_devid_irq", "handle_percpu_irq", "generic_handle_domain_irq", "generic_handle_irq",
        "__handle_domain_irq", "handle_domain_irq", "handle_irq_event", "__handle_irq_event_percpu",
        "handle_fasteoi_irq", "handle_edge_irq", "handle_level_irq", "handle_simple_irq", "handle_arch_irq",
        "auto_inthandler", "user_inthandler", "process_int", "auto_irqhandler_fixup", "bad_inthandler", "trap_c",
        "ret_fast_syscall", "return_to_user", "irq_exit", "__irq_exit", "irq_enter", "__irq_enter", "ret_to_user", "swapgs_restore",
        "smp_apic_timer", "smp_reschedule_interrupt", "reschedule_interrupt", "call_function_interrupt",
    ];
    starts_with_any(name, STARTS)
}

/// Entry code of interrupts, where a section with interrupts or preemption disabled begins that no thread requested.
pub(crate) fn begins_interrupt(name: &str) -> bool {
    #[rustfmt::skip]
    const STARTS: &[&str] = &[
        "__irq_usr", "__irq_svc", "el1_irq", "el0_irq", "apic_timer_interrupt", "reschedule_interrupt", "irq_enter",
        "call_function_interrupt", "irqentry_enter", "handle_riscv_irq", "riscv_intc_irq", "do_irq", "auto_inthandler",
        "user_inthandler",
    ];
    is_interrupt_entry(name) || interrupt(name).is_some() || starts_with_any(name, STARTS)
}

/// Functions that enable interrupts or preemption again on behalf of their callers.
pub(crate) fn is_release(name: &str) -> bool {
    const STARTS: &[&str] =
        &["_raw_spin_unlock", "_raw_read_unlock", "_raw_write_unlock", "__local_bh_enable", "rt_spin_unlock"];
    starts_with_any(name, STARTS)
}

/// The scheduler, and the ways into it.
pub(crate) fn leads_to_scheduler(name: &str) -> bool {
    #[rustfmt::skip]
    const STARTS: &[&str] = &[
        "__schedule", "schedule", "preempt_schedule", "__preempt_schedule", "__cond_resched",
        "irqentry_exit", "raw_irqentry_exit", "sysvec_", "__sysvec_", "asm_", "common_interrupt", "el1_",
        "el1h_", "arm64_preempt_schedule_irq",
    ];
    starts_with_any(name, STARTS)
}

/// Puts its thread to sleep: a thread there has paused its work, and delays no other thread for long.
pub(crate) fn goes_to_sleep(name: &str) -> bool {
    #[rustfmt::skip]
    const STARTS: &[&str] = &[
        "do_nanosleep", "hrtimer_nanosleep", "common_nsleep", "schedule", "__schedule", "futex_wait", "do_wait",
        "do_epoll_wait", "ep_poll", "do_poll", "do_select", "poll_schedule_timeout", "usleep_range", "msleep",
        "io_schedule", "wait_for_completion", "rcu_gp_fqs_loop", "kthread_worker_fn", "do_sigtimedwait",
    ];
    starts_with_any(name, STARTS)
}

/// Whether a function is an edge of the kernel: the way in or out, the arming of a timer, HLT. It has a few instructions. A
/// virtual CPU is stopped there more often than elsewhere, because these instructions exit to the hypervisor.
pub(crate) fn is_edge(name: &str) -> bool {
    #[rustfmt::skip]
    const STARTS: &[&str] = &[
        "irqentry_", "raw_irqentry_", "exit_to_user_mode", "syscall_exit_", "entry_SYSCALL", "do_syscall_", "asm_", "sysvec_",
        "hrtimer_reprogram", "__hrtimer_reprogram", "tick_program_event", "clockevents_program_", "lapic_next_", "native_apic_", "native_x2apic_", "kvm_guest_apic_eoi",
        "apic_ack", "ack_APIC", "pv_native_safe_halt", "native_safe_halt", "native_irq_return", "default_idle", "acpi_idle_",
        "ret_from_fork", "ret_to_user", "el0t_64_irq", "el1h_64_irq", "arch_timer_set_next", "erratum_set_next",
    ];
    class_of(name) == Class::UserEdge || sets_timer(name) || starts_with_any(name, STARTS)
}

/// Whether a task that sleeps until a moment sets its timer in this function.
pub(crate) fn sets_timer(name: &str) -> bool {
    starts_with_any(name, &["do_nanosleep", "hrtimer_nanosleep", "hrtimer_start", "__hrtimer_start"])
}

/// Whether only the guest of a hypervisor has this name.
pub(crate) fn is_of_guest(name: &str) -> bool {
    #[rustfmt::skip]
    const STARTS: &[&str] = &[
        "virtio", "kvm_clock", "kvm_sched_clock", "kvm_guest", "kvm_steal", "kvm_kick_cpu", "pvclock_", "kvm_asyncpf",
        "xen_hvm", "xen-", "hyperv", "hv_stimer", "hv_sched_clock", "vmbus", "vmxnet",
    ];
    starts_with_any(name, STARTS)
}

/// Whether a frame of a stack is code of an interrupt's entry: the frames further out were interrupted.
pub(crate) fn is_interrupt_frame(name: &str) -> bool {
    interrupt(name).is_some()
}

/// Whether a function expires the timers of tasks that sleep.
pub(crate) fn wakes_a_sleeper(timer_function: &str) -> bool {
    matches!(timer_function, "hrtimer_wakeup")
}

/// Names of threads of the kernel's own work, which are never the late task.
pub(crate) fn is_kernel_housekeeping(command: &str) -> bool {
    #[rustfmt::skip]
    const STARTS: &[&str] = &[
        "migration/", "ksoftirqd/", "ktimers/", "ktimersoftd/", "rcu", "irq/", "irq_work/", "watchdog",
        "cpuhp/", "stopper/", "kworker/", "swapper/", "idle_inject/", "posixcputmr/", "backlog_napi/", "<",
        "sugov", "kschedfreq", "cfinteractive", "kswapd", "kcompactd", "khugepaged", "pr/",
    ];
    starts_with_any(command, STARTS)
}

/// Names of tools that record traces: they run during the recording, and are not examined.
pub(crate) fn is_recorder(command: &str) -> bool {
    const NAMES: &[&str] = &["trace-cmd", "perf", "atrace", "traced", "traced_probes", "lttng-consumerd"];
    NAMES.contains(&command)
}

/// Names of threads that serve softirqs and timers.
pub(crate) fn serves_softirqs(command: &str) -> bool {
    starts_with_any(command, &["ktimers/", "ksoftirqd/", "ktimersoftd/"])
}

pub(crate) fn is_own(command: &str) -> bool {
    command.starts_with("whylate")
}

/// Names of threads that measure latency. The threads `whylate-…` help to record.
pub(crate) fn is_measuring(command: &str) -> bool {
    const STARTS: &[&str] =
        &["cyclictest", "timerlat/", "timerlatu/", "osnoise/", "whylate", "rtla", "oslat", "cyclicdeadline"];
    starts_with_any(command, STARTS) && !command.starts_with("whylate-")
}

/// Whether `inner` may be the implementation that the dispatcher `outer` tail-calls. The function tracer then names the
/// dispatcher's caller as the caller of both. The two names end in the same two words or more (`nvkm_mc_intr_unarm`,
/// `gf100_mc_intr_unarm`).
pub(crate) fn is_tail_call(outer: &str, inner: &str) -> bool {
    let mut same = 0;
    for (a, b) in outer.rsplit('_').zip(inner.rsplit('_')) {
        if a != b || a.is_empty() {
            break;
        }
        same += 1;
    }
    outer != inner && same >= 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_of_interrupts_are_known_by_function_or_caller() {
        let timer = Class::InterruptEntry(Interrupt::Timer);
        let class = |function, caller| Meaning::of(function).called_by(Some(&Meaning::of(caller)));
        assert_eq!(class("irq_enter_rcu", "sysvec_apic_timer_interrupt"), timer);
        assert_eq!(class("hrtimer_interrupt", "__sysvec_apic_timer_interrupt"), timer);
        assert_eq!(class("nvkm_pci_intr", "irq_forced_thread_fn"), Class::Ordinary);
        assert!(is_interrupt_frame("asm_sysvec_apic_timer_interrupt") && !is_interrupt_frame("stall_thread"));
    }

    #[test]
    fn suffixes_of_the_compiler_do_not_hide_a_name() {
        assert_eq!(class_of("finish_task_switch.isra.0"), Class::Scheduler);
        assert_eq!(class_of("_raw_spin_lock_irqsave"), Class::Helper);
        // How arm64 reads its clock.
        assert_eq!(class_of("arch_counter_read"), Class::Helper);
    }

    #[test]
    fn a_timer_with_an_interrupt_line_is_still_the_local_timer() {
        assert_eq!(irq(11, Some("arch_timer")), "local timer");
        assert_eq!(irq(45, Some("nvkm")), "irq 45 (nvkm)");
        assert_eq!(irq(45, None), "irq 45");
    }

    #[test]
    fn the_ways_in_and_out_and_the_arming_of_timers_are_edges() {
        for name in
            ["irqentry_exit_to_user_mode", "do_nanosleep", "lapic_next_deadline", "pv_native_safe_halt"]
        {
            assert!(is_edge(name), "{name}");
        }
        for name in
            ["gf100_mc_intr_unarm", "__schedule", "memcpy_toio", "kthread", "native_flush_tlb_one_user"]
        {
            assert!(!is_edge(name), "{name}");
        }
    }

    #[test]
    fn only_a_dispatcher_tail_calls() {
        assert!(is_tail_call("nvkm_mc_intr_unarm", "gf100_mc_intr_unarm"));
        assert!(!is_tail_call("kthread_should_stop", "stall_pci_readback"));
        assert!(!is_tail_call("update_rq_clock", "psi_task_switch"));
    }
}
