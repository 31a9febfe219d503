//! First pass: the tracks of all tasks, found directly by thread id, and no more of them than memory allows.

use crate::find::late::{Largest, PRIORITY_NORMAL};
use crate::find::track::TaskTrack;
use std::cmp::Reverse;
use std::collections::HashMap;
use whylate_core::order::InOrder;

/// Tasks that are followed at the same time.
const TASKS_MAX: usize = 1 << 15;
/// The most late moments that are kept of all tasks together.
pub(crate) const LATES_MAX: usize = 1 << 18;
/// Thread ids of a kernel are below this.
const PIDS: u32 = 1 << 22;
/// Thread ids whose places are in memory together.
const BLOCK: usize = 1 << 10;
/// There is no such task.
const NONE: u32 = u32::MAX;

/// The tasks of a trace.
#[derive(Default)]
pub(crate) struct Tasks {
    /// For each thread id its place, in blocks that exist where one of them has a place.
    blocks: Vec<Option<Box<[u32; BLOCK]>>>,
    /// Places of thread ids that no kernel assigns.
    others: HashMap<u32, u32>,
    tracks: Vec<(u32, TaskTrack)>,
    /// Tracks that were dropped because there were too many.
    pub(crate) dropped: u64,
}

impl Tasks {
    fn place(&self, pid: u32) -> Option<usize> {
        let place = if pid < PIDS {
            self.blocks.get(pid as usize / BLOCK)?.as_ref()?[pid as usize % BLOCK]
        } else {
            *self.others.get(&pid)?
        };
        (place != NONE).then_some(place as usize)
    }

    fn set_place(&mut self, pid: u32, place: usize) {
        if pid >= PIDS {
            self.others.insert(pid, place as u32);
            return;
        }
        let block = pid as usize / BLOCK;
        if block >= self.blocks.len() {
            self.blocks.resize_with(block + 1, || None);
        }
        let block = self.blocks[block].get_or_insert_with(|| Box::new([NONE; BLOCK]));
        block[pid as usize % BLOCK] = place as u32;
    }

    pub(crate) fn get(&self, pid: u32) -> Option<&TaskTrack> {
        self.place(pid).map(|place| &self.tracks[place].1)
    }

    /// The track of a task, an empty one if there was none.
    #[inline]
    pub(crate) fn entry(&mut self, pid: u32) -> &mut TaskTrack {
        let place = self.place(pid).unwrap_or_else(|| {
            self.set_place(pid, self.tracks.len());
            self.tracks.push((pid, TaskTrack::default()));
            self.tracks.len() - 1
        });
        &mut self.tracks[place].1
    }

    /// By thread id, once [`Tasks::sort`] was called.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &TaskTrack)> {
        self.tracks.iter().map(|(pid, track)| (*pid, track))
    }

    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut TaskTrack> {
        self.tracks.iter_mut().map(|(_, track)| track)
    }

    pub(crate) fn sort(&mut self) {
        self.tracks.order_by_key(|(pid, _)| *pid);
        self.find_places();
    }

    fn find_places(&mut self) {
        (self.blocks, self.others) = (Vec::new(), HashMap::new());
        for place in 0..self.tracks.len() {
            self.set_place(self.tracks[place].0, place);
        }
    }

    /// Whether there are too many, so that some must be dropped; `thorough` counts late moments, too.
    #[inline]
    pub(crate) fn is_full(&self, thorough: bool) -> bool {
        let lates = |(_, track): &(u32, TaskTrack)| track.all().map(Largest::len).sum::<usize>();
        let too_late = || self.tracks.iter().map(lates).sum::<usize>() > LATES_MAX;
        self.tracks.len() > TASKS_MAX || (thorough && self.tracks.len() > 1 && too_late())
    }

    /// Drops the half that matters least: real-time tasks, late ones and requested ones stay.
    pub(crate) fn drop_half(&mut self, is_wanted: impl Fn(u32, &TaskTrack) -> bool) {
        let key = |(pid, track): &(u32, TaskTrack)| {
            let realtime = track.priority.is_some_and(|priority| priority < PRIORITY_NORMAL);
            let worst_ns = track.all().map(Largest::worst_ns).max();
            Reverse((is_wanted(*pid, track), realtime, worst_ns, track.wakeups))
        };
        self.tracks.sort_by_cached_key(key);
        let kept = self.tracks.len().div_ceil(2);
        self.dropped += (self.tracks.len() - kept) as u64;
        self.tracks.truncate(kept);
        self.find_places();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_real_time_tasks_and_the_requested_ones_stay_of_too_many() {
        let mut tasks = Tasks::default();
        for pid in 0..100_000 {
            // Includes ids that no kernel assigns.
            tasks.entry(pid * 100).wakeups = u64::from(pid % 7);
            tasks.entry(77).priority = Some(98);
            if tasks.is_full(pid % 1024 == 0) {
                tasks.drop_half(|pid, _| pid == 300);
            }
        }
        tasks.sort();
        assert!(tasks.iter().count() <= TASKS_MAX + 1);
        assert!(tasks.get(77).is_some() && tasks.get(300).is_some() && tasks.dropped > 60_000);
        let pids: Vec<u32> = tasks.iter().map(|(pid, _)| pid).collect();
        assert!(pids.is_sorted());
        assert!(pids.iter().all(|pid| tasks.get(*pid).is_some()));
        assert_eq!(tasks.get(301).map(|track| track.wakeups), None);
    }
}
