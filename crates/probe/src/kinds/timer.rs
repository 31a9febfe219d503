//! The timer probe's thread: sleep until the next period, look at the clock, count how late it is.
//!
//! It measures the time from the requested wake-up to the first instruction after the sleep, with timer interrupt, wake-up
//! and context switch. It does not measure the time in which whole periods were missed: these are counted as overruns, and
//! the correction for them is made afterwards.

use super::{Kind, Place, Resolve, Station};
use crate::child::recorder::Recorder;
use crate::child::{Failure, Team, Usage, Worker, end_of};
use crate::error::ProbeError;
use serde::{Deserialize, Serialize};
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering::Relaxed;
use whylate_core::plan::{TimerMethod, TimerPlan};
use whylate_core::{MonoTime, Nanos};
use whylate_sys::clock;
use whylate_sys::posix_timer::PosixTimer;
use whylate_sys::timer_file;

/// The timer probe on this machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TimerSpec {
    pub interval: Nanos,
    /// How much later each further CPU begins.
    pub distance: Nanos,
    pub method: TimerMethod,
    /// A latency above it stops everything.
    pub break_above: Option<Nanos>,
}

impl Resolve<TimerPlan> for TimerSpec {
    fn resolve(plan: &TimerPlan, place: &mut Place<'_>) -> Result<Self, ProbeError> {
        (place.samples, place.hold_cpu_dma_latency) = (plan.samples, plan.hold_cpu_dma_latency);
        let TimerPlan { interval, distance, method, break_above, .. } = *plan;
        Ok(Self { interval, distance, method, break_above })
    }
}

impl Kind for TimerSpec {
    fn name(&self) -> &'static str {
        "timer"
    }

    fn period(&self) -> Option<Nanos> {
        Some(self.interval)
    }

    fn break_above(&self) -> Option<Nanos> {
        self.break_above
    }

    fn worker<'a>(&self, station: &Station<'a>) -> Option<Box<dyn Worker + 'a>> {
        let (spec, lane) = (station.team.spec, *station.lanes.first()?);
        Some(Box::new(Timer {
            recorder: Recorder::new(lane, station.team.header, self.break_above, spec),
            interval: self.interval,
            offset: Nanos(self.distance.0 * station.index as u64),
            method: self.method,
            warmup: spec.warmup,
            duration: spec.duration,
        }))
    }
}

trait Wake {
    /// Returns at `next` or later: one system call.
    fn wait_until(&mut self, next: MonoTime);
}

struct Sleep;
impl Wake for Sleep {
    #[inline(always)]
    fn wait_until(&mut self, next: MonoTime) {
        clock::sleep_until(next);
    }
}

struct TimerFile(OwnedFd);
impl Wake for TimerFile {
    #[inline(always)]
    fn wait_until(&mut self, _: MonoTime) {
        timer_file::wait(&self.0);
    }
}

impl Wake for PosixTimer {
    #[inline(always)]
    fn wait_until(&mut self, _: MonoTime) {
        self.wait();
    }
}

/// Everything the thread needs while it measures.
struct Timer<'a> {
    recorder: Recorder<'a>,
    interval: Nanos,
    /// How much later this CPU's periods begin than the common start.
    offset: Nanos,
    method: TimerMethod,
    warmup: Nanos,
    duration: Nanos,
}

impl Worker for Timer<'_> {
    /// Measures from `start` on; the warm-up lies before it.
    fn measure(&mut self, _: &Team<'_>, start: MonoTime) -> Result<(), Failure> {
        let start = MonoTime(start.0 + self.offset.0);
        let warm_periods = self.warmup.0 / self.interval.0;
        let first = MonoTime(start.0 - warm_periods * self.interval.0);
        match self.method {
            TimerMethod::Nanosleep => self.both(&mut Sleep, first, start),
            TimerMethod::Timerfd => {
                let timer =
                    timer_file::start(first, self.interval).map_err(|error| format!("timerfd: {error}"))?;
                self.both(&mut TimerFile(timer), first, start);
            }
            TimerMethod::PosixTimer => {
                let mut timer = PosixTimer::start(first, self.interval)
                    .map_err(|error| format!("POSIX timer: {error}"))?;
                self.both(&mut timer, first, start);
            }
        }
        Ok(())
    }
}

impl Timer<'_> {
    fn both<W: Wake>(&mut self, wake: &mut W, first: MonoTime, start: MonoTime) {
        let next = self.periods::<W, false>(wake, first, start, 0);
        let usage = Usage::begin();
        self.recorder.lane.begin().store(start.0, Relaxed);
        let late = next.0.saturating_sub(start.0) / self.interval.0;
        if late == 0 || !self.begin_late(start, late) {
            self.periods::<W, true>(wake, next, end_of(start, self.duration), late);
        }
        self.recorder.lane.end().store(clock::now().0, Relaxed);
        usage.end(&self.recorder.lane);
    }

    /// Counts how late the last wake-up of the warm-up was after `start`, when the measured periods begin; `periods` of them
    /// have passed. Returns whether that ends the measurement.
    fn begin_late(&mut self, start: MonoTime, periods: u64) -> bool {
        let now = clock::now().0;
        self.recorder.miss(periods - 1);
        self.recorder.count(now, now - start.0, 0)
    }

    /// Runs the periods that begin before `end`; the first has that number. Returns the start of the next one.
    #[inline(never)]
    fn periods<W: Wake, const COUNTED: bool>(
        &mut self,
        wake: &mut W,
        first: MonoTime,
        end: MonoTime,
        mut period: u64,
    ) -> MonoTime {
        let interval = self.interval.0;
        let mut next = first.0;
        while next < end.0 {
            wake.wait_until(MonoTime(next));
            let now = clock::now().0;
            if now < next {
                // A signal, or an expiry of a periodic timer that was counted as missed already.
                continue;
            }
            let latency = now - next;
            if COUNTED && self.recorder.count(now, latency, period) {
                break;
            }
            next += interval;
            period += 1;
            if next <= now {
                let missed = (now - next) / interval + 1;
                next += missed * interval;
                period += missed;
                if COUNTED {
                    self.recorder.miss(missed);
                }
            }
            if self.recorder.is_stopped() {
                break;
            }
        }
        MonoTime(next)
    }
}
