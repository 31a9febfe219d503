//! The memory that the measuring process and the runner share.
//!
//! ```text
//! word 0..64       header: state, stop request, common start, break
//! then per lane:   8 words written with every sample     (one cache line)
//!                  8 words written by the reader          (another one)
//!                  16 words written at start and end
//!                  1024 words: turns of n cycles          (stall)
//!                  7424 words: buckets of nanoseconds
//!                  3 * 16384 words: ring of spikes
//! ```
//!
//! A lane is one measuring thread. Each word has one writer; counts only ever grow, so the reader takes differences of two
//! readings and nothing is lost. There are two exceptions: the reader takes the smallest and the largest sample since the
//! last reading with an exchange. A sample that arrives in the same instant may be reported one interval later, but is never
//! lost.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use whylate_stats::buckets;

/// Turns shorter than this are counted per cycle.
pub(crate) const CYCLE_BUCKETS: usize = 1024;
/// How many spikes fit between two readings.
pub(crate) const RING_RECORDS: usize = 16384;

const HEADER_WORDS: usize = 64;
const LANE_HEAD_WORDS: usize = 32;
const CYCLES_AT: usize = LANE_HEAD_WORDS;
const BUCKETS_AT: usize = CYCLES_AT + CYCLE_BUCKETS;
const RING_AT: usize = BUCKETS_AT + buckets::BUCKETS;
const LANE_WORDS: usize = (RING_AT + 3 * RING_RECORDS).next_multiple_of(512);

/// Words that `lanes` measuring threads need.
pub(crate) fn words_needed(lanes: usize) -> usize {
    HEADER_WORDS + lanes * LANE_WORDS
}

/// The part of the memory that concerns all threads.
#[derive(Clone, Copy)]
pub(crate) struct Header<'a>(&'a [AtomicU64; HEADER_WORDS]);

impl<'a> Header<'a> {
    pub(crate) fn of(words: &'a [AtomicU64]) -> Option<Self> {
        words.first_chunk().map(Self)
    }
    /// Set to end the measurement: by the reader, the watchdog, or a thread whose latency exceeded the break.
    pub(crate) fn stop(&self) -> &'a AtomicU64 {
        &self.0[0]
    }
    /// Moment of CLOCK_MONOTONIC from which samples count; 0 until the threads are released.
    pub(crate) fn start_ns(&self) -> &'a AtomicU64 {
        // A line of its own: polled only before the start, while the stop request is read in every period.
        &self.0[8]
    }
    /// Latency at which a thread broke; 0 when none did.
    pub(crate) fn broke_ns(&self) -> &'a AtomicU64 {
        &self.0[16]
    }
    /// 1 once every thread is done.
    pub(crate) fn finished(&self) -> &'a AtomicU64 {
        &self.0[24]
    }
}

/// The part that belongs to one measuring thread.
#[derive(Clone, Copy)]
pub(crate) struct Lane<'a> {
    head: &'a [AtomicU64; LANE_HEAD_WORDS],
    pub(crate) cycles: &'a [AtomicU64; CYCLE_BUCKETS],
    pub(crate) buckets: &'a [AtomicU64; buckets::BUCKETS],
    ring: &'a [AtomicU64],
}

/// One entry of the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RingRecord {
    /// When it ended: the counter (stall) or CLOCK_MONOTONIC.
    pub(crate) at: u64,
    /// How late or how long: cycles (stall) or nanoseconds.
    pub(crate) value: u64,
    /// Number of the sample.
    pub(crate) sample: u64,
}

macro_rules! words {
    ($($(#[$doc:meta])* $name:ident = $place:literal;)*) => {
        $($(#[$doc])*
        #[inline(always)]
        pub(crate) fn $name(&self) -> &'a AtomicU64 {
            &self.head[$place]
        })*
    };
}

impl<'a> Lane<'a> {
    /// Lane `index` of the memory; `None` if it is too short.
    pub(crate) fn of(words: &'a [AtomicU64], index: usize) -> Option<Self> {
        let start = HEADER_WORDS + index * LANE_WORDS;
        let lane = words.get(start..start + LANE_WORDS)?;
        Some(Self {
            head: lane.first_chunk()?,
            cycles: lane[CYCLES_AT..].first_chunk()?,
            buckets: lane[BUCKETS_AT..].first_chunk()?,
            ring: &lane[RING_AT..RING_AT + 3 * RING_RECORDS],
        })
    }

    words! {
        /// Samples so far (the reader sums the stall probe's buckets instead).
        samples = 0;
        /// Sum of the samples counted in `buckets`, in nanoseconds.
        sum_ns = 1;
        /// Smallest since the last reading (not stall).
        interval_min_ns = 2;
        /// Largest since the last reading; 0 when none went into `buckets`.
        interval_max_ns = 3;
        /// Missed periods so far.
        overruns = 4;
        /// Records written to the ring so far.
        ring_head = 5;
        /// Records that found the ring full.
        ring_dropped = 6;
        /// Grows while the thread runs (stall only; the other kinds show it by their samples).
        alive = 7;
        /// Written by the reader: samples below it need no record (not stall).
        floor = 8;
        /// Written by the reader: records taken from the ring so far.
        ring_tail = 9;
        /// The counter's value when samples began to count.
        begin = 16;
        /// The counter's value when samples stopped counting.
        end = 17;
        /// Page faults of the thread while samples counted.
        page_faults = 18;
        /// Switches of the thread against its will while samples counted.
        involuntary_switches = 19;
        /// Allocations of the thread while samples counted; only counted in tests.
        allocations = 20;
        /// Gaps above the threshold so far (stall only).
        gaps = 21;
        /// Sum of those gaps, in cycles.
        lost_cycles = 22;
        /// Round trips whose answer was stamped outside of them: the two CPUs' counters disagree (roundtrip only).
        disorder = 23;
        /// As `page_faults`, of the thread that answers (roundtrip only).
        peer_page_faults = 24;
        /// As `involuntary_switches`, of the thread that answers (roundtrip only).
        peer_involuntary_switches = 25;
        /// As `allocations`, of the thread that answers (roundtrip only).
        peer_allocations = 26;
        /// Number of the thread, written before it moves to its CPU.
        tid = 27;
        /// When that was, CLOCK_MONOTONIC.
        born_ns = 28;
        /// As `tid`, of the thread that answers (roundtrip only).
        peer_tid = 29;
        /// As `born_ns`, of the thread that answers (roundtrip only).
        peer_born_ns = 30;
        /// 1 once the thread has measured to its end.
        done = 31;
    }

    /// Prepares an untouched lane for its first sample.
    pub(crate) fn reset(&self) {
        self.interval_min_ns().store(u64::MAX, Relaxed);
    }

    /// Counts a value of `buckets`.
    #[inline(always)]
    pub(crate) fn count_nanos(&self, nanos: u64) {
        // One writer: a load and a store, without the locked instruction that a fetch-and-add would take.
        let bucket = &self.buckets[buckets::index_of(nanos)];
        bucket.store(bucket.load(Relaxed) + 1, Relaxed);
        add(self.sum_ns(), nanos);
        if nanos > self.interval_max_ns().load(Relaxed) {
            self.interval_max_ns().store(nanos, Relaxed);
        }
    }

    /// Counts a sample of `buckets` with its number and smallest value; returns the number of samples so far.
    #[inline(always)]
    pub(crate) fn count_sample(&self, nanos: u64) -> u64 {
        self.count_nanos(nanos);
        if nanos < self.interval_min_ns().load(Relaxed) {
            self.interval_min_ns().store(nanos, Relaxed);
        }
        let samples = self.samples().load(Relaxed) + 1;
        self.samples().store(samples, Relaxed);
        samples
    }

    /// Puts a record into the ring, or counts that it found no place.
    #[inline(always)]
    pub(crate) fn push(&self, record: RingRecord) {
        let head = self.ring_head().load(Relaxed);
        if head.wrapping_sub(self.ring_tail().load(Acquire)) >= RING_RECORDS as u64 {
            add(self.ring_dropped(), 1);
            return;
        }
        let place = (head as usize % RING_RECORDS) * 3;
        self.ring[place].store(record.at, Relaxed);
        self.ring[place + 1].store(record.value, Relaxed);
        self.ring[place + 2].store(record.sample, Relaxed);
        self.ring_head().store(head + 1, Release);
    }

    /// Takes every record that is there.
    pub(crate) fn drain(&self, mut take: impl FnMut(RingRecord)) {
        let head = self.ring_head().load(Acquire);
        let mut tail = self.ring_tail().load(Relaxed);
        while tail != head {
            let place = (tail as usize % RING_RECORDS) * 3;
            take(RingRecord {
                at: self.ring[place].load(Relaxed),
                value: self.ring[place + 1].load(Relaxed),
                sample: self.ring[place + 2].load(Relaxed),
            });
            tail += 1;
        }
        self.ring_tail().store(tail, Release);
    }
}

/// Adds to a word that only this thread writes.
#[inline(always)]
pub(crate) fn add(word: &AtomicU64, amount: u64) {
    word.store(word.load(Relaxed).wrapping_add(amount), Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(lanes: usize) -> Vec<AtomicU64> {
        (0..words_needed(lanes)).map(|_| AtomicU64::new(0)).collect()
    }

    #[test]
    fn lanes_do_not_overlap_and_end_with_the_memory() {
        let words = words(3);
        for index in 0..3 {
            Lane::of(&words, index).unwrap().samples().store(index as u64 + 1, Relaxed);
            Lane::of(&words, index).unwrap().ring[3 * RING_RECORDS - 1].store(77, Relaxed);
        }
        let samples = |index| Lane::of(&words, index).unwrap().samples().load(Relaxed);
        assert_eq!([samples(0), samples(1), samples(2)], [1, 2, 3]);
        assert!(Lane::of(&words, 3).is_none());
    }

    #[test]
    fn the_ring_keeps_order_and_counts_what_it_cannot_take() {
        let words = words(1);
        let lane = Lane::of(&words, 0).unwrap();
        let record = |n| RingRecord { at: n, value: 2 * n, sample: 3 * n };
        let mut taken = Vec::new();
        for round in 0..3u64 {
            for n in 0..RING_RECORDS as u64 + 5 {
                lane.push(record(round * 100_000 + n));
            }
            lane.drain(|found| taken.push(found));
        }
        assert_eq!(taken.len(), 3 * RING_RECORDS);
        assert_eq!(taken[RING_RECORDS], record(100_000));
        assert_eq!(lane.ring_dropped().load(Relaxed), 15);
    }

    #[test]
    fn counting_keeps_sum_and_largest() {
        let words = words(1);
        let lane = Lane::of(&words, 0).unwrap();
        for value in [3, 300, 30_000, u64::MAX / 2] {
            lane.count_nanos(value);
        }
        assert_eq!(lane.buckets.iter().map(|bucket| bucket.load(Relaxed)).sum::<u64>(), 4);
        assert_eq!(lane.interval_max_ns().load(Relaxed), u64::MAX / 2);
        assert_eq!(lane.sum_ns().load(Relaxed), 30_303 + u64::MAX / 2);
    }
}
