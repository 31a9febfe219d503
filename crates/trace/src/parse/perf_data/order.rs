//! Puts events into the order of time: perf writes the buffer of each CPU for itself.
//!
//! After each time that perf has read all buffers it writes a mark; what follows the next mark is later than everything
//! before this one. So two rounds are in memory at most; a file without marks, or with packed records, is sorted within [`WAITING_MAX`]
//! events.

use crate::event::Event;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Events that wait for earlier ones.
const WAITING_MAX: usize = 1 << 20;

/// An event by its time, then by its place in the file.
struct Waiting(u64, u64, Event);

impl PartialEq for Waiting {
    fn eq(&self, other: &Self) -> bool {
        (self.0, self.1) == (other.0, other.1)
    }
}
impl Eq for Waiting {}
impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Waiting {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.0, self.1).cmp(&(other.0, other.1))
    }
}

/// Events that wait for earlier ones.
#[derive(Default)]
pub(super) struct Order {
    waiting: BinaryHeap<Reverse<Waiting>>,
    count: u64,
    /// Everything up to here can go.
    until_ns: u64,
    /// The latest time so far.
    max_ns: u64,
    /// The latest time when the last round ended.
    last_round_ns: u64,
    ended: bool,
}

impl Order {
    pub(super) fn push(&mut self, event: Event) {
        self.max_ns = self.max_ns.max(event.at_ns);
        self.count += 1;
        self.waiting.push(Reverse(Waiting(event.at_ns, self.count, event)));
    }

    /// All buffers were read once: what was there before the last time can go.
    pub(super) fn end_round(&mut self) {
        self.until_ns = self.last_round_ns;
        self.last_round_ns = self.max_ns;
    }

    /// Nothing comes any more.
    pub(super) fn end(&mut self) {
        self.ended = true;
    }

    /// The next event that can go.
    pub(super) fn pop(&mut self) -> Option<Event> {
        let Reverse(first) = self.waiting.peek()?;
        let free = self.ended || first.0 <= self.until_ns || self.waiting.len() > WAITING_MAX;
        if !free {
            return None;
        }
        self.waiting.pop().map(|Reverse(waiting)| waiting.2)
    }
}
