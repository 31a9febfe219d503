//! Real-time throttling, or the fair server, that had begun before a real-time task was woken.
//!
//! The scheduler chose an ordinary thread although a real-time one was runnable, and no real-time thread has run since: a
//! task that is woken then waits for the same reason. Otherwise the ordinary thread would look as if it kept preemption
//! disabled.

use super::{Activity, DEADLINE, Recording, Segment, Window};

/// Throttling begins at most this long before a wake-up: by default it lasts 50 of 1,000 ms.
const BEFORE_NS: u64 = 100_000_000;
/// Shorter waits are not due to throttling.
const LEAST_NS: u64 = 1_000_000;

/// How long before the wait of a real-time task the recording of its CPU is needed: throttling may have begun before the task
/// was woken. `None` if that shows nothing: for an ordinary task, or a wait that is too short.
pub fn looks_back(priority: i32, wait_ns: u64) -> Option<u64> {
    (priority > 0 && wait_ns >= LEAST_NS).then_some(BEFORE_NS)
}

/// The segments that reach into the window, and an earlier switch that began throttling which goes on in it.
pub fn within_throttled(recording: &Recording, window: &Window) -> Recording {
    let mut within = recording.within(window.from_ns, window.to_ns);
    if looks_back(window.priority, window.to_ns.saturating_sub(window.from_ns)).is_some() {
        within.segments.extend(begun_in(recording, window.from_ns).filter(|it| it.to_ns < window.from_ns));
    }
    within
}

/// The switch with which it began, if it still goes on at `until_ns`.
pub(crate) fn begun_in(recording: &Recording, until_ns: u64) -> Option<Segment> {
    let switches =
        recording.segments.iter().filter(|segment| segment.to_ns <= until_ns).filter_map(|segment| {
            match &segment.what {
                Activity::Thread { thread, was_runnable, next_priority, .. } => {
                    Some((segment, thread.priority, *was_runnable, *next_priority))
                }
                _ => None,
            }
        });
    let of_real_time = switches.filter(|(_, priority, _, next)| *priority > 0 || *next > 0);
    let (segment, priority, was_runnable, next) = of_real_time.max_by_key(|(segment, ..)| segment.to_ns)?;
    (was_runnable && next <= 0 && (1..DEADLINE).contains(&priority)).then(|| segment.clone())
}
