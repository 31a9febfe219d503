//! The stall probe's thread: reads the time-stamp counter without pause and records every gap.
//!
//! Each turn is counted, per cycle below 1024 cycles and in nanoseconds above; a turn at least as long as the threshold is a
//! gap and also goes into the ring. The loop cannot tell what caused a gap. The time to record a gap is visible as part of
//! the next turn.

use super::{CALIBRATION, Kind, Place, Resolve, Station};
use crate::child::recorder::BreakOff;
use crate::child::{Failure, Team, Usage, Worker, end_of};
use crate::error::ProbeError;
use crate::layout::{CYCLE_BUCKETS, Header, Lane, RingRecord, add};
use serde::{Deserialize, Serialize};
use std::sync::atomic::Ordering::Relaxed;
use whylate_core::plan::{Policy, StallPlan, Threshold};
use whylate_core::{Cycles, MonoTime, Nanos, Warning, WarningCode};
use whylate_sys::clock;
use whylate_sys::counter::{Calibration, Counter, CounterKind, Hardware, KernelClock};

/// How often the loop checks whether to end.
const CHECK_EVERY: Nanos = Nanos::from_micros(200);

/// The stall probe on this machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StallSpec {
    pub hardware_counter: bool,
    /// Nanoseconds per tick of that counter, times 2^32.
    pub multiplier: u64,
    /// Gaps at least this long are recorded one by one, in ticks.
    pub threshold_cycles: u64,
    /// A gap above it stops everything.
    pub break_above: Option<Nanos>,
    /// Size of the buffer that each turn also reads a line of; 0 is none.
    pub working_set_bytes: u64,
}

impl Resolve<StallPlan> for StallSpec {
    fn resolve(plan: &StallPlan, place: &mut Place<'_>) -> Result<Self, ProbeError> {
        place.hold_cpu_dma_latency = plan.hold_cpu_dma_latency;
        let counter = CounterKind::select(place.facts);
        if counter == CounterKind::KernelClock {
            place.warnings.push(Warning::new(
                WarningCode::NoInvariantCounter,
                "the time-stamp counter does not run at a constant rate here: the stall probe reads \
                 CLOCK_MONOTONIC_RAW instead, which makes its loop slower",
            ));
        }
        let calibration = counter.calibrate(CALIBRATION);
        let threshold_cycles = match plan.threshold {
            Threshold::Time(nanos) => calibration.cycles(nanos).0,
            Threshold::Cycles(cycles) => cycles.0,
        };
        let mut working_set_bytes = 0;
        if let Some(size) = &plan.working_set {
            for cpu in place.cpus.iter() {
                if let Some(cpu_facts) = place.facts.cpu(cpu) {
                    working_set_bytes = working_set_bytes.max(size.resolve(cpu_facts)?.0);
                }
            }
        }
        place.policy = policy(plan.policy, place)?;
        Ok(Self {
            hardware_counter: counter == CounterKind::Hardware,
            multiplier: calibration.multiplier,
            threshold_cycles: threshold_cycles.max(1),
            break_above: plan.break_above,
            working_set_bytes,
        })
    }
}

/// A loop that never sleeps must not take the last CPU at real-time priority.
fn policy(policy: Policy, place: &mut Place<'_>) -> Result<Policy, ProbeError> {
    let context = place.facts.cpu_context();
    if policy == Policy::Other || !context.housekeeping().difference(place.cpus).is_empty() {
        return Ok(policy);
    }
    if context.online.len() > 1 {
        return Err(ProbeError::NoHousekeepingCpu { cpus: place.cpus.clone() });
    }
    place.warnings.push(Warning::new(
        WarningCode::StallWithoutPriority,
        "there is only one CPU: the stall probe runs as SCHED_OTHER, and the run time of other tasks shows as gaps",
    ));
    Ok(Policy::Other)
}

impl Kind for StallSpec {
    fn name(&self) -> &'static str {
        "stall"
    }

    fn break_above(&self) -> Option<Nanos> {
        self.break_above
    }

    fn spike_counter(&self) -> Option<(CounterKind, Calibration)> {
        let counter = if self.hardware_counter { CounterKind::Hardware } else { CounterKind::KernelClock };
        Some((counter, Calibration::of_multiplier(self.multiplier)))
    }

    fn worker<'a>(&self, station: &Station<'a>) -> Option<Box<dyn Worker + 'a>> {
        let spec = station.team.spec;
        Some(Box::new(Stall {
            lane: *station.lanes.first()?,
            header: station.team.header,
            hardware_counter: self.hardware_counter,
            calibration: Calibration::of_multiplier(self.multiplier),
            threshold: self.threshold_cycles,
            break_off: BreakOff::new(station.team.header, self.break_above, spec),
            warmup: spec.warmup,
            duration: spec.duration,
            // Filled with ones, so that every page is present before the loop begins.
            working_set: vec![[1; 8]; (self.working_set_bytes / 64) as usize],
        }))
    }
}

impl Worker for Stall<'_> {
    fn measure(&mut self, _: &Team<'_>, start: MonoTime) -> Result<(), Failure> {
        if self.hardware_counter {
            self.measure_with::<Hardware>(start);
        } else {
            self.measure_with::<KernelClock>(start);
        }
        Ok(())
    }
}

/// Everything the thread needs while it measures.
struct Stall<'a> {
    lane: Lane<'a>,
    header: Header<'a>,
    hardware_counter: bool,
    calibration: Calibration,
    threshold: u64,
    break_off: BreakOff<'a>,
    warmup: Nanos,
    duration: Nanos,
    /// One cache line each; empty without a working set.
    working_set: Vec<[u64; 8]>,
}

impl Stall<'_> {
    /// Measures from `start` on; the warm-up lies before it.
    fn measure_with<C: Counter>(&mut self, start: MonoTime) {
        clock::sleep_until(MonoTime(start.0 - self.warmup.0));
        self.dispatch::<C, false>(start);
        let usage = Usage::begin();
        self.lane.begin().store(C::now().0, Relaxed);
        self.dispatch::<C, true>(end_of(start, self.duration));
        self.lane.end().store(C::now().0, Relaxed);
        usage.end(&self.lane);
    }

    fn dispatch<C: Counter, const COUNTED: bool>(&mut self, end: MonoTime) {
        if self.working_set.is_empty() {
            self.turns::<C, COUNTED, false>(end);
        } else {
            self.turns::<C, COUNTED, true>(end);
        }
    }

    #[inline(never)]
    fn turns<C: Counter, const COUNTED: bool, const WALK: bool>(&mut self, end: MonoTime) {
        let check_every = self.calibration.cycles(CHECK_EVERY).0;
        let end = C::now().0 + self.calibration.cycles(Nanos(end.0.saturating_sub(clock::now().0))).0;
        let break_at = self.calibration.cycles(Nanos(self.break_off.above_ns)).0;
        let short = self.threshold.min(break_at).min(CYCLE_BUCKETS as u64);
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
                add(self.lane.alive(), 1);
                if now >= end || self.header.stop().load(Relaxed) != 0 {
                    break;
                }
            }
        }
    }

    /// A turn above what is counted per cycle, or above the threshold.
    #[cold]
    #[inline(never)]
    fn long_turn(&mut self, now: u64, cycles: u64, gap: &mut u64) {
        // A counter that went backwards (CPUs out of sync) must not show as a huge gap.
        let cycles = if cycles > u64::MAX / 2 { 0 } else { cycles };
        let nanos = self.calibration.nanos(Cycles(cycles)).0;
        match self.lane.cycles.get(cycles as usize) {
            Some(bucket) => add(bucket, 1),
            None => {
                self.lane.count_nanos(nanos);
            }
        }
        let is_broken = self.break_off.is_above(nanos);
        if is_broken {
            self.break_off.mark(nanos);
        }
        if cycles >= self.threshold || is_broken {
            add(self.lane.gaps(), 1);
            add(self.lane.lost_cycles(), cycles);
            self.lane.push(RingRecord { at: now, value: cycles, sample: *gap });
            *gap += 1;
        }
        if is_broken {
            self.break_off.now(nanos);
        }
    }
}
