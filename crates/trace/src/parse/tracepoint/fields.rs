//! The fields of an event in binary records. Their places are found once for each format ([`Plan`]), so that decoding a
//! record needs only offsets.

use super::Machine;
use crate::event::{EventKind, Frames, Name, Symbol, Task, TaskState, Vector};
use crate::parse::events::{self, DecodeRecord, Fields, STATE_LETTERS, state_of_bits, vector_of_reason};
use crate::parse::format::{self, EventFormat, Field, Place, Record, Slot};
use crate::parse::printk;
use crate::parse::texts::Texts;

/// Frames that a stack has at most.
const DEPTH_MAX: usize = 1024;
/// The most fields that a row asks for: eight for hwlat, and the time of text if its parts are missing.
const SLOTS: usize = 9;

/// The fields that the row of an event asks for, in the order in which it does.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::parse) struct SlotList {
    slots: [Slot; SLOTS],
    count: usize,
    /// What a row takes from the name of its event.
    suffix: Name,
}

/// How records of an event are decoded.
#[derive(Clone, Copy, Debug)]
pub(super) enum Plan {
    Fixed(EventKind),
    Record { decode: DecodeRecord, slots: SlotList },
}

impl Plan {
    /// The plan for a format. An event that the model does not know, and one whose fields are not those that are
    /// known, becomes [`EventKind::Other`].
    pub(super) fn of(format: &EventFormat, fields: &[Field], machine: &Machine, texts: &mut Texts) -> Self {
        let (name, record) = (format.name.as_bytes(), Record { bytes: &[], order: machine.order });
        let known = events::of(&format.system, &format.name).and_then(|row| {
            let slots = Planned { fields, list: SlotList::default() };
            let mut fields = Binary { slots, name, record, machine, texts };
            let kind = (row.plan)(&mut fields)?;
            let slots = fields.slots.list;
            Some(if slots.count == 0 {
                Self::Fixed(kind)
            } else {
                Self::Record { decode: row.record, slots }
            })
        });
        known.unwrap_or_else(|| {
            let system = (!format.system.is_empty()).then(|| texts.names.intern(&format.system));
            Self::Fixed(EventKind::Other { system, name: texts.names.intern(&format.name) })
        })
    }
}

/// Where the slots of an event come from.
pub(in crate::parse) trait Slots {
    /// Slots are found, and no values are read.
    const PLANNING: bool;
    /// The slot of the field that a row asks for.
    fn next(&mut self, key: &str) -> Slot;
    /// What the row takes from the name of its event.
    fn suffix(&mut self, make: impl FnOnce() -> Option<Name>) -> Option<Name>;
}

/// Slots that are found in a format.
pub(in crate::parse) struct Planned<'a> {
    fields: &'a [Field],
    list: SlotList,
}

impl Slots for Planned<'_> {
    const PLANNING: bool = true;

    fn next(&mut self, key: &str) -> Slot {
        // Kernels before 4.10 have another name for the number of a system call.
        let slot = match format::slot(self.fields, key) {
            Slot { place: Place::Nothing, .. } if key == "__syscall_nr" => format::slot(self.fields, "nr"),
            slot => slot,
        };
        if let Some(place) = self.list.slots.get_mut(self.list.count) {
            *place = slot;
        }
        self.list.count += 1;
        debug_assert!(self.list.count <= SLOTS);
        slot
    }

    fn suffix(&mut self, make: impl FnOnce() -> Option<Name>) -> Option<Name> {
        self.list.suffix = make()?;
        Some(self.list.suffix)
    }
}

/// Slots of a plan, one after the other.
pub(in crate::parse) struct Ready<'a> {
    list: &'a SlotList,
    next: usize,
}

impl Slots for Ready<'_> {
    const PLANNING: bool = false;

    #[inline(always)]
    fn next(&mut self, _: &str) -> Slot {
        let slot = self.list.slots.get(self.next).copied().unwrap_or_default();
        self.next += 1;
        slot
    }

    #[inline]
    fn suffix(&mut self, _: impl FnOnce() -> Option<Name>) -> Option<Name> {
        Some(self.list.suffix)
    }
}

/// The fields of a record, or, with [`Planned`] slots, of a format.
pub(in crate::parse) struct Binary<'a, S> {
    slots: S,
    name: &'a [u8],
    record: Record<'a>,
    machine: &'a Machine,
    texts: &'a mut Texts,
}

pub(in crate::parse) type Planning<'a> = Binary<'a, Planned<'a>>;

impl<'a> Binary<'a, Ready<'a>> {
    #[inline]
    pub(in crate::parse) fn new(
        list: &'a SlotList,
        record: Record<'a>,
        machine: &'a Machine,
        texts: &'a mut Texts,
    ) -> Self {
        Self { slots: Ready { list, next: 0 }, name: &[], record, machine, texts }
    }
}

impl<'a, S: Slots> Binary<'a, S> {
    #[inline(always)]
    fn bytes(&mut self, key: &str) -> Option<&'a [u8]> {
        let slot = self.slots.next(key);
        if S::PLANNING {
            return slot.is_array().then_some(&[]);
        }
        slot.bytes(self.record)
    }

    /// The name of something in a record.
    #[inline(always)]
    fn named(&mut self, name: impl FnOnce(&mut Texts) -> Name) -> Name {
        if S::PLANNING { Name::default() } else { name(self.texts) }
    }

    #[inline(always)]
    fn command(&mut self, key: &str) -> Option<Name> {
        let bytes = self.bytes(key)?;
        Some(self.named(|texts| texts.command(bytes)))
    }
}

impl<'a, S: Slots> Fields<'a> for Binary<'a, S> {
    fn event(&self) -> &'a [u8] {
        self.name
    }

    fn intern(&mut self, text: &[u8]) -> Name {
        self.texts.intern(text)
    }

    #[inline(always)]
    fn number(&mut self, key: &str) -> Option<u64> {
        let slot = self.slots.next(key);
        if S::PLANNING {
            return (slot.place == Place::Number).then_some(0);
        }
        slot.value(self.record)
    }

    /// Without symbols, the distance itself is the name.
    fn caller(&mut self, key: &str) -> Option<Symbol> {
        if S::PLANNING {
            return self.symbol(&format!("{key}_offs"));
        }
        let distance = self.number(key)? as i32;
        Some(match self.machine.symbols.text_start() {
            Some(start) => Symbol::Address(start.wrapping_add_signed(i64::from(distance))),
            None => Symbol::Name(self.texts.intern(format!("_stext+{distance:#x}").as_bytes())),
        })
    }

    #[inline]
    fn name(&mut self, key: &str) -> Option<Name> {
        self.command(key)
    }

    #[inline]
    fn syscall(&mut self, key: &str) -> Option<Option<u32>> {
        self.signed(key).map(|number| u32::try_from(number).ok())
    }

    #[inline]
    fn suffix(&mut self, prefix: &str) -> Option<Name> {
        let (name, texts) = (self.name, &mut *self.texts);
        self.slots.suffix(|| Some(texts.intern(name.strip_prefix(prefix.as_bytes())?)))
    }

    /// The address of a text that `printk_formats` has.
    fn reason(&mut self, key: &str) -> Option<Vector> {
        let address = self.number(key)?;
        let Texts { printk, names, .. } = &mut *self.texts;
        let reason = printk.text(address).unwrap_or("ipi");
        Some(vector_of_reason(reason.as_bytes(), |_| names.intern(reason)))
    }

    fn marker(&mut self, key: &str) -> Option<Name> {
        let bytes = self.bytes(key)?;
        Some(self.named(|texts| texts.marker(bytes)))
    }

    fn formatted(&mut self, format: &str, arguments: &str) -> Option<Name> {
        let (address, arguments) = (self.number(format)?, self.bytes(arguments)?);
        let (order, long_bytes) = (self.record.order, self.machine.long_bytes);
        Some(self.named(|texts| {
            let text = match texts.printk.text(address) {
                Some(format) => printk::formatted(format, arguments, order, long_bytes),
                None => format!("(trace_printk, whose format at {address:#x} is not in the trace)"),
            };
            texts.marker(text.as_bytes())
        }))
    }

    fn stored(&mut self, key: &str) -> Option<Name> {
        let address = self.number(key)?;
        Some(self.named(|texts| {
            let text = match texts.printk.text(address) {
                Some(text) => text.to_owned(),
                None => format!("(trace_puts, whose text at {address:#x} is not in the trace)"),
            };
            texts.marker(text.as_bytes())
        }))
    }

    /// None of the lower eight bits is set for a runnable task; the bit above them says that it was preempted.
    #[inline(always)]
    fn state(&mut self, key: &str) -> Option<TaskState> {
        self.number(key).map(state_of_bits)
    }

    #[inline(always)]
    fn task(&mut self, command: &str, pid: &str, priority: &str) -> Option<Task> {
        let (pid, priority) = (self.u32(pid)?, self.u32(priority)? as i32);
        Some(Task { pid, command: self.command(command)?, priority })
    }

    fn labelled(&mut self, label: Option<&str>, number: &str) -> Option<(Name, i64)> {
        let label = match label {
            Some(label) => self.command(label)?,
            None => Name::default(),
        };
        Some((label, self.signed(number)?))
    }

    #[inline(always)]
    fn learn(&mut self, task: &Task) {
        if !S::PLANNING {
            self.texts.learn(task.pid, task.command);
        }
    }

    fn traced_task(&mut self, pid: &str, priority: &str) -> Option<Task> {
        let (pid, priority) = (self.u32(pid)?, self.u32(priority)? as i32);
        let command = self.named(|texts| texts.of_pid(pid).unwrap_or_else(|| texts.intern(b"<...>")));
        // One byte: −1, that of deadline tasks, is 255.
        Some(Task { pid, command, priority: if priority == 255 { -1 } else { priority } })
    }

    /// The number of the bit, from 1; 0 is a runnable task.
    fn traced_state(&mut self, key: &str) -> Option<TaskState> {
        let index = usize::try_from(self.number(key)?).ok();
        let letter = index.and_then(|index| STATE_LETTERS.get(index.checked_sub(1)?));
        Some(letter.map_or(TaskState::Runnable, |letter| TaskState::Blocked(*letter)))
    }

    /// Innermost first; an old kernel ends them with all ones.
    fn stack(&mut self, size: &str, frames: &str) -> Option<Frames> {
        let (count, frames) = (self.number(size), self.slots.next(frames));
        if S::PLANNING {
            return (frames.place == Place::Array).then_some(Frames(0));
        }
        let (order, long_bytes) = (self.record.order, self.machine.long_bytes);
        let end = if long_bytes == 4 { u64::from(u32::MAX) } else { u64::MAX };
        let bytes = self.record.bytes.get(frames.offset as usize..)?;
        let frames = bytes
            .chunks_exact(long_bytes)
            .take(count.map_or(DEPTH_MAX, |size| size as usize).min(DEPTH_MAX))
            .map_while(|frame| order.number(frame, 0, long_bytes))
            .take_while(|frame| *frame != end)
            .map(Symbol::Address);
        Some(self.texts.stack(&frames.collect::<Vec<_>>()))
    }
}
