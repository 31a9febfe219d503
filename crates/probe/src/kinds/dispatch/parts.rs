//! The parts of a dispatch: from the programmed moment to the entry of the handler, from there to the wake-up, and from
//! the wake-up to the first instruction of the process.
//!
//! In: what the kernel's programs wrote at the wake-up ([`whylate_bpf::dispatch`]). Out: a histogram for each part. The three
//! add up to their latency, sample by sample. A latency with unknown steps is not divided: the process did not sleep, or no
//! handler woke it.

use crate::child::Team;
use crate::layout::Lane;
use std::io;
use whylate_bpf::dispatch::{Slot, Steps, TABLE_WORDS};
use whylate_core::{Warning, WarningCode};
use whylate_sys::shared::SharedWords;
use whylate_sys::{process, schedule};

/// The parts of a dispatch: to the handler's entry, to the wake-up, to the process.
pub(super) const DISPATCH_PARTS: [&str; 3] = ["interrupt", "wakeup", "switch"];

/// Maps the table that the runner has left open under that number.
pub(crate) fn table(number: &str) -> io::Result<SharedWords> {
    let number = number.parse().map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "no number"))?;
    SharedWords::of_map(process::inherited(number)?, TABLE_WORDS)
}

pub(super) struct Parts<'a> {
    slot: Slot<'a>,
    lanes: [Lane<'a>; DISPATCH_PARTS.len()],
}

impl<'a> Parts<'a> {
    /// For the calling thread; `None` if the kernel does not report the steps.
    pub(super) fn new(team: &Team<'a>, lanes: &[Lane<'a>]) -> Option<Self> {
        let (table, lanes) = (team.dispatch_table?, *lanes.first_chunk()?);
        let slot = Slot::take(table, schedule::id_of_this_thread());
        if slot.is_none() {
            let text = "another measuring thread uses this thread's entry in the table of the BPF programs";
            team.warn(Warning::new(WarningCode::DispatchWholeOnly, format!("{WHOLE_ONLY}: {text}")));
        }
        Some(Self { slot: slot?, lanes })
    }

    /// The steps of the last wake-up, once.
    #[inline(always)]
    pub(super) fn last(&mut self) -> Option<Steps> {
        self.slot.last()
    }

    /// Counts the parts of the latency from `due_ns` (if known) to `now_ns`.
    #[inline(always)]
    pub(super) fn count(&self, steps: Steps, due_ns: Option<u64>, now_ns: u64) {
        for (lane, part) in self.lanes.iter().zip(divided(steps, due_ns, now_ns)) {
            if let Some(part_ns) = part {
                lane.count_sample(part_ns);
            }
        }
    }
}

/// The text of the warning that only the whole is measured.
pub(super) const WHOLE_ONLY: &str = "only whole dispatch latencies are measured, not their parts";

/// The lengths of the parts. If the moment at which the interrupt was due is known, all or none.
#[inline(always)]
fn divided(steps: Steps, due_ns: Option<u64>, now_ns: u64) -> [Option<u64>; DISPATCH_PARTS.len()] {
    let switch = now_ns.checked_sub(steps.waking_ns);
    let wakeup = steps.entry_ns.and_then(|entry_ns| steps.waking_ns.checked_sub(entry_ns));
    let Some(due_ns) = due_ns else { return [None, wakeup, switch] };
    let interrupt = steps.entry_ns.and_then(|entry_ns| entry_ns.checked_sub(due_ns));
    match (interrupt, wakeup, switch) {
        (Some(_), Some(_), Some(_)) => [interrupt, wakeup, switch],
        _ => [None; DISPATCH_PARTS.len()],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_add_up_to_the_whole_or_are_not_counted() {
        let steps = Steps { entry_ns: Some(105), waking_ns: 112 };
        assert_eq!(divided(steps, Some(100), 150), [Some(5), Some(7), Some(38)]);
        assert_eq!(divided(steps, None, 150), [None, Some(7), Some(38)]);
        // A wake-up before it was due, one after the clock was read, and one by another thread.
        assert_eq!(divided(steps, Some(106), 150), [None; 3]);
        assert_eq!(divided(steps, Some(100), 111), [None; 3]);
        let by_thread = Steps { entry_ns: None, waking_ns: 112 };
        assert_eq!(divided(by_thread, Some(100), 150), [None; 3]);
        assert_eq!(divided(by_thread, None, 150), [None, None, Some(38)]);
    }
}
