//! What every reader of traces offers: information about the trace, and its events in time order, whole or in a
//! window.

use crate::event::{Event, Frames, Names, Symbol};
use crate::facts::TraceFacts;
use crate::parse::ParseError;
use whylate_core::CpuId;

/// What is known about a trace before its first event.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TraceInfo {
    /// `tracefs text`, `trace.dat v7`, `perf.data`, `ring-buffer pages`.
    pub format: String,
    /// The tracer that made it, when the file says: `nop`, `function`, `hwlat`, …
    pub tracer: Option<String>,
    /// The trace clock, when the file says: `local`, `mono`, …
    pub clock: Option<String>,
    /// Release of the kernel, when the file says.
    pub kernel: Option<String>,
    /// CPUs of the traced machine, when the file says.
    pub cpus: Option<u32>,
    /// Smallest step of the timestamps: 1000 for text in microseconds. 0 if they are not times: a clock that counts events
    /// (`counter`), or cycles of unknown length (`x86-tsc`).
    pub resolution_ns: u64,
    /// Events that the kernel overwrote or dropped, per CPU; only CPUs with a loss.
    pub lost: Vec<(CpuId, u64)>,
    /// Events before the first one that the kernel overwrote on all CPUs, when the file says.
    pub overwritten: Option<u64>,
    /// What the reader noticed and what the figures depend on, a sentence each: lines that it did not understand, times that
    /// are not a clock's.
    pub remarks: Vec<String>,
    /// What was not kept because it needs too much memory, a sentence each.
    pub limits: Vec<String>,
    /// What the trace states about its latency in addition to its events.
    pub facts: TraceFacts,
    /// Records that were walked since the last [`Reader::seek`], including kinds that were not selected: all events of the
    /// trace once it was read from start to end. Frames of stacks belong to their event.
    pub records: u64,
    /// The events whose formats the file has, or that were seen so far: `sched:sched_switch`. A name in it may
    /// have no events; one that is not in it was not recorded.
    pub recorded: Vec<String>,
}

/// CPUs that a kernel can have: a higher number in a file is damage.
pub(crate) const CPUS_MAX: usize = 8192;

/// Adds events of a CPU to [`TraceInfo::lost`].
pub(crate) fn lose(lost: &mut Vec<(CpuId, u64)>, cpu: CpuId, events: u64) {
    match lost.iter().position(|(known, _)| *known == cpu) {
        Some(place) => lost[place].1 = lost[place].1.saturating_add(events),
        None if lost.len() < CPUS_MAX => lost.push((cpu, events)),
        None => {}
    }
}

/// Which kinds of events the caller wants to see. Readers skip the rest without decoding it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Selection {
    /// Every event.
    #[default]
    All,
    /// The events that show late wake-ups: switches, wake-ups, timers, tracers' samples and marks, losses.
    Wakeups,
}

/// A trace that is read from a file, in bounded memory.
pub trait Reader {
    /// What is known about the trace (more, once it was read to its end).
    fn info(&self) -> &TraceInfo;

    /// The texts of the events so far.
    fn names(&self) -> &Names;

    /// Sets what the following calls of [`Reader::next`] give, and goes to the first event at or after
    /// `from_ns` (`None` is the start of the trace). Formats with timestamps per page find it without decoding
    /// what is before.
    ///
    /// # Errors
    /// [`ParseError`] when the file cannot be read, or is not a trace.
    fn seek(&mut self, from_ns: Option<u64>, selection: Selection) -> Result<(), ParseError>;

    /// The next event, all CPUs merged in the order of time; `None` at the end.
    ///
    /// # Errors
    /// [`ParseError`] for what is damaged, with its offset.
    fn next(&mut self) -> Result<Option<Event>, ParseError>;

    /// Like [`Reader::next`], into an event of the caller; `false` at the end. Events are large, so building them in place is
    /// faster.
    ///
    /// # Errors
    /// As [`Reader::next`].
    fn read(&mut self, event: &mut Event) -> Result<bool, ParseError> {
        let next = self.next()?;
        if let Some(next) = next {
            *event = next;
        }
        Ok(next.is_some())
    }

    /// The name of a function, and the offset in it; `None` if the trace has no symbol for it.
    fn symbol(&self, symbol: Symbol) -> Option<(&str, u64)>;

    /// The frames of a stack, innermost first.
    fn frames(&self, frames: Frames) -> &[Symbol];
}
