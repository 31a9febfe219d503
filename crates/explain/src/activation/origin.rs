//! From which pass of a chain's first mark an end came: back over wake-ups, to a thread that had passed this mark.

use super::path::{Paths, WAKES_MAX};
use std::collections::{BTreeMap, BTreeSet};
use whylate_core::recording::Waker;

/// The moments at which each thread passed the first mark, in the order of time.
pub type Begins = BTreeMap<u32, Vec<u64>>;

impl Paths<'_> {
    /// The thread that passed the first mark, and when: the one from which a thread was woken, directly or by others, before it
    /// passed the last mark.
    ///
    /// A thread that has work waiting is not woken for it. The answer is then the pass of earlier work.
    pub fn origin(&self, thread: u32, at_ns: u64, begins: &Begins) -> Option<(u32, u64)> {
        let oldest_ns = begins.values().filter_map(|all| all.first()).min()?.saturating_sub(1);
        let mut search = Origin { paths: self, begins, oldest_ns, tried: BTreeSet::new(), left: WAKES_MAX };
        search.back(thread, at_ns)
    }
}

struct Origin<'p, 'r> {
    paths: &'p Paths<'r>,
    begins: &'p Begins,
    oldest_ns: u64,
    tried: BTreeSet<(u32, u64)>,
    left: usize,
}

impl Origin<'_, '_> {
    fn back(&mut self, thread: u32, at_ns: u64) -> Option<(u32, u64)> {
        if self.left == 0 || at_ns <= self.oldest_ns || !self.tried.insert((thread, at_ns)) {
            return None;
        }
        self.left -= 1;
        let all = self.begins.get(&thread).map(Vec::as_slice).unwrap_or_default();
        let began = all[..all.partition_point(|begin_ns| *begin_ns <= at_ns)].last();
        let began = began.map(|begin_ns| (thread, *begin_ns));
        let wake = self.paths.last_wake(thread, self.oldest_ns, at_ns);
        let Some(wake) = wake.filter(|wake| began.is_none_or(|(_, begin_ns)| begin_ns < wake.at_ns)) else {
            return began;
        };
        if let Waker::Thread(waker, _) = wake.waker
            && let Some(found) = self.back(*waker, wake.at_ns)
        {
            return Some(found);
        }
        // The owner of a lock or a timer ended a sleep in the middle of its work.
        began.or_else(|| {
            let slept = self.paths.fell_asleep(thread, wake.at_ns)?;
            self.back(thread, slept.to_ns.min(wake.at_ns.saturating_sub(1)))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segments::{Activity, Recording, Segment, Surroundings, Thread};
    use whylate_core::CpuId;

    fn waking(at_ns: u64, pid: u32, by: u32) -> Segment {
        let waker = if by == 0 { Waker::Timer } else { Waker::Thread(by, String::new()) };
        Segment { from_ns: at_ns, to_ns: at_ns, what: Activity::Waking { pid, waker } }
    }

    fn ran(from_ns: u64, to_ns: u64, pid: u32) -> Segment {
        let thread = Thread { pid, priority: 10, command: String::new() };
        let what = Activity::Thread { thread, process: pid, was_runnable: false, next_priority: 0 };
        Segment { from_ns, to_ns, what }
    }

    fn origin(segments: Vec<Segment>, begins: &[(u32, &[u64])], end: (u32, u64)) -> Option<(u32, u64)> {
        let recordings = [(CpuId(0), Recording { segments, ..Recording::default() })].into();
        let begins = begins.iter().map(|(thread, all)| (*thread, all.to_vec())).collect();
        let surroundings = Surroundings::default();
        Paths::new(&recordings, &surroundings).origin(end.0, end.1, &begins)
    }

    /// The timer of 1 wakes it twice. The first time, it wakes 2.
    fn woken_twice(then: &[Segment]) -> Vec<Segment> {
        let first =
            [waking(90, 1, 0), waking(110, 2, 1), ran(95, 115, 1), waking(190, 1, 0), ran(195, 215, 1)];
        [&first[..], then].concat()
    }

    /// First (1) wakes one of two workers (2, 3), and each wakes last (4).
    #[test]
    fn the_first_of_two_overlapping_instances_is_found_although_it_ends_last() {
        let segments = woken_twice(&[
            waking(210, 3, 1),
            waking(300, 4, 3),
            ran(216, 301, 3),
            ran(302, 310, 4),
            waking(500, 4, 2),
            ran(311, 501, 2),
            ran(502, 510, 4),
        ]);
        let begins: &[(u32, &[u64])] = &[(1, &[100, 200])];
        assert_eq!(origin(segments.clone(), begins, (4, 305)), Some((1, 200)));
        assert_eq!(origin(segments, begins, (4, 505)), Some((1, 100)));
    }

    #[test]
    fn a_thread_that_gets_an_answer_is_followed_to_the_thread_that_answered() {
        // 1 asks at 100 and at 200; 2 answers the first question at 300.
        let segments = woken_twice(&[waking(300, 1, 2), ran(216, 301, 2), ran(302, 310, 1)]);
        assert_eq!(origin(segments, &[(1, &[100, 200])], (1, 305)), Some((1, 100)));
    }

    #[test]
    fn a_sleep_for_a_lock_or_a_timer_is_no_end_of_the_search() {
        // 2 is woken by 1, waits for a lock of 9, and then for its timer.
        let segments = vec![
            waking(110, 2, 1),
            ran(95, 115, 1),
            ran(116, 120, 2),
            waking(150, 2, 9),
            ran(121, 151, 9),
            ran(152, 160, 2),
            waking(200, 2, 0),
            waking(210, 4, 2),
            ran(201, 215, 2),
            ran(216, 230, 4),
        ];
        assert_eq!(origin(segments.clone(), &[(1, &[100])], (4, 220)), Some((1, 100)));
        assert_eq!(origin(segments, &[(1, &[300])], (4, 220)), None);
        assert_eq!(origin(Vec::new(), &[], (4, 220)), None);
    }
}
