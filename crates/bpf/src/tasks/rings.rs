//! The rings of records of watched tasks, mapped; read one after another, in the order of their times.

use crate::error::BpfError;
use crate::layout::tasks::{RawCounts, RawStretch};
use crate::object::Object;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use whylate_core::CpuId;
use whylate_sys::shared::SharedWords;
use zerocopy::{FromBytes as _, IntoBytes as _, TryFromBytes as _};

/// The map that they lie in.
const MAP: &str = "stretches";
const WORDS: usize = size_of::<RawStretch>() / 8;
/// The map of what was counted, with the same places.
const COUNTS: &str = "stretch_counts";
const COUNT_WORDS: usize = size_of::<RawCounts>() / 8;
/// A record may be read this much later than a newer record of another CPU; records are held back for this time.
const SETTLED_NS: u64 = 1_000_000;
/// If a record is still missing this long after a later one of the same CPU was written, it will never come: `take_number()`
/// in `bpf/kernel.h` gave up its number. A program takes less time, even if another task preempts it.
const GIVEN_UP_NS: u64 = 1_000_000_000;
/// How many later records are checked.
const LATER_MAX: u64 = 64;

/// The rings, one after another: `[ring][record]`.
pub(super) struct StretchRings {
    words: SharedWords,
    counts: Option<SharedWords>,
    ring_stretches: u64,
    /// The number of the next record to read, for each ring.
    next: Vec<u64>,
    /// Records that were read and not handed out yet.
    waiting: Vec<(CpuId, RawStretch, RawCounts)>,
    /// How many of them were read last.
    fresh: usize,
    /// Records that were overwritten before they were read.
    lost: u64,
}

impl StretchRings {
    /// Maps `count` rings of that size.
    pub(super) fn map(
        object: &Object,
        count: usize,
        ring_stretches: u32,
        has_counts: bool,
    ) -> Result<Self, BpfError> {
        let map = |name: &str, words: usize| {
            SharedWords::of_map(object.array_file(name)?, count * ring_stretches as usize * words)
                .map_err(|error| BpfError::map(name, &error))
        };
        let (words, counts) = (map(MAP, WORDS)?, has_counts.then(|| map(COUNTS, COUNT_WORDS)).transpose()?);
        let (next, waiting) = (vec![0; count], Vec::new());
        Ok(Self { words, counts, ring_stretches: ring_stretches.into(), next, waiting, fresh: 0, lost: 0 })
    }

    /// Records that were overwritten before they were read.
    pub(super) fn lost(&self) -> u64 {
        self.lost
    }

    /// Reads what is new in the ring of a CPU; `written` is the number of records written to it so far.
    pub(super) fn read(&mut self, ring: usize, cpu: CpuId, written: u64, now_ns: u64) {
        let oldest = written.saturating_sub(self.ring_stretches);
        let mut number = self.next[ring];
        let before = self.waiting.len();
        if number < oldest {
            self.lost += oldest - number;
            number = oldest;
        }
        while number < written {
            match self.record(ring, number) {
                Some(found) if found.number == number + 1 => {
                    let counts = self.counts(ring, number);
                    self.waiting.push((cpu, found, counts));
                }
                Some(found) if found.number <= number => {
                    // Otherwise it is just being written.
                    if !self.is_given_up(ring, number, written, now_ns) {
                        break;
                    }
                }
                // It was overwritten, at least in part.
                _ => self.lost += 1,
            }
            number += 1;
        }
        self.next[ring] = number;
        self.fresh = self.waiting.len() - before;
    }

    /// Removes records that may have been overwritten while they were read; `written` is the CPU's number of records by now.
    pub(super) fn confirm(&mut self, cpu: CpuId, written: u64) {
        let overwritten = written.saturating_sub(self.ring_stretches);
        let before = self.waiting.len();
        let read = self.waiting.len() - self.fresh.min(self.waiting.len());
        let mut place = 0;
        self.waiting.retain(|(of, it, _)| {
            place += 1;
            place <= read || *of != cpu || it.number > overwritten
        });
        self.lost += (before - self.waiting.len()) as u64;
    }

    /// The records that ended so long before `now_ns` that no other CPU can still deliver an earlier one, in the order of
    /// their ends.
    pub(super) fn take(&mut self, now_ns: u64) -> Vec<(CpuId, RawStretch, RawCounts)> {
        let until_ns = now_ns.saturating_sub(SETTLED_NS);
        let mut taken: Vec<_> = self.waiting.extract_if(.., |(_, it, _)| it.end_ns <= until_ns).collect();
        taken.sort_by_key(|(_, it, _)| it.end_ns);
        taken
    }

    /// Whether a later record than that number was written long ago.
    fn is_given_up(&self, ring: usize, number: u64, written: u64, now_ns: u64) -> bool {
        (number + 1..written.min(number + LATER_MAX)).any(|later| {
            let record = self.record(ring, later).filter(|record| record.number == later + 1);
            record.is_some_and(|record| record.end_ns + GIVEN_UP_NS < now_ns)
        })
    }

    /// What was counted in the time of the record at the place of that number, which [`Self::confirm`] checks.
    fn counts(&self, ring: usize, number: u64) -> RawCounts {
        let Some(counts) = &self.counts else { return RawCounts::default() };
        let place = ring as u64 * self.ring_stretches + number % self.ring_stretches;
        let words = &counts.words()[place as usize * COUNT_WORDS..][..COUNT_WORDS];
        let values: [u64; COUNT_WORDS] = std::array::from_fn(|word| words[word].load(Relaxed));
        RawCounts::read_from_bytes(values.as_bytes()).unwrap_or_default()
    }

    /// The record at the place of that number; `None` if its contents are not valid.
    fn record(&self, ring: usize, number: u64) -> Option<RawStretch> {
        let place = ring as u64 * self.ring_stretches + number % self.ring_stretches;
        let words = &self.words.words()[place as usize * WORDS..][..WORDS];
        // Its number is written last, so it is read first.
        let complete = words[0].load(Acquire);
        let mut values: [u64; WORDS] = std::array::from_fn(|word| words[word].load(Relaxed));
        // A program that writes the place again begins with the members, and ends with the number.
        if words[0].load(Acquire) != complete {
            return None;
        }
        values[0] = complete;
        RawStretch::try_read_from_bytes(values.as_bytes()).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    #[test]
    fn a_number_that_was_given_up_holds_nothing_up_for_long() {
        let words = SharedWords::create(8 * WORDS).unwrap();
        let mut rings = StretchRings {
            words,
            counts: None,
            ring_stretches: 8,
            next: vec![0],
            waiting: Vec::new(),
            fresh: 0,
            lost: 0,
        };
        let cpu = CpuId(3);
        let write = |rings: &StretchRings, number: usize, end_ns: u64| {
            let record = &rings.words.words()[number * WORDS..][..WORDS];
            record[offset_of!(RawStretch, end_ns) / 8].store(end_ns, Relaxed);
            // A kind that there is.
            record[offset_of!(RawStretch, kind) / 8].store(1, Relaxed);
            record[0].store(number as u64 + 1, Relaxed);
        };
        for (number, end_ns) in [(0, 50), (2, 70), (3, 80)] {
            write(&rings, number, end_ns);
        }
        let read = |rings: &mut StretchRings, now_ns: u64| {
            rings.read(0, cpu, 4, now_ns);
            rings.waiting.iter().map(|(_, record, _)| record.number).collect::<Vec<u64>>()
        };
        assert_eq!(read(&mut rings, 90), [1], "the second may be being written");
        assert_eq!(read(&mut rings, GIVEN_UP_NS + 71), [1, 3, 4]);
        assert_eq!(rings.lost(), 0, "there was none");
    }
}
