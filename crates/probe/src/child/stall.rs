//! The stall probe's thread: reads the time-stamp counter without pause and records every gap.
//!
//! Each turn is counted, per cycle below 1024 cycles and in nanoseconds above; a turn at least as long as the
//! threshold is a gap and also goes into the ring. What a gap is made of, the loop cannot tell. The time that
//! recording a gap takes is part of the next turn, and shows.

use super::{Usage, end_of};
use crate::layout::{CYCLE_BUCKETS, Header, Lane, RingRecord, add};
use crate::spec::{ProbeKind, ProbeSpec};
use std::sync::atomic::Ordering::Relaxed;
use whylate_core::{Cycles, MonoTime, Nanos};
use whylate_sys::clock;
use whylate_sys::counter::{Calibration, Counter};

/// How often the loop looks whether it shall end.
const CHECK_EVERY: Nanos = Nanos::from_micros(200);

/// Everything the thread needs while it measures.
pub(super) struct Stall<'a> {
    lane: Lane<'a>,
    header: Header<'a>,
    hardware_counter: bool,
    calibration: Calibration,
    threshold: u64,
    warmup: Nanos,
    duration: Nanos,
    /// One cache line each; empty without a working set.
    working_set: Vec<[u64; 8]>,
}

impl<'a> Stall<'a> {
    pub(super) fn new(spec: &ProbeSpec, lane: Lane<'a>, header: Header<'a>) -> Self {
        let (hardware_counter, multiplier, threshold, bytes) = match spec.kind {
            ProbeKind::Stall { hardware_counter, multiplier, threshold_cycles, working_set_bytes } => {
                (hardware_counter, multiplier, threshold_cycles, working_set_bytes)
            }
            _ => (false, 1 << 32, u64::MAX, 0),
        };
        Self {
            lane,
            header,
            hardware_counter,
            calibration: Calibration::of_multiplier(multiplier),
            threshold,
            warmup: spec.warmup,
            duration: spec.duration,
            // Ones, so that every page is there before the loop begins.
            working_set: vec![[1; 8]; (bytes / 64) as usize],
        }
    }

    /// Whether the CPU's own counter is to be read.
    pub(super) fn reads_hardware(&self) -> bool {
        self.hardware_counter
    }

    /// Measures from `start` on; the warm-up lies before it.
    pub(super) fn measure<C: Counter>(&mut self, start: MonoTime) {
        clock::sleep_until(MonoTime(start.0 - self.warmup.0));
        self.dispatch::<C, false>(start);
        let usage = Usage::begin();
        self.lane.begin().store(C::now().0, Relaxed);
        self.dispatch::<C, true>(end_of(start, self.duration));
        self.lane.end().store(C::now().0, Relaxed);
        usage.end(&self.lane);
    }

    fn dispatch<C: Counter, const COUNTED: bool>(&self, end: MonoTime) {
        if self.working_set.is_empty() {
            self.turns::<C, COUNTED, false>(end);
        } else {
            self.turns::<C, COUNTED, true>(end);
        }
    }

    /// The loop.
    #[inline(never)]
    fn turns<C: Counter, const COUNTED: bool, const WALK: bool>(&self, end: MonoTime) {
        let check_every = self.calibration.cycles(CHECK_EVERY).0;
        let end = C::now().0 + self.calibration.cycles(Nanos(end.0.saturating_sub(clock::now().0))).0;
        let short = self.threshold.min(CYCLE_BUCKETS as u64);
        let mut line = 0;
        let mut gap = 0u64;
        let mut last = C::now().0;
        let mut check_at = last + check_every;
        loop {
            let now = C::now().0;
            let cycles = now.wrapping_sub(last);
            last = now;
            if COUNTED {
                if cycles < short {
                    // `short` is at most CYCLE_BUCKETS; the remainder only spares the bounds check.
                    add(&self.lane.cycles[cycles as usize % CYCLE_BUCKETS], 1);
                } else {
                    self.long_turn(now, cycles, &mut gap);
                }
            }
            if WALK {
                std::hint::black_box(self.working_set[line][0]);
                line = if line + 1 == self.working_set.len() { 0 } else { line + 1 };
            }
            if now >= check_at {
                check_at = now + check_every;
                if now >= end || self.header.stop().load(Relaxed) != 0 {
                    break;
                }
            }
        }
    }

    /// A turn above what is counted per cycle, or above the threshold.
    #[cold]
    #[inline(never)]
    fn long_turn(&self, now: u64, cycles: u64, gap: &mut u64) {
        // A counter that went backwards (a CPU that was not in step) is no gap of centuries.
        let cycles = if cycles > u64::MAX / 2 { 0 } else { cycles };
        match self.lane.cycles.get(cycles as usize) {
            Some(bucket) => add(bucket, 1),
            None => {
                self.lane.count_nanos(self.calibration.nanos(Cycles(cycles)).0);
            }
        }
        if cycles >= self.threshold {
            add(self.lane.gaps(), 1);
            add(self.lane.lost_cycles(), cycles);
            self.lane.push(RingRecord { at: now, value: cycles, sample: *gap });
            *gap += 1;
        }
    }
}
