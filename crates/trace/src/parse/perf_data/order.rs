//! Puts events into the order of time: perf writes the buffer of each CPU for itself.
//!
//! After each time that perf has read all buffers it writes a mark; what follows the next mark is later than everything
//! before this one. So two rounds are in memory at most; a file without marks, or with packed records, is sorted within
//! [`WAITING_MAX`] events. The buffers are sorted runs, which a stable sort merges.

use crate::event::Event;
use std::collections::VecDeque;

/// Events that wait for earlier ones.
const WAITING_MAX: usize = 1 << 20;

/// Events that wait for earlier ones.
#[derive(Default)]
pub(super) struct Order {
    waiting: Vec<Event>,
    ready: VecDeque<Event>,
    /// The latest time so far.
    max_ns: u64,
    /// The latest time when the last round ended.
    last_round_ns: u64,
}

impl Order {
    pub(super) fn push(&mut self, event: Event) {
        self.max_ns = self.max_ns.max(event.at_ns);
        self.waiting.push(event);
        if self.waiting.len() > WAITING_MAX {
            self.waiting.sort_by_key(|event| event.at_ns);
            self.ready.extend(self.waiting.drain(..WAITING_MAX / 2));
        }
    }

    /// All buffers were read once: what was there before the last time can go.
    pub(super) fn end_round(&mut self) {
        self.release(self.last_round_ns);
        self.last_round_ns = self.max_ns;
    }

    /// Nothing comes any more.
    pub(super) fn end(&mut self) {
        self.release(u64::MAX);
    }

    /// Everything up to `until_ns` can go.
    fn release(&mut self, until_ns: u64) {
        self.waiting.sort_by_key(|event| event.at_ns);
        let count = self.waiting.partition_point(|event| event.at_ns <= until_ns);
        self.ready.extend(self.waiting.drain(..count));
    }

    /// The next event that can go.
    pub(super) fn pop(&mut self) -> Option<Event> {
        self.ready.pop_front()
    }
}
