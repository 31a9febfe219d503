//! Events by their texts: `name: what the kernel, or trace-cmd, prints of its fields`.
//!
//! The texts differ between kernels in the order and number of fields, and trace-cmd has its own for some events; each
//! function here takes all of them. What cannot be understood is [`EventKind::Other`] with its name, never a guess.

mod interrupt;
mod sched;
pub(super) mod system;
mod timer;
pub(super) mod tracer;

use super::scan;
use super::texts::Texts;
use crate::event::{EventKind, Name, Symbol};

/// What is known of the line when its event is decoded.
pub(super) struct Text<'a> {
    /// Name of the event.
    pub(super) name: &'a [u8],
    /// What follows the name, without spaces around it.
    pub(super) fields: &'a [u8],
    /// Command of the running task, where the line tells.
    pub(super) command: Option<Name>,
}

type Decode = fn(&Text<'_>, &mut Texts) -> Option<EventKind>;

/// An event that is decoded, or whose system is known.
pub(super) struct Known {
    /// Its name.
    pub(super) name: &'static str,
    /// `system:name`.
    pub(super) full_name: &'static str,
    /// Whether it helps to find late wake-ups: the selection of that name has it.
    pub(super) of_wakeups: bool,
    decode: Decode,
}

/// `events!{ system { names => function, … } }`; a `[!]` behind the name: the event is of the selection for wake-ups.
macro_rules! events {
    ($($system:literal { $($name:literal $([$mark:tt])? => $decode:expr;)* })*) => {
        &[$($(Known {
            name: $name,
            full_name: concat!($system, ":", $name),
            of_wakeups: events!(@mark $($mark)?),
            decode: $decode,
        },)*)*]
    };
    (@mark) => { false };
    (@mark !) => { true };
}

/// Not decoded, but its system is known.
fn other(_: &Text<'_>, _: &mut Texts) -> Option<EventKind> {
    None
}

static KNOWN: &[Known] = events! {
    "sched" {
        "sched_switch" [!] => sched::switch;
        "sched_waking" [!] => sched::waking;
        "sched_wakeup" [!] => sched::wakeup;
        "sched_wakeup_new" [!] => sched::wakeup;
        "sched_migrate_task" [!] => sched::migrate;
        "sched_pi_setprio" [!] => sched::priority_inherited;
        "sched_stat_runtime" => other;
        "sched_process_fork" => other;
        "sched_process_exec" => other;
        "sched_process_exit" => other;
    }
    "timer" {
        "hrtimer_start" [!] => timer::start;
        "hrtimer_cancel" [!] => timer::cancel;
        "hrtimer_expire_entry" [!] => timer::expire;
        "hrtimer_expire_exit" [!] => timer::expire_exit;
        "hrtimer_init" => other;
        "hrtimer_setup" => other;
        "timer_init" => other;
        "timer_start" => other;
        "timer_cancel" => other;
        "timer_expire_entry" => other;
        "timer_expire_exit" => other;
        "tick_stop" => other;
    }
    "irq" {
        "irq_handler_entry" => interrupt::irq_entry;
        "irq_handler_exit" => interrupt::irq_exit;
        "softirq_raise" => interrupt::softirq;
        "softirq_entry" => interrupt::softirq;
        "softirq_exit" => interrupt::softirq;
    }
    "irq_vectors" {
        "local_timer_entry" => interrupt::vector_entry;
        "local_timer_exit" => interrupt::vector_exit;
        "reschedule_entry" => interrupt::vector_entry;
        "reschedule_exit" => interrupt::vector_exit;
        "call_function_entry" => interrupt::vector_entry;
        "call_function_exit" => interrupt::vector_exit;
        "call_function_single_entry" => interrupt::vector_entry;
        "call_function_single_exit" => interrupt::vector_exit;
        "irq_work_entry" => interrupt::vector_entry;
        "irq_work_exit" => interrupt::vector_exit;
        "thermal_apic_entry" => interrupt::vector_entry;
        "thermal_apic_exit" => interrupt::vector_exit;
        "threshold_apic_entry" => interrupt::vector_entry;
        "threshold_apic_exit" => interrupt::vector_exit;
        "deferred_error_apic_entry" => interrupt::vector_entry;
        "deferred_error_apic_exit" => interrupt::vector_exit;
        "error_apic_entry" => interrupt::vector_entry;
        "error_apic_exit" => interrupt::vector_exit;
        "spurious_apic_entry" => interrupt::vector_entry;
        "spurious_apic_exit" => interrupt::vector_exit;
        "x86_platform_ipi_entry" => interrupt::vector_entry;
        "x86_platform_ipi_exit" => interrupt::vector_exit;
    }
    "nmi" { "nmi_handler" => interrupt::nmi; }
    "ipi" {
        "ipi_entry" => interrupt::ipi_entry;
        "ipi_exit" => interrupt::ipi_exit;
        "ipi_raise" => interrupt::ipi_raise;
        "ipi_send_cpu" => interrupt::ipi_send;
        "ipi_send_cpumask" => interrupt::ipi_send;
    }
    "csd" {
        "csd_function_entry" => interrupt::remote_entry;
        "csd_function_exit" => interrupt::remote_exit;
        "csd_queue_cpu" => other;
    }
    "preemptirq" {
        "irq_disable" => interrupt::section;
        "irq_enable" => interrupt::section;
        "preempt_disable" => interrupt::section;
        "preempt_enable" => interrupt::section;
    }
    "exceptions" {
        "page_fault_user" => system::page_fault;
        "page_fault_kernel" => system::page_fault;
    }
    "raw_syscalls" {
        "sys_enter" => system::raw_enter;
        "sys_exit" => system::raw_exit;
    }
    "power" {
        "cpu_idle" => system::idle;
        "cpu_frequency" => other;
    }
    "lock" {
        "contention_begin" => system::lock_wait;
        "contention_end" => system::lock_wait_end;
    }
    "osnoise" {
        "irq_noise" [!] => tracer::irq_noise;
        "softirq_noise" [!] => tracer::softirq_noise;
        "nmi_noise" [!] => tracer::nmi_noise;
        "thread_noise" [!] => tracer::thread_noise;
        "sample_threshold" [!] => tracer::noise_gap;
    }
    "ftrace" {
        "tracing_mark_write" [!] => tracer::print;
        "print" [!] => tracer::print;
        "bprint" [!] => tracer::print;
        "bputs" [!] => tracer::print;
        "timerlat" [!] => tracer::timerlat_fields;
        "osnoise" [!] => other;
        "function" => tracer::function_field;
        "hwlat" [!] => tracer::hwlat_fields;
    }
};

/// Finds [`Known`] events by name.
pub(super) struct Table {
    /// Positions in [`KNOWN`], in the order of the names.
    sorted: Vec<usize>,
}

impl Table {
    pub(super) fn new() -> Self {
        let mut sorted: Vec<usize> = (0..KNOWN.len()).collect();
        sorted.sort_by_key(|position| KNOWN[*position].name);
        Self { sorted }
    }

    /// The event of a name, and its position: below 128.
    pub(super) fn find(&self, name: &[u8]) -> Option<(usize, &'static Known)> {
        let found =
            self.sorted.binary_search_by(|position| KNOWN[*position].name.as_bytes().cmp(name)).ok()?;
        let position = self.sorted[found];
        Some((position, &KNOWN[position]))
    }
}

/// The event of a text; `Other` when it is not decoded, or not understood.
pub(super) fn decode(known: Option<&Known>, text: &Text<'_>, texts: &mut Texts) -> EventKind {
    if let Some(kind) = known.and_then(|known| (known.decode)(text, texts)) {
        return kind;
    }
    if let Some(kind) = system::named_syscall(text.name, texts) {
        return kind;
    }
    let system = known
        .and_then(|known| known.full_name.split_once(':'))
        .map(|(system, _)| texts.intern(system.as_bytes()));
    EventKind::Other { system, name: texts.intern(text.name) }
}

/// A function: its name without offset, size and module, or its address; `None` for nothing at all.
pub(super) fn symbol(bytes: &[u8], texts: &mut Texts) -> Option<Symbol> {
    if let Some(digits) = bytes.strip_prefix(b"0x") {
        return scan::hexadecimal(digits).map(Symbol::Address);
    }
    let length = bytes
        .iter()
        .position(|byte| matches!(byte, b'+' | b'/' | b'(' | b' ' | b'[' | b','))
        .unwrap_or(bytes.len());
    let name = &bytes[..length];
    if name.len() == 16
        && let Some(address) = scan::hexadecimal(name)
    {
        return Some(Symbol::Address(address));
    }
    match name {
        b"" => None,
        b"0" => Some(Symbol::Address(0)),
        _ => Some(Symbol::Name(texts.intern(name))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_is_once_in_the_table() {
        let table = Table::new();
        for (position, known) in KNOWN.iter().enumerate() {
            let (found, _) = table.find(known.name.as_bytes()).expect("it is in the table");
            assert_eq!(found, position, "{}", known.name);
        }
        assert!(KNOWN.len() <= 128);
    }

    #[test]
    fn symbols() {
        let mut texts = Texts::new();
        let name = Symbol::Name(texts.intern(b"hrtimer_wakeup"));
        for text in
            ["hrtimer_wakeup", "hrtimer_wakeup/0x0", "hrtimer_wakeup+0x0/0x30", "hrtimer_wakeup+0x0/0x30 [m]"]
        {
            assert_eq!(symbol(text.as_bytes(), &mut texts), Some(name), "{text}");
        }
        assert_eq!(symbol(b"0xffffffff81000000", &mut texts), Some(Symbol::Address(0xffff_ffff_8100_0000)));
        assert_eq!(symbol(b"ffffffff81000000", &mut texts), Some(Symbol::Address(0xffff_ffff_8100_0000)));
        assert_eq!(symbol(b"0x0", &mut texts), Some(Symbol::Address(0)));
        assert_eq!(symbol(b"", &mut texts), None);
    }
}
