//! Makes an event of the model from a record, as its plan says.

use super::Decoder;
use super::plan::{NoiseSlots, Plan, TaskSlots, Toggle};
use super::printk;
use super::slot::{Record, Slot};
use super::texts::Texts;
use crate::event::{EventKind, NoiseSource, Symbol, Task, TaskState, Vector};
use whylate_core::CpuId;

/// Letters of the state bits that `sched_switch` gives, lowest bit first.
const STATE_LETTERS: [char; 8] = ['S', 'D', 'T', 't', 'X', 'Z', 'P', 'I'];
/// Frames that a stack has at most.
const DEPTH_MAX: usize = 1024;

impl Plan {
    /// The event; `None` when the record is too short for its format.
    #[inline]
    pub(super) fn decode(
        &self,
        record: Record<'_>,
        decoder: &Decoder,
        texts: &mut Texts,
    ) -> Option<EventKind> {
        Some(match self {
            Self::Numbers { slots, count, make } => {
                let mut values = [0; 8];
                for (value, slot) in values.iter_mut().zip(&slots[..usize::from(*count)]) {
                    *value = slot.value(record)?;
                }
                make(&values)
            }
            Self::Fixed(kind) => *kind,
            Self::Switch { previous, state, next } => {
                let (previous, next) = (previous.task(record, texts)?, next.task(record, texts)?);
                texts.learn(previous.pid, previous.command);
                texts.learn(next.pid, next.command);
                EventKind::Switch { previous, state: state_of(state.value(record)?), next }
            }
            Self::Waking { task, cpu } => {
                EventKind::Waking { task: task.task(record, texts)?, target_cpu: cpu_of(*cpu, record)? }
            }
            Self::Wakeup { task, cpu } => {
                EventKind::Wakeup { task: task.task(record, texts)?, target_cpu: cpu_of(*cpu, record)? }
            }
            Self::Migrate { task, from, to } => EventKind::Migrate {
                task: task.task(record, texts)?,
                from_cpu: cpu_of(*from, record)?,
                to_cpu: cpu_of(*to, record)?,
            },
            Self::PriorityInherited { task, new } => EventKind::PriorityInherited {
                task: task.task(record, texts)?,
                new_priority: new.value(record)? as i32,
            },
            Self::IrqEntry { irq, name } => EventKind::IrqEntry {
                irq: irq.value(record)? as u32,
                name: texts.command_or_text(name.bytes(record)?),
            },
            Self::Toggle { toggle, caller, parent } => {
                decoder.toggle(*toggle, *caller, *parent, record, texts)?
            }
            Self::Syscall { enter, number, name } => {
                let number = u32::try_from(number.value(record)? as i64).ok();
                if *enter {
                    EventKind::SyscallEnter { number, name: Some(*name) }
                } else {
                    EventKind::SyscallExit { number, name: Some(*name) }
                }
            }
            other => return other.decode_rare(record, decoder, texts),
        })
    }

    /// Events of the tracers, markers and stacks.
    fn decode_rare(&self, record: Record<'_>, decoder: &Decoder, texts: &mut Texts) -> Option<EventKind> {
        Some(match self {
            Self::Ipi { entry, reason } => {
                let vector = ipi_vector(reason.value(record)?, texts);
                if *entry { EventKind::VectorEntry { vector } } else { EventKind::VectorExit { vector } }
            }
            Self::Stack { size, callers } => {
                let frames = decoder.stack(*size, *callers as usize, record)?;
                EventKind::Stack { frames: texts.stack(frames) }
            }
            Self::Print { text } => EventKind::Print { text: texts.marker(text.bytes(record)?) },
            Self::BinaryPrint { format, arguments } => {
                let address = format.value(record)?;
                let text = match texts.printk.text(address) {
                    Some(format) => {
                        printk::formatted(format, arguments.bytes(record)?, record.order, decoder.long_bytes)
                    }
                    None => format!("(trace_printk, whose format at {address:#x} is not in the trace)"),
                };
                EventKind::Print { text: texts.marker(text.as_bytes()) }
            }
            Self::Puts { text } => {
                let address = text.value(record)?;
                let text = match texts.printk.text(address) {
                    Some(text) => text.to_owned(),
                    None => format!("(trace_puts, whose text at {address:#x} is not in the trace)"),
                };
                EventKind::Print { text: texts.marker(text.as_bytes()) }
            }
            Self::Hwlat { .. } => return self.hwlat(record),
            Self::Noise { source, start, duration } => EventKind::Noise {
                source: source.source(record, texts)?,
                start_ns: start.value(record)?,
                duration_ns: duration.value(record)?,
            },
            Self::TracerSwitch { previous, state, next } => {
                let (previous, next) =
                    (tracer_task(*previous, record, texts)?, tracer_task(*next, record, texts)?);
                EventKind::Switch { previous, state: state_of_index(state.value(record)?), next }
            }
            Self::TracerWakeup { task, cpu } => EventKind::Wakeup {
                task: tracer_task(*task, record, texts)?,
                target_cpu: cpu_of(*cpu, record)?,
            },
            // `decode` has all others.
            _ => return None,
        })
    }

    /// Durations are microseconds in the record.
    fn hwlat(&self, record: Record<'_>) -> Option<EventKind> {
        let Self::Hwlat { sequence, inner, outer, count, nmi, nmis } = self else { return None };
        let optional = |slot: &Option<Slot>| slot.and_then(|slot| slot.value(record));
        let any_nmi = optional(nmis).is_some_and(|count| count > 0);
        Some(EventKind::Hwlat {
            sequence: sequence.value(record)? as u32,
            inner_ns: inner.value(record)?.saturating_mul(1000),
            outer_ns: outer.value(record)?.saturating_mul(1000),
            count: optional(count).map(|count| count as u32),
            nmi_ns: optional(nmi).filter(|_| any_nmi).map(|time| time.saturating_mul(1000)),
        })
    }
}

impl TaskSlots {
    #[inline]
    fn task(&self, record: Record<'_>, texts: &mut Texts) -> Option<Task> {
        Some(Task {
            pid: self.pid.value(record)? as u32,
            command: texts.command(self.command.bytes(record)?),
            priority: self.priority.value(record)? as i32,
        })
    }
}

impl NoiseSlots {
    fn source(&self, record: Record<'_>, texts: &mut Texts) -> Option<NoiseSource> {
        Some(match self {
            Self::Irq { vector, name } => NoiseSource::Irq {
                vector: vector.value(record)? as i32,
                name: texts.command_or_text(name.bytes(record)?),
            },
            Self::Softirq { vector } => NoiseSource::Softirq { vector: vector.value(record)? as u32 },
            Self::Nmi => NoiseSource::Nmi,
            Self::Thread { pid, command } => NoiseSource::Thread {
                pid: pid.value(record)? as u32,
                command: texts.command(command.bytes(record)?),
            },
        })
    }
}

impl Decoder {
    /// `preemptirq` gives distances from `_stext`. Without symbols, the distance itself is the name.
    fn toggle(
        &self,
        toggle: Toggle,
        caller: Slot,
        parent: Slot,
        record: Record<'_>,
        texts: &mut Texts,
    ) -> Option<EventKind> {
        let mut symbol = |slot: Slot| {
            let distance = slot.value(record)? as i32;
            Some(match self.symbols.text_start() {
                Some(start) => Symbol::Address(start.wrapping_add_signed(i64::from(distance))),
                None => Symbol::Name(texts.names.intern(&format!("_stext+{distance:#x}"))),
            })
        };
        let (caller, parent) = (symbol(caller)?, symbol(parent)?);
        Some(match toggle {
            Toggle::IrqsOff => EventKind::IrqsOff { caller, parent },
            Toggle::IrqsOn => EventKind::IrqsOn { caller, parent },
            Toggle::PreemptOff => EventKind::PreemptOff { caller, parent },
            Toggle::PreemptOn => EventKind::PreemptOn { caller, parent },
        })
    }

    /// Frames, innermost first; an old kernel ends them with all ones.
    fn stack(&self, size: Option<Slot>, callers: usize, record: Record<'_>) -> Option<Vec<Symbol>> {
        let bytes = record.bytes.get(callers..)?;
        let told = size.and_then(|slot| slot.value(record)).map_or(DEPTH_MAX, |size| size as usize);
        let end = if self.long_bytes == 4 { u64::from(u32::MAX) } else { u64::MAX };
        let frames = bytes
            .chunks_exact(self.long_bytes)
            .take(told.min(DEPTH_MAX))
            .map_while(|frame| record.order.number(frame, 0, self.long_bytes))
            .take_while(|frame| *frame != end);
        Some(frames.map(Symbol::Address).collect())
    }
}

#[inline]
fn cpu_of(slot: Slot, record: Record<'_>) -> Option<CpuId> {
    slot.value(record).map(|value| CpuId(value as u32))
}

/// No bit of the lower eight is set for a task that wanted to go on; the one above them says that it was preempted.
#[inline]
fn state_of(state: u64) -> TaskState {
    match (state as u8).trailing_zeros() {
        bit @ 0..8 => TaskState::Blocked(STATE_LETTERS[bit as usize]),
        _ => TaskState::Runnable,
    }
}

/// The wake-up tracers give the number of the bit, from 1; 0 is a task that wants to run.
fn state_of_index(index: u64) -> TaskState {
    let letter = usize::try_from(index).ok().and_then(|index| STATE_LETTERS.get(index.checked_sub(1)?));
    letter.map_or(TaskState::Runnable, |letter| TaskState::Blocked(*letter))
}

/// A task of which only thread id and priority are known.
fn tracer_task(slots: [Slot; 2], record: Record<'_>, texts: &mut Texts) -> Option<Task> {
    let pid = slots[0].value(record)? as u32;
    let priority = slots[1].value(record)? as i32;
    let command = match texts.of_pid(pid) {
        Some(command) => command,
        None => texts.names.intern("<...>"),
    };
    // One byte: −1, that of deadline tasks, is 255.
    Some(Task { pid, command, priority: if priority == 255 { -1 } else { priority } })
}

/// arm64 tells the reason of an interrupt between CPUs by the address of a text.
fn ipi_vector(reason: u64, texts: &mut Texts) -> Vector {
    let text = match texts.printk.text(reason) {
        Some("Rescheduling interrupts") => return Vector::Reschedule,
        Some("Function call interrupts") => return Vector::CallFunction,
        Some("IRQ work interrupts") => return Vector::IrqWork,
        Some(text) => text.to_owned(),
        None => "ipi".to_owned(),
    };
    Vector::Other(texts.names.intern(&text))
}
