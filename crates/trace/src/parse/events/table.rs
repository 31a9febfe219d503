//! The table: see [the module](super).

use super::{Fields, Row};
use crate::event::{EventKind, NoiseSource, OsnoiseSample, Symbol, TimerlatContext};
use crate::parse::text;
use crate::parse::tracepoint::Binary;
use whylate_core::CpuId;

/// `"system" { "name" => event; … }`. `[!]` behind a name: it is of the selection for wake-ups. A name without an event is
/// listed because text does not name the system. `text …` is how the text is decoded when not by its fields; with `None`,
/// text has no such event.
macro_rules! events {
    ($fields:ident: $($system:literal {
        $($name:literal $([$mark:tt])? $(=> $kind:expr $(, text $text:expr)?)?;)*
    })*) => {
        pub(super) static EVENTS: &[Row] = &[$($({
            #[allow(unused_imports, unused_variables, reason = "some rows use no fields, or make no event themselves")]
            #[inline]
            fn decode<'a, F: Fields<'a>>($fields: &mut F) -> Option<EventKind> {
                use EventKind::*;
                events!(@kind $($kind)?)
            }
            Row {
                system: $system,
                name: $name,
                of_wakeups: events!(@mark $($mark)?),
                text: events!(@text $($($text)?)?),
                plan: |fields| decode(fields),
                record: |slots, record, machine, texts, kind| {
                    *kind = decode(&mut Binary::new(slots, record, machine, texts))?;
                    Some(())
                },
            }
        },)*)*];
    };
    (@mark) => { false };
    (@mark !) => { true };
    (@kind) => { None };
    (@kind $kind:expr) => { Some($kind) };
    (@text) => { Some(|fields| decode(fields)) };
    (@text $text:expr) => { $text };
}

events! { fields:
    "sched" {
        "sched_switch" [!] => switch(fields)?;
        "sched_waking" [!] => {
            let target_cpu = fields.cpu("target_cpu")?;
            Waking { task: fields.task("comm", "pid", "prio")?, target_cpu }
        };
        "sched_wakeup" [!] => wakeup(fields)?;
        "sched_wakeup_new" [!] => wakeup(fields)?;
        "sched_migrate_task" [!] => {
            let (to_cpu, from_cpu) = (fields.cpu("dest_cpu")?, fields.cpu("orig_cpu")?);
            Migrate { task: fields.task("comm", "pid", "prio")?, from_cpu, to_cpu }
        };
        "sched_pi_setprio" [!] => {
            let new_priority = fields.last("newprio")? as i32;
            PriorityInherited { task: fields.task("comm", "pid", "oldprio")?, new_priority }
        };
        "sched_stat_runtime";
        "sched_process_fork";
        "sched_process_exec";
        "sched_process_exit";
    }
    "timer" {
        "hrtimer_start" [!] => TimerStart {
            timer: fields.address("hrtimer")?,
            function: fields.symbol("function")?,
            expires_ns: fields.number("expires")?,
        };
        "hrtimer_cancel" [!] => TimerCancel { timer: fields.address("hrtimer")? };
        "hrtimer_expire_entry" [!] => TimerExpire {
            timer: fields.address("hrtimer")?,
            function: fields.symbol("function")?,
            now_ns: fields.number("now")?,
        };
        "hrtimer_expire_exit" => TimerExpireExit { timer: fields.address("hrtimer")? };
        "hrtimer_init";
        "hrtimer_setup";
        "timer_init";
        "timer_start";
        "timer_cancel";
        "timer_expire_entry" => WheelExpire {
            timer: fields.address("timer")?,
            function: fields.symbol("function")?,
        };
        "timer_expire_exit" => WheelExpireExit { timer: fields.address("timer")? };
        "tick_stop";
    }
    "workqueue" {
        "workqueue_execute_start" => WorkBegin {
            work: fields.address("work")?,
            function: fields.symbol("function")?,
        }, text Some(text::work_begin);
        "workqueue_execute_end" => WorkEnd { work: fields.address("work")? }, text Some(text::work_end);
    }
    "irq" {
        "irq_handler_entry" => IrqEntry { irq: fields.u32("irq")?, name: fields.name("name")? };
        "irq_handler_exit" => IrqExit { irq: fields.u32("irq")? };
        "softirq_raise" => SoftirqRaise { vector: fields.u32("vec")? };
        "softirq_entry" => SoftirqEntry { vector: fields.u32("vec")? };
        "softirq_exit" => SoftirqExit { vector: fields.u32("vec")? };
    }
    "irq_vectors" {
        "local_timer_entry" => VectorEntry { vector: fields.vector()? };
        "local_timer_exit" => VectorExit { vector: fields.vector()? };
        "reschedule_entry" => VectorEntry { vector: fields.vector()? };
        "reschedule_exit" => VectorExit { vector: fields.vector()? };
        "call_function_entry" => VectorEntry { vector: fields.vector()? };
        "call_function_exit" => VectorExit { vector: fields.vector()? };
        "call_function_single_entry" => VectorEntry { vector: fields.vector()? };
        "call_function_single_exit" => VectorExit { vector: fields.vector()? };
        "irq_work_entry" => VectorEntry { vector: fields.vector()? };
        "irq_work_exit" => VectorExit { vector: fields.vector()? };
        "thermal_apic_entry" => VectorEntry { vector: fields.vector()? };
        "thermal_apic_exit" => VectorExit { vector: fields.vector()? };
        "threshold_apic_entry" => VectorEntry { vector: fields.vector()? };
        "threshold_apic_exit" => VectorExit { vector: fields.vector()? };
        "deferred_error_apic_entry" => VectorEntry { vector: fields.vector()? };
        "deferred_error_apic_exit" => VectorExit { vector: fields.vector()? };
        "error_apic_entry" => VectorEntry { vector: fields.vector()? };
        "error_apic_exit" => VectorExit { vector: fields.vector()? };
        "spurious_apic_entry" => VectorEntry { vector: fields.vector()? };
        "spurious_apic_exit" => VectorExit { vector: fields.vector()? };
        "x86_platform_ipi_entry" => VectorEntry { vector: fields.vector()? };
        "x86_platform_ipi_exit" => VectorExit { vector: fields.vector()? };
    }
    "nmi" {
        "nmi_handler" => {
            let handler = fields.symbol("handler")?;
            Nmi { handler, duration_ns: fields.signed("delta_ns")?.max(0) as u64 }
        }, text Some(text::nmi);
    }
    "ipi" {
        "ipi_entry" => VectorEntry { vector: fields.reason("reason")? };
        "ipi_exit" => VectorExit { vector: fields.reason("reason")? };
        "ipi_raise" => IpiSend { target_cpu: None, call_site: None, callback: None };
        "ipi_send_cpu" => {
            let target_cpu = Some(CpuId(fields.u32("cpu")?));
            IpiSend { target_cpu, call_site: function(fields, "callsite"), callback: function(fields, "callback") }
        };
        "ipi_send_cpumask" => {
            let call_site = function(fields, "callsite");
            IpiSend { target_cpu: None, call_site, callback: function(fields, "callback") }
        };
    }
    "csd" {
        "csd_function_entry" => RemoteFunctionEntry { function: fields.asked_of_another()? };
        "csd_function_exit" => RemoteFunctionExit { function: fields.asked_of_another()? };
        "csd_queue_cpu";
    }
    "preemptirq" {
        "irq_disable" => IrqsOff { caller: fields.caller("caller")?, parent: fields.caller("parent")? };
        "irq_enable" => IrqsOn { caller: fields.caller("caller")?, parent: fields.caller("parent")? };
        "preempt_disable" => PreemptOff { caller: fields.caller("caller")?, parent: fields.caller("parent")? };
        "preempt_enable" => PreemptOn { caller: fields.caller("caller")?, parent: fields.caller("parent")? };
    }
    "exceptions" {
        "page_fault_user" => {
            PageFault { address: fields.code("address")?, instruction: fields.code("ip")?, user: true }
        };
        "page_fault_kernel" => {
            PageFault { address: fields.code("address")?, instruction: fields.code("ip")?, user: false }
        };
    }
    "raw_syscalls" {
        "sys_enter" => SyscallEnter { number: fields.syscall("id")?, name: None };
        "sys_exit" => SyscallExit { number: fields.syscall("id")?, name: None };
    }
    "syscalls" {
        "sys_enter_*" => {
            SyscallEnter { number: fields.syscall("__syscall_nr")?, name: Some(fields.suffix("sys_enter_")?) }
        };
        "sys_exit_*" => {
            SyscallExit { number: fields.syscall("__syscall_nr")?, name: Some(fields.suffix("sys_exit_")?) }
        };
    }
    "power" {
        // The kernel writes −1 when the CPU leaves idle, of 32 bits or of 64.
        "cpu_idle" => {
            let state = u32::try_from(fields.signed("state")?).ok();
            Idle { state: state.filter(|state| *state != u32::MAX) }
        };
        "cpu_frequency";
    }
    "lock" {
        "contention_begin" => {
            LockWait { lock: fields.address("lock_addr")?, flags: fields.u32("flags")? }
        }, text Some(text::lock_wait);
        "contention_end" => {
            LockWaitEnd { lock: fields.address("lock_addr")? }
        }, text Some(text::lock_wait_end);
    }
    "osnoise" {
        "irq_noise" [!] => noise(fields, |fields| {
            let (name, vector) = fields.labelled(Some("desc"), "vector")?;
            Some(NoiseSource::Irq { vector: vector as i32, name })
        })?;
        "softirq_noise" [!] => noise(fields, |fields| {
            let (_, vector) = fields.labelled(None, "vector")?;
            Some(NoiseSource::Softirq { vector: vector as u32 })
        })?;
        "nmi_noise" [!] => noise(fields, |_| Some(NoiseSource::Nmi))?;
        "thread_noise" [!] => noise(fields, |fields| {
            let (command, pid) = fields.labelled(Some("comm"), "pid")?;
            Some(NoiseSource::Thread { pid: pid as u32, command })
        })?;
        "sample_threshold" [!] => {
            let interference = fields.last("interference")? as u32;
            let duration_ns = fields.last("duration")? as u64;
            NoiseGap { start_ns: fields.time("start")?, duration_ns, interference }
        };
    }
    "ftrace" {
        "tracing_mark_write" [!] => Print { text: fields.marker("buf")? };
        "print" [!] => Print { text: fields.marker("buf")? };
        "bprint" [!] => Print { text: fields.formatted("fmt", "buf")? };
        "bputs" [!] => Print { text: fields.stored("str")? };
        "timerlat" [!] => Timerlat {
            sequence: fields.renamed("seqnum", "seq")? as u32,
            context: match fields.number("context")? {
                0 => TimerlatContext::Irq,
                1 => TimerlatContext::Thread,
                _ => TimerlatContext::User,
            },
            latency_ns: fields.number("timer_latency")?,
        };
        "osnoise" [!] => Osnoise(OsnoiseSample {
            runtime_ns: micros(fields.number("runtime")?),
            noise_ns: micros(fields.number("noise")?),
            noise_max_ns: micros(fields.number("max_sample")?),
            counts: [
                fields.number("hw_count")?,
                fields.number("nmi_count")?,
                fields.number("irq_count")?,
                fields.number("softirq_count")?,
                fields.number("thread_count")?,
            ],
        });
        "hwlat" [!] => hwlat(fields)?;
        "function" => {
            Function { function: fields.symbol("ip")?, caller: fields.symbol("parent_ip")? }
        }, text Some(text::function_field);
        "funcgraph_entry" => {
            GraphEntry { function: fields.symbol("func")?, depth: fields.u32("depth")? }
        }, text None;
        "funcgraph_exit" => {
            let (function, depth) = (fields.symbol("func")?, fields.u32("depth")?);
            let (begin, end) = (fields.number("calltime")?, fields.number("rettime")?);
            GraphExit { function, depth, duration_ns: end.saturating_sub(begin) }
        }, text None;
        "kernel_stack" => Stack { frames: fields.stack("size", "caller")? }, text None;
        // The wake-up tracers' own, which have no commands.
        "context_switch" [!] => Switch {
            previous: fields.traced_task("prev_pid", "prev_prio")?,
            state: fields.traced_state("prev_state")?,
            next: fields.traced_task("next_pid", "next_prio")?,
        }, text None;
        "wakeup" [!] => Wakeup {
            task: fields.traced_task("next_pid", "next_prio")?,
            target_cpu: fields.cpu("next_cpu")?,
        }, text None;
    }
}

#[inline]
fn switch<'a>(fields: &mut impl Fields<'a>) -> Option<EventKind> {
    let next = fields.task("next_comm", "next_pid", "next_prio")?;
    let state = fields.state("prev_state")?;
    let previous = fields.task("prev_comm", "prev_pid", "prev_prio")?;
    fields.learn(&previous);
    fields.learn(&next);
    Some(EventKind::Switch { previous, state, next })
}

#[inline]
fn wakeup<'a>(fields: &mut impl Fields<'a>) -> Option<EventKind> {
    let target_cpu = fields.cpu("target_cpu")?;
    Some(EventKind::Wakeup { task: fields.task("comm", "pid", "prio")?, target_cpu })
}

/// A function, unless the pointer is null.
#[inline]
fn function<'a>(fields: &mut impl Fields<'a>, key: &str) -> Option<Symbol> {
    fields.symbol(key).filter(|symbol| *symbol != Symbol::Address(0))
}

/// Microseconds of the kernel's latency tracers, in nanoseconds.
fn micros(value: u64) -> u64 {
    value.saturating_mul(1000)
}

/// Old kernels have no count.
fn hwlat<'a>(fields: &mut impl Fields<'a>) -> Option<EventKind> {
    let sequence = fields.renamed("seqnum", "cnt")? as u32;
    let inner_ns = micros(fields.renamed("duration", "inner")?);
    let outer_ns = micros(fields.renamed("outer_duration", "outer")?);
    let count = fields.number("count").map(|count| count as u32);
    let nmi = fields.renamed("nmi_total_ts", "nmi-ts").map(micros);
    let nmis = fields.renamed("nmi_count", "nmi-count");
    let nmi_ns = nmi.filter(|_| nmis.is_some_and(|count| count > 0));
    let nmi_count = nmis.filter(|count| *count > 0).map(|count| count as u32);
    // In records the parts of a structure are fields of their own.
    let parts = fields.number("tv_sec").zip(fields.number("tv_nsec"));
    let whole = parts.and_then(|(seconds, rest)| seconds.checked_mul(1_000_000_000)?.checked_add(rest));
    let wall_ns = whole.or_else(|| fields.time("ts"));
    Some(EventKind::Hwlat { sequence, inner_ns, outer_ns, count, nmi_ns, nmi_count, wall_ns })
}

fn noise<'a, F: Fields<'a>>(
    fields: &mut F,
    source: impl FnOnce(&mut F) -> Option<NoiseSource>,
) -> Option<EventKind> {
    let duration_ns = fields.last("duration")? as u64;
    let start_ns = fields.time("start")?;
    Some(EventKind::Noise { source: source(fields)?, start_ns, duration_ns })
}
