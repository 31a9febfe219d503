//! Puts events into the order of time: perf writes the buffer of each CPU for itself.
//!
//! Whenever perf has read all buffers, it writes a mark; records after the next mark are later than all records before this
//! one. At most two rounds are therefore in memory. A file without marks, or with packed records, is sorted within
//! [`WAITING_MAX`] events. The buffers are sorted runs, which a stable sort merges.

use crate::event::Event;

/// Events that wait for earlier ones.
const WAITING_MAX: usize = 1 << 19;

/// Events that wait for earlier ones.
#[derive(Default)]
pub(super) struct Order {
    /// Events that were taken, that can go in the order of time, and that wait.
    events: Vec<Event>,
    /// How many were taken, and how far they can go.
    taken: usize,
    ready: usize,
    max_ns: u64,
    /// The latest time when the last round ended.
    last_round_ns: u64,
}

impl Order {
    pub(super) fn push(&mut self, event: Event) {
        if self.taken > 0 && self.taken == self.ready {
            self.events.drain(..self.taken);
            (self.taken, self.ready) = (0, 0);
        }
        self.max_ns = self.max_ns.max(event.at_ns);
        self.events.push(event);
        if self.events.len() - self.ready > WAITING_MAX {
            self.events[self.ready..].sort_by_key(|event| event.at_ns);
            self.ready += WAITING_MAX / 2;
        }
    }

    /// All buffers were read once: events before the last time can go.
    pub(super) fn end_round(&mut self) {
        self.release(self.last_round_ns);
        self.last_round_ns = self.max_ns;
    }

    /// No more events come.
    pub(super) fn end(&mut self) {
        self.release(u64::MAX);
    }

    /// Everything up to `until_ns` can go.
    fn release(&mut self, until_ns: u64) {
        let waiting = &mut self.events[self.ready..];
        waiting.sort_by_key(|event| event.at_ns);
        self.ready += waiting.partition_point(|event| event.at_ns <= until_ns);
    }

    /// The next event that can go.
    pub(super) fn pop(&mut self) -> Option<Event> {
        let event = *self.events.get(self.taken).filter(|_| self.taken < self.ready)?;
        self.taken += 1;
        Some(event)
    }
}
