//! Whether the events of a CPU are consistent: finds interrupts whose start and end are both recorded, and events that cannot
//! follow each other because some between them are missing.

use crate::find::late::Late;
use crate::states::States;
use crate::states::cpu::Cpu;
use crate::states::state::{Level, Span};
use crate::vocabulary::Class;
use std::collections::HashSet;
use whylate_core::CpuId;
use whylate_trace::event::{Event, EventKind};

/// Marks the spans of an interrupt or a softirq whose end an event shows.
pub(crate) fn close_interrupt(cpu: &mut Cpu, event: &Event, class: Class) {
    let is_softirq = matches!(event.kind, EventKind::SoftirqExit { .. });
    let from = match event.kind {
        EventKind::VectorExit { .. } | EventKind::IrqExit { .. } => cpu.hard_from,
        EventKind::Noise { source: whylate_trace::event::NoiseSource::Irq { .. }, .. } => cpu.hard_from,
        EventKind::SoftirqExit { .. } => cpu.softirq_from.take(),
        _ if class == Class::InterruptTail => cpu.hard_from,
        _ => None,
    };
    let Some(from) = from else { return };
    let from = if is_softirq { from } else { from.max(cpu.hard_closed) };
    for span in cpu.spans.iter_mut().skip(from) {
        span.closed |= match span.state.level {
            Level::HardIrq(_) => !is_softirq,
            Level::Softirq(_) => is_softirq,
            _ => false,
        };
    }
    if !is_softirq {
        cpu.hard_closed = cpu.spans.len();
    }
}

impl States {
    /// How much of the latency is in spans that end with an unseen change of the thread: who had the CPU in them, and for how
    /// long, is not known.
    pub(crate) fn unseen_ns(&self, late: &Late) -> u64 {
        let within =
            |span: &Span| span.to.min(late.actual_ns).saturating_sub(span.from.max(late.expected_ns));
        let ends: HashSet<(CpuId, u64)> = self.unseen.iter().copied().collect();
        let all = self.spans.iter().flat_map(|(cpu, spans)| spans.iter().map(|span| (*cpu, span)));
        let open = all.filter(|(cpu, span)| ends.contains(&(*cpu, span.to)));
        open.fold(0u64, |sum, (_, span)| sum.saturating_add(within(span)))
    }

    /// Whether an event contradicts the known state of its CPU. Such events are a switch from another thread, a line of
    /// another thread without a switch, the end of an interrupt that did not begin, and flags of a thread within an
    /// interrupt.
    pub(crate) fn contradicts(&self, cpu: &Cpu, event: &Event, class: Class) -> bool {
        let known = cpu.pid.is_some() && self.has_switches;
        let flags = event.context;
        let has_flags = flags.irqs_off.is_some();
        match event.kind {
            EventKind::Switch { previous, .. } => known && cpu.pid != Some(previous.pid),
            EventKind::VectorExit { .. } | EventKind::IrqExit { .. } => cpu.hard.is_empty(),
            EventKind::SoftirqExit { .. } => cpu.softirq.is_none(),
            EventKind::Noise { .. } | EventKind::Timerlat { .. } => false,
            _ if class == Class::InterruptTail || matches!(class, Class::InterruptEntry(_)) => false,
            _ if known && event.pid.is_some() && cpu.pid != event.pid && !cpu.is_switching(event) => true,
            _ => has_flags && !flags.hard_irq && !flags.nmi && !cpu.hard.is_empty() && !cpu.by_flags,
        }
    }
}
