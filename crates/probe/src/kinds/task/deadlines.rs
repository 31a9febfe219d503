//! The deadlines that threads of SCHED_DEADLINE have from the kernel.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use whylate_bpf::tasks::Thread;
use whylate_core::Nanos;
use whylate_sys::schedule;

/// The priority of their threads, as tools print it.
const PRIORITY_DEADLINE: i32 = 100;
/// How long a deadline is taken as unchanged.
const FRESH: Duration = Duration::from_secs(1);
/// If more threads are known, all are asked again.
const KNOWN_MAX: usize = 1_024;

/// What the kernel said last, thread by thread.
#[derive(Default)]
pub(super) struct KernelDeadlines(BTreeMap<u32, (Instant, Option<Nanos>)>);

impl KernelDeadlines {
    /// The deadline of a thread, counted from its release; `None` for another policy, or if the thread was gone before the
    /// first request.
    pub(super) fn of(&mut self, thread: &Thread) -> Option<Nanos> {
        if thread.priority != PRIORITY_DEADLINE {
            return None;
        }
        let known = self.0.get(&thread.pid).copied();
        if let Some((_, deadline)) = known.filter(|(at, _)| at.elapsed() < FRESH) {
            return deadline;
        }
        if self.0.len() >= KNOWN_MAX {
            self.0.clear();
        }
        let present = schedule::deadline_of_thread(thread.pid).ok().flatten();
        // When its last activations are examined, it may have ended.
        let deadline = present.or(known.and_then(|(_, deadline)| deadline));
        self.0.insert(thread.pid, (Instant::now(), deadline));
        deadline
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use whylate_sys::schedule::Scheduling;

    #[test]
    fn a_thread_of_sched_deadline_has_the_deadline_that_the_kernel_has() {
        let thread =
            |priority| Thread { pid: schedule::id_of_this_thread(), priority, command: String::new() };
        let mut deadlines = KernelDeadlines::default();
        assert_eq!(
            deadlines.of(&thread(PRIORITY_DEADLINE)),
            None,
            "an ordinary thread, whatever was said of it"
        );
        let period = Nanos(50_000_000);
        // If the test lacks the rights, or a cpuset forbids it, the rest is skipped.
        if schedule::schedule_this_thread(Scheduling::Deadline { runtime: Nanos(1_000_000), period }).is_err()
        {
            return;
        }
        let deadlines =
            [40, PRIORITY_DEADLINE].map(|priority| KernelDeadlines::default().of(&thread(priority)));
        schedule::schedule_this_thread(Scheduling::Other).unwrap();
        assert_eq!(deadlines, [None, Some(period)]);
    }

    #[test]
    fn the_deadline_of_a_thread_that_has_ended_is_its_last_one() {
        // No thread has this number.
        let gone =
            Thread { pid: i32::MAX.cast_unsigned(), priority: PRIORITY_DEADLINE, command: String::new() };
        let before = Instant::now().checked_sub(2 * FRESH).expect("the machine runs for longer");
        let mut deadlines = KernelDeadlines([(gone.pid, (before, Some(Nanos(7))))].into());
        assert_eq!([deadlines.of(&gone), deadlines.of(&gone)], [Some(Nanos(7)); 2]);
        assert_eq!(KernelDeadlines::default().of(&gone), None);
    }
}
