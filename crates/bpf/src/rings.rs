//! The rings of segments that the programs write, mapped: reading tens of thousands of segments by system calls would
//! take longer than a spike.

use crate::error::BpfError;
use crate::layout::RawSegment;
use crate::object::Object;
use std::mem::offset_of;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use whylate_sys::shared::SharedWords;
use zerocopy::transmute;

/// At most this many records are read for one window.
pub(crate) const READ_MAX: u64 = 65_536;
/// Records of all rings together (64 bytes each), and the least and the most that a ring holds. An interrupt storm writes
/// several hundred thousand a second, and spikes are explained 20 times a second.
const RINGS_TOTAL: u32 = 1 << 20;
const RING_MIN: u32 = 1 << 14;
const RING_MAX: u32 = 1 << 17;
/// The map that they lie in.
const MAP: &str = "segments";
/// 64-bit words of a segment, and which of them is its number.
const SEGMENT_WORDS: usize = size_of::<RawSegment>() / 8;
const NUMBER_WORD: usize = 2;
const _: () = assert!(offset_of!(RawSegment, number) == 8 * NUMBER_WORD);

/// The rings, one after another: `[ring][segment]`.
pub(crate) struct Rings {
    segments: SharedWords,
    ring_segments: u64,
}

impl Rings {
    /// Maps `count` rings of that size.
    ///
    /// # Errors
    /// [`BpfError::Map`] when the kernel has no memory or file descriptor left.
    pub(crate) fn map(object: &Object, count: usize, ring_segments: u32) -> Result<Self, BpfError> {
        let words = count * ring_segments as usize * SEGMENT_WORDS;
        let segments = SharedWords::of_map(object.array_file(MAP)?, words)
            .map_err(|error| BpfError::map(MAP, &error))?;
        Ok(Self { segments, ring_segments: u64::from(ring_segments) })
    }

    /// The newest of the `written` segments of a ring: at most `most`, newest first, up to one that ended before `from_ns`.
    pub(crate) fn read(&self, ring: usize, written: u64, from_ns: u64, most: u64) -> Found {
        let oldest = written.saturating_sub(most.min(self.ring_segments));
        let mut segments = Vec::new();
        for number in (oldest..written).rev() {
            let raw = self.segment(ring, number);
            match raw.number {
                complete if complete == number + 1 => {}
                // A newer one overwrote it; older ones are gone too.
                newer if newer > number + 1 => break,
                // Being written just now.
                _ => continue,
            }
            // Segments are in the order of their ends, except where one interrupts another.
            let is_earlier = raw.end_ns < from_ns;
            segments.push(raw);
            if is_earlier {
                break;
            }
        }
        Found { segments, is_all: oldest == 0, ring_segments: self.ring_segments }
    }

    /// The segment in a ring at the place of that number.
    fn segment(&self, ring: usize, number: u64) -> RawSegment {
        let place = ring as u64 * self.ring_segments + number % self.ring_segments;
        let words = &self.segments.words()[place as usize * SEGMENT_WORDS..][..SEGMENT_WORDS];
        // Its number is written last, so it is read first.
        let complete = words[NUMBER_WORD].load(Acquire);
        let mut values: [u64; SEGMENT_WORDS] = std::array::from_fn(|word| words[word].load(Relaxed));
        values[NUMBER_WORD] = complete;
        transmute!(values)
    }
}

/// What was read of a ring.
pub(crate) struct Found {
    /// Newest first.
    pub(crate) segments: Vec<RawSegment>,
    /// Whether nothing older was left to be read.
    is_all: bool,
    ring_segments: u64,
}

impl Found {
    /// Removes segments that may have been overwritten while they were read (`written` have been written in all by now) and
    /// those that ended before `from_ns`. Returns the time from which the rest is complete.
    pub(crate) fn keep_whole(&mut self, written: u64, from_ns: u64) -> u64 {
        let found = &mut self.segments;
        let count = found.len();
        // A program increments the count before it writes the segment. Numbers are 1 + the count.
        let overwritten = written.saturating_sub(self.ring_segments);
        found.retain(|raw| raw.number > overwritten);
        let is_all = self.is_all && found.len() == count;
        let reached_begin = is_all || found.iter().any(|raw| raw.end_ns < from_ns);
        let oldest_ns = found.iter().map(|raw| raw.end_ns).min().unwrap_or(u64::MAX);
        found.retain(|raw| raw.end_ns >= from_ns);
        if reached_begin { 0 } else { oldest_ns }
    }
}

/// How many stacks of late moments the rings hold, 384 bytes each.
const STACKS_TOTAL: u32 = 8_192;
const STACKS_MIN: u32 = 64;
const STACKS_MAX: u32 = 2_048;

/// How many segments each CPU's ring holds with this number of CPUs.
///
/// A busy CPU may write 65,536 segments a second, and everything that it did in `keep_ns` is to be there; no more is ever read.
pub(crate) fn ring_size(cpus: usize, keep_ns: u64) -> u32 {
    let kept = u32::try_from(READ_MAX * keep_ns / 1_000_000_000).unwrap_or(u32::MAX);
    let kept = kept.clamp(1, READ_MAX as u32).next_power_of_two();
    share(RINGS_TOTAL, cpus).clamp(RING_MIN, RING_MAX).max(kept)
}

/// How many stacks. A 1 kHz probe that is late at every wake-up fills 1,000 places a second; a spike is explained within that
/// time.
pub(crate) fn ring_stacks(cpus: usize) -> u32 {
    share(STACKS_TOTAL, cpus).clamp(STACKS_MIN, STACKS_MAX)
}

/// The largest power of two that is not above each CPU's share.
fn share(total: u32, cpus: usize) -> u32 {
    let share = total / u32::try_from(cpus.max(1)).unwrap_or(u32::MAX).min(total);
    1 << share.ilog2()
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::FromZeros as _;

    #[test]
    fn rings_are_smaller_where_there_are_many() {
        assert_eq!(
            [1, 8, 9, 64, 8192].map(|cpus| ring_size(cpus, 0)),
            [1 << 17, 1 << 17, 1 << 16, 1 << 14, 1 << 14]
        );
        assert_eq!(
            [300_000_000, 600_000_000, 9_000_000_000].map(|keep_ns| ring_size(64, keep_ns)),
            [1 << 15, 1 << 16, 1 << 16]
        );
        assert_eq!([1, 4, 5, 64, 8192].map(ring_stacks), [2_048, 2_048, 1_024, 128, 64]);
    }

    #[test]
    fn what_is_overwritten_while_it_is_read_is_no_record() {
        // The newest of a ring of 8, newest first: numbers 9 to 5, which ended at 90 to 50.
        let kept = |written, from_ns, is_all| {
            let segment = |number| RawSegment { number, end_ns: number * 10, ..RawSegment::new_zeroed() };
            let segments = (5..10).rev().map(segment).collect();
            let mut found = Found { segments, is_all, ring_segments: 8 };
            let complete_from_ns = found.keep_whole(written, from_ns);
            (found.segments.iter().map(|raw| raw.number).collect::<Vec<u64>>(), complete_from_ns)
        };
        assert_eq!(kept(9, 55, false), (vec![9, 8, 7, 6], 0), "one ended before");
        assert_eq!(kept(12, 45, false), (vec![9, 8, 7, 6, 5], 50), "the ring held no more");
        assert_eq!(kept(9, 45, true), (vec![9, 8, 7, 6, 5], 0), "there never was more");
        assert_eq!(
            kept(13, 55, true),
            (vec![9, 8, 7, 6], 60),
            "whether one ended before is not known any more"
        );
        assert_eq!(kept(17, 55, true), (vec![], u64::MAX));
    }
}
