//! Records of tracepoints and of ftrace's own events, as events of the model.
//!
//! In: the event formats of the traced kernel ([`super::format`]), its release (flags differ), and binary records from
//! `common_type` on, wherever they were kept: ring-buffer pages, trace.dat, perf.data. Out: [`EventKind`], context, thread.
//! An event that the model does not have, or whose fields are unknown, becomes [`EventKind::Other`].

mod context;
mod fields;
#[cfg(test)]
mod tests;

pub use context::Release;
pub(super) use fields::{Binary, Planning, SlotList};

use super::bytes::ByteOrder;
use super::events;
use super::format::{self, EventFormat, Record, Slot};
use super::symbols::Symbols;
use super::texts::Texts;
use crate::event::{Context, Event, EventKind};
use context::Flags;
use fields::Plan;

/// What a decoder needs to know about the traced kernel.
#[derive(Clone, Copy, Debug)]
pub struct Kernel {
    /// Byte order of records.
    pub order: ByteOrder,
    /// Bytes of a `long`, which is that of stack frames: 4 or 8.
    pub long_bytes: usize,
    /// Its release, when it is known.
    pub release: Option<Release>,
}

/// No event has this place in the list of formats.
const NONE: u16 = u16::MAX;

/// An event, and what is to be done with its records.
#[derive(Debug)]
enum Entry {
    /// No record of it has come yet.
    Format(EventFormat),
    /// The plan; `None` if its format cannot be understood.
    Planned(Option<Plan>),
}

impl Entry {
    #[cold]
    fn plan(&mut self, machine: &Machine, texts: &mut Texts) {
        if let Self::Format(format) = self {
            let fields = format.fields().ok();
            *self = Self::Planned(fields.map(|fields| Plan::of(format, &fields, machine, texts)));
        }
    }
}

/// What the fields of records depend on.
#[derive(Debug)]
pub(super) struct Machine {
    order: ByteOrder,
    long_bytes: usize,
    /// The address of `_stext`, from which `preemptirq` events count.
    symbols: Symbols,
}

#[derive(Debug)]
pub struct Decoder {
    machine: Machine,
    flags: Flags,
    pid: Slot,
    /// For each id up to the largest, the place of its entry.
    by_id: Vec<u16>,
    entries: Vec<Entry>,
    /// Places of the events that may show late wake-ups, with their ids.
    wakeup_places: Vec<(u16, u16)>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Decoded {
    pub pid: Option<u32>,
    pub context: Context,
    pub kind: EventKind,
}

impl Decoder {
    /// A decoder for events of these formats; `symbols` are those of the traced kernel.
    pub fn new(
        kernel: Kernel,
        formats: impl IntoIterator<Item = EventFormat>,
        symbols: &Symbols,
        texts: &mut Texts,
    ) -> Self {
        // Switches call it `swapper/N`; lines of its own are under this name in every report.
        texts.save_command(0, "<idle>");
        let mut by_id = Vec::new();
        let mut wakeup_places = Vec::new();
        let mut entries = Vec::new();
        for format in formats.into_iter().take(usize::from(NONE)) {
            let (id, place) = (usize::from(format.id), entries.len() as u16);
            if events::of(&format.system, &format.name).is_some_and(|row| row.of_wakeups) {
                wakeup_places.push((place, format.id));
            }
            if id >= by_id.len() {
                by_id.resize(id + 1, NONE);
            }
            by_id[id] = place;
            entries.push(Entry::Format(format));
        }
        // All events begin with the same fields.
        let common = entries.iter().find_map(|entry| match entry {
            Entry::Format(format) => format.fields().ok(),
            Entry::Planned(_) => None,
        });
        let common = common.unwrap_or_default();
        Self {
            machine: Machine {
                order: kernel.order,
                long_bytes: if kernel.long_bytes == 4 { 4 } else { 8 },
                symbols: symbols.clone(),
            },
            flags: Flags::new(&common, kernel.release),
            pid: format::slot(&common, "common_pid"),
            by_id,
            entries,
            wakeup_places,
        }
    }

    /// The ids of the events that show late wake-ups: [`crate::reader::Selection::Wakeups`].
    pub fn wakeups(&mut self, texts: &mut Texts) -> Vec<u16> {
        let places = std::mem::take(&mut self.wakeup_places);
        let finds = |(place, _): &&(u16, u16)| {
            self.prepare(*place, texts);
            matches!(self.plan(*place), Some(Plan::Record { .. }))
        };
        let wakeups = places.iter().filter(finds).map(|(_, id)| *id).collect();
        self.wakeup_places = places;
        wakeups
    }

    /// Makes the plan of the entry at `place`, when there is none yet.
    #[inline]
    fn prepare(&mut self, place: u16, texts: &mut Texts) {
        if let Some(entry @ Entry::Format(_)) = self.entries.get_mut(usize::from(place)) {
            entry.plan(&self.machine, texts);
        }
    }

    #[inline]
    fn plan(&self, place: u16) -> Option<&Plan> {
        match self.entries.get(usize::from(place)) {
            Some(Entry::Planned(plan)) => plan.as_ref(),
            _ => None,
        }
    }

    /// The content of the record, from `common_type` on.
    pub fn decode(&mut self, bytes: &[u8], texts: &mut Texts) -> Result<Decoded, String> {
        let mut event = Event::default();
        self.decode_into(bytes, texts, &mut event)?;
        Ok(Decoded { pid: event.pid, context: event.context, kind: event.kind })
    }

    /// The same, into an event: its thread, its context and its kind.
    #[inline]
    pub(crate) fn decode_into(
        &mut self,
        bytes: &[u8],
        texts: &mut Texts,
        event: &mut Event,
    ) -> Result<(), String> {
        let order = self.machine.order;
        let record = Record { bytes, order };
        let id = order.u16(bytes, 0).ok_or_else(|| "a record without a type".to_owned())?;
        let place = self.by_id.get(usize::from(id)).copied().unwrap_or(NONE);
        self.prepare(place, texts);
        match self.plan(place) {
            Some(Plan::Record { decode, slots }) => {
                let decoded = decode(slots, record, &self.machine, texts, &mut event.kind);
                decoded.ok_or_else(|| short(id, bytes.len()))?;
            }
            Some(Plan::Fixed(kind)) => event.kind = *kind,
            None => {
                let name = texts.names.intern(&format!("event {id} without a format"));
                event.kind = EventKind::Other { system: None, name };
            }
        }
        event.pid = self.pid.value(record).map(|pid| pid as u32);
        event.context = self.flags.context(record);
        Ok(())
    }
}

#[cold]
fn short(id: u16, length: usize) -> String {
    format!("a record of event {id} has {length} bytes, fewer than its format says")
}
