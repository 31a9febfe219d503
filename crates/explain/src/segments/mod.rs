//! Who made a task late, from the recordings of the BPF programs alone: what took a CPU, from when to when.

mod blame;
mod decompose;
mod recorded;
mod sweep;
#[cfg(test)]
mod tests;
mod throttling;
mod timer;
mod window;

pub(crate) use blame::{DEADLINE, throttled};
pub use decompose::decompose;
pub(crate) use decompose::{causes_of, pieces, raise};
pub(crate) use throttling::begun_in;
pub use throttling::{looks_back, within_throttled};
pub use window::{Surroundings, Window};

use crate::vocabulary;
pub(crate) use whylate_core::recording::{Activity, Recording, Segment, Sender, Thread};
use whylate_core::result::CauseKind;

/// Who has the CPU: its kind, name and function; `None` for events and for an idle CPU. `device` names the device of an
/// interrupt's line.
pub fn actor(
    activity: &Activity,
    device: impl Fn(u32) -> Option<String>,
) -> Option<(CauseKind, String, Option<String>)> {
    Some(match activity {
        Activity::Irq { line } => (CauseKind::Irq, vocabulary::irq(*line, device(*line).as_deref()), None),
        Activity::Vector { vector } => {
            let known = vocabulary::Interrupt::of_vector(*vector);
            let name = known.map_or_else(|| format!("vector {vector:#x}"), |it| it.label().to_owned());
            (known.map_or(CauseKind::Irq, vocabulary::Interrupt::kind), name, None)
        }
        Activity::Softirq { number } => (CauseKind::Softirq, vocabulary::softirq(Some(*number)), None),
        Activity::Nmi { handler } => (CauseKind::Nmi, vocabulary::NMI.to_owned(), Some(handler.clone())),
        Activity::Function { function, sender } => {
            let name = sender.as_ref().map(|sender| sender.command.as_str());
            let name = name.filter(|name| !name.is_empty()).unwrap_or(vocabulary::ANOTHER_CPU);
            (CauseKind::Ipi, name.to_owned(), Some(function.clone()))
        }
        Activity::Thread { thread, .. } if thread.pid != 0 => {
            (CauseKind::Thread, thread.command.clone(), None)
        }
        _ => return None,
    })
}
