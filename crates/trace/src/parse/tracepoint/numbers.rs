//! Events that are numbers only: which of their fields make which event of the model.

use crate::event::{EventKind, OsnoiseSample, Symbol, TimerlatContext};
use whylate_core::CpuId;

/// The values of at most this many fields.
pub(super) type Values = [u64; 8];

/// An event that is numbers only.
pub(super) struct Numbers {
    pub(super) system: &'static str,
    pub(super) name: &'static str,
    /// Its fields, in the order in which `make` takes them.
    pub(super) fields: &'static [&'static str],
    pub(super) make: fn(&Values) -> EventKind,
}

const fn event(
    system: &'static str,
    name: &'static str,
    fields: &'static [&'static str],
    make: fn(&Values) -> EventKind,
) -> Numbers {
    Numbers { system, name, fields, make }
}

fn cpu(value: u64) -> CpuId {
    CpuId(value as u32)
}

const fn symbol(address: u64) -> Symbol {
    Symbol::Address(address)
}

/// Microseconds of the kernel's latency tracers.
fn micros(value: u64) -> u64 {
    value.saturating_mul(1000)
}

pub(super) const NUMBERS: &[Numbers] = &[
    event("timer", "hrtimer_start", &["hrtimer", "function", "expires"], |values| EventKind::TimerStart {
        timer: values[0],
        function: symbol(values[1]),
        expires_ns: values[2],
    }),
    event("timer", "hrtimer_cancel", &["hrtimer"], |values| EventKind::TimerCancel { timer: values[0] }),
    event("timer", "hrtimer_expire_entry", &["hrtimer", "function", "now"], |values| {
        EventKind::TimerExpire { timer: values[0], function: symbol(values[1]), now_ns: values[2] }
    }),
    event("timer", "hrtimer_expire_exit", &["hrtimer"], |values| EventKind::TimerExpireExit {
        timer: values[0],
    }),
    event("irq", "irq_handler_exit", &["irq"], |values| EventKind::IrqExit { irq: values[0] as u32 }),
    event("irq", "softirq_raise", &["vec"], |values| EventKind::SoftirqRaise { vector: values[0] as u32 }),
    event("irq", "softirq_entry", &["vec"], |values| EventKind::SoftirqEntry { vector: values[0] as u32 }),
    event("irq", "softirq_exit", &["vec"], |values| EventKind::SoftirqExit { vector: values[0] as u32 }),
    event("nmi", "nmi_handler", &["handler", "delta_ns"], |values| EventKind::Nmi {
        handler: symbol(values[0]),
        duration_ns: (values[1] as i64).max(0) as u64,
    }),
    event("ipi", "ipi_send_cpu", &["cpu", "callsite", "callback"], |values| EventKind::IpiSend {
        target_cpu: Some(cpu(values[0])),
        call_site: Some(symbol(values[1])),
        callback: Some(symbol(values[2])).filter(|_| values[2] != 0),
    }),
    event("ipi", "ipi_send_cpumask", &["callsite", "callback"], |values| EventKind::IpiSend {
        target_cpu: None,
        call_site: Some(symbol(values[0])),
        callback: Some(symbol(values[1])).filter(|_| values[1] != 0),
    }),
    event("ipi", "ipi_raise", &[], |_| EventKind::IpiSend {
        target_cpu: None,
        call_site: None,
        callback: None,
    }),
    event("csd", "csd_function_entry", &["func"], |values| EventKind::RemoteFunctionEntry {
        function: symbol(values[0]),
    }),
    event("csd", "csd_function_exit", &["func"], |values| EventKind::RemoteFunctionExit {
        function: symbol(values[0]),
    }),
    event("exceptions", "page_fault_user", &["address", "ip"], |values| EventKind::PageFault {
        address: values[0],
        instruction: values[1],
        user: true,
    }),
    event("exceptions", "page_fault_kernel", &["address", "ip"], |values| EventKind::PageFault {
        address: values[0],
        instruction: values[1],
        user: false,
    }),
    event("raw_syscalls", "sys_enter", &["id"], |values| EventKind::SyscallEnter {
        number: u32::try_from(values[0] as i64).ok(),
        name: None,
    }),
    event("raw_syscalls", "sys_exit", &["id"], |values| EventKind::SyscallExit {
        number: u32::try_from(values[0] as i64).ok(),
        name: None,
    }),
    // The kernel writes −1 when the CPU leaves idle.
    event("power", "cpu_idle", &["state"], |values| EventKind::Idle {
        state: Some(values[0] as u32).filter(|state| *state != u32::MAX),
    }),
    event("lock", "contention_begin", &["lock_addr", "flags"], |values| EventKind::LockWait {
        lock: values[0],
        flags: values[1] as u32,
    }),
    event("lock", "contention_end", &["lock_addr"], |values| EventKind::LockWaitEnd { lock: values[0] }),
    event("ftrace", "function", &["ip", "parent_ip"], |values| EventKind::Function {
        function: symbol(values[0]),
        caller: symbol(values[1]),
    }),
    event("ftrace", "funcgraph_entry", &["func", "depth"], |values| EventKind::GraphEntry {
        function: symbol(values[0]),
        depth: values[1] as u32,
    }),
    event("ftrace", "funcgraph_exit", &["func", "depth", "calltime", "rettime"], |values| {
        EventKind::GraphExit {
            function: symbol(values[0]),
            depth: values[1] as u32,
            duration_ns: values[3].saturating_sub(values[2]),
        }
    }),
    event("ftrace", "timerlat", &["seqnum", "context", "timer_latency"], |values| EventKind::Timerlat {
        sequence: values[0] as u32,
        context: match values[1] {
            0 => TimerlatContext::Irq,
            1 => TimerlatContext::Thread,
            _ => TimerlatContext::User,
        },
        latency_ns: values[2],
    }),
    event("ftrace", "osnoise", OSNOISE_FIELDS, |values| {
        EventKind::Osnoise(OsnoiseSample {
            runtime_ns: micros(values[0]),
            noise_ns: micros(values[1]),
            noise_max_ns: micros(values[2]),
            counts: [values[3], values[4], values[5], values[6], values[7]],
        })
    }),
    event("osnoise", "sample_threshold", &["start", "duration", "interference"], |values| {
        EventKind::NoiseGap { start_ns: values[0], duration_ns: values[1], interference: values[2] as u32 }
    }),
];

const OSNOISE_FIELDS: &[&str] = &[
    "runtime",
    "noise",
    "max_sample",
    "hw_count",
    "nmi_count",
    "irq_count",
    "softirq_count",
    "thread_count",
];
