//! Records of tracepoints and of ftrace's own events, as events of the model.
//!
//! In: the event formats of the traced kernel ([`super::format`]), its release (flags differ), and binary records
//! from `common_type` on, wherever they were kept: ring-buffer pages, trace.dat, perf.data. Out: [`EventKind`],
//! context, thread. What the model has no word for becomes [`EventKind::Other`]; an event whose fields are not those
//! that are known, too.

mod context;
mod decode;
mod numbers;
mod plan;
mod printk;
mod slot;
#[cfg(test)]
mod tests;
mod texts;

pub use context::Release;
pub use printk::PrintkFormats;
pub use texts::Texts;

use super::bytes::ByteOrder;
use super::format::EventFormat;
use crate::event::{Context, EventKind};
use context::Flags;
use plan::Plan;
use slot::{Record, Slot};

/// What a decoder needs to know of the traced kernel.
#[derive(Clone, Copy, Debug)]
pub struct Kernel {
    /// Byte order of records.
    pub order: ByteOrder,
    /// Bytes of a `long`, which is that of stack frames: 4 or 8.
    pub long_bytes: usize,
    /// Its release, when it is known.
    pub release: Option<Release>,
    /// Address of `_stext`, when it is known: `preemptirq` events count from it.
    pub text_start: Option<u64>,
}

/// No plan for an id.
const NONE: u16 = u16::MAX;

/// Decodes records.
#[derive(Debug)]
pub struct Decoder {
    order: ByteOrder,
    long_bytes: usize,
    text_start: Option<u64>,
    flags: Flags,
    pid: Option<Slot>,
    /// For each id, the place of its plan.
    by_id: Vec<u16>,
    plans: Vec<Plan>,
    /// The ids of events that find late wake-ups.
    wakeups: Vec<u16>,
}

/// What a record says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Decoded {
    /// The thread that ran.
    pub pid: Option<u32>,
    /// The state of the CPU.
    pub context: Context,
    /// The event.
    pub kind: EventKind,
}

impl Decoder {
    /// A decoder for events of these formats.
    pub fn new(kernel: Kernel, formats: &[EventFormat], texts: &mut Texts) -> Self {
        // Switches call it `swapper/N`; lines of its own are under this name in every report.
        texts.save_command(0, "<idle>");
        let mut decoder = Self {
            order: kernel.order,
            long_bytes: if kernel.long_bytes == 4 { 4 } else { 8 },
            text_start: kernel.text_start,
            flags: Flags::new(formats.first(), kernel.release),
            pid: formats.first().and_then(|format| Slot::of(format, "common_pid")),
            by_id: vec![NONE; 1 << 16],
            plans: Vec::new(),
            wakeups: Vec::new(),
        };
        for format in formats.iter().take(usize::from(NONE)) {
            let plan = Plan::of(format, &mut texts.names);
            if plan.finds_wakeups(&format.name) {
                decoder.wakeups.push(format.id);
            }
            decoder.by_id[usize::from(format.id)] = decoder.plans.len() as u16;
            decoder.plans.push(plan);
        }
        decoder
    }

    /// The ids of the events that find late wake-ups: [`crate::reader::Selection::Wakeups`].
    pub fn wakeups(&self) -> &[u16] {
        &self.wakeups
    }

    /// What the record says, from `common_type` on.
    ///
    /// # Errors
    /// A message when the record is too short for what its format says.
    #[inline]
    pub fn decode(&self, bytes: &[u8], texts: &mut Texts) -> Result<Decoded, String> {
        let record = Record { bytes, order: self.order };
        let id = self.order.u16(bytes, 0).ok_or_else(|| "a record without a type".to_owned())?;
        let kind = match self.plans.get(usize::from(self.by_id[usize::from(id)])) {
            Some(plan) => plan.decode(record, self, texts).ok_or_else(|| short(id, bytes.len()))?,
            None => EventKind::Other {
                system: None,
                name: texts.names.intern(&format!("event {id} without a format")),
            },
        };
        let pid = self.pid.and_then(|slot| slot.value(record)).map(|pid| pid as u32);
        Ok(Decoded { pid, context: self.flags.context(record), kind })
    }
}

#[cold]
fn short(id: u16, length: usize) -> String {
    format!("a record of event {id} has {length} bytes, fewer than its format says")
}
