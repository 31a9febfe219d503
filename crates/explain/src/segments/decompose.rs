//! From the activity of a CPU to the causes of a spike.
//!
//! At each moment of the spike's window one thing has the CPU: the innermost recorded one, since an interrupt stops a softirq
//! and a softirq stops a thread. The remaining time is explained by the moment at which it ended, or not at all. Shares are
//! parts of the window, so those of one spike add up to at most 1.

use super::blame::Context;
use super::sweep::{covering, innermost};
use super::window::{Slice, Surroundings, Window};
use super::{Activity, Recording, Segment, Thread};
use crate::blame::piece::Piece;
use crate::causes::divide::{self, lower};
use crate::confidence;
use std::borrow::Cow;
use std::collections::HashMap;
use whylate_core::figure::nanoseconds;
use whylate_core::result::Cause;

/// The causes of a spike, the main one first; never empty.
pub fn decompose(window: &Window, recording: &Recording, surroundings: &Surroundings) -> Vec<Cause> {
    let pieces = pieces(window, recording, surroundings);
    let latency_ns = window.to_ns.saturating_sub(window.from_ns);
    causes_of(&pieces, latency_ns, recording.lost)
}

/// What had the CPU at each moment of the window.
pub(crate) fn pieces(window: &Window, recording: &Recording, surroundings: &Surroundings) -> Vec<Piece<()>> {
    let recording = &*with_priorities(recording);
    let context = Context::of(window, recording, surroundings);
    let piece = |slice: &Slice<'_>| Piece {
        from: slice.from_ns,
        to: slice.to_ns,
        began: slice.from_ns,
        blame: context.blame(slice),
        detail: (),
    };
    slices(window, recording, surroundings.margin_ns()).iter().map(piece).collect()
}

/// The causes of a latency, the main one first; never empty.
pub(crate) fn causes_of(pieces: &[Piece<()>], latency_ns: u64, lost: u64) -> Vec<Cause> {
    let groups = divide::groups(pieces);
    let mut causes: Vec<Cause> = groups.iter().map(|group| group.cause(latency_ns)).collect();
    for (cause, group) in causes.iter_mut().zip(&groups).filter(|(cause, _)| cause.confidence.is_some()) {
        let stretches = group.stretches().len();
        let times = if stretches == 1 { String::new() } else { format!(" in {stretches} pieces") };
        cause.evidence.push(format!("this cause took {}{times}", nanoseconds(group.time)));
        if lost > 0 {
            let reason = format!("less certain: records of this latency were lost ({lost})");
            lower(cause, confidence::OF_LOSSES, reason);
        }
    }
    let main = divide::main_of(&causes);
    let (main, also) = divide::split(causes, main);
    std::iter::once(main).chain(also).collect()
}

/// The wake-up of a thread has the priority with which the thread before it ran, which may have lowered it as it left the CPU.
fn with_priorities(recording: &Recording) -> Cow<'_, Recording> {
    let mut found = Cow::Borrowed(recording);
    let mut threads: HashMap<u64, Vec<usize>> = HashMap::new();
    for (place, segment) in recording.segments.iter().enumerate() {
        if matches!(segment.what, Activity::Thread { .. }) {
            threads.entry(segment.to_ns).or_default().push(place);
        }
    }
    for segment in &recording.segments {
        let Activity::Wakeup { previous, .. } = &segment.what else { continue };
        for place in threads.get(&segment.to_ns).into_iter().flatten() {
            if ran_below(&recording.segments[*place], previous) {
                raise(&mut found.to_mut().segments[*place..=*place], previous, |_| true);
            }
        }
    }
    found
}

/// Whether a segment has this thread, with a lower priority than is known of it.
fn ran_below(segment: &Segment, known: &Thread) -> bool {
    matches!(&segment.what, Activity::Thread { thread, .. }
        if thread.pid == known.pid && known.pid != 0 && thread.priority < known.priority)
}

/// A thread is recorded with its priority when it leaves the CPU: `known` has the one with which it ran in these segments.
pub(crate) fn raise(segments: &mut [Segment], known: &Thread, is_it: impl Fn(&Segment) -> bool) {
    for segment in segments.iter_mut().filter(|segment| ran_below(segment, known) && is_it(segment)) {
        if let Activity::Thread { thread, .. } = &mut segment.what {
            thread.priority = known.priority;
        }
    }
}

/// Cuts the window where the CPU's activity changes.
fn slices<'r>(window: &Window, recording: &'r Recording, margin_ns: u64) -> Vec<Slice<'r>> {
    let covers_time = |segment: &&Segment| match segment.what {
        Activity::Lock { process, .. } => window.process != 0 && process == window.process,
        ref other => other.rank().is_some(),
    };
    // In a loop that never sleeps, time next to an interrupt is its entry or exit.
    let is_interrupt = |segment: &&Segment| !window.is_timer && segment.what.is_interrupt();
    let mut cuts = vec![window.from_ns, window.to_ns];
    for segment in &recording.segments {
        cuts.extend([segment.from_ns, segment.to_ns]);
        if is_interrupt(&segment) {
            cuts.extend([segment.from_ns.saturating_sub(margin_ns), segment.to_ns.saturating_add(margin_ns)]);
        }
    }
    cuts.retain(|at_ns| (window.from_ns..=window.to_ns).contains(at_ns));
    cuts.sort_unstable();
    cuts.dedup();
    let times: Vec<(u64, u64)> = cuts.windows(2).map(|pair| (pair[0], pair[1])).collect();
    let all = || recording.segments.iter().enumerate().filter(|(_, segment)| covers_time(segment));
    let mut slices = covering(all(), 0, &times, |covers, (from_ns, to_ns)| {
        let is_thread = |(_, it): &&(usize, &Segment)| matches!(it.what, Activity::Thread { .. });
        let (segment, thread) = (innermost(covers.iter()), innermost(covers.iter().filter(is_thread)));
        Slice { from_ns, to_ns, segment, neighbour: None, thread }
    });
    let interrupts = all().filter(|(_, segment)| is_interrupt(segment));
    let near = covering(interrupts, margin_ns, &times, |near, (from_ns, to_ns)| {
        let distance_ns = |segment: &Segment| {
            from_ns.saturating_sub(segment.to_ns).max(segment.from_ns.saturating_sub(to_ns))
        };
        near.iter().min_by_key(|(place, segment)| (distance_ns(segment), *place)).map(|(_, segment)| *segment)
    });
    slices.iter_mut().zip(near).for_each(|(slice, near)| slice.neighbour = near);
    slices
}
