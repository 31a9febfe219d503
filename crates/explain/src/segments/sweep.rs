//! Which segments of a recording are in force at many moments, found in one pass: a window of seconds has ten thousands of them.

use super::{Activity, Segment, Sender};
use std::cell::RefCell;
use std::collections::HashMap;

/// For each of these times, in the order of their starts, what `choose` makes of the segments that cover it, extended by
/// `margin_ns` on both sides. The segments come with their place in the recording.
pub(super) fn covering<'r, T>(
    segments: impl Iterator<Item = (usize, &'r Segment)>,
    margin_ns: u64,
    times: &[(u64, u64)],
    choose: impl Fn(&[(usize, &'r Segment)], (u64, u64)) -> T,
) -> Vec<T> {
    if times.is_empty() {
        return Vec::new();
    }
    let mut waiting: Vec<(usize, &Segment)> = segments.collect();
    waiting.sort_by_key(|(_, segment)| segment.from_ns);
    let mut waiting = waiting.into_iter().peekable();
    let mut active: Vec<(usize, &Segment)> = Vec::new();
    let mut covers: Vec<(usize, &Segment)> = Vec::new();
    let mut found = Vec::with_capacity(times.len());
    for (from_ns, to_ns) in times {
        while let Some(segment) = waiting.next_if(|(_, it)| it.from_ns.saturating_sub(margin_ns) <= *from_ns)
        {
            active.push(segment);
        }
        active.retain(|(_, segment)| segment.to_ns.saturating_add(margin_ns) >= *from_ns);
        covers.clear();
        covers.extend(active.iter().filter(|(_, it)| it.to_ns.saturating_add(margin_ns) >= *to_ns));
        found.push(choose(&covers, (*from_ns, *to_ns)));
    }
    found
}

/// The one of the highest rank; of several, the last one of the recording.
pub(super) fn innermost<'a, 'r: 'a>(
    segments: impl Iterator<Item = &'a (usize, &'r Segment)>,
) -> Option<&'r Segment> {
    segments.max_by_key(|(place, segment)| (segment.what.rank(), *place)).map(|(_, segment)| *segment)
}

/// The function that took most of a segment and its sender, by the segment's address.
type Called<'r> = HashMap<usize, Option<(&'r str, Option<&'r Sender>)>>;

/// What is looked up for many slices of one recording.
pub(super) struct Sweep<'r> {
    by_start: Vec<&'r Segment>,
    /// The longest segment that is not a thread.
    longest_above_ns: u64,
    /// For each called function, what called it.
    callers: Vec<(&'r Segment, Option<&'r Segment>)>,
    pub(super) called: RefCell<Called<'r>>,
}

impl<'r> Sweep<'r> {
    pub(super) fn of(segments: &'r [Segment]) -> Self {
        let mut by_start: Vec<&Segment> = segments.iter().collect();
        by_start.sort_by_key(|segment| segment.from_ns);
        let is_above = |segment: &&&Segment| segment.what.rank() > Some(0);
        let lengths = by_start.iter().filter(is_above).map(|it| it.to_ns.saturating_sub(it.from_ns));
        let longest_above_ns = lengths.max().unwrap_or(0);
        let called: Vec<&Segment> =
            by_start.iter().copied().filter(|it| matches!(it.what, Activity::Called { .. })).collect();
        let times: Vec<(u64, u64)> = called.iter().map(|it| (it.from_ns, it.to_ns)).collect();
        let ranked = segments.iter().enumerate().filter(|(_, it)| it.what.rank().is_some());
        let callers = covering(ranked, 0, &times, |covers, _| innermost(covers.iter()));
        let callers = called.into_iter().zip(callers).collect();
        Self { by_start, longest_above_ns, callers, called: RefCell::default() }
    }

    /// The segments that begin in a time, its ends included.
    pub(super) fn begun_in(&self, from_ns: u64, to_ns: u64) -> impl Iterator<Item = &'r Segment> {
        let first = self.by_start.partition_point(|segment| segment.from_ns < from_ns);
        self.by_start[first..].iter().copied().take_while(move |segment| segment.from_ns <= to_ns)
    }

    /// The segments above threads that reach into a time.
    pub(super) fn above_in(&self, from_ns: u64, to_ns: u64) -> impl Iterator<Item = &'r Segment> {
        self.begun_in(from_ns.saturating_sub(self.longest_above_ns), to_ns)
            .filter(move |segment| segment.what.rank() > Some(0) && segment.to_ns >= from_ns)
    }

    /// The functions that a segment called itself.
    pub(super) fn called_by(&self, caller: &Segment) -> impl Iterator<Item = &'r Segment> {
        let first = self.callers.partition_point(|(called, _)| called.from_ns < caller.from_ns);
        let to_ns = caller.to_ns;
        let within = self.callers[first..].iter().take_while(move |(called, _)| called.from_ns <= to_ns);
        within
            .filter(move |(called, by)| called.to_ns <= to_ns && *by == Some(caller))
            .map(|(called, _)| *called)
    }
}
