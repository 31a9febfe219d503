//! Events of interrupts, softirqs, interrupts between CPUs, and of sections with interrupts or preemption off.

use super::{Text, scan, symbol};
use crate::event::{EventKind, Symbol, Vector};
use crate::parse::text::texts::Texts;
use whylate_core::CpuId;

pub(super) fn irq_entry(text: &Text<'_>, texts: &mut Texts) -> Option<EventKind> {
    let irq = scan::whole_u32(scan::value(text.fields, b"irq=")?)?;
    // The name is last and can have spaces.
    let (_, name) = scan::split(text.fields, b"name=")?;
    Some(EventKind::IrqEntry { irq, name: texts.intern(scan::trim(name)) })
}

pub(super) fn irq_exit(text: &Text<'_>, _: &mut Texts) -> Option<EventKind> {
    Some(EventKind::IrqExit { irq: scan::whole_u32(scan::value(text.fields, b"irq=")?)? })
}

pub(super) fn softirq(text: &Text<'_>, _: &mut Texts) -> Option<EventKind> {
    let vector = scan::whole_u32(scan::value(text.fields, b"vec=")?)?;
    Some(match text.name {
        b"softirq_raise" => EventKind::SoftirqRaise { vector },
        b"softirq_entry" => EventKind::SoftirqEntry { vector },
        _ => EventKind::SoftirqExit { vector },
    })
}

/// The vector of an event's name, without `_entry` or `_exit`.
fn vector(name: &[u8], texts: &mut Texts) -> Vector {
    match name {
        b"local_timer" => Vector::LocalTimer,
        b"reschedule" => Vector::Reschedule,
        b"call_function" => Vector::CallFunction,
        b"call_function_single" => Vector::CallFunctionSingle,
        b"irq_work" => Vector::IrqWork,
        _ => Vector::Other(texts.intern(name)),
    }
}

pub(super) fn vector_entry(text: &Text<'_>, texts: &mut Texts) -> Option<EventKind> {
    Some(EventKind::VectorEntry { vector: vector(text.name.strip_suffix(b"_entry")?, texts) })
}

pub(super) fn vector_exit(text: &Text<'_>, texts: &mut Texts) -> Option<EventKind> {
    Some(EventKind::VectorExit { vector: vector(text.name.strip_suffix(b"_exit")?, texts) })
}

/// The vector of an interrupt between CPUs on arm64, from the reason in parentheses at the end.
fn reason(fields: &[u8], texts: &mut Texts) -> Option<Vector> {
    let (_, reason) = scan::split(fields, b"(")?;
    Some(match scan::trim(reason.strip_suffix(b")")?) {
        b"Rescheduling interrupts" => Vector::Reschedule,
        b"Function call interrupts" => Vector::CallFunction,
        b"Timer broadcast interrupts" => Vector::LocalTimer,
        b"IRQ work interrupts" => Vector::IrqWork,
        other => Vector::Other(texts.intern(other)),
    })
}

pub(super) fn ipi_entry(text: &Text<'_>, texts: &mut Texts) -> Option<EventKind> {
    reason(text.fields, texts).map(|vector| EventKind::VectorEntry { vector })
}

pub(super) fn ipi_exit(text: &Text<'_>, texts: &mut Texts) -> Option<EventKind> {
    reason(text.fields, texts).map(|vector| EventKind::VectorExit { vector })
}

pub(super) fn ipi_raise(text: &Text<'_>, _: &mut Texts) -> Option<EventKind> {
    scan::value(text.fields, b"target_mask=")?;
    Some(EventKind::IpiSend { target_cpu: None, call_site: None, callback: None })
}

pub(super) fn ipi_send(text: &Text<'_>, texts: &mut Texts) -> Option<EventKind> {
    let target_cpu = match scan::value(text.fields, b"cpu=") {
        Some(cpu) => Some(CpuId(scan::whole_u32(cpu)?)),
        None => scan::value(text.fields, b"cpumask=").map(|_| None)?,
    };
    // A null pointer is no function.
    let mut function = |key| {
        let value = scan::value(text.fields, key)?;
        symbol(value, texts).filter(|symbol| *symbol != Symbol::Address(0))
    };
    let call_site = function(b"callsite=");
    Some(EventKind::IpiSend { target_cpu, call_site, callback: function(b"callback=") })
}

pub(super) fn remote_entry(text: &Text<'_>, texts: &mut Texts) -> Option<EventKind> {
    let function = symbol(scan::value(text.fields, b"func=")?, texts)?;
    Some(EventKind::RemoteFunctionEntry { function })
}

pub(super) fn remote_exit(text: &Text<'_>, texts: &mut Texts) -> Option<EventKind> {
    let function = symbol(scan::value(text.fields, b"func=")?, texts)?;
    Some(EventKind::RemoteFunctionExit { function })
}

/// `perf_event_nmi_handler() delta_ns: 2358 handled: 1`.
pub(super) fn nmi(text: &Text<'_>, texts: &mut Texts) -> Option<EventKind> {
    let (handler, rest) = scan::split(text.fields, b"() delta_ns: ")?;
    let (duration_ns, _) = scan::number(scan::skip_spaces(rest))?;
    Some(EventKind::Nmi { handler: symbol(handler, texts)?, duration_ns })
}

/// `irq_disable`, `irq_enable`, `preempt_disable`, `preempt_enable`.
pub(super) fn section(text: &Text<'_>, texts: &mut Texts) -> Option<EventKind> {
    let caller = symbol(scan::value(text.fields, b"caller=")?, texts)?;
    let parent = symbol(scan::value(text.fields, b"parent=")?, texts)?;
    Some(match text.name {
        b"irq_disable" => EventKind::IrqsOff { caller, parent },
        b"irq_enable" => EventKind::IrqsOn { caller, parent },
        b"preempt_disable" => EventKind::PreemptOff { caller, parent },
        _ => EventKind::PreemptOn { caller, parent },
    })
}
