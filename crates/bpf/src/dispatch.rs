//! The steps of a dispatch, for the thread that is dispatched: when the timer or the interrupt that woke it was
//! entered, and when it woke the thread.
//!
//! [`DispatchSteps`] keeps the programs in the kernel (`bpf/dispatch.h`) and shares their table as a file descriptor. The
//! measuring process maps it, and each thread takes its own [`Slot`]. The programs write the slot at each wake-up of the
//! thread, and the thread reads it when it runs, without a system call.

use crate::error::BpfError;
use crate::events::{Event, Sizes, event};
use crate::object::{DISPATCH, Object, check_namespaces, possible_cpus};
use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Slots of the table; the id of a thread gives its slot.
const SLOTS: usize = 1024;
/// 64-bit words of one slot.
const SLOT_WORDS: usize = 8;
/// 64-bit words of the table.
pub const TABLE_WORDS: usize = SLOTS * SLOT_WORDS;

/// One wake-up; times are CLOCK_MONOTONIC nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Steps {
    /// When the handler that woke the thread was entered; `None` if another thread woke it, for example a threaded interrupt.
    pub entry_ns: Option<u64>,
    /// When the thread was woken.
    pub waking_ns: u64,
}

/// The slot of one thread. Only the thread itself reads it: while it runs, it is not woken.
#[derive(Debug)]
pub struct Slot<'a> {
    words: &'a [AtomicU64; SLOT_WORDS],
    seen: u64,
}

impl<'a> Slot<'a> {
    /// Takes the slot of the thread with that id; `None` if another thread has it, or the table is too short.
    pub fn take(table: &'a [AtomicU64], thread: u32) -> Option<Self> {
        let start = thread as usize % SLOTS * SLOT_WORDS;
        let words: &[AtomicU64; SLOT_WORDS] = table.get(start..)?.first_chunk()?;
        words[0].compare_exchange(0, u64::from(thread), Release, Relaxed).ok()?;
        let seen = words[1].load(Acquire);
        Some(Self { words, seen })
    }

    /// The last wake-up; `None` if there was none since the last call.
    #[inline(always)]
    pub fn last(&mut self) -> Option<Steps> {
        let number = self.words[1].load(Acquire);
        if number == self.seen {
            return None;
        }
        self.seen = number;
        let entry_ns = Some(self.words[2].load(Relaxed)).filter(|moment| *moment > 0);
        Some(Steps { entry_ns, waking_ns: self.words[3].load(Relaxed) })
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        self.words[0].store(0, Release);
    }
}

/// Events that the steps need.
const NEEDED: [Event; 3] = [
    event("dispatch_timer_entry", "hrtimer_expire_entry"),
    event("dispatch_timer_exit", "hrtimer_expire_exit"),
    event("dispatch_waking", "sched_waking"),
];
/// Without these, wake-ups by device interrupts look like those by threads.
const HANDLERS: [Event; 2] =
    [event("dispatch_irq_entry", "irq_handler_entry"), event("dispatch_irq_exit", "irq_handler_exit")];

/// The programs in the kernel; they go when this is dropped.
pub struct DispatchSteps {
    object: Object,
}

impl DispatchSteps {
    /// Loads and attaches the programs.
    ///
    /// # Errors
    /// [`BpfError`] when the kernel refuses them, or lacks their events; [`BpfError::Namespace`] in a container,
    /// where the ids by which threads take their places are not the kernel's.
    pub fn start() -> Result<Self, BpfError> {
        check_namespaces()?;
        let maps = vec![("dispatch_cpus", possible_cpus()? as u32)];
        let mut object = Object::load(DISPATCH, &Sizes { maps, ..Sizes::default() })?;
        for event in NEEDED {
            if let Some(reason) = object.attach(event)? {
                return Err(BpfError::program(event.tracepoint, &reason));
            }
        }
        for event in HANDLERS {
            object.attach(event)?;
        }
        Ok(Self { object })
    }

    /// The table, to be mapped: [`TABLE_WORDS`] words.
    ///
    /// # Errors
    /// [`BpfError::Map`] when there are no file descriptors left.
    pub fn table(&self) -> Result<OwnedFd, BpfError> {
        self.object.array_file("dispatch_slots")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_belongs_to_one_thread_and_shows_each_wake_up_once() {
        let table: Vec<AtomicU64> = (0..TABLE_WORDS).map(|_| AtomicU64::new(0)).collect();
        let mut slot = Slot::take(&table, 2_049).unwrap();
        assert!(Slot::take(&table, 1_025).is_none(), "the same place");
        assert!(Slot::take(&table, 1_026).is_some());
        assert_eq!(slot.last(), None);
        let words = &table[SLOT_WORDS..2 * SLOT_WORDS];
        for (place, value) in [(2, 70), (3, 80), (1, 1)] {
            words[place].store(value, Relaxed);
        }
        assert_eq!(slot.last(), Some(Steps { entry_ns: Some(70), waking_ns: 80 }));
        assert_eq!(slot.last(), None);
        words[2].store(0, Relaxed);
        words[1].store(2, Relaxed);
        assert_eq!(slot.last().unwrap().entry_ns, None);
        drop(slot);
        assert!(Slot::take(&table, 1_025).is_some());
    }
}
