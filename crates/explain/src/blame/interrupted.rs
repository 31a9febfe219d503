//! What an interrupt interrupted: the stack that was recorded in it.
//!
//! In: a span of a CPU and the events around it. Out: the functions below the interrupt's entry, innermost first. The code
//! here does not decide whether one of them is to blame.

use crate::blame::label::Labeller;
use crate::stack::{self, Named};
use crate::states::state::Span;
use crate::vocabulary;
use std::collections::HashMap;
use whylate_core::CpuId;
use whylate_trace::event::{Event, EventKind};

/// Events after an interrupt among which its stack is searched.
const STACK_AFTER: usize = 4096;
/// Events before a span among which the stack of the preceding interrupt is searched.
const STACK_BEFORE: usize = 64;

/// The events of each CPU that are stacks of interrupted code: places among the CPU's events, ascending.
pub(crate) type InterruptStacks = HashMap<CpuId, Vec<u32>>;

impl Labeller<'_> {
    /// The functions that the interrupt at the end of a span interrupted: from the stack recorded in it, or the one that the
    /// timerlat tracer kept of it. Innermost first; empty without a stack.
    pub(crate) fn interrupted(&self, span: &Span) -> Vec<String> {
        self.interrupt_stack(span).map(|(functions, _)| functions).unwrap_or_default()
    }

    /// Whether the stack of the interrupt at the end of a span shows user mode: it has nothing below the interrupt's entry.
    pub(crate) fn interrupted_user(&self, span: &Span) -> bool {
        self.interrupt_stack(span)
            .is_some_and(|(functions, event)| functions.is_empty() && self.is_named(event))
    }

    /// What is below the entry of the interrupt at the end of a span, and the event that showed it; `None` without a stack.
    fn interrupt_stack(&self, span: &Span) -> Option<(Vec<String>, &Event)> {
        let start = span.events.1;
        let first = self.window.events.get(start).filter(|_| span.ends_in_interrupt)?;
        let stacks = self.stacks.get_or_init(|| self.stacks_of_interrupts()).get(&first.cpu)?;
        let own = self.window.own(first.cpu);
        let first = own.partition_point(|place| (*place as usize) < start);
        let next = stacks.partition_point(|stack| (*stack as usize) < first);
        let stack = stacks.get(next).filter(|stack| (**stack as usize) < first + STACK_AFTER)?;
        let event = &self.window.events[own[*stack as usize] as usize];
        Some((self.below_interrupt(event)?, event))
    }

    fn stacks_of_interrupts(&self) -> InterruptStacks {
        let (mut known, mut stacks) = (HashMap::new(), InterruptStacks::new());
        // How many events of each CPU come before.
        let mut before: HashMap<CpuId, u32> = HashMap::new();
        for event in &self.window.events {
            let place = before.entry(event.cpu).or_default();
            if let EventKind::Stack { frames } = event.kind {
                let key = (frames, event.context.hard_irq);
                if *known.entry(key).or_insert_with(|| self.below_interrupt(event).is_some()) {
                    stacks.entry(event.cpu).or_default().push(*place);
                }
            }
            *place += 1;
        }
        stacks
    }

    /// Whether every frame of a stack has a name; the stack is used up to the first one without.
    fn is_named(&self, event: &Event) -> bool {
        let EventKind::Stack { frames } = event.kind else { return false };
        self.reader.frames(frames).iter().all(|symbol| self.reader.symbol(*symbol).is_some())
    }

    /// The functions that the interrupt before a span interrupted, to which the CPU returned.
    pub(crate) fn interrupted_before(&self, span: &Span) -> Vec<String> {
        let Some(last) = self.window.events.get(span.events.0) else { return Vec::new() };
        let own = self.window.own_before(last.cpu, span.events.0 + 1).take(STACK_BEFORE);
        let mut same = own.take_while(|event| !matches!(event.kind, EventKind::Switch { .. }));
        same.find_map(|event| self.below_interrupt(event)).unwrap_or_default()
    }

    /// The function that the timer's interrupt interrupted, from the stack that the timerlat tracer printed after its sample.
    pub(crate) fn printed_stack(&self, cpu: CpuId, sample_ns: u64) -> Option<Named> {
        let mut after = self.window.own_since(cpu, sample_ns);
        stack::innermost(&after.find_map(|event| self.below_interrupt(event))?)
    }

    /// The stack that was recorded with a switch at that moment.
    pub(crate) fn stack_at_switch(&self, cpu: CpuId, at_ns: u64) -> Option<Vec<String>> {
        let mut after = self.window.own_since(cpu, at_ns);
        after.find(|event| matches!(event.kind, EventKind::Switch { .. }))?;
        let EventKind::Stack { frames } = after.next()?.kind else { return None };
        let names = self.reader.frames(frames).iter().map_while(|symbol| self.reader.symbol(*symbol));
        Some(names.map(|(name, _)| name.to_owned()).collect())
    }

    /// What a stack recorded in an interrupt shows below the interrupt.
    fn below_interrupt(&self, event: &Event) -> Option<Vec<String>> {
        let EventKind::Stack { frames } = event.kind else { return None };
        let symbols = self.reader.frames(frames).iter();
        let names: Vec<&str> =
            symbols.map_while(|symbol| self.reader.symbol(*symbol).map(|(name, _)| name)).collect();
        let of_interrupt = event.context.hard_irq || names.contains(&"timerlat_irq");
        // The entry code of some kernels is not known by name. Code that dispatches interrupts was not interrupted, so a
        // stack that ends in it does not show the interrupted code.
        let other_entry = || {
            let outermost = names.iter().rposition(|name| vocabulary::is_interrupt_frame(name))?;
            let below = &names[outermost + 1..];
            let entry = below.iter().take_while(|name| vocabulary::is_entry(name)).count();
            Some(&below[entry..]).filter(|below| !below.is_empty())
        };
        let below = stack::below_interrupt(&names).or_else(other_entry)?;
        of_interrupt.then(|| below.iter().map(|name| (*name).to_owned()).collect())
    }
}
