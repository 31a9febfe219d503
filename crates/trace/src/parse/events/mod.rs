//! The kernel's events: one table for all formats.
//!
//! A row of [`table`] says which fields an event of the kernel has and which [`EventKind`] they make. It asks for them
//! through [`Fields`], which text (`name: key=value …`) and binary records both implement, so an event is described once. An
//! event that cannot be understood is [`EventKind::Other`] with its name, never a guess.
//!
//! To add an event: one row in `table.rs` (and, for a new kind, a variant of [`EventKind`]). If no method of [`Fields`] reads
//! a field yet, add one there and in the two implementations, `text/fields.rs` and `tracepoint/fields.rs`. If the text of an
//! event is not a list of fields, put `text Some(function)` after the row.

mod table;

use super::format::Record;
use super::text::Text;
use super::texts::Texts;
use super::tracepoint::{Machine, Planning, SlotList};
use crate::event::{EventKind, Name, Symbol, Task, TaskState, Vector};
use std::sync::LazyLock;
use table::EVENTS;
use whylate_core::CpuId;

/// The fields of one event, by their names in its format description. In records most fields have plain values, which the
/// default methods read.
///
/// Rules for a row: it asks for all of its fields, whatever their values, always in the same order. Records are decoded by a
/// plan that was made once from these calls. A field that old kernels lack is taken without `?`. Fields after a command in
/// text, which can contain anything, are read from the end of the line. Rows therefore ask for them in reverse order: methods
/// of the second group.
pub(super) trait Fields<'a> {
    /// Name of the event; empty for records.
    fn event(&self) -> &'a [u8];
    fn intern(&mut self, text: &[u8]) -> Name;
    fn number(&mut self, key: &str) -> Option<u64>;
    #[inline]
    fn signed(&mut self, key: &str) -> Option<i64> {
        self.number(key).map(|value| value as i64)
    }
    /// A number of 32 bits.
    #[inline]
    fn u32(&mut self, key: &str) -> Option<u32> {
        self.number(key).map(|value| value as u32)
    }
    /// A number that reports of trace-cmd have under another name, `text_key`.
    #[inline]
    fn renamed(&mut self, key: &str, _text_key: &str) -> Option<u64> {
        self.number(key)
    }
    #[inline]
    fn address(&mut self, key: &str) -> Option<u64> {
        self.number(key)
    }
    /// An address that text may have as a function.
    #[inline]
    fn code(&mut self, key: &str) -> Option<u64> {
        self.number(key)
    }
    #[inline]
    fn symbol(&mut self, key: &str) -> Option<Symbol> {
        self.number(key).map(Symbol::Address)
    }
    /// The function that another CPU asked this one to call; `None` if this CPU calls its own function, for which nothing was
    /// queued.
    #[inline]
    fn asked_of_another(&mut self) -> Option<Symbol> {
        let function = self.symbol("func")?;
        (self.code("csd") != Some(0)).then_some(function)
    }
    /// A function that records have as a distance from the start of the kernel's code, `KEY_offs`.
    fn caller(&mut self, key: &str) -> Option<Symbol>;
    /// A name that is the last field and can have spaces.
    fn name(&mut self, key: &str) -> Option<Name>;
    /// The number of a system call; `None` inside for a call that a tracer skipped, or that is known by name only.
    fn syscall(&mut self, key: &str) -> Option<Option<u32>>;
    /// What follows `prefix` in the name of the event.
    fn suffix(&mut self, prefix: &str) -> Option<Name>;
    /// The reason of an interrupt between CPUs on arm64.
    fn reason(&mut self, key: &str) -> Option<Vector>;
    /// A text that was written into the trace.
    fn marker(&mut self, key: &str) -> Option<Name>;
    /// The same, as the address of a format and its packed arguments.
    fn formatted(&mut self, format: &str, arguments: &str) -> Option<Name>;
    /// The same, as its address.
    fn stored(&mut self, key: &str) -> Option<Name>;

    /// A number behind a command: `key=7`, or two words, `key 7`.
    #[inline]
    fn last(&mut self, key: &str) -> Option<i64> {
        self.signed(key)
    }
    #[inline]
    fn cpu(&mut self, key: &str) -> Option<CpuId> {
        self.u32(key).map(CpuId)
    }
    /// A time in nanoseconds, which text has in seconds.
    #[inline]
    fn time(&mut self, key: &str) -> Option<u64> {
        self.number(key)
    }
    /// The state of a task that is switched away from.
    fn state(&mut self, key: &str) -> Option<TaskState>;
    fn task(&mut self, command: &str, pid: &str, priority: &str) -> Option<Task>;
    /// A name (none in the records of some events) and a number: `name:7` in text.
    fn labelled(&mut self, label: Option<&str>, number: &str) -> Option<(Name, i64)>;

    /// The task runs from now on under its command.
    fn learn(&mut self, _: &Task) {}
    /// A task without a command, in records of the wake-up tracers.
    fn traced_task(&mut self, _pid: &str, _priority: &str) -> Option<Task> {
        None
    }
    /// The state of such a task.
    fn traced_state(&mut self, _: &str) -> Option<TaskState> {
        None
    }
    /// A stack in a record: how many frames, and the frames.
    fn stack(&mut self, _size: &str, _frames: &str) -> Option<crate::event::Frames> {
        None
    }

    /// The vector in the name of the event.
    fn vector(&mut self) -> Option<Vector> {
        let event = self.event();
        let name = event.strip_suffix(b"_entry").or(event.strip_suffix(b"_exit"))?;
        Some(match name {
            b"local_timer" => Vector::LocalTimer,
            b"reschedule" => Vector::Reschedule,
            b"call_function" => Vector::CallFunction,
            b"call_function_single" => Vector::CallFunctionSingle,
            b"irq_work" => Vector::IrqWork,
            _ => Vector::Other(self.intern(name)),
        })
    }
}

/// The kernel's letters for the states in which a task sleeps or ends, by bit.
pub(super) const STATE_LETTERS: [char; 8] = ['S', 'D', 'T', 't', 'X', 'Z', 'P', 'I'];

/// The state of a task by the bits of `prev_state`; above the lowest eight is what says that it was preempted.
pub(super) fn state_of_bits(bits: u64) -> TaskState {
    let letter = STATE_LETTERS.get((bits as u8).trailing_zeros() as usize);
    letter.map_or(TaskState::Runnable, |letter| TaskState::Blocked(*letter))
}

/// The vector of an interrupt between CPUs on arm64, by the text that is its reason.
pub(super) fn vector_of_reason(reason: &[u8], intern: impl FnOnce(&[u8]) -> Name) -> Vector {
    match reason {
        b"Rescheduling interrupts" => Vector::Reschedule,
        b"Function call interrupts" => Vector::CallFunction,
        b"Timer broadcast interrupts" => Vector::LocalTimer,
        b"IRQ work interrupts" => Vector::IrqWork,
        other => Vector::Other(intern(other)),
    }
}

pub(super) struct Row {
    /// Its system: `sched`.
    pub(super) system: &'static str,
    /// Its name: `sched_switch`.
    pub(super) name: &'static str,
    /// Whether it is needed to find late wake-ups: [`crate::reader::Selection::Wakeups`].
    pub(super) of_wakeups: bool,
    /// Decodes its text; `None` for an event that has none of its own.
    pub(super) text: Option<fn(&mut Text<'_>) -> Option<EventKind>>,
    /// Finds its fields in its format; gives an event that is the same for all records when it has none.
    pub(super) plan: fn(&mut Planning<'_>) -> Option<EventKind>,
    pub(super) record: DecodeRecord,
}

/// Decodes a record by the slots that its plan found; `None` if it is too short. The event is made in its place: it is
/// large, and written field by field, so that a copy right after that waits for all of them.
pub(super) type DecodeRecord = fn(&SlotList, Record<'_>, &Machine, &mut Texts, &mut EventKind) -> Option<()>;

/// Positions in [`EVENTS`] in the order of the names.
static BY_NAME: LazyLock<Vec<usize>> = LazyLock::new(|| {
    let mut positions: Vec<usize> = (0..EVENTS.len()).collect();
    positions.sort_by_key(|position| EVENTS[*position].name);
    positions
});

fn position(name: &[u8]) -> Option<usize> {
    let found = BY_NAME.binary_search_by(|position| EVENTS[*position].name.as_bytes().cmp(name)).ok()?;
    Some(BY_NAME[found])
}

/// The row of an event from its name alone, and its position: below 128.
pub(super) fn by_name(name: &[u8]) -> Option<(usize, &'static Row)> {
    let position = position(name)?;
    Some((position, &EVENTS[position])).filter(|(_, row)| row.text.is_some())
}

/// The row of events that share a part of their name: system calls, and vectors.
pub(super) fn by_pattern(system: Option<&str>, name: &[u8]) -> Option<&'static Row> {
    let vector = system == Some("irq_vectors");
    let pattern: &[u8] = match () {
        () if name.starts_with(b"sys_enter_") && system.is_none_or(|system| system == "syscalls") => {
            b"sys_enter_*"
        }
        () if name.starts_with(b"sys_exit_") && system.is_none_or(|system| system == "syscalls") => {
            b"sys_exit_*"
        }
        () if vector && name.ends_with(b"_entry") => b"local_timer_entry",
        () if vector && name.ends_with(b"_exit") => b"local_timer_exit",
        () => return None,
    };
    position(pattern).map(|position| &EVENTS[position])
}

pub(super) fn of(system: &str, name: &str) -> Option<&'static Row> {
    let row = position(name.as_bytes()).map(|position| &EVENTS[position]);
    row.filter(|row| row.system == system).or_else(|| by_pattern(Some(system), name.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_is_once_in_the_table() {
        for (expected, row) in EVENTS.iter().enumerate() {
            assert_eq!(position(row.name.as_bytes()), Some(expected), "{}", row.name);
        }
        assert!(EVENTS.len() <= 128);
    }
}
