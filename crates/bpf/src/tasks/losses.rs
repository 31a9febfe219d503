//! Counts of what a watch could not record.

/// What is missing in the activations so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaskLosses {
    /// Records that were overwritten before they were read, or found no ring.
    pub records: u64,
    /// Activations that were not seen completely.
    pub incomplete: u64,
    /// Tasks that are not watched because another one has their slot.
    pub unwatched: u64,
    /// Threads of other users, which an ordinary user may not watch.
    pub refused: u64,
    /// Events at which a program could not run, because it was already running on that CPU: how many.
    pub missed: u64,
    /// The same by event, such as `1 at sched_waking`; empty if there were none.
    pub missed_at: String,
    /// Texts for trace_marker that were not in memory when they were written; they may have been marks.
    pub unread_texts: u64,
    /// Audited system calls that found no room.
    pub unaudited: u64,
    /// Activations in which the machine was suspended or its time of day set.
    pub suspended: u64,
}
